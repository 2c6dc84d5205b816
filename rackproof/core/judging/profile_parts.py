"""Parts of the run's profile without any measurement, or measured with smaller sizes: UNMEASURED."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.weakening import weakenings
from rackproof.core.metrics import METRICS
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict, required_verdict
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
            yield required_verdict(
                f"rack.profile[{name}]", f"Benchmarks of the profile: {name}", "rack", Status.UNMEASURED,
                f"profile {profile} asks for {name}, and none of it was measured",
                "A part of the profile that gives no number proves nothing.",
                "See at the start of the run's log why it gave no step: its members, the fabric, its storage.",
                kind="criterion", source=f"profiles.{profile}.{name}",
            )  # fmt: skip


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
    return required_verdict(
        "rack.sizes", "Sizes of the benchmarks", "rack", Status.UNMEASURED,
        f"the run's own architecture asks for less than {architecture.metadata.id}: {some(less, _SHOWN, '; ')}",
        "A shorter or smaller measurement proves less than this architecture asks for.",
        "Measure against this architecture: rackproof certify INVENTORY.",
        kind="criterion", source=path,
    )  # fmt: skip
