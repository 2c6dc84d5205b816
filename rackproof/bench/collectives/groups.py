"""Group testing: sets of nodes run one all-to-all each, in parallel, until every fault between nodes has a name.

What a set that passes contains is cleared; the nodes of a set that fails are searched with known-good partners
(``core.fault_search``). The figures come from ``group_reader``, which makes the search again from the recorded outputs.
An interrupted search continues with the outputs of its jobs, as long as its nodes are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from rackproof.bench.collectives.engines import ENGINES, Engine, Sweep
from rackproof.bench.collectives.group_reader import (
    OP,
    OVER_GLOO,
    PROVING,
    SETS,
    STEP,
    TOOL,
    Ledger,
    Outcome,
    Plan,
    has_passed,
    launches,
    parts_of,
    read_groups,
    search,
    take_all,
)
from rackproof.bench.collectives.group_resume import Interrupted
from rackproof.bench.collectives.launch import Launch, Way, launch_of, way_of
from rackproof.bench.collectives.nccl_used import ADAPTERS, MNNVL
from rackproof.bench.gpu.links import sampled_links
from rackproof.bench.port_proof import fabric_of
from rackproof.bench.relay import Relay
from rackproof.bench.step import BenchContext, Step, expected, reading_of, shown, unmeasured
from rackproof.bench.user import BenchUsers
from rackproof.core.architecture import Architecture, CollectiveProfile, GroupTests, LinkProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.group_testing import METRIC, Job, Places
from rackproof.core.rack import Rack
from rackproof.core.wording import counted
from rackproof.errors import RemoteError
from rackproof.evidence.store import answer_of, read_raw
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult

JOB_S = 17.0
"""Estimate of one job: start of all processes, and the all-to-all."""
USUAL_ROUNDS = 3
"""Rounds of a rack without faults, for the estimate."""
LIMIT_S = 2 * JOB_S + 120.0
"""Time limit of a job."""
MOST_ROUNDS = 60
"""More rounds than a search has: for the time limit of what samples GPUs beside it."""


def plan(architecture: Architecture, profile: LinkProfile, rack: Rack) -> list[Step]:
    """One step over all nodes of the group, where the profile asks for group testing."""
    names = [node.name for node in rack.group(profile.members)]
    sizes = profile.grouped(len(names))
    if sizes is None or architecture.fabric is None or len(names) < 2:
        return []
    id_ = f"{STEP}/{sizes.engine}/{OP}"
    places = tuple(expected(METRIC, Scope.NODE, [name], {"engine": sizes.engine, "op": OP}, id_) for name in names)

    def execute(context: BenchContext) -> Iterator[Measurement]:
        yield from _execute(context, architecture, sizes, places, id_)

    title = f"group testing of {len(names)} nodes ({sizes.engine})"
    commands = shown(lambda: _first(architecture, sizes, rack, tuple(names)))
    return [Step(id_, title, USUAL_ROUNDS * JOB_S, places, execute, commands=commands)]


def _first(architecture: Architecture, sizes: GroupTests, rack: Rack, names: tuple[str, ...]) -> Iterator[str]:
    """Commands of the first job, which all nodes run; what follows depends on its outcome. Raises ParseError,
    InventoryError."""
    engine, profile = ENGINES[sizes.engine], profile_of(sizes)
    way = way_of(architecture, rack, engine, names, profile, LIMIT_S, alone=False)
    own = Plan(places_of(rack, names, architecture.rails), sizes.least_gb_per_s)
    for part in parts_of(Job(frozenset(names), frozenset(range(architecture.rails))), engine.one_rail):
        commands = way.commands(*words(way, architecture, profile, part.rails))
        yield f"{commands[names[0]]}{own.comment}"
    yield f"# further jobs of fewer nodes or rails follow from the outcome, usually in {USUAL_ROUNDS} rounds in all"


def profile_of(sizes: GroupTests) -> CollectiveProfile:
    """Sizes of one job."""
    return CollectiveProfile(
        engine=sizes.engine, ops=(OP,), min_bytes=sizes.bytes, max_bytes=sizes.bytes,
        iterations=sizes.iterations, warmup=sizes.warmup, ranks_per_node=sizes.ranks_per_node,
    )  # fmt: skip


def words(
    way: Way, architecture: Architecture, profile: CollectiveProfile, rails: frozenset[int]
) -> tuple[str, dict[str, str], str]:
    """Program, environment and interface of a job on some rails. Raises ParseError."""
    fabric, engine = fabric_of(architecture, TOOL), way.engine
    interface = f"{fabric.interface_prefix}{min(rails)}"
    environment = engine.environment(interface)
    program = engine.program(OP, profile, Sweep(profile.min_bytes, profile.max_bytes), way.python)
    if not engine.one_rail:
        environment[MNNVL] = "0"
        if len(rails) < fabric.rails:
            environment[ADAPTERS] = "=" + ",".join(f"{fabric.rdma_prefix}{rail}" for rail in sorted(rails))
        program += "" if engine.source else " -g 1"
    return program, environment, interface


def places_of(rack: Rack, names: Sequence[str], rails: int) -> Places:
    """Nodes with the leaf switches and racks that the inventory names."""
    data = {name: rack.node(name).data for name in names}
    leaves = {name: tuple(map(str, own["leaf_switches"])) for name, own in data.items() if own.get("leaf_switches")}
    racks = {name: str(own["rack"]) for name, own in data.items() if own.get("rack") is not None}
    return Places(tuple(names), rails, leaves, racks)


def _execute(
    context: BenchContext, architecture: Architecture, sizes: GroupTests, places: Sequence[Measurement], id_: str
) -> Iterator[Measurement]:
    session, fabric = context.session, architecture.fabric
    names = [place.members[0] for place in places]
    alive = set(session.alive(names, context.say))
    reasons = {name: f"{name} does not answer" for name in names if name not in alive}
    reasons |= BenchUsers.of(context).ready([name for name in names if name in alive])
    searched = tuple(name for name in names if name not in reasons)
    for place in places:
        if place.members[0] in reasons:
            yield unmeasured(place, reasons[place.members[0]])
    left = [place for place in places if place.members[0] in searched]
    if fabric is None or len(searched) < 2:
        yield from (unmeasured(place, "group testing needs two nodes that answer") for place in left)
        return
    own = Plan(places_of(session.rack, searched, fabric.rails), sizes.least_gb_per_s)
    run = _Run(context, architecture, sizes, own)
    try:
        run.launch = launch_of(context, run.engine, searched, run.profile, LIMIT_S, alone=False, connected=False)
        if run.launch.backend not in PROVING:
            raise ParseError("torch", OVER_GLOO)
    except ParseError as error:
        yield from (unmeasured(place, error.reason) for place in left)
        return
    run.resume()
    loaded = searched if run.engine.loads_gpus else ()
    with sampled_links(session, id_, loaded, MOST_ROUNDS * LIMIT_S, context.say):
        result = search(own, run.jobs, run.engine.one_rail).result
    for fault in result.faults:
        context.say(f"group testing names {fault}")
    for nodes in result.unlocated:
        context.say(f"group testing suspects one of {len(nodes)} nodes: {', '.join(sorted(nodes))}")
    read = read_groups(run.answers, architecture)
    for place in left:
        try:
            yield reading_of(place, read)
        except ParseError as error:
            yield unmeasured(place, f"{place.members[0]}: {error}", _outputs(run.answers, place.members[0]))


def _outputs(answers: Sequence[CommandResult], node: str) -> list[str]:
    return [name for answer in answers if answer.node == node for name in answer.outputs]


class _Run:
    """Runs the jobs of one search."""

    launch: Launch

    def __init__(self, context: BenchContext, architecture: Architecture, sizes: GroupTests, plan: Plan) -> None:
        self.context, self.architecture, self.plan = context, architecture, plan
        self.engine: Engine = ENGINES[sizes.engine]
        self.profile = profile_of(sizes)
        self.answers: list[CommandResult] = []
        """Answers of complete launches, in the order of the search on each node."""
        self.ledger = Ledger()
        self.rounds = 0
        """Rounds that this process ran."""

    def resume(self) -> None:
        """Take over what an interrupted search of the same nodes has recorded."""
        before = Interrupted()
        for record in self.context.session.store.records:
            before.see(record)
        folder = self.context.session.store.folder
        kept = before.before([self.plan.comment.removeprefix(SETS)])
        self.answers += [answer_of(command, partial(read_raw, folder)) for command in kept]
        self.ledger.add(self.answers, self.architecture, self.plan.least)
        if self.answers:
            self.context.say(f"group testing continues after {counted(len(launches(self.answers)), 'job')}")

    def jobs(self, jobs: Sequence[Job]) -> list[list[Outcome]]:
        """Outcomes of a round: of an interrupted search, otherwise run now, all at once."""
        one_rail = self.engine.one_rail
        outcomes = [list(take_all(self.ledger, parts_of(job, one_rail))) for job in jobs]
        todo = [
            (number, parts_of(job, one_rail)[len(own) :])
            for number, (job, own) in enumerate(zip(jobs, outcomes, strict=True))
            if all(one.passed for one in own) and len(own) < len(parts_of(job, one_rail))
        ]
        if todo:
            with ThreadPoolExecutor(max_workers=len(todo)) as pool:
                for (number, parts), answers in zip(todo, pool.map(lambda one: self._job(one[1]), todo), strict=True):
                    self.answers += answers
                    ledger = Ledger()
                    ledger.add(answers, self.architecture, self.plan.least)
                    outcomes[number] += take_all(ledger, parts)
            self.rounds += 1
            failed = sum(not has_passed(job, own, one_rail) for job, own in zip(jobs, outcomes, strict=True))
            of = counted(len(jobs), "job", "jobs")
            self.context.say(f"group testing, round {self.rounds}: {failed} of {of} failed")
        return outcomes

    def _job(self, parts: Sequence[Job]) -> list[CommandResult]:
        """Run the launches of one job until one fails. A lost node ends the job, which then has no output."""
        nodes = tuple(name for name in self.plan.places.names if name in parts[0].nodes)
        answers: list[CommandResult] = []
        with ExitStack() as stack:
            shared = {name: kept for name, kept in self.context.shared.items() if name != Relay.__name__}
            context = replace(self.context, stack=stack, shared=shared)
            try:
                launch = self.launch.among(context, nodes)
                answers += launch.read()
                for part in parts:
                    ran = launch.run(*words(launch, self.architecture, self.profile, part.rails), self.plan.comment)
                    answers += [*ran, *launch.read()]
                    if not all(answer.ok for answer in ran):
                        break
            except (RemoteError, ParseError) as error:
                self.context.say(f"group testing of {len(nodes)} nodes: {error}")
        return answers
