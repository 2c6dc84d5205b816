"""Reads into GPU memory from a step's runs of ``gds_node.py``: gdsio's own figures, each proven."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rackproof.bench.reading import Reading, of_every
from rackproof.bench.storage.byte_counters import check_ports, counted_bytes, told_by_then
from rackproof.bench.storage.commands import BEFORE, DROP, SERVER, folders_of
from rackproof.bench.storage.conditions import cache_conditions, mounts_text, server_conditions
from rackproof.bench.storage.program_runs import ProgramRun, program_runs
from rackproof.bench.storage.proof import states_around
from rackproof.bench.storage.server_counters import served_bytes
from rackproof.core.architecture import Storage
from rackproof.core.evidence import Measurement
from rackproof.parse import ParseError
from rackproof.parse.gdsio import GdsResult, parse_gdsio
from rackproof.parse.jsondoc import Json
from rackproof.remote.command import CommandResult

PROGRAM: Final = "gds_node.py"
MARK: Final = "rackproof_gds"
SIMULATED: Final = "gdsio (simulated)"
"""Begins what the stand-in of the virtual rack prints."""
_SHORTEST: Final = 0.9
"""Least share of the asked time: gdsio's own examples end up to 8 % early."""
_SIZES: Final = {"threads": "threads", "file_bytes": "file_bytes", "block_bytes": "block_bytes", "seconds": "runtime_s"}
_OF_SERVERS: Final = (DROP, SERVER)
"""Begin the commands that servers carry out for every client."""


def folder_of(storage: Storage, node: str) -> str:
    """Folder of gdsio's files of a node."""
    return f"{folders_of(storage, node)[0]}-gds"


def results_of(run: ProgramRun, node: str, job: str) -> list[GdsResult]:
    """One result per GPU. Raises ParseError."""
    config, document = run.document(node, job)
    rows = document.values.get("gpus")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ParseError(PROGRAM, f"{node}: no GPU")
    results = []
    for row in rows:
        values = Json(PROGRAM, f"{node}: ", row)
        gpu, status, text = values.integer("gpu"), values.integer("status", minimum=None), str(row.get("text", ""))
        if status:
            words = " ".join(text.split())[-200:]
            raise ParseError("gdsio", f"{node}: exit status {status} on GPU {gpu}: {words}")
        if row.get("sizes") != [config["file_bytes"]] * config["threads"]:
            raise ParseError(
                "gdsio", f"{node}: expected {config['threads']} files of {config['file_bytes']} B on GPU {gpu}"
            )
        result = parse_gdsio(text)
        asked = (config["action"].upper(), "GPUD", config["threads"], config["block_bytes"])
        actual = (result.io, result.transfer, result.threads, result.block_bytes)
        if actual != asked:
            raise ParseError("gdsio", f"{node}: expected {asked} on GPU {gpu}, actual {actual}")
        results.append(result)
    if len({row["gpu"] for row in rows}) < len(rows):
        raise ParseError(PROGRAM, f"{node}: one GPU twice")
    return results


def read_gds(answers: Sequence[CommandResult], measurement: Measurement, storage: Storage) -> Reading:
    """One sample per run, the sum of all GPUs of the node. Raises ParseError."""
    (node,) = measurement.members
    own = [answer for answer in answers if answer.node == node or answer.command.startswith(_OF_SERVERS)]
    every = program_runs(own, PROGRAM, MARK, ProgramRun)
    if not every or every[0].jobs != ("write",):
        raise ParseError(PROGRAM, "nothing wrote its files before")
    results_of(every[0], node, "write")
    runs, samples, counts, texts, moved = every[1:], [], set(), [], []
    if not runs:
        raise ParseError(PROGRAM, "no run of read")
    for run in runs:
        config = run.configs(node)[0]
        if not run.dropped or config["folder"] != folder_of(storage, node):
            raise ParseError(PROGRAM, f"{node}: caches were not dropped before it, or it read another folder")
        if str(config["block_bytes"]) != measurement.labels["block_bytes"]:
            raise ParseError(PROGRAM, f"{node}: expected blocks of {measurement.labels['block_bytes']} B")
        before, after = states_around(run, node, storage)
        results = results_of(run, node, "read")
        if short := [result.seconds for result in results if result.seconds < _SHORTEST * config["seconds"]]:
            raise ParseError("gdsio", f"expected a run of {config['seconds']} s, actual {short[0]:g} s")
        counted = counted_bytes(storage, before, after, writes=False)
        moved.append(sum(result.moved_bytes for result in results))
        shortest_s = min(result.seconds for result in results)
        counted.check(moved[-1], "gdsio", seconds=shortest_s)
        check_ports(run.served, moved[-1], storage, "gdsio", told_by_then(shortest_s))
        samples.append(sum(result.bytes_per_s for result in results) / 1e9)
        counts.add(len(results))
        texts.append(counted.text)
    if len(counts) > 1:
        raise ParseError(PROGRAM, f"{node}: expected as many GPUs in every run")
    config, stand_in = runs[-1].configs(node)[0], any(simulated(run, node) for run in every)
    place = "the node's memory in the place of GPU memory" if stand_in else "GPU memory"
    conditions: dict[str, Any] = {
        "io": SIMULATED if stand_in else "GPUDirect Storage, compatibility mode refused",
        **cache_conditions(storage, None, place, [run.servers_dropped for run in runs]),
        "gpus": counts.pop(),
        "mount": mounts_text(storage, [run.state(node, BEFORE) for run in runs]),
        "workload": {name: config[key] for key, name in _SIZES.items()},
        "bytes": "; ".join(dict.fromkeys(text for text in texts if text)),
        **server_conditions([(run.served, read) for run, read in zip(runs, moved, strict=True)]),
    }
    companions = of_every([served_bytes(run.served, read) for run, read in zip(runs, moved, strict=True)])
    return Reading(tuple(samples), tuple(run.answers[node] for run in every), conditions, companions)


def simulated(run: ProgramRun, node: str) -> bool:
    """Whether the stand-in of nodes with simulated GPUs printed the figures."""
    return SIMULATED in run.answers[node].stdout.decode(errors="replace")
