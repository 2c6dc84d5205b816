"""Bandwidth of single drives, each number with the proof that fio read that drive, all of it, and nothing else did."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from rackproof.bench.drives.listing import (
    ListedDrive,
    counted,
    covers,
    drives_in,
    state_command,
    usable,
)
from rackproof.bench.drives.osd_reader import WRITE, read_osd
from rackproof.bench.reading import Read, Reading, reader
from rackproof.bench.storage.proof import check_options, check_result
from rackproof.core.architecture import Architecture, DriveProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.failure import failure
from rackproof.core.fiojob import options_of
from rackproof.core.metrics import DRIVE
from rackproof.parse import ParseError, fio
from rackproof.parse.drive_state import parse_drive_state, split_fio, split_state
from rackproof.remote.command import CommandResult

READ: Final = "drive.read_bandwidth"
BUSY: Final = 0.05
"""Maximum share of fio's bytes that others may move on the drive meanwhile."""
_FIO: Final = re.compile(r"^fio --readonly .*$", re.MULTILINE)
_SIZES: Final = {"bs": "block_bytes", "iodepth": "iodepth", "runtime": "runtime_s"}


def fio_line(devices: Sequence[str], profile: DriveProfile) -> str:
    """fio's command line. It opens devices read-only, and makes no file where a device is gone."""
    options = {
        "name": "drive", "filename": ":".join(f"/dev/{device}" for device in devices), "ioengine": "libaio",
        "direct": 1, "thread": 1, "invalidate": 0, "rw": "read", "bs": profile.block_bytes,
        "iodepth": profile.iodepth, "time_based": 1, "runtime": profile.runtime_s,
    }  # fmt: skip
    words = ["fio", "--readonly", "--eta=never", "--output-format=json"]
    return shlex.join([*words, *(f"--{key}={value}" for key, value in options.items()), "--allow_file_create=0"])


def read_command(listed: ListedDrive, profile: DriveProfile) -> str:
    """Command that reads one drive, with its state before and after."""
    state = state_command(listed.watched)
    return f'{state}\n{fio_line(listed.devices, profile)}\necho "-- fio $?"\n{state}'


@reader("drives-proven")
def read_drives(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per run. Of a node: its drive with the lowest median."""
    drives_of = drives_in(answers, architecture)

    def of_drive(measurement: Measurement, name: str) -> Reading:
        labels = measurement.labels
        listed = usable(drives_of(name.partition("/")[0], labels["use"]), name)
        if measurement.metric == WRITE:
            reading = read_osd(answers, labels, listed, drives_of)
        else:
            reading = _read(answers, labels, listed)
        return reading._replace(conditions={**listed.conditions(), **reading.conditions})

    def read(measurement: Measurement) -> Reading:
        (member,) = measurement.members
        if measurement.scope is Scope.DRIVE:
            return of_drive(measurement, member)
        names = drives_of(member, measurement.labels["use"])
        return _slowest({name: of_drive(measurement, name) for name in names})

    return read


def _slowest(readings: Mapping[str, Reading]) -> Reading:
    """The drive with the lowest median; the sources of all drives are its sources."""
    name = min(readings, key=lambda drive: median(readings[drive].samples))
    slowest = readings[name]
    used = dict.fromkeys(answer for reading in readings.values() for answer in reading.used)
    conditions: dict[str, Any] = {**slowest.conditions, DRIVE: f"{name}: {slowest.conditions[DRIVE]}"}
    return slowest._replace(used=tuple(used), conditions=conditions)


def _read(answers: Sequence[CommandResult], labels: Mapping[str, str], listed: ListedDrive) -> Reading:
    node, files = listed.name.partition("/")[0], ":".join(f"/dev/{device}" for device in listed.devices)
    runs = [
        (answer, job)
        for answer in answers
        if answer.node == node and (job := _job(answer.command)).get("filename") == files
    ]
    if not runs:
        raise ParseError("fio", f"{listed.name}: no run on {files}")
    proven = [_proven(answer, job, labels, listed) for answer, job in runs]
    job = runs[-1][1]
    others = max(other / moved for _, moved, _, other in proven)
    conditions = {
        "workload": {name: int(job[option]) for option, name in _SIZES.items()},
        "cache": "none: direct reads of the block device",
        "bytes": f"by the drive; others moved {100 * others:.1f} % as much",
    }
    companions = {
        "application_bytes": tuple(float(moved) for _, moved, _, _ in proven),
        "counter_bytes": tuple(float(count) for _, _, count, _ in proven),
    }
    return Reading(tuple(rate for rate, _, _, _ in proven), tuple(answer for answer, _ in runs), conditions, companions)


def _proven(
    answer: CommandResult, job: Mapping[str, str], labels: Mapping[str, str], listed: ListedDrive
) -> tuple[float, int, int, int]:
    """MB/s, fio's bytes, bytes read by the drive's counter, and bytes that others moved. Raises ParseError."""
    if not answer.ok:
        raise ParseError("fio", f"{listed.name} ({listed.identity}): {answer.why}")
    before, rest = split_state(answer.text)
    if (ended := split_fio(rest)) is None:
        raise ParseError("fio", f"{listed.name}: its answer is cut off")
    document, status, after = ended
    errors = answer.stderr.decode(errors="replace")
    if status:
        why = failure("fio", status, errors, document)
        raise ParseError("fio", f"{listed.name} ({listed.identity}): {why}")
    if messages := [*fio.complaints(document), *fio.complaints(errors)]:
        raise ParseError("fio", f"{listed.name} ({listed.identity}): it also printed: {messages[0].text}")
    jobs = fio.parse_fio(document).jobs
    if len(jobs) != 1 or jobs[0].error:
        raise ParseError("fio", f"{listed.name}: expected one job without error, actual {jobs[0].error or len(jobs)}")
    expected = {"rw": "read", "direct": "1", "invalidate": "0", "bs": labels["block_bytes"]}
    if strange := [f"{key}={job.get(key)}" for key, value in expected.items() if job.get(key) != value]:
        raise ParseError("fio", f"{listed.name}: its command asks for {', '.join(strange)}")
    check_options(jobs[0], job)
    moved = check_result(jobs[0], job)
    read, written = counted(listed, parse_drive_state(before), parse_drive_state(after))
    covers(read, moved.io_bytes, "fio", "read")
    others = max(0, read - moved.io_bytes) + written
    if others > BUSY * moved.io_bytes:
        raise ParseError("drives", f"{listed.name} ({listed.identity}) is busy: others moved {others} B meanwhile")
    return moved.bandwidth_bytes_per_s / 1e6, moved.io_bytes, read, others


def _job(command: str) -> dict[str, str]:
    """Options of the job in a command's line of fio; none for another command."""
    line = _FIO.search(command)
    return options_of(shlex.split(line[0])) if line else {}
