"""Samples of the input pipeline, each with the proof of what it measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, Final, NamedTuple

from rackproof.bench.ingest import dlio, settling, trees
from rackproof.bench.ingest.bound import START, bound_of, utilisation_of
from rackproof.bench.ingest.caches import CACHE_HITS, LOCAL_HITS, LocalReads, cache_state, cached_share, local_reads
from rackproof.bench.ingest.datasets import Made, answer_of, made_of
from rackproof.bench.ingest.figures import Figures
from rackproof.bench.ingest.further import further_of
from rackproof.bench.ingest.image import check_image
from rackproof.bench.ingest.proof import check_figures, check_together, checked_bytes
from rackproof.bench.ingest.real import METRIC as UTILISATION
from rackproof.bench.ingest.real import check_real, text_of, utilisation
from rackproof.bench.ingest.runs import TOOL, Part, Run, part_of, runs_of
from rackproof.bench.ingest.sizing import StorageLeg, predicted
from rackproof.bench.reading import Read, Reading, of_every, reader, with_preamble
from rackproof.bench.storage.commands import AFTER, BEFORE
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.throttles import LABEL
from rackproof.core.units import convert
from rackproof.errors import DataSetError
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult

LOSS: Final = "mixed.accelerator_utilisation_loss"
LATENCY_LOSS: Final = "mixed.inference_latency_loss"
REQUESTS: Final = 100
"""Least number of requests for a 99th percentile."""
_JOB: Final = ("batch", "accelerators", "workers", "crop", "seconds", "warmup_s", "step_s", "slots", "arrivals")


Values = Callable[[Sequence[Figures]], float]


def _per_sample(figures: Sequence[Figures]) -> float:
    samples = sum(one.part.pipeline("samples") + one.part.pipeline("drained") for one in figures)
    if not samples:
        raise ParseError(TOOL, "no sample was read")
    return sum(one.ratio * one.part.pipeline("bytes") for one in figures) / samples


def _samples(figures: Sequence[Figures], of: Callable[[Figures], float]) -> float:
    samples = sum(one.part.pipeline("samples") for one in figures)
    if not samples:
        raise ParseError(TOOL, "no sample was read")
    return sum(map(of, figures)) / samples


def _p99(figures: Sequence[Figures]) -> float:
    latencies = [one.part.answer.child("latency_s") for one in figures]
    if (count := sum(latency.integer("count") for latency in latencies)) < REQUESTS:
        raise ParseError(TOOL, f"{count} requests, a 99th percentile needs {REQUESTS}")
    return max(latency.number("p99") for latency in latencies) * 1e3


def _local(one: Figures) -> LocalReads:
    if one.local is None:
        raise ParseError(TOOL, "the storage has no local cache")
    return one.local()


def _local_reads(run: Run, node: str, storage: Storage) -> LocalReads:
    return local_reads(storage, run.state(node, BEFORE), run.state(node, AFTER))


VALUES: Final[Mapping[str, Values]] = {
    "ingest.samples_rate": lambda figures: sum(one.part.rate for one in figures),
    "ingest.storage_bandwidth": lambda figures: sum(one.storage_rate for one in figures) / 1e6,
    "ingest.accelerator_utilisation": utilisation_of,
    "ingest.cpu_time_per_sample": lambda figures: 1e3 * _samples(figures, lambda one: one.part.pipeline("cpu_s")),
    "ingest.storage_bytes_per_sample": _per_sample,
    "ingest.cpu_utilisation": lambda figures: 100 * max(one.peak_cpu for one in figures),
    CACHE_HITS: lambda figures: 100 * max(0.0, 1 - sum(one.ratio for one in figures) / len(figures)),
    LOCAL_HITS: lambda figures: 100 * _local(figures[0]).share(1 - figures[0].ratio),
    "inference.samples_rate": lambda figures: sum(one.part.rate for one in figures),
    "inference.latency_p99": _p99,
}
"""Values of one run in the metric's unit."""


@reader("ingest-proven")
@with_preamble
def read_ingest(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per run; spreads and losses: one per repetition of all of their runs."""
    runs = runs_of(answers)

    def figures(run: Run, job: str, storage: Storage, apart: bool) -> list[Figures]:
        parts = [(node, part_of(run, node, job)) for node in sorted(run.nodes)]
        check_together(parts, apart=apart)
        proven = []
        for node, part in parts:
            for other in run.jobs:  # also those beside it have worked
                check_figures(part_of(run, node, other))
            check_image(node, part.config.get("image"), part.raw.command)
            if part.real:
                check_real(node, part)
            cold = run.dropped and not apart
            counted = checked_bytes(storage, run, node, part, cold=cold) if part.reads else None
            local = partial(_local_reads, run, node, storage) if part.reads and storage.local_cache else None
            proven.append(Figures(node, part, counted, local))
        return proven

    def read(measurement: Measurement) -> Reading:
        storage, job, leg = place_of(measurement)
        if measurement.metric == trees.METRIC:
            return trees.read_tree(answers, measurement, architecture)
        if measurement.labels.get("engine") == dlio.ENGINE:
            return dlio.read_dlio(answers, measurement, architecture)
        if measurement.metric.startswith("ingest.dataset_"):
            return _of_dataset(measurement.metric, answers, runs, architecture, storage)
        apart = measurement.metric == settling.METRIC
        proven = [(run, figures(run, job, architecture.storage[storage], apart)) for run in runs if job in run.jobs]
        if not proven:
            raise ParseError(TOOL, f"no run of {job}")
        if measurement.metric == "ingest.placement_spread":
            samples = _spreads([(len(run.nodes), _rate(own)) for run, own in proven])
        elif measurement.metric in _LOSSES:
            loss = _LOSSES[measurement.metric]
            further_of(loss.of, [{one.node: one.part for one in own} for _, own in proven])  # refuses contradictions
            alone, beside = _alone_and_beside(proven, VALUES[loss.of])
            samples = [max(0.0, loss.lost(*pair)) for pair in zip(alone, beside, strict=True)]
        elif measurement.metric == "ingest.bytes_read_over_dataset":
            size = proven[0][1][0].part.answer.child("dataset").number("bytes", minimum=1.0)
            samples = [sum(one.part.pipeline("bytes") for _, own in proven for one in own) / size]
        elif measurement.metric == UTILISATION:
            samples, chosen = _of_gpu(measurement, proven)
            proven = [proven[place] for place in chosen]
        elif apart:
            (node,) = measurement.members
            samples = [settling.ratio(one.part, one.counted) for _, own in proven for one in own if one.node == node]
        elif measurement.metric.startswith("sizing."):
            return _of_sizing(measurement, proven, architecture, storage)
        else:
            return _of_runs(measurement, proven, leg, architecture)
        used = tuple(answer for run, _ in proven for answer in run.answers.values())
        if measurement.metric == UTILISATION:
            used += tuple(run.samples[measurement.members[0].partition("/")[0]] for run, _ in proven)
        own_runs, every = [run for run, _ in proven], [own for _, own in proven]
        conditions = _conditions(every, own_runs, measurement, architecture)
        if measurement.metric in _LOSSES:
            other = next(run.jobs[1] for run in own_runs if len(run.jobs) > 1)
            conditions |= {"beside": other, loss.condition: {"alone": alone, "beside": beside}}
        return Reading(tuple(samples), used, conditions)

    return read


def _of_gpu(measurement: Measurement, proven: Sequence[tuple[Run, list[Figures]]]) -> tuple[list[float], list[int]]:
    """Utilisation of one GPU in each run alone, and the places of these runs."""
    node, _, device = measurement.members[0].partition("/gpu")
    chosen = [place for place, (run, _) in enumerate(proven) if len(run.jobs) == 1]
    runs = [(run, one.part) for run, own in (proven[place] for place in chosen) for one in own if one.node == node]
    return [utilisation(run, part, node, int(device)) for run, part in runs], chosen


def place_of(measurement: Measurement) -> tuple[str, str, str]:
    """Storage, job and leg of a measurement, from its step."""
    parts = measurement.step.split("/")
    if len(parts) != 4:
        raise ParseError(TOOL, f"{measurement.step} is no step of it")
    return parts[1], parts[2], parts[3]


def _of_runs(
    measurement: Measurement, proven: Sequence[tuple[Run, list[Figures]]], leg: str, architecture: Architecture
) -> Reading:
    epoch, wanted, chosen = 0, measurement.labels.get("epoch"), []
    beside = measurement.labels.get("beside", "nothing") != "nothing"
    for run, own in proven:
        epoch = 1 if run.dropped else epoch + 1
        if wanted in (None, str(epoch)) and (len(run.jobs) > 1) == beside:
            chosen.append((run, own))
    if not chosen:
        raise ParseError(TOOL, f"no run of epoch {wanted} in {leg}")
    samples, companions = [], []
    for _, own in chosen:
        mine = [one for one in own if measurement.scope is not Scope.NODE or one.node in measurement.members]
        if not mine or (measurement.scope is Scope.RACK and {one.node for one in own} != set(measurement.members)):
            raise ParseError(TOOL, "other nodes than its own took part")
        samples.append(VALUES[measurement.metric](mine))
        companions.append(_companions(mine))
        if measurement.metric == LOCAL_HITS:
            companions[-1] |= _local(mine[0]).companions
    complete = of_every(companions)
    used = tuple(answer for run, _ in chosen for answer in run.answers.values())
    runs = [run for run, _ in chosen]
    conditions = _conditions([own for _, own in chosen], runs, measurement, architecture)
    conditions |= further_of(measurement.metric, [{one.node: one.part for one in own} for _, own in chosen])
    if measurement.metric == LOCAL_HITS:
        conditions["local_cache"] = _local(mine[0]).counter
    shares = [share for run in runs if run.dropped and (share := cached_share(run)) is not None]
    if len(shares) == len(runs):
        complete["cached_bytes_start"] = tuple(share * companions[0]["dataset_bytes"] for share in shares)
    return Reading(tuple(samples), used, conditions, complete)


def _companions(figures: Sequence[Figures]) -> dict[str, float]:
    """Numbers for the gates."""
    numbers = {
        "dataset_bytes": figures[0].part.answer.child("dataset").number("bytes"),
        "client_ram_bytes": sum(one.part.answer.number("memory_bytes") for one in figures),
        "bytes_read": sum(one.part.pipeline("bytes") for one in figures),
        "application_bytes": sum(one.part.read for one in figures),
    }
    if all(one.counted is not None for one in figures):
        numbers["counter_bytes"] = float(sum(one.counted or 0 for one in figures))
    return numbers


def _port_gbps(measurement: Measurement) -> int | None:
    """Rate of the ports that the step was given."""
    return int(measurement.labels[LABEL]) if LABEL in measurement.labels else None


def _conditions(
    every: Sequence[Sequence[Figures]], runs: Sequence[Run], measurement: Measurement, architecture: Architecture
) -> dict[str, Any]:
    """How it was measured, and what bound the last run."""
    name, gbps = place_of(measurement)[0], _port_gbps(measurement)
    last = every[-1]
    config, dataset = last[0].part.config, last[0].part.answer.child("dataset")
    bound = bound_of(last, architecture, name, gbps)
    steps = min(int(sum(one.part.steps)) // config["accelerators"] for own in every for one in own)
    return {
        "accelerator": text_of([one.part for one in last])
        if last[0].part.real
        else "emulated: each batch takes the model's known time; no MLPerf result",
        "job": {key: config[key] for key in _JOB}
        | (
            {"real": " ".join(real[key] for key in ("model", "kind", "precision"))}
            if (real := last[0].part.real)
            else {}
        )
        | ({"only_local_cache": True} if all(run.pages_dropped for run in runs) else {}),
        "data": config["data"],
        "gpus": len(last) * int(config["accelerators"]),
        "nodes": len(last),
        "steps": steps,
        "cache": cache_state(runs, [cached_share(run) for run in runs], architecture.storage[name]),
        "bound_by": bound.stage,
        "bound_because": bound.because,
        "dataset": f"{dataset.integer('samples')} samples as {dataset.string('format')} on {name}, "
        f"{dataset.integer('copies')} copies of {dataset.integer('distinct')}",
        "programs": _programs(last[0].part),
        **({"image": config["image"]["id"]} if config.get("image") else {}),
    }


def _programs(part: Part) -> str:
    text = f"numpy {part.answer.string('numpy')}, Pillow {part.answer.string('pillow')}"
    image = part.config.get("image")
    return f"{text}, of the image {image['name']} ({image['id'][:12]})" if image else text


def _rate(figures: Sequence[Figures]) -> float:
    return sum(one.part.rate for one in figures)


def _of_sizing(
    measurement: Measurement, proven: Sequence[tuple[Run, list[Figures]]], architecture: Architecture, storage: str
) -> Reading:
    """Per repetition: measured over predicted, or the share of the legs whose stage the model names."""
    by_data: dict[str, list[list[Figures]]] = {}
    for _, own in proven:
        by_data.setdefault(str(own[0].part.config["data"]), []).append(own)
    legs = [by_data.get(data, []) for data in ("memory", "undecoded", "storage")]
    if not legs[0] or len({len(leg) for leg in legs}) > 1:
        raise ParseError(TOOL, "the stages were not measured equally often")
    samples, last, workload, gbps = [], None, measurement.labels["workload"], _port_gbps(measurement)
    for memory, undecoded, whole in zip(*legs, strict=True):
        last = predicted(architecture, workload, memory, StorageLeg(undecoded, storage, gbps))
        alone = predicted(architecture, workload, memory, None)
        if measurement.metric == "sizing.throughput_over_predicted":
            samples.append(_rate(whole) / last.rate)
        else:
            stages = [bound_of(leg, architecture, storage, gbps).stage for leg in (whole, memory)]
            if START in stages:
                raise ParseError(TOOL, f"{START} bound a run, which the model does not know: let runs last longer")
            named = [stage in one.binds for stage, one in zip(stages, (last, alone), strict=True)]
            samples.append(sum(named) / len(named))
    runs, every = [run for run, _ in proven], [own for _, own in proven]
    conditions = _conditions(every, runs, measurement, architecture)
    if last is not None:
        conditions |= {"predicted": last.stage, "predicted_rate": last.rate}
    used = tuple(answer for run in runs for answer in run.answers.values())
    return Reading(tuple(samples), used, conditions)


def _spreads(rates: Sequence[tuple[int, float]]) -> list[float]:
    """(max - min) / median over the placements, one per repetition."""
    by_count: dict[int, list[float]] = {}
    for count, rate in rates:
        by_count.setdefault(count, []).append(rate)
    if len(by_count) < 2 or len({len(own) for own in by_count.values()}) > 1:
        raise ParseError(TOOL, f"placements on {sorted(by_count)} nodes were not run equally often")
    return [(max(own) - min(own)) / median(own) for own in zip(*by_count.values(), strict=True)]


def _alone_and_beside(proven: Sequence[tuple[Run, list[Figures]]], value: Values) -> tuple[list[float], list[float]]:
    """Values of the runs alone and of those beside the other job."""
    alone, together = ([value(own) for run, own in proven if (len(run.jobs) > 1) is beside] for beside in (False, True))
    if not alone or len(alone) != len(together):
        raise ParseError(TOOL, f"{len(alone)} runs alone, {len(together)} beside the other job")
    return alone, together


def _longer(alone: float, beside: float) -> float:
    """Percent by which a time grows."""
    if not alone:
        raise ParseError(TOOL, "a 99th percentile alone is 0")
    return 100 * (beside - alone) / alone


class _Loss(NamedTuple):
    """Loss of a job beside another one; a gain is no loss."""

    of: str
    condition: str
    lost: Callable[[float, float], float]
    """From the values of one repetition, alone and beside."""


_LOSSES: Final = {
    LOSS: _Loss("ingest.accelerator_utilisation", "utilisation_pct", lambda alone, beside: alone - beside),
    LATENCY_LOSS: _Loss("inference.latency_p99", "latency_p99_ms", _longer),
}


def _of_dataset(
    metric: str, answers: Sequence[CommandResult], runs: Sequence[Run], architecture: Architecture, storage: str
) -> Reading:
    """Figures of the data set's own index, and of the memory of its clients."""
    sealed = [answer for answer in answers if "/dataset_node.py seal " in answer.command]
    if not sealed:
        raise ParseError(TOOL, "no index of the data set")
    try:
        made: Made = made_of(answer_of(sealed[-1]))
    except DataSetError as error:
        raise ParseError(TOOL, str(error)) from None
    used = (sealed[-1],)
    conditions = {"dataset": made.text(storage)}
    if metric == "ingest.dataset_bytes_per_sample":
        return Reading((made.bytes / made.samples,), used, conditions)
    if not runs:
        raise ParseError(TOOL, "no run tells the memory of the clients")
    parts = [part_of(runs[-1], node, runs[-1].jobs[0]) for node in sorted(runs[-1].nodes)]
    caches = sum(part.answer.number("memory_bytes", minimum=1.0) for part in parts)
    if (cache := cache_of(architecture, storage)) is None:
        raise ParseError(TOOL, "the cache of the storage is unknown: sizing.unit.cache is not given")
    return Reading((made.bytes / (caches + cache),), (*used, *(part.raw for part in parts)), conditions)


def cache_of(architecture: Architecture, storage: str) -> float | None:
    """Bytes of the caches of a storage's servers, of which a local drive has none; None where they are unknown."""
    if architecture.storage[storage].class_ == "local":
        return 0.0
    sizing = architecture.sizing
    cache = sizing.unit.cache if sizing and sizing.storage in (None, storage) else None
    if sizing is None or cache is None or cache.value is None:
        return None
    return sizing.unit.count * convert(cache.value, cache.unit, "B")
