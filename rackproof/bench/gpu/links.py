"""Samples the PCIe links and clocks of GPUs while a step loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from rackproof.core import gpu_clocks, gpu_links
from rackproof.core.architecture import Architecture, Gpu
from rackproof.core.evidence import CheckOutcome, CheckResult, Kind, NodeInfo
from rackproof.core.gpu_links import LinkSample, judge_links, settled
from rackproof.core.load import GPUS, Finding, subjects_for
from rackproof.errors import RemoteError
from rackproof.evidence.folder import node_infos
from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.gpu_load import SAMPLER, parse_gpu_links
from rackproof.remote.command import CommandResult

CHECKS: Final = (gpu_links.CHECK, gpu_clocks.CHECK)
ENDED: Final = 143
"""Exit status of a sampler that ran until the kit ended it; one whose ``nvidia-smi`` failed or hung ends by itself."""


@contextmanager
def sampled_links(
    session: Session, step: str, nodes: Sequence[str], limit_s: float, say: Callable[[str], None]
) -> Iterator[dict[str, CommandResult]]:
    """Sample nodes with real GPUs during the block; then record the results of each node.

    Yields the answers by node, which are there after the block.
    """
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
        yield answers
        answers |= {name: server.stop() for name, server in servers.items()}
    for name, info in asked.items():
        for result in results(session.architecture, info, step, answers[name], session.outputs(answers[name])):
            session.store.append(Kind.CHECK, result)
            if result.outcome is CheckOutcome.FAILED:
                say(f"{step}: {name}: {result.message} ({result.check})")


def _has_gpus(architecture: Architecture, node: NodeInfo) -> bool:
    return GPUS in subjects_for(architecture, node.groups, node.simulated_gpus)


def is_sampler(command: str) -> bool:
    """Whether a recorded command sampled links."""
    return command == SAMPLER


def results(
    architecture: Architecture, node: NodeInfo, step: str, answer: CommandResult | None, raw: tuple[str, ...]
) -> Iterator[CheckResult]:
    """Results of a node's samples, one per check. A failed result is required, and every one of products, which last
    long enough to be sampled; an unmeasured one of other steps leaves the checks of idle GPUs as they are."""
    for check in CHECKS:
        about = gpu_links if check == gpu_links.CHECK else gpu_clocks
        finding = _finding(check, architecture.gpu, answer, step.startswith(gpu_links.BURSTS))
        certain = step.startswith(gpu_links.PRODUCTS)
        yield CheckResult(
            check=check, node=node.name, item=step, outcome=finding.outcome, message=finding.message,
            protects=about.PROTECTS, hint=about.HINT,
            required=certain or finding.outcome is CheckOutcome.FAILED, raw=raw,
        )  # fmt: skip


def _finding(check: str, gpu: Gpu | None, answer: CommandResult | None, bursts: bool) -> Finding:
    if answer is None or gpu is None:
        return Finding(CheckOutcome.UNMEASURED, "its GPUs were not sampled")
    if answer.error is not None:
        return Finding(CheckOutcome.UNMEASURED, f"nvidia-smi: {answer.error}")
    try:
        samples = parse_gpu_links(answer.stdout)
    except ParseError as error:
        return Finding(CheckOutcome.UNMEASURED, str(error) if answer.stdout else answer.why)
    if check == gpu_clocks.CHECK:
        finding = gpu_clocks.judge_clocks(samples, gpu.count, bursts)
    else:
        finding = judge_links(samples, gpu.count, gpu.pcie_generation, gpu.pcie_width, bursts)
    if finding.outcome is CheckOutcome.PASSED and answer.rc != ENDED:
        return Finding(CheckOutcome.UNMEASURED, f"nvidia-smi answered no more before the step ended: {answer.why}")
    return finding


def load_conditions(samples: Sequence[LinkSample], bus_id: str, step: str) -> dict[str, float | str]:
    """Clock, power, temperature and limits of clocks of one GPU in the samples under load that ``gpu_clocks`` judges;
    empty where none is known.

    ``bus_id`` is without the function.
    """
    own = [one for one in samples if one.bus_id.rpartition(".")[0].upper() == bus_id]
    if not own:
        return {}
    loaded, _ = settled(own, [bool(one.used_pct) for one in own], step.startswith(gpu_links.BURSTS))
    clocks, watts, heat = (
        [value for one in loaded if (value := getattr(one, name)) is not None]
        for name in ("sm_mhz", "power_w", "temperature_c")
    )
    limits = gpu_clocks.limits_of(loaded)
    return {
        **({"sm_clock_min_mhz": min(clocks)} if clocks else {}),
        **({"power_max_w": max(watts)} if watts else {}),
        **({"temperature_max_c": max(heat)} if heat else {}),
        **({"clocks_limited_by": limits} if limits else {}),
    }
