"""All answers of ``rackproof size``."""

from __future__ import annotations

from dataclasses import dataclass

from rackproof.core.architecture import Architecture
from rackproof.core.sizing import job_answers, rack_answers
from rackproof.core.sizing.answer import Answer
from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.pointers import pointers
from rackproof.core.sizing.sensitivity import Ask, with_dependences
from rackproof.core.sizing.view import View

ASKS: dict[str, Ask] = {
    "bottleneck": rack_answers.bottleneck,
    "concurrency": rack_answers.concurrency,
    "network": rack_answers.network,
    "units": rack_answers.units,
    "connections": rack_answers.connections,
    "caches": job_answers.caches,
    "first_epoch": job_answers.first_epoch_share,
    "faster_gpus": job_answers.faster_gpus,
    "tenants": job_answers.tenants,
    "scale": job_answers.scale,
    "prefetch": job_answers.prefetch,
    "checkpoint": job_answers.checkpoint,
}


@dataclass(frozen=True, slots=True)
class Memo:
    """A capacity plan: inputs, model and answers."""

    title: str
    """Title of the architecture."""
    view: View
    answers: tuple[Answer, ...]
    pointers: tuple[Answer, ...]
    """Questions that the model cannot answer, with the criteria that measure them."""

    @property
    def inputs(self) -> Inputs:
        return self.view.inputs


def memo(architecture: Architecture, inputs: Inputs) -> Memo:
    """Every answer for these inputs, with its dependences."""
    answers = with_dependences(inputs, ASKS)
    return Memo(architecture.metadata.title, View(inputs), answers, pointers(architecture))
