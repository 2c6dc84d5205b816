"""Samples of collectives on a node and in its guest, with proof that both are of the same GPUs and of the same kind.

The figures themselves are read and proven as those of any node (``collectives.reader``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rackproof.bench.collectives.command import launcher_of, requested_by
from rackproof.bench.collectives.guest_commands import inside_of, is_off, is_side
from rackproof.bench.collectives.reader import BUSBW, WRONG, read_collectives
from rackproof.bench.reading import Read, Reading, reader
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement
from rackproof.core.starvation import conditions_of, starved
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.guest import SHUT_OFF, TOOL, Side, parse_off, parse_side
from rackproof.remote.command import CommandResult

GUEST, HOST = "guest.collective_busbw", "guest.host_collective_busbw"
GUEST_WRONG, HOST_WRONG = "guest.collective_wrong_values", "guest.host_collective_wrong_values"
SIDES: Final = {HOST: HOST, HOST_WRONG: HOST, GUEST: GUEST, GUEST_WRONG: GUEST}
"""Metrics of a node and of its guest, with the bandwidth of the same runs."""
COUNTS: Final = (HOST_WRONG, GUEST_WRONG)


@dataclass(frozen=True, slots=True)
class Half:
    """All answers of one side, node or guest, in order: a state, runs and their readings, a state."""

    name: str
    answers: tuple[CommandResult, ...]

    @property
    def runs(self) -> list[CommandResult]:
        return [answer for answer in self.answers if launcher_of(answer.command)]

    def sides(self) -> tuple[Side, Side]:
        """States before and after the runs. Raises ParseError."""
        places = [at for at, answer in enumerate(self.answers) if is_side(answer.command)]
        runs = [at for at, answer in enumerate(self.answers) if launcher_of(answer.command)]
        if len(places) != 2 or not runs or not places[0] < runs[0] <= runs[-1] < places[1]:
            raise ParseError(TOOL, f"the runs on {self.name} are not between two readings of its state")
        before, after = (side_of(self.answers[at]) for at in places)
        return before, after


def side_of(answer: CommandResult) -> Side:
    """Raises ParseError."""
    if not answer.ok:
        raise ParseError(TOOL, answer.why)
    return parse_side(answer.stdout)


def how_off(answer: CommandResult) -> str:
    """How the domain ended. Raises ParseError."""
    if not answer.ok:
        raise ParseError(TOOL, answer.why)
    return parse_off(answer.stdout)


@reader("guests-proven")
def read_guests(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per launch on either side. Wrong values count without proof of a comparison."""
    hosts: dict[str, list[CommandResult]] = {}
    guests: dict[str, list[CommandResult]] = {}
    for answer in answers:
        command = inside_of(answer.command)
        own = hosts if command is None else guests
        own.setdefault(answer.node, []).append(answer if command is None else replace(answer, command=command))
    reads = {
        kind: read_collectives([answer for own in side.values() for answer in own], architecture)
        for kind, side in ((HOST, hosts), (GUEST, guests))
    }

    def read(measurement: Measurement) -> Reading:
        (node,) = measurement.members
        side = SIDES[measurement.metric]
        if measurement.metric in COUNTS and any((wrong := _counts(reads[side], measurement)).samples):
            return wrong  # no matter what happened on the other side, or afterwards
        host = Half(node, tuple(hosts.get(node, ())))
        guest = Half(f"the guest of {node}", tuple(guests.get(node, ())))
        conditions = _proven(host, guest, architecture)
        readings = {kind: _figures(read_side, measurement) for kind, read_side in reads.items()}
        versions = {kind: reading.conditions.get("nccl") for kind, reading in readings.items()}
        if versions[HOST] != versions[GUEST]:
            raise Mismatch(
                "NCCL", f"expected {versions[HOST]} in {guest.name} as on the node, actual {versions[GUEST]}"
            )
        own = _counts(reads[side], measurement) if measurement.metric in COUNTS else readings[side]
        states = [answer for answer in (*host.answers, *guest.answers) if is_side(answer.command)]
        ends = [answer for answer in host.answers if is_off(answer.command)]
        return Reading(own.samples, (*own.used, *states, *ends), {**own.conditions, **conditions})

    return read


def _figures(read: Read, measurement: Measurement) -> Reading:
    """Bandwidths of one side. Raises ParseError; a result with wrong values has none."""
    wrong = _counts(read, measurement)
    if any(wrong.samples):
        raise Mismatch(str(measurement.labels["engine"]), f"{max(wrong.samples):.0f} wrong values in the result")
    return read(measurement.model_copy(update={"metric": BUSBW}))


def _counts(read: Read, measurement: Measurement) -> Reading:
    """Wrong values of one side. Raises ParseError."""
    return read(measurement.model_copy(update={"metric": WRONG}))


def _proven(host: Half, guest: Half, architecture: Architecture) -> Mapping[str, Any]:
    """Conditions of a valid comparison. Raises ParseError."""
    on_host, in_guest = host.sides(), guest.sides()
    gpus = {gpu.uuid for gpu in on_host[0].gpus}
    for side in on_host:
        check_host(side, architecture)
    for side in in_guest:
        check_guest(side, on_host[0], guest.name)
    for half, (before, after) in ((host, on_host), (guest, in_guest)):
        if {gpu.uuid for gpu in after.gpus} != gpus:
            raise Mismatch(TOOL, f"expected the {len(gpus)} GPUs of {host.name} on {half.name} after its runs")
        if before.state.boot_id != after.state.boot_id:
            raise Mismatch(TOOL, f"{half.name} has restarted during its runs")
        if cause := starved(conditions_of({half.name: before.state}, {half.name: after.state}, [half.name])):
            raise Mismatch(TOOL, cause)
    commands = {half.name: [run.command for run in half.runs] for half in (host, guest)}
    if commands[host.name] != commands[guest.name]:
        raise Mismatch(TOOL, f"expected the same runs on {host.name} and in its guest")
    if other := {ranks for run in host.runs if (ranks := requested_by(run.command).ranks) != len(gpus)}:
        raise Mismatch(TOOL, f"expected {len(gpus)} ranks, one for each GPU, actual {min(other)}")
    ends = [answer for answer in host.answers if is_off(answer.command)]
    if len(ends) != 1:
        raise ParseError(TOOL, f"expected one end of the domain of {host.name}, actual {len(ends)}")
    return {"gpus": len(gpus), "virtualisation": in_guest[0].virtualisation, "domain_ended_by": how_off(ends[0])}


def check_host(side: Side, architecture: Architecture) -> None:
    """Checks that the node can give its GPUs to a guest. Raises Mismatch."""
    count = architecture.gpu.count if architecture.gpu is not None else None
    if side.domain is None or side.domain.state != SHUT_OFF:
        state = "unknown" if side.domain is None else side.domain.state
        raise Mismatch(TOOL, f"expected the domain {SHUT_OFF} during the node's own runs, actual {state}: shut it down")
    if len(side.gpus) < 2 or (count and len(side.gpus) != count):
        raise Mismatch(TOOL, f"expected {count or 'two or more'} GPUs on the node, actual {len(side.gpus)}")
    if missing := [gpu.bus_id for gpu in side.gpus if gpu.bus_id not in side.domain.given]:
        raise Mismatch(
            TOOL,
            f"the domain gets {len(side.gpus) - len(missing)} of the node's {len(side.gpus)} GPUs: add a hostdev with"
            f" managed='yes' for {missing[0]}",
        )


def check_guest(side: Side, host: Side, name: str) -> None:
    """Checks that this is the node's guest, with all of its GPUs. Raises Mismatch."""
    uuid = host.domain.uuid if host.domain is not None else ""
    if side.virtualisation == "none":
        raise Mismatch(
            "systemd-detect-virt", f"{name} is no virtual machine: what answers at its address is one itself"
        )
    if side.machine != uuid or side.state.boot_id == host.state.boot_id:
        raise Mismatch(TOOL, f"expected the domain {uuid} at the address of {name}, actual machine {side.machine}")
    expected, actual = ({gpu.uuid for gpu in one.gpus} for one in (host, side))
    if expected != actual:
        raise Mismatch(
            "nvidia-smi", f"expected the {len(expected)} GPUs of the node in {name}, actual {len(expected & actual)} of"
            f" them and {len(actual - expected)} others",
        )  # fmt: skip
