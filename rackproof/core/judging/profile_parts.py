"""Parts of the run's profile without any measurement, or measured with smaller sizes: UNMEASURED."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.weakening import weakenings
from rackproof.core.metrics import METRICS
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.core.wording import some

_SHOWN = 2


def judge_parts(architecture: Architecture, profile: str, metrics: Collection[str]) -> Iterator[Verdict]:
    """A verdict for each part of the profile without a measurement; ``metrics``: those that the run tried."""
    parts = architecture.profiles.get(profile)
    if parts is None:
        return
    tried = {METRICS[metric].benchmark for metric in metrics if metric in METRICS}
    for name in type(parts).model_fields:
        if getattr(parts, name) is not None and name not in tried:
            yield Verdict(
                id=f"rack.profile[{name}]",
                kind="criterion",
                title=f"Benchmarks of the profile: {name}",
                subject="rack",
                status=Status.UNMEASURED,
                required=True,
                message=f"profile {profile} asks for {name}, and none of it was measured",
                source=f"profiles.{profile}.{name}",
                reason="A part of the profile that gives no number proves nothing.",
                hint="See at the start of the run's log why it gave no step: its members, the fabric, its storage.",
            )


def other_sizes(architecture: Architecture, own: Architecture, profile: str) -> Verdict | None:
    """A verdict where the run's ``own`` architecture asks for less measuring than the one that judges it."""
    path = f"profiles.{profile}"
    less = [
        f"{weakening.path}: expected {weakening.published}, actual {weakening.here}"
        for weakening in weakenings(architecture, own)
        if weakening.path == path or weakening.path.startswith(f"{path}.")
    ]
    if not less:
        return None
    return Verdict(
        id="rack.sizes",
        kind="criterion",
        title="Sizes of the benchmarks",
        subject="rack",
        status=Status.UNMEASURED,
        required=True,
        message=f"the run's own architecture asks for less than {architecture.metadata.id}: {some(less, _SHOWN, '; ')}",
        source=path,
        reason="A shorter or smaller measurement proves less than this architecture asks for.",
        hint="Measure against this architecture: rackproof certify INVENTORY.",
    )
