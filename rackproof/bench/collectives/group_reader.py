"""Group testing, read from the outputs of its jobs: which nodes it clears, which faults it names.

A job is an all-to-all over a set of nodes. It passes if its ports carried it, its results are right, and every node
sent at least the profile's rate to the others on each rail. The search is made again from the jobs' outputs: its
choices depend on nothing else. A job without a complete, proven output does not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from rackproof.bench.collectives.command import SSH, Requested, launcher_of, leads, requested_by
from rackproof.bench.collectives.nccl_used import ADAPTERS
from rackproof.bench.collectives.reader import proven_run
from rackproof.bench.collectives.refusal import is_asking, why_failed
from rackproof.bench.port_proof import LEAST_SHARE, counters_of, fabric_of, readings_of, received_on
from rackproof.bench.reading import Read, Reading, reader, with_preamble
from rackproof.core.architecture import Architecture
from rackproof.core.collective import least_received
from rackproof.core.evidence import Measurement
from rackproof.core.fault_search import locate
from rackproof.core.group_testing import FAULTS, TRANSPORTS, Fault, Job, Places, Result
from rackproof.core.wording import some
from rackproof.parse import ParseError, nccl_log, port_counters
from rackproof.remote.command import CommandResult, program

OP: Final = "alltoall"
"""Operation of all jobs: its traffic uses every pair of nodes."""
TOOL: Final = "group testing"
STEP: Final = "links/groups"
SETS: Final = "  # sets of nodes, at least "
"""Comment at the end of a job's command, before the least rate and all nodes of the search."""
STATES: Final = "states"
"""Kind of the answer that shows the nodes of a job to which Slurm gave none."""
PROVING: Final = ("", "nccl")
"""Backends whose jobs count: of torch only NCCL, which says what it used."""
OVER_GLOO: Final = "its jobs run over gloo, where nodes have no real GPUs: choose the engine mpi"
LEAST_ON_RAIL: Final = 0.5
"""Share of a rail's even part of the traffic that its port must have received, at least."""
_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class Plan:
    """Inputs of the search beside the jobs' answers, as every job's command states them."""

    places: Places
    least: float
    """GB/s that every node must send to others on each rail."""

    @property
    def comment(self) -> str:
        numbers = {name: number for number, unit in enumerate(self.places.units()) for name in unit}
        names = ",".join(f"{name}:{numbers[name]}" for name in self.places.names)
        return f"{SETS}{self.least!r} GB/s: {names}"


def plan_of(command: str, rails: int) -> Plan:
    """Read the comment of a job's command. Raises ParseError."""
    rate, _, listed = command.partition(SETS)[2].partition(" GB/s: ")
    entries = [entry.rpartition(":") for entry in listed.split(",")]
    names, units = tuple(name for name, _, _ in entries), {name: unit for name, _, unit in entries}
    try:
        least = float(rate)
    except ValueError:
        raise ParseError(TOOL, "its command names no rate") from None
    if not least > 0 or len(units) < 2 or len(units) != len(names) or not all(u.isdecimal() for u in units.values()):
        raise ParseError(TOOL, "its command names no sets of nodes")
    return Plan(Places(names, rails, racks=units if len(set(units.values())) > 1 else {}), least)


class Answered(Protocol):
    """A command's record, or its result."""

    @property
    def node(self) -> str: ...
    @property
    def command(self) -> str: ...
    @property
    def rc(self) -> int | None: ...


Answer = TypeVar("Answer", bound=Answered)


def is_part(command: str) -> bool:
    """Whether a command is a job's, or a reading beside it."""
    return SETS in command or is_asking(command) or _kind(command) is not None


class Launched(NamedTuple, Generic[Answer]):
    """A job's answer with the readings beside it."""

    answer: Answer
    beside: tuple[Answer, ...]
    complete: bool
    """Whether every node was read before and after it, and Slurm did not refuse it."""


def launches(answers: Iterable[Answer]) -> list[Launched[Answer]]:
    """Every launch with the readings before and after it.

    A node is in one job at a time: its last readings before a job's answer, and its first ones afterwards. A reading
    serves as the one after a job and as the one before the next.
    """
    latest: dict[str, dict[str, Answer]] = {}
    waiting: dict[str, int] = {}
    slices: list[tuple[Answer, dict[str, list[Answer]], dict[str, dict[str, Answer]]]] = []
    for answer in answers:
        kind = _kind(answer.command)
        if kind is not None:
            latest.setdefault(answer.node, {})[kind] = answer
            if (at := waiting.get(answer.node)) is not None:
                slices[at][2][answer.node].setdefault(kind, answer)
            continue
        if is_asking(answer.command) and (at := waiting.get(answer.node)) is not None:
            slices[at][2][answer.node].setdefault(STATES, answer)
        if SETS not in answer.command:
            continue
        if not leads(answer.command.partition(SETS)[0]):  # of a program that runs on every node of the job
            if (at := waiting.get(answer.node)) is not None:
                slices[at][2][answer.node][answer.command] = answer
            continue
        nodes = _hosts(answer.command)
        before = {node: list(latest.pop(node, {}).values()) for node in nodes}
        slices.append((answer, before, {node: {} for node in nodes}))
        waiting.update(dict.fromkeys(nodes, len(slices) - 1))
    return [_launched(*slice_) for slice_ in slices]


def _launched(answer: Answer, before: dict[str, list[Answer]], after: dict[str, dict[str, Answer]]) -> Launched[Answer]:
    followers = sum(SETS in kind for of_node in after.values() for kind in of_node)
    readings = {node: sum(SETS not in kind for kind in of_node) for node, of_node in after.items()}
    return Launched(
        answer,
        tuple(one for node in before for one in (*before[node], *after[node].values())),
        bool(before)
        and not any(STATES in of_node for of_node in after.values())
        and followers == _followers(answer.command)
        and all(before[node] and len(before[node]) == readings[node] for node in before),
    )


def _kind(command: str) -> str | None:
    """``counters`` or ``log`` of a reading; None for any other command."""
    return "counters" if command.startswith(port_counters.BEGINS) else "log" if nccl_log.MARK in command else None


def _followers(command: str) -> int:
    """Number of further nodes that run a command of the same job."""
    bare = command.partition(SETS)[0]
    return len(_hosts(command)) - 1 if launcher_of(bare) == SSH else 0


def _hosts(command: str) -> tuple[str, ...]:
    try:
        return requested_by(command.partition(SETS)[0]).hosts
    except ParseError:
        return ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """One launch. ``rate``: GB/s of a node on a rail; None if the launch gave no proven figure."""

    answer: CommandResult
    beside: tuple[CommandResult, ...]
    passed: bool
    rate: float | None = None
    wrong: int | None = None
    why: str = ""
    """Why the launch gave no figure."""
    network: str | None = None
    """Network that NCCL's log names; None without NCCL."""

    @property
    def refuted(self) -> bool:
        """Whether a proven figure shows a fault."""
        return not self.passed and self.rate is not None


def job_of(command: str, architecture: Architecture) -> Job:
    """Nodes and rails of a launch, from its command line. Raises ParseError."""
    requested = requested_by(command.partition(SETS)[0])
    return Job(frozenset(requested.hosts), _rails(requested, architecture))


def _rails(requested: Requested, architecture: Architecture) -> frozenset[int]:
    fabric = fabric_of(architecture, TOOL)
    all_rails = range(fabric.rails)
    if requested.interface is not None:
        rails = frozenset(rail for rail in all_rails if requested.interface == f"{fabric.interface_prefix}{rail}")
    elif ADAPTERS in requested.environment:
        names = requested.environment[ADAPTERS].removeprefix("=").split(",")
        rails = frozenset(rail for rail in all_rails if f"{fabric.rdma_prefix}{rail}" in names)
    else:
        rails = frozenset(all_rails)
    if not rails:
        raise ParseError(TOOL, "its command names no rail of the architecture")
    return rails


def outcome_of(
    answer: CommandResult, beside: Sequence[CommandResult], architecture: Architecture, least: float
) -> Outcome:
    """Judge one launch by its output and the readings beside it. ``least``: GB/s of a node on a rail."""
    beside = tuple(beside)
    bare = replace(answer, command=answer.command.partition(SETS)[0].rstrip())
    try:
        if not answer.ok:
            raise why_failed(answer, beside)
        requested = requested_by(bare.command)
        followers = [one for one in beside if SETS in one.command]
        if failed := [one for one in followers if not one.ok]:
            raise ParseError(program(failed[0].command), f"{failed[0].node}: {failed[0].why}")
        if len(followers) != _followers(answer.command):
            raise ParseError(TOOL, f"expected {_followers(answer.command)} further nodes, actual {len(followers)}")
        if (requested.backend or "") not in PROVING:
            raise ParseError(TOOL, OVER_GLOO)
        if requested.op != OP or len(requested.sizes) != 1 or len(requested.hosts) < 2:
            raise ParseError(TOOL, f"expected one size of {OP} over two nodes or more")
        run = proven_run(requested.engine, bare, [bare, *beside], architecture)
        if run.fault is not None:
            raise run.fault
        row = run.row(requested.sizes[0])
        if row.wrong is None:
            raise ParseError(program(answer.command), "the engine did not check the result")
        rails = _rails(requested, architecture)
        _carried(requested, row.bytes, rails, beside, architecture)
    except ParseError as error:
        return Outcome(answer, beside, False, why=str(error))
    per_node = requested.ranks_per_node
    rate = row.algbw * (requested.ranks - per_node) / requested.ranks * per_node / len(rails)
    network = run.conditions.get("network")
    return Outcome(answer, beside, rate >= least and row.wrong == 0, rate, row.wrong, network=network)


def _carried(
    requested: Requested, size: int, rails: frozenset[int], beside: Sequence[CommandResult], architecture: Architecture
) -> None:
    """Raises ParseError unless every rail of every node received its part."""
    fabric = fabric_of(architecture, TOOL)
    needed = requested.iterations * least_received(OP, size, len(requested.hosts), requested.ranks_per_node)
    for node in requested.hosts:
        before, after = (counters_of(one) for one in readings_of(one for one in beside if one.node == node))
        by_rail = {rail: received_on(before, after, fabric, [rail]) for rail in sorted(rails)}
        least = min(by_rail, key=lambda rail: by_rail[rail])
        share = LEAST_ON_RAIL * needed / len(rails)
        if by_rail[least] < share or sum(by_rail.values()) < LEAST_SHARE * needed:
            expected = f"expected rail {least} of {node} to have received {share:.0f} B"
            raise ParseError(TOOL, f"{expected}, its counters say {by_rail[least]}")


@dataclass
class Ledger:
    """Outcomes of launches, each of which answers one job of the search."""

    outcomes: dict[Job, list[Outcome]] = field(default_factory=dict)

    def add(self, answers: Iterable[CommandResult], architecture: Architecture, least: float) -> None:
        for answer, beside, _ in launches(answers):
            outcome = outcome_of(answer, beside, architecture, least)
            self.outcomes.setdefault(job_of(answer.command, architecture), []).append(outcome)

    def take(self, launch: Job) -> Outcome | None:
        waiting = self.outcomes.get(launch)
        return waiting.pop(0) if waiting else None


def parts_of(job: Job, one_rail: bool) -> list[Job]:
    """Launches of a job, in order: one a rail for an engine that is bound to one."""
    if one_rail:
        return [Job(job.nodes, frozenset({rail})) for rail in sorted(job.rails)]
    return [job]


RunJobs = Callable[[Sequence[Job]], Sequence[Sequence[Outcome]]]
"""Outcomes of each job's launches; a job without any, or with one that did not pass, does not pass."""


class Tried(NamedTuple):
    job: Job
    outcomes: tuple[Outcome, ...]
    passed: bool


@dataclass(frozen=True, slots=True)
class Searched:
    """A whole search with all of its jobs."""

    plan: Plan
    result: Result
    tried: tuple[Tried, ...]

    def of(self, node: str) -> list[Tried]:
        return [one for one in self.tried if node in one.job.nodes]


def search(plan: Plan, run: RunJobs, one_rail: bool) -> Searched:
    """Search the faults; ``run`` gives the outcomes of the jobs of a round."""
    tried: list[Tried] = []

    def passed(jobs: Sequence[Job]) -> list[bool]:
        for job, outcomes in zip(jobs, run(jobs), strict=True):
            tried.append(Tried(job, tuple(outcomes), has_passed(job, outcomes, one_rail)))
        return [one.passed for one in tried[len(tried) - len(jobs) :]]

    return Searched(plan, locate(plan.places, passed), tuple(tried))


def has_passed(job: Job, outcomes: Sequence[Outcome], one_rail: bool) -> bool:
    """Whether all launches of a job have an outcome, and each has passed."""
    return len(outcomes) == len(parts_of(job, one_rail)) and all(one.passed for one in outcomes)


def take_all(ledger: Ledger, parts: Iterable[Job]) -> Iterator[Outcome]:
    """Outcomes of a job's launches, up to the first one that is missing or does not pass."""
    for part in parts:
        outcome = ledger.take(part)
        if outcome is None:
            return
        yield outcome
        if not outcome.passed:
            return


@reader("groups-proven")
@with_preamble
def read_groups(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """Number of named faults of a node; a node that is neither cleared nor shown to be faulty has no number."""
    searched: list[Searched] = []

    def read(measurement: Measurement) -> Reading:
        if not searched:
            searched.append(search_again(answers, architecture))
        return reading_of_node(searched[0], measurement)

    return read


def search_again(answers: Sequence[CommandResult], architecture: Architecture) -> Searched:
    """The search that these answers give. Raises ParseError."""
    commands = [answer.command for answer in answers if SETS in answer.command]
    rails = architecture.fabric.rails if architecture.fabric else 0
    plans = {command.partition(SETS)[2]: command for command in commands}
    if len(plans) != 1 or not rails:
        raise ParseError(TOOL, "no job ran" if not plans else "its jobs belong to several searches")
    plan = plan_of(commands[0], rails)
    one_rail = requested_by(commands[0].partition(SETS)[0]).engine == "mpi"
    ledger = Ledger()
    ledger.add(answers, architecture, plan.least)

    def run(jobs: Sequence[Job]) -> list[list[Outcome]]:
        return [list(take_all(ledger, parts_of(job, one_rail))) for job in jobs]

    return search(plan, run, one_rail)


def reading_of_node(searched: Searched, measurement: Measurement) -> Reading:
    """Raises ParseError for a node that is neither cleared nor shown to be faulty."""
    (node,) = measurement.members
    result, own = searched.result, searched.of(node)
    outcomes = [outcome for one in own for outcome in one.outcomes]
    faults = [fault for fault in result.faults if node in fault.nodes]
    if node in result.cleared:
        count = 0
    elif any(_shows(one, faults, result.faults) for one in own):
        count = len(faults)
    else:
        raise ParseError(TOOL, _unknown(searched, node, [str(fault) for fault in faults], outcomes))
    requested = requested_by(outcomes[0].answer.command.partition(SETS)[0])
    if measurement.labels != {"engine": requested.engine, "op": OP}:
        raise ParseError(TOOL, f"its jobs ran {OP} with {requested.engine}")
    conditions: dict[str, object] = {
        "command": program(outcomes[0].answer.command),
        "method": TOOL,
        "transport": TRANSPORTS[requested.engine],
        "nodes": len(searched.plan.places.names),
        "jobs": sum(result.rounds),
        "rounds": len(result.rounds),
        "own_jobs": len(own),
        "least_gb_per_s": searched.plan.least,
        "bytes": requested.sizes[0],
        "iterations": requested.iterations,
        "warmup": requested.warmup,
        "ranks_per_node": requested.ranks_per_node,
    }
    if requested.backend is not None:
        conditions["backend"] = requested.backend
    if networks := sorted({outcome.network for outcome in outcomes if outcome.network is not None}):
        conditions["network"] = ", ".join(networks)
    if faults:
        conditions[FAULTS] = "; ".join(map(str, faults))
    shown = [outcome for outcome in outcomes if outcome.rate is not None]
    beside = [one for outcome in shown for one in outcome.beside if one.node == node]
    used = (*(outcome.answer for outcome in shown), *beside)
    return Reading(
        (float(count),),
        tuple(dict.fromkeys(used)),
        conditions,
        {"least_rate_gb_per_s": (min(outcome.rate or 0.0 for outcome in shown),)},
    )


def _shows(tried: Tried, faults: Sequence[Fault], all_faults: Sequence[Fault]) -> bool:
    """Whether a failing proven figure of a job is due to the node's ``faults``: no other node's fault explains it."""
    return (
        any(outcome.refuted for outcome in tried.outcomes)
        and any(fault.touches(tried.job) for fault in faults)
        and not any(fault.touches(tried.job) for fault in all_faults if fault not in faults)
    )


def _unknown(searched: Searched, node: str, faults: Sequence[str], outcomes: Sequence[Outcome]) -> str:
    """Why there is no number of a node."""
    if faults:
        why = next((one.why for one in outcomes if one.why), "no complete output")
        return f"names {'; '.join(faults)}, and no proven figure shows it: {why}"
    why = next((f": {one.why}" for one in outcomes if one.why), "")
    sets = [nodes for nodes in searched.result.unlocated if node in nodes]
    if sets:
        fewest = min(sets, key=len)
        return f"suspects one of {len(fewest)} nodes ({some(sorted(fewest), _SHOWN)}){why}"
    return f"does not clear it{why}"
