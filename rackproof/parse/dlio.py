"""``summary.json`` of DLIO, the engine of MLPerf Storage: what emulated accelerators reached. Source:
argonne-lcf/dlio_benchmark, ``utils/statscounter.py``.

The kit does not use the summary's byte rate: DLIO multiplies samples with the nominal size of a record, calls MiB MB,
and counts no byte of a file.
"""

from __future__ import annotations

from statistics import mean
from typing import Final, NamedTuple

from rackproof.core.wording import exact
from rackproof.parse.errors import ParseError, Unreliable
from rackproof.parse.jsondoc import Json, find_object

TOOL: Final = "dlio_benchmark"
_AGREEMENT: Final = 1e-6
"""Relative tolerance of a mean against the epochs' figures."""
_MET: Final = {"success": True, "fail": False}


class DlioSummary(NamedTuple):
    accelerators: int
    """Emulated ones, a process of MPI each."""
    hosts: int
    hostname: str
    """Host of the first process."""
    samples: int
    """Samples of the data set."""
    utilisation_pct: tuple[float, ...]
    """Computing time over total time, without the first steps and the last, of each epoch."""
    samples_per_s: tuple[float, ...]
    """Rate of all accelerators, in each epoch."""
    meets: bool
    """Whether the mean utilisation reaches what the workload asks for (``metric.au``)."""


def parse_dlio(text: str | bytes) -> DlioSummary:
    """Raises ParseError for another document, a cut one, or one without a figure for each epoch."""
    summary = find_object(TOOL, text, "num_accelerators", "metric")
    metric, epochs = summary.child("metric"), summary.integer("epochs", minimum=1)
    utilisation = _figures(metric, "train_au", "percentage", epochs)
    rates = _figures(metric, "train_throughput", "samples_per_second", epochs)
    if any(rate <= 0 for rate in rates):
        metric.refuse("train_throughput_samples_per_second", "is 0: no step was counted")
    if max(utilisation) > 100:
        raise Unreliable(TOOL, f"accelerators were busy for {max(utilisation):g} % of the time")
    verdict = metric.string("train_au_meet_expectation")
    if verdict not in _MET:
        metric.refuse("train_au_meet_expectation", f"is {verdict!r}, expected {' or '.join(_MET)}")
    return DlioSummary(
        summary.integer("num_accelerators", minimum=1),
        summary.integer("num_hosts", minimum=1),
        summary.string("hostname"),
        summary.integer("num_files_train", minimum=1) * summary.integer("num_samples_per_file", minimum=1),
        utilisation,
        rates,
        _MET[verdict],
    )


def _figures(metric: Json, name: str, unit: str, epochs: int) -> tuple[float, ...]:
    """A figure of each epoch, whose mean is the one beside them."""
    key = f"{name}_{unit}"
    values = metric.values.get(key)
    if not isinstance(values, list) or len(values) != epochs:
        raise ParseError(TOOL, f"metric.{key} is no list of {epochs} epochs")
    listed = Json(TOOL, "metric.", {f"{key}[{place}]": value for place, value in enumerate(values)})
    figures = tuple(listed.number(one) for one in listed.values)
    own, told = mean(figures), metric.number(f"{name}_mean_{unit}")
    if abs(own - told) > _AGREEMENT * max(own, told):
        raise Unreliable(TOOL, f"metric.{name}_mean_{unit} is {exact(told)}, the mean of its epochs {exact(own)}")
    return figures
