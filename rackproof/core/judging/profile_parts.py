"""Parts of the run's profile of which nothing was tried: UNMEASURED, also where no criterion asks for their numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rackproof.core.architecture import Architecture
from rackproof.core.metrics import METRICS
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict


def judge_parts(architecture: Architecture, profile: str, metrics: Collection[str]) -> Iterator[Verdict]:
    """A verdict for each part of the profile without a measurement; ``metrics`` are those that the run tried."""
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
