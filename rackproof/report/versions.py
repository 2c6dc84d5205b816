"""Software versions that produced the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict

from rackproof.core.evidence import Measurement, RunInfo

CONTROLLER = "controller"
TOOLS = frozenset({"fio", "perftest", "iperf3", "mpi", "openmpi", "nccl", "nccl-tests", "cuda", "driver", "kernel"})
"""Conditions with these names are versions."""


class VersionSeen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    component: str
    version: str
    where: tuple[str, ...]
    """``controller``, or the nodes whose measurements name the version."""


def versions_seen(run: RunInfo, measurements: Iterable[Measurement]) -> tuple[VersionSeen, ...]:
    """Versions on the controller, and those in the conditions of measurements.

    A condition is a version when its key is ``versions`` (a mapping), ``version`` (of the metric's benchmark), ends in
    ``_version`` or is the name of a tool.
    """
    places: dict[tuple[str, str], set[str]] = {}
    for component, version in {"rackproof": run.rackproof, **run.controller}.items():
        places.setdefault((component, version), set()).add(CONTROLLER)
    for m in measurements:
        for key, value in m.conditions.items():
            for component, version in _named(key, value, m.metric):
                places.setdefault((component, version), set()).update(m.members)
    return tuple(
        VersionSeen(component=component, version=version, where=tuple(sorted(where)))
        for (component, version), where in sorted(places.items())
    )


def is_version(key: str) -> bool:
    return key in ("versions", "version") or key in TOOLS or key.endswith("_version")


def _named(key: str, value: object, metric: str) -> Iterable[tuple[str, str]]:
    if not is_version(key) or value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple((str(name), str(v)) for name, v in value.items())
    component = metric.partition(".")[0] if key == "version" else key.removesuffix("_version")
    return ((component, str(value).removeprefix(f"{component}-")),)
