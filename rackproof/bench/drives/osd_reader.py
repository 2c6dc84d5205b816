"""Write bandwidth of Ceph OSDs by their own benchmark, proven by the counters of the drives that carry them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rackproof.bench.drives.listing import (
    DrivesOf,
    ListedDrive,
    counted,
    covers,
    host_in,
    is_listing,
    state_command,
)
from rackproof.bench.reading import Reading
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.ceph import Osd, parse_osd_bench, parse_osds
from rackproof.parse.drive_state import DriveState, parse_drive_state
from rackproof.remote.command import CommandResult

WRITE: Final = "drive.osd_write_bandwidth"
BUSY: Final = 2.0
"""Largest multiple of the OSD's bytes that its drive may write meanwhile: the store's own records add to them."""
_BENCH: Final = re.compile(r"\bceph .*\btell osd\.(\d+) bench (\d+) (\d+) ")
_OSDS: Final = "osd metadata"
_CEPH: Final = "$(command -v ceph >/dev/null || echo cephadm shell --) ceph"
"""On hosts of cephadm the program may be in its containers only."""


def osds_command(limit_s: float) -> str:
    """Command that prints all OSDs of the cluster and where they are. The time tells two equal answers apart."""
    ceph = f"{_CEPH} --connect-timeout {limit_s:g}"
    return f"{ceph} osd dump -f json && {ceph} {_OSDS} -f json && date +%s.%N"


def bench_command(osd: int, size: int, block: int, limit_s: float) -> str:
    return f"{_CEPH} --connect-timeout {limit_s:g} tell osd.{osd} bench {size} {block} -f json"


def osds_in(answers: Sequence[CommandResult]) -> tuple[Osd, ...]:
    """OSDs of the cluster. Raises ParseError."""
    listed = [answer for answer in answers if _OSDS in answer.command]
    if not listed or not listed[-1].ok:
        raise ParseError("ceph", listed[-1].why if listed else "its OSDs were not listed")
    return parse_osds(listed[-1].stdout)


def placed(answers: Sequence[CommandResult], use: str, drives_of: DrivesOf) -> dict[str, list[Osd]]:
    """OSDs by drive. Raises ParseError for an OSD that is on no declared drive of the use: nothing would judge it.

    Those of servers whose drives were not listed are left out: these drives have no number.
    """
    listings = [answer for answer in answers if is_listing(answer.command)]
    hosts = {_short(host_in(listing)): listing.node for listing in listings if listing.ok}
    silent = {listing.node for listing in listings} - set(hosts.values())
    drives = {
        (host, device): listed.name
        for host, node in hosts.items()
        for listed in drives_of(node, use).values()
        if listed is not None
        for device in listed.devices
    }
    osds: dict[str, list[Osd]] = {}
    every = osds_in(answers)
    elsewhere = {_short(osd.host) for osd in every if osd.host} - hosts.keys()
    for osd in every:
        if osd.host and _short(osd.host) in elsewhere and len(elsewhere) <= len(silent):
            continue
        names = {drives.get((_short(osd.host), device), "") for device in osd.devices} or {""}
        if len(names) != 1 or "" in names:
            where = f"{', '.join(osd.devices) or 'an unknown device'} of {osd.host or 'an unknown host'}"
            raise ParseError("ceph", f"osd.{osd.number} is on {where}, which is no listed {use} drive")
        osds.setdefault(names.pop(), []).append(osd)
    return osds


def osds_on(answers: Sequence[CommandResult], node: str) -> str:
    """Names of a node's OSDs as the cluster knows them, after a colon; empty without any. Raises ParseError."""
    names = [f"osd.{osd.number}" for osd in osds_in(answers) if _short(osd.host) == _short(node)]
    return f": {', '.join(names)}" if names else ""


def _short(host: str) -> str:
    return host.partition(".")[0]


def read_osd(
    answers: Sequence[CommandResult],
    labels: Mapping[str, str],
    listed: ListedDrive,
    drives_of: DrivesOf,
) -> Reading:
    """One sample per run: of several OSDs on the drive the slowest. Raises ParseError."""
    own = placed(answers, labels["use"], drives_of).get(listed.name, [])
    if not own:
        raise ParseError("ceph", f"{listed.name} ({listed.identity}): no OSD of the cluster is on it")
    if down := [osd.number for osd in own if not osd.up]:
        raise ParseError("ceph", f"osd.{down[0]} on {listed.name} ({listed.identity}) is down")
    rates: list[list[float]] = []
    used: list[CommandResult] = []
    sizes: set[tuple[int, int]] = set()
    for osd in own:
        runs = list(_runs(answers, osd.number, listed))
        if not runs:
            raise ParseError("ceph", f"osd.{osd.number} on {listed.name} ({listed.identity}) was not measured")
        rates.append([_proven(osd.number, run, labels, listed) for run in runs])
        used += [answer for run in runs for answer in run]
        sizes |= {_asked(run[1].command)[1:] for run in runs}
    if len(sizes) != 1 or len({len(of_osd) for of_osd in rates}) != 1:
        raise ParseError("ceph", f"{listed.name}: its OSDs have runs of different sizes or numbers")
    size, block = sizes.pop()
    conditions = {
        "osds": [f"osd.{osd.number}" for osd in own],
        "workload": {"bytes": size, "block_bytes": block},
        "bytes": "by the drive",
    }
    return Reading(tuple(min(run) for run in zip(*rates, strict=True)), tuple(used), conditions)


_Run = tuple[CommandResult, CommandResult, CommandResult]


def _runs(answers: Sequence[CommandResult], osd: int, listed: ListedDrive) -> Iterator[_Run]:
    """State of the drive, benchmark, state of the drive. Raises ParseError where a state is missing."""
    node, command = listed.name.partition("/")[0], state_command(listed.watched)
    relevant = [
        answer
        for answer in answers
        if (answer.node == node and answer.command == command) or _asked(answer.command)[0] == osd
    ]
    for at, answer in enumerate(relevant):
        if answer.command == command:
            continue
        around = (*relevant[max(0, at - 1) : at], *relevant[at + 1 : at + 2])
        if len(around) != 2 or any(state.command != command for state in around):
            raise ParseError("ceph", f"osd.{osd}: the counters of {listed.name} were not read before and after it")
        yield around[0], answer, around[1]


def _asked(command: str) -> tuple[int, int, int]:
    """OSD, bytes and bytes of a block that a command asks for; -1 for another command."""
    match = _BENCH.search(f"{command} ")
    return (int(match[1]), int(match[2]), int(match[3])) if match else (-1, 0, 0)


def _proven(osd: int, run: _Run, labels: Mapping[str, str], listed: ListedDrive) -> float:
    """MB/s. Raises ParseError."""
    where = f"osd.{osd} on {listed.name} ({listed.identity})"
    begin, bench, end = run
    for answer in run:
        if not answer.ok:
            raise ParseError("ceph", f"{where}: {answer.why}")
    result = parse_osd_bench(bench.stdout)
    _, size, block = _asked(bench.command)
    if (result.bytes, result.block_bytes) != (size, block) or str(block) != labels["block_bytes"]:
        raise Mismatch(
            "ceph",
            f"{where}: expected {size} B in blocks of {block} B, actual {result.bytes} B in {result.block_bytes} B",
        )
    states: list[DriveState] = [parse_drive_state(answer.stdout) for answer in (begin, end)]
    _, written = counted(listed, *states)
    covers(written, size, where, "wrote")
    if written > BUSY * size:
        raise ParseError("drives", f"{where}: the drive is busy: it wrote {written} B, the OSD {size} B")
    return result.bytes_per_s / 1e6
