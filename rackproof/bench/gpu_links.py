"""Samples the PCIe links of GPUs while a collective loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, CheckResult, Kind, NodeInfo
from rackproof.core.gpu_links import CHECK, HINT, PROTECTS, judge_links
from rackproof.core.load import GPUS, Finding, subjects_for
from rackproof.errors import RemoteError
from rackproof.evidence.folder import node_infos
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.gpu_load import SAMPLER, parse_gpu_links
from rackproof.remote.command import CommandResult


@contextmanager
def sampled_links(
    session: Session, step: str, nodes: Sequence[str], limit_s: float, say: Callable[[str], None]
) -> Iterator[None]:
    """Sample the links of nodes with real GPUs during the block; then record a result for each node."""
    infos = {info.name: info for info in node_infos(session.rack) if info.name in nodes}
    asked = {name: info for name, info in infos.items() if _has_gpus(session.architecture, info)}
    answers: dict[str, CommandResult] = {}
    with ExitStack() as stack:
        servers = {}
        for name in asked:
            try:
                servers[name] = stack.enter_context(session.serving(name, SAMPLER, limit_s))
            except RemoteError as error:
                answers[name] = CommandResult(name, SAMPLER, None, error=str(error))
        yield
        answers |= {name: server.stop() for name, server in servers.items()}
    for name, info in asked.items():
        result = links_result(session.architecture, info, step, answers[name], session.outputs(answers[name]))
        session.store.append(Kind.CHECK, result)
        if result.outcome is CheckOutcome.FAILED:
            say(f"{step}: {name}: {result.message} ({CHECK})")


def _has_gpus(architecture: Architecture, node: NodeInfo) -> bool:
    return GPUS in subjects_for(architecture, node.groups, node.simulated_gpus)


def is_sampler(command: str) -> bool:
    """Whether a recorded command sampled links."""
    return command == SAMPLER


def links_result(
    architecture: Architecture, node: NodeInfo, step: str, answer: CommandResult | None, raw: tuple[str, ...]
) -> CheckResult:
    """Result of a node's samples. Only a link that is slow under load is required to be otherwise: where nothing is
    known, the checks of the idle links stay as they are."""
    gpu = architecture.gpu
    if answer is None or gpu is None:
        finding = Finding(CheckOutcome.UNMEASURED, "its links were not sampled")
    elif answer.error is not None:
        finding = Finding(CheckOutcome.UNMEASURED, f"nvidia-smi: {answer.error}")
    else:
        try:
            samples = parse_gpu_links(answer.stdout)
            finding = judge_links(samples, gpu.count, gpu.pcie_generation, gpu.pcie_width)
        except ParseError as error:
            finding = Finding(CheckOutcome.UNMEASURED, str(error) if answer.stdout else answer.why)
    return CheckResult(
        check=CHECK, node=node.name, item=step, outcome=finding.outcome, message=finding.message, protects=PROTECTS,
        hint=HINT, required=finding.outcome is CheckOutcome.FAILED, raw=raw,
    )  # fmt: skip
