"""Questions of a capacity plan that the model cannot answer, and the criteria that measure them."""

from __future__ import annotations

from collections.abc import Iterable

from rackproof.core.architecture import Architecture, Criterion
from rackproof.core.sizing import words
from rackproof.core.sizing.answer import Answer
from rackproof.core.wording import some

_LISTED = 6


def pointers(architecture: Architecture) -> tuple[Answer, ...]:
    """Pointers to criteria, one per question."""
    return (_poc(architecture), _containers(architecture), _alone(architecture))


def _poc(architecture: Architecture) -> Answer:
    prefixes = ("storage.", "training.", "ingest.", "link.")
    criteria = [c for c in architecture.criteria if c.metric.startswith(prefixes)]
    says = ["The answers above are the expected performance; the actual one must be measured."]
    if criteria:
        says.append(f"rackproof bench measures it, and {architecture.metadata.id} judges it by {_ids(criteria)}.")
    else:
        says.append(f"{architecture.metadata.id} has no criterion for it, so no certificate would notice a shortfall.")
    return Answer("poc", "What performance is expected of a proof of concept, and what is measured?", tuple(says))


def _containers(architecture: Architecture) -> Answer:
    criteria = [c for c in architecture.criteria if "container" in f"{c.id} {c.title} {' '.join(c.where)}".lower()]
    says = ["The model has no containers: measure the same read with and without one."]
    if criteria:
        says.append(f"{architecture.metadata.id} has {_ids(criteria)} for that.")
    else:
        says.append(
            f"{architecture.metadata.id} has no criterion for it: mount the shared storage on the host, pass it into "
            "the container read-only, run the storage benchmark on both sides and compare."
        )
    return Answer("containers", "What is the container bridge strategy?", tuple(says))


def _alone(architecture: Architecture) -> Answer:
    proposed = sum(1 for s in architecture.metadata.sources.values() if s.status.value in ("proposed", "unverified"))
    count = len(architecture.metadata.sources)
    says = (
        "The model cannot answer this. What is known: "
        f"{proposed} of the {words.count(count, 'source')} behind this file are proposals or unverified.",
    )
    return Answer("alone", "How comfortable is it to do this alone?", says)


def _ids(criteria: Iterable[Criterion]) -> str:
    return some([c.id for c in criteria], _LISTED)
