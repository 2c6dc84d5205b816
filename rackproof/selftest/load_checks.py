"""Checks that compare nodes before and after a benchmark's step, on recorded answers.

A rack with these answers has the state of its nodes before and after the step, and samples of its GPUs' links.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from testinfra.host import Host

from rackproof.bench.gpu.links import results
from rackproof.bench.guard import change, load_command, observation_of
from rackproof.core import gpu_clocks, gpu_links
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, NodeInfo
from rackproof.core.load import GPUS, PREFIX, SUBJECTS, limits_of, subjects_for
from rackproof.core.rack import Node, Rack
from rackproof.parse.gpu_load import SAMPLER
from rackproof.parse.load import MARK
from rackproof.remote.recording import Unmeasured
from rackproof.validation.checks import EVERY_NODE, Check
from rackproof.validation.context import Context
from rackproof.validation.known import Checks, Function

BEFORE: Final = load_command("", gpus=True)
AFTER: Final = load_command("93412.118207", gpus=True)
"""The time is that of the last message of the kernel in the state before."""
_STEP: Final = "step"
_cached_observation = lru_cache(8)(observation_of)
"""Eleven checks read the same states."""


def load_checks() -> Checks:
    """Checks and their functions by id."""
    checks: Checks = {f"{PREFIX}{name}": _of_states(name) for name in SUBJECTS}
    for about in (gpu_links, gpu_clocks):
        checks[about.CHECK] = _of_samples(about.CHECK, about.PROTECTS, about.HINT)
    return checks


def has_load_states(context: Context) -> bool:
    """Whether the nodes of a rack have recorded states."""
    return any(reader.read(AFTER).text.startswith(MARK) for reader in context.readers.values())


def _check(id_: str, subject: str, protects: str, hint: str, required: bool) -> Check:
    def applies(arch: Architecture, node: Node, rack: Rack) -> bool:
        return subject in subjects_for(arch, node.groups, node.simulated_gpus)

    return Check(id_, (EVERY_NODE,), protects, hint, "", required, None, applies)


def _of_states(name: str) -> tuple[Check, Function]:
    subject = SUBJECTS[name]

    def compared(host: Host, node: Node, arch: Architecture) -> None:
        before, after = (_cached_observation(host.backend.reader.read(command), ()) for command in (BEFORE, AFTER))
        finding = change(name, before, after, limits_of(arch, node.groups, node.virtual))
        _end(finding.outcome, finding.message)

    return _check(f"{PREFIX}{name}", name, subject.protects, subject.hint, subject.required), compared


def _of_samples(id_: str, protects: str, hint: str) -> tuple[Check, Function]:
    def sampled(host: Host, node: Node, arch: Architecture) -> None:
        info = NodeInfo(name=node.name, groups=node.groups, virtual=node.virtual, simulated_gpus=node.simulated_gpus)
        several = results(arch, info, _STEP, host.backend.reader.read(SAMPLER), ())
        result = next(one for one in several if one.check == id_)
        _end(result.outcome, result.message)

    return _check(id_, GPUS, protects, hint, False), sampled


def _end(outcome: CheckOutcome, message: str) -> None:
    """End like a validator with this outcome."""
    if outcome is CheckOutcome.FAILED:
        raise AssertionError(message)
    if outcome is not CheckOutcome.PASSED:
        raise Unmeasured(message)
