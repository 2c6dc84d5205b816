"""The model's results for one set of inputs, computed on demand."""

from __future__ import annotations

from functools import cached_property

from rackproof.core.sizing import planning
from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.model import TITLES, Phase, Stage, first_epoch, later_epochs
from rackproof.core.sizing.planning import Cache, Checkpoint, Demand, Edge, Job, Network, Units


class View:
    """Phases and plans for one set of inputs, and the missing inputs."""

    def __init__(self, inputs: Inputs, timed: bool = True) -> None:
        """``timed`` False: without the job's time with other networks, which is slow to compute."""
        self.inputs = inputs
        self._timed = timed

    @cached_property
    def first(self) -> Phase:
        """The phase with cold caches."""
        return first_epoch(self.inputs)

    @cached_property
    def later(self) -> Phase | None:
        """The phase with full node caches; None with reasons in ``later_missing``."""
        phase = later_epochs(self.inputs)
        return phase if isinstance(phase, Phase) else None

    @cached_property
    def later_missing(self) -> tuple[str, ...]:
        phase = later_epochs(self.inputs)
        return () if isinstance(phase, Phase) else phase

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (self.first, self.later) if self.later else (self.first,)

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        return tuple(planning.demand(self.inputs, t) for t in self.inputs.tenants)

    @cached_property
    def networks(self) -> tuple[Network, ...]:
        return planning.networks(self.inputs, (self.first, self.later), self._timed)

    @cached_property
    def units(self) -> Units:
        """For the first epoch, with cold caches."""
        return planning.units(self.inputs, self.first)

    @cached_property
    def edge(self) -> Edge:
        return planning.edge(self.inputs, self.first)

    @cached_property
    def caches(self) -> tuple[Cache, ...]:
        return tuple(planning.cache(self.inputs, t, self.first, self.later) for t in self.inputs.tenants)

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        return planning.jobs(self.inputs, (self.first, self.later))

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return tuple(planning.checkpoint(self.inputs, t) for t in self.inputs.tenants)

    def lacking(self, *names: str) -> tuple[str, ...]:
        """Reasons for the inputs without a number."""
        return tuple(self.inputs.lacking(n) for n in names if self.inputs.value(n) is None)

    def tenants_lacking(self, *keys: str) -> tuple[str, ...]:
        return self.lacking(*(self.inputs.name_of(t, key) for t in self.inputs.tenants for key in keys))


def title_of(stage: Stage) -> str:
    """``storage bandwidth``, or ``CPU cores of resnet50`` if several tenants have the stage."""
    return TITLES[stage.name] if stage.tenant is None else f"{TITLES[stage.name]} of {stage.tenant}"
