"""GPUs, each by itself: copies (nvbandwidth), memory and matrix products (the kit's program on PyTorch), DCGM's tests.

All nodes are measured at once. nvbandwidth loads one GPU or pair after the other, the kit's program all GPUs of a node
at once, because power and cooling are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

from rackproof.bench.gpu.diagnosis_end import ended_diagnoses
from rackproof.bench.gpu.links import sampled_links
from rackproof.bench.gpu.reader import (
    DIAGNOSED,
    MEMORY,
    PAYLOAD,
    PEER_READ,
    PRODUCTS,
    TESTS,
    WRONG,
    is_program,
    read_gpus,
)
from rackproof.bench.reading import outputs_of
from rackproof.bench.step import BenchContext, Step, expected, reading_or_reason
from rackproof.bench.user import BenchUsers, node_program
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.architecture import Architecture, GpuProfile
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.rack import Node, Rack
from rackproof.core.wording import counted
from rackproof.errors import RemoteError
from rackproof.parse import ParseError
from rackproof.parse.gpu_list import LIST, parse_gpu_list
from rackproof.parse.gpu_program import PRODUCT, TRIAD
from rackproof.remote.command import CommandResult

TRIAD_PRECISION = "fp32"
COPY_S = 0.5
"""One measured cell of nvbandwidth: 16 copies of 512 MiB, and the check of their content."""
SHAPE_S = 0.2
"""One shape of the sweep, with its warm-up."""
START_S = 30.0
"""Loading PyTorch and CUDA, preparing operands."""
MARGIN_S = 120.0
LIST_S = 90


def plan(architecture: Architecture, profile: GpuProfile, rack: Rack) -> list[Step]:
    """Copies, memory, and one step per precision of matrix products, on all nodes of the group at once."""
    nodes = list(rack.group(profile.members))
    count = architecture.gpu.count if architecture.gpu else 0
    if not nodes or not count:
        return []
    copies = [metric for metric in TESTS if metric != PEER_READ or count > 1]
    cells = count * (2 + (count - 1))
    steps = [
        _step("gpu/copies", "copies of GPUs", nodes, count, [(metric, {}) for metric in copies],
              profile.copy_runs * (5.0 + COPY_S * profile.copy_samples * cells),
              lambda node, uuids: [copy_command(profile, copies)] * profile.copy_runs)
    ]  # fmt: skip
    timed = START_S + profile.runs * profile.seconds
    steps.append(
        _step(f"gpu/{TRIAD}/{TRIAD_PRECISION}", "memory of GPUs", nodes, count,
              [(MEMORY, {}), (WRONG, {"op": TRIAD, "precision": TRIAD_PRECISION})], timed,
              lambda node, uuids: [
                  program_command(profile, TRIAD, TRIAD_PRECISION, [profile.triad_bytes], torch_folder(node), uuids)
              ])
    )  # fmt: skip
    for precision in profile.precisions:
        labels: dict[str, str] = {"precision": precision}

        def commands(node: Node, uuids: Sequence[str], precision: str = precision) -> list[str]:
            return [program_command(profile, PRODUCT, precision, profile.sides, torch_folder(node), uuids)]

        steps.append(
            _step(f"gpu/{PRODUCT}/{precision}", f"matrix products of GPUs, {precision}", nodes, count,
                  [(PRODUCTS, labels), (WRONG, {"op": PRODUCT} | labels)],
                  timed + SHAPE_S * len(profile.sides) ** 3, commands)
        )  # fmt: skip
    if profile.diagnoses:
        steps.append(
            _step("gpu/diagnosis", "DCGM's tests of GPUs", nodes, count,
                  [(DIAGNOSED, {"test": test}) for test in profile.diagnoses],
                  START_S + sum(profile.diagnoses.values()),
                  lambda node, uuids: [diagnosis_command(profile)])
        )  # fmt: skip
    return steps


def copy_command(profile: GpuProfile, metrics: Sequence[str]) -> str:
    """One run of nvbandwidth. The time at its end tells the outputs of two runs with equal figures apart."""
    tests = " ".join(TESTS[metric] for metric in metrics)
    return f"env CUDA_DEVICE_ORDER=PCI_BUS_ID nvbandwidth -j -i {profile.copy_samples} -t {tests} && date +%s.%N"


def diagnosis_command(profile: GpuProfile) -> str:
    """One run of DCGM's tests, with its exit status. The time tells the outputs of two healthy nodes apart."""
    return f"dcgmi diag -r {','.join(profile.diagnoses)} -j; status=$?; date +%s.%N; (exit $status)"


def program_command(
    profile: GpuProfile, what: str, precision: str, sizes: Sequence[int], folder: str, uuids: Sequence[str]
) -> str:
    """The kit's program on GPUs, with the folder of PyTorch, or ``-`` for the interpreter's own."""
    numbers = str(profile.runs), str(profile.seconds), ",".join(map(str, sizes))
    return node_program(PAYLOAD, what, precision, *numbers, folder, *uuids)


def torch_folder(node: Node) -> str:
    """``gpu.torch`` of the inventory."""
    return read_inputs(node, GpuInputs).torch or "-"


def _step(
    id_: str,
    title: str,
    nodes: Sequence[Node],
    count: int,
    metrics: Sequence[tuple[str, dict[str, str]]],
    seconds: float,
    commands: Callable[[Node, Sequence[str]], list[str]],
) -> Step:
    """A step whose commands run one after the other on each node. ``commands``: from a node and its GPUs' UUIDs."""
    places = {
        node.name: [
            expected(metric, Scope.GPU, [f"{node.name}/gpu{number}"], labels, id_)
            for number in range(count)
            for metric, labels in metrics
        ]
        for node in nodes
    }

    def execute(context: BenchContext) -> Iterator[Measurement]:
        session, users = context.session, BenchUsers.of(context)
        alive = session.alive([node.name for node in nodes], context.say)
        lost = {node.name: f"{node.name} does not answer" for node in nodes if node.name not in alive}
        lost |= users.ready(alive)
        asked = [node for node in nodes if node.name not in lost]
        lists = session.run({node.name: LIST for node in asked}, LIST_S)
        answers = {name: [answer] for name, answer in lists.items()}
        uuids = {name: _uuids(answer) for name, answer in lists.items()}
        ready = [name for name in uuids if uuids[name]]
        limit = 2 * seconds + MARGIN_S

        def run(name: str) -> None:
            node, prefix = session.rack.node(name), users[name].prefix
            try:
                own = commands(node, uuids[name])
                if any(map(is_program, own)):
                    users.put([name], "rackproof.bench.gpu", (PAYLOAD,))
                for command in own:
                    answers[name].append(session.run_on(name, command, limit, user=prefix, hold=True))
                    if not answers[name][-1].ok:
                        break
            except RemoteError as error:
                lost[name] = str(error)

        diagnoses = any(metric == DIAGNOSED for metric, _ in metrics)
        ends = ended_diagnoses(session, ready, context.say) if diagnoses else nullcontext()
        with ends, sampled_links(session, id_, ready, limit, context.say) as samples:
            session.fleet.each(ready, lambda connection: run(connection.node.name), title, parallel=len(ready))
        for name, answer in samples.items():
            answers[name].append(answer)
        read = read_gpus([answer for several in answers.values() for answer in several], session.architecture)
        for name, several in places.items():
            for place in several:
                yield reading_or_reason(place, read, outputs_of(answers.get(name, ())), lost.get(name, ""), f"{name}: ")

    expects = tuple(place for several in places.values() for place in several)
    shown = tuple(dict.fromkeys(commands(nodes[0], ["UUID"])))
    return Step(id_, f"{title}, {counted(len(nodes), 'node')} at once", seconds, expects, execute, commands=shown)


def _uuids(answer: CommandResult) -> tuple[str, ...]:
    """UUIDs of the listed GPUs; empty where the list is unreadable, which the reader reports."""
    try:
        return tuple(gpu.uuid for gpu in parse_gpu_list(answer.stdout)) if answer.ok else ()
    except ParseError:
        return ()
