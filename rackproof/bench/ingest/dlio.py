"""Runs of DLIO, the engine of MLPerf Storage, each with the proof that its samples came from the storage. Pure.

DLIO counts steps and times, no bytes: caches are dropped before each run, and the clients' own counters have the bytes
of all samples of all epochs. Later epochs from memory are no number either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import mean
from typing import Any, Final, NamedTuple

from rackproof.bench.ingest.caches import cache_state
from rackproof.bench.ingest.datasets import FOLDER
from rackproof.bench.reading import Reading
from rackproof.bench.storage.byte_counters import Counted, counted_bytes
from rackproof.bench.storage.program_runs import ProgramRun, program_runs
from rackproof.bench.storage.proof import states_around
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.evidence import Measurement
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.dlio import TOOL, DlioSummary, parse_dlio
from rackproof.parse.jsondoc import Json
from rackproof.remote.command import CommandResult

PROGRAM: Final = "dlio_node.py"
MARK: Final = "rackproof_dlio"
ENGINE: Final = "dlio"
"""Value of the label ``engine``."""
LEG: Final = "dlio"
RATE: Final = "ingest.samples_rate"
UTILISATION: Final = "ingest.accelerator_utilisation"
PROFILED: Final = ("config", "accelerators", "clients", "batch", "files", "epochs", "options")
"""Keys of a run that are the profile's."""
_SPREAD: Final = 1.5
"""Three standard deviations of a sample's size over its mean: that of unet3d is 0.47 (``record_length_stdev``)."""


class _Trained(NamedTuple):
    run: ProgramRun
    config: Mapping[str, Any]
    version: str
    summary: DlioSummary
    steps: int
    """Steps of one accelerator in an epoch."""
    moved: int
    """Bytes of all samples that the accelerators took."""
    counted: int | None
    """The same bytes by an exact counter."""
    cached: int | None
    """Bytes of the data set in the page cache at the start."""
    dataset: int
    """Bytes of all files."""
    memory: int | None


def read_dlio(answers: Sequence[CommandResult], measurement: Measurement, architecture: Architecture) -> Reading:
    """One sample per run. Raises ParseError."""
    _, name, job, _ = measurement.step.split("/")
    clients, storage = measurement.members, architecture.storage[name]
    node = clients[0]
    runs = [
        run for run in program_runs(answers, PROGRAM, MARK, ProgramRun)
        if node in run.nodes and run.configs(node)[0]["action"] == "train"
    ]  # fmt: skip
    if not runs:
        raise ParseError(TOOL, f"{node}: {_why_none(answers)}")
    trained = [_trained(run, clients, job, storage) for run in runs]
    companions: dict[str, list[int | None]] = {
        "application_bytes": [one.moved for one in trained], "counter_bytes": [one.counted for one in trained],
        "dataset_bytes": [one.dataset for one in trained], "client_ram_bytes": [one.memory for one in trained],
        "cached_bytes_start": [one.cached for one in trained],
    }  # fmt: skip
    complete = {
        key: tuple(float(value) for value in values if value is not None)
        for key, values in companions.items()
        if None not in values
    }
    figures = [
        mean(one.summary.samples_per_s if measurement.metric == RATE else one.summary.utilisation_pct)
        for one in trained
    ]
    used = tuple(run.answers[node] for run in runs)
    return Reading(tuple(figures), used, _conditions(trained, storage, name), complete)


def _why_none(answers: Sequence[CommandResult]) -> str:
    """Why nothing was trained: what the program said when it made the data set."""
    for run in program_runs(answers, PROGRAM, MARK, ProgramRun):
        for node in run.nodes:
            run.document(node, run.jobs[0])
    return "no run of it"


def _trained(run: ProgramRun, clients: Sequence[str], job: str, storage: Storage) -> _Trained:
    """One run, proven. ``clients``: the one where it started first. Raises ParseError."""
    config, document = run.document(clients[0], job)
    summary = parse_dlio(document.string("summary"))
    _check_summary(summary, config, document)
    steps = summary.samples // config["batch"] // config["accelerators"]
    taken = steps * config["batch"] * config["accelerators"]
    if (least_s := len(summary.samples_per_s) * taken / max(summary.samples_per_s)) > document.number("wall_s"):
        raise ParseError(TOOL, f"its epochs took {least_s:.0f} s, the whole run {document.number('wall_s'):.0f} s")
    if config.get("clients", 1) != len(clients):
        raise Mismatch(TOOL, f"expected {len(clients)} clients, actual {config.get('clients', 1)}")
    states = {node: states_around(run, node, storage) for node in clients}
    if config["folder"] != folder_of(storage, job):
        raise Mismatch(TOOL, f"expected a data set in {folder_of(storage, job)}, actual {config['folder']}")
    trees = [before.client.tree for before, _ in states.values()]
    tree = trees[0]
    if tree is None or tree.files != config["files"]:
        raise Mismatch(TOOL, f"expected {config['files']} files, actual {tree.files if tree else 'not counted'}")
    if any(other != tree for other in trees):
        raise Mismatch(TOOL, f"expected the data set of {clients[0]} on every client")
    moved = tree.bytes * taken // summary.samples * len(summary.samples_per_s)
    counts = {node: counted_bytes(storage, *pair, writes=False) for node, pair in states.items()}
    counted = Counted.together(counts.values())
    if not counted.others:
        raise ParseError(TOOL, f"nothing counts the bytes that came from {storage.mountpoint}")
    if not run.dropped:
        raise ParseError(TOOL, "no cache was dropped before its run")
    counted.check(moved, TOOL)
    _check_shares(counts, moved, taken * len(summary.samples_per_s))
    return _Trained(
        run, config, str(document.values.get("version") or ""), summary, steps, moved, counted.exact,
        _sum(before.client.cached_bytes for before, _ in states.values()), tree.bytes,
        _sum(before.client.ram_bytes for before, _ in states.values()),
    )  # fmt: skip


def _check_shares(counts: Mapping[str, Counted], moved: int, samples: int) -> None:
    """Each of several clients has read its share; what one reads too much does not stand for another's cache. Raises
    ParseError."""
    clients = len(counts)
    least = int(moved / clients * (1 - _SPREAD / sqrt(samples / clients)))
    for node, counted in counts.items() if clients > 1 else ():
        counted.check(least, TOOL, f"{node}, one of {clients} clients: ")


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _check_summary(summary: DlioSummary, config: Mapping[str, Any], document: Json) -> None:
    """Checks that the summary belongs to the run and reports no failure."""
    for key, asked, told in (
        ("num_hosts", config.get("clients", 1), summary.hosts),
        ("hostname", document.string("node"), summary.hostname),
        ("num_accelerators", config["accelerators"], summary.accelerators),
        ("epochs", config["epochs"], len(summary.samples_per_s)),
        ("samples of one file less", 0, summary.samples % config["files"]),
    ):
        if asked != told:
            raise Mismatch(TOOL, f"{key}: expected {asked}, actual {told}")
    if not summary.meets:
        busy = mean(summary.utilisation_pct)
        raise ParseError(TOOL, f"it calls its run a failure: {busy:.1f} % is less than metric.au of {config['config']}")
    if summary.samples < config["batch"] * config["accelerators"]:
        raise ParseError(TOOL, f"{summary.samples} samples are no step of {config['accelerators']} accelerators")


def folder_of(storage: Storage, job: str) -> str:
    """The data set's folder."""
    return f"{storage.mountpoints[0]}/{FOLDER}/dlio-{job}"


def _conditions(trained: Sequence[_Trained], storage: Storage, name: str) -> dict[str, Any]:
    last = trained[-1]
    versions = " and ".join(sorted({one.version for one in trained} - {""}))
    shares = [None if one.cached is None else one.cached / max(1, one.dataset) for one in trained]
    accelerators = last.summary.accelerators
    return {
        "accelerator": f"emulated by {TOOL} {versions}".rstrip() + f" ({last.config['config']}); no MLPerf submission",
        "dlio": {key: last.config[key] for key in PROFILED if key in last.config},
        "data": "storage",
        "gpus": accelerators,
        "nodes": last.config.get("clients", 1),
        "steps": min(one.steps for one in trained),
        "cache": cache_state([one.run for one in trained], shares, storage),
        "dataset": f"{last.summary.samples} samples in {last.config['files']} files on {name}, made by {TOOL}",
    }
