"""How long the judge takes, and how much memory, for a rack of 100, of 300 and of 1,000 nodes.

    python benchmarks/judge.py [--nodes 100 300 1000] [--criteria 100] [--samples 5] [--whole]

Every size runs in a process of its own, so that its peak of memory is its own too. The judge keeps all records, as it
does when a run is read from disk; the figures are for everything from the first record to the judgement. Half of
the criteria are shares, a tenth asks for conditions and a gate, a tenth compares the nodes with each other, and a
twentieth has two ways of being met.

``--whole`` adds CHECKS checks a node and OUTPUTS outputs a node, half of them the same on all nodes, and on racks of at
most PAIRS_UP_TO nodes three numbers for each pair, and writes all files of the run: their sizes, and the time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

from rackproof.architectures import LoadedArchitecture
from rackproof.cli.outputs import judged, write_outputs
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import GENESIS, Kind, Record
from rackproof.core.judging.judge import judge_records

METRICS = (
    ("storage.read_bandwidth", "MB/s"),
    ("storage.write_bandwidth", "MB/s"),
    ("storage.random_read_iops", "1/s"),
    ("storage.random_read_latency", "us"),
)

PAIR_METRICS = (
    ("link.rdma_write_bandwidth", "Gb/s"),
    ("link.rdma_write_latency", "us"),
    ("link.tcp_bandwidth", "Gb/s"),
)
PAIRS_UP_TO = 256
"""Nodes of the largest rack of which all pairs are measured; larger ones are tested in groups."""
CHECKS, OUTPUTS, STEPS = 333, 160, 8
"""Checks and outputs of a node of the virtual rack, and steps of storage."""

LOADS = tuple(
    f"load.{what}"
    for what in (
        *("boot", "clock", "complaints", "drives", "kernel"),
        *("memory", "mounts", "pcie", "ports", "throttling"),
    )
)
ABOUT = {"source": "made-up", "reason": "It is there to be judged.", "hint": "Look at the figures."}


def architecture(criteria: int, pairs: bool = False) -> Architecture:
    """Criteria over as many storages as it takes; every other one is a share of the node's first storage."""
    entries: list[dict[str, Any]] = [
        {"id": f"p{number}", "title": "Of pairs", "metric": metric, "scope": "pair", **ABOUT}
        | {"pass": {"op": "le" if unit == "us" else "ge", "value": 50.0, "unit": unit}}
        for number, (metric, unit) in enumerate(PAIR_METRICS if pairs else ())
    ]
    outliers: list[dict[str, Any]] = []
    for number in range(criteria):
        metric, unit = METRICS[number % len(METRICS)]
        op, value = ("le", 300.0) if unit == "us" else ("ge", 50.0)
        bar: dict[str, Any] = {"op": op, "value": value, "unit": unit}
        if number % 2:
            of = {"metric": metric, "where": {"storage": "s0"}, "scope": "node", "reduce": "each"}
            bar |= {"unit": "percent", "of": of}
        asked: dict[str, Any] = {
            "metric": metric,
            "where": {"storage": f"s{number // len(METRICS)}"},
            "scope": "node",
            "max_cv_pct": 10,
        }
        if number % 10 == 9:
            outliers.append({"id": f"c{number}", "title": "None is odd", **asked, "rel_pct": 10, **ABOUT})
            continue
        entry = {"id": f"c{number}", "title": "A criterion", **asked, "pass": bar, **ABOUT}
        if number % 10 == 0:
            entry |= {"conditions": {"cache": "direct", "runtime_s_min": 30}, "gates": ["littles_law"]}
        if number % 20 == 5:
            entry["any_of"] = [asked | {"pass": bar}]
        entries.append(entry)
    return Architecture.model_validate(
        {
            "apiVersion": "refarch/v1",
            "metadata": {
                "id": "large",
                "version": "1",
                "title": "Large rack",
                "scope": "None at all",
                "sources": {"made-up": {"doc": "none", "status": "proposed"}},
            },
            "roles": {"gpu": {}},
            "criteria": entries,
            "outliers": outliers,
        }
    )


def records(nodes: int, criteria: int, samples: int) -> Iterator[Record]:
    names = [f"gpu-{number:04d}" for number in range(nodes)]
    yield _record(
        Kind.RUN,
        {
            "run": "r",
            "started": "2026-01-01T00:00:00Z",
            "rackproof": "0",
            "inventory": "i",
            "architecture": "large",
            "architecture_sha256": "0" * 64,
            "profile": "full",
            "nodes": [{"name": name, "groups": ["gpu"]} for name in names],
            "controller": {},
            "kit_sha256": GENESIS,
            "node_data": dict.fromkeys(names, GENESIS),
            "inventory_data": dict.fromkeys(names, GENESIS),
            "validators": GENESIS,
            "own_validators": None,
        },
    )
    for index, name in enumerate(names):
        yield _record(
            Kind.CHECK,
            {
                "check": "base.up",
                "node": name,
                "item": "",
                "outcome": "passed",
                "protects": "All of it.",
                "hint": "Look.",
            },
        )
        for number in range(criteria):
            metric, unit = METRICS[number % len(METRICS)]
            level = 100.0 + (index * 7919 + number * 104729) % 607 / 100
            yield _record(
                Kind.MEASUREMENT,
                {
                    "metric": metric,
                    "scope": "node",
                    "members": [name],
                    "labels": {"storage": f"s{number // len(METRICS)}", "block_bytes": "1048576"},
                    "unit": unit,
                    "samples": [level + sample * 0.37 for sample in range(samples)],
                    "conditions": {"cache": "direct", "runtime_s": 60, "versions": {"fio": "3.39"}},
                    "companions": {
                        "iops": [1000.0] * samples,
                        "latency_s": [0.064] * samples,
                        "outstanding": [64.0] * samples,
                    },
                    "raw": [f"{index:032x}{number:032x}"],
                    "step": f"storage/{number % STEPS}",
                },
            )


def whole(nodes: int, criteria: int, samples: int) -> Iterator[Record]:
    """``records`` with the checks and outputs of a real run, and the pairs of a rack that is not tested in groups."""
    yield from records(nodes, criteria, samples)
    names = [f"gpu-{number:04d}" for number in range(nodes)]
    for name in names:
        outputs = []
        for number in range(OUTPUTS):
            text = f"output {number}" if number % 2 else f"output {number} of {name}"
            outputs.append(sha256(text.encode()).hexdigest())
            command = f"env LC_ALL=C timeout 20 program --option {number} " + "and its arguments " * (number % 40)
            body = {"node": name, "command": command, "rc": 0, "stdout": outputs[-1], "stderr": GENESIS}
            yield _record(
                Kind.COMMAND,
                body | {"stdout_bytes": 900, "stderr_bytes": 0, "elapsed_s": 0.123 + number, "timeout_s": 20.0},
            )
        checks = [(f"made.up_{number}", "") for number in range(CHECKS)]
        checks += [(check, f"storage/{step}") for check in LOADS for step in range(STEPS)]
        for number, (check, item) in enumerate(checks):
            body = {"check": check, "node": name, "item": item, "outcome": "passed", "protects": "All of it."}
            yield _record(
                Kind.CHECK,
                body | {"hint": "Look at the output of the command.", "raw": [outputs[number % OUTPUTS]]},
            )
    for index, (left, right) in enumerate(combinations(names, 2) if nodes <= PAIRS_UP_TO else ()):
        for metric, unit in PAIR_METRICS:
            level = (40.0 if unit == "us" else 60.0) + index * 7919 % 1007 / 100
            body = {"metric": metric, "scope": "pair", "members": [left, right], "labels": {"rail": "0"}, "unit": unit}
            yield _record(
                Kind.MEASUREMENT,
                body
                | {
                    "samples": [level + sample * 0.37 for sample in range(samples)],
                    "conditions": {"bytes": 65536, "runtime_s": 5, "command": f"ib_write_bw -d mlx5_0 {right}"},
                    "raw": [sha256(f"{metric} {index}".encode()).hexdigest()],
                    "step": "links/rdma",
                },
            )


def _record(kind: Kind, body: dict[str, object]) -> Record:
    return Record(seq=0, time="2026-01-01T00:00:00Z", kind=kind, body=body, prev=GENESIS, hash=GENESIS)


def peak_mb() -> float:
    """Peak memory of this process so far, in MB (10^6 B)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def write(nodes: int, criteria: int, samples: int) -> dict[str, Any]:
    """Seconds of processor time, MB of memory and bytes of each file of one size, in this process."""
    declared = LoadedArchitecture(architecture(criteria, nodes <= PAIRS_UP_TO), Path("large.yaml"), "", "0" * 64)
    made = list(whole(nodes, criteria, samples))
    before, begin = peak_mb(), time.process_time()
    certificate = judged(made, declared)
    judged_s = time.process_time() - begin
    with tempfile.TemporaryDirectory() as folder:
        write_outputs(Path(folder), certificate, whole=True)
        elapsed = time.process_time() - begin
        sizes = {path.name: path.stat().st_size for path in sorted(Path(folder).iterdir())}
    return {
        "nodes": nodes,
        "verdicts": len(certificate.verdicts),
        "judged_s": judged_s,
        "elapsed_s": elapsed,
        "before_mb": before,
        "peak_mb": peak_mb(),
        "sizes": sizes,
    }


def measure(nodes: int, criteria: int, samples: int) -> dict[str, float]:
    """Seconds and MB of one size, in this process."""
    declared = architecture(criteria)
    judge_records(declared, records(2, criteria, 1))  # units, which are imported when first asked for
    begin = time.process_time()
    for _ in records(nodes, criteria, samples):
        pass
    making = time.process_time() - begin
    before = peak_mb()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    judgement = judge_records(declared, records(nodes, criteria, samples))
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    return {
        "nodes": nodes,
        "verdicts": len(judgement.verdicts),
        "elapsed_s": elapsed,
        "cpu_s": cpu,
        "making_s": making,
        "before_mb": before,
        "peak_mb": peak_mb(),
    }


def _alone(nodes: int, size: argparse.Namespace) -> dict[str, Any]:
    """The figures of one size, from a process of its own."""
    options = ["--nodes", nodes, "--criteria", size.criteria, "--samples", size.samples, "--alone"]
    command = [sys.executable, __file__, *map(str, options), *(["--whole"] if size.whole else [])]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def _print_whole(result: dict[str, Any]) -> None:
    files = ", ".join(f"{name} {count / 1e6:.1f} MB" for name, count in result["sizes"].items())
    print(
        f"{result['nodes']} nodes, {result['verdicts']} verdicts: {result['judged_s']:.1f} s of processor time to"
        f" judge, {result['elapsed_s']:.1f} s with writing; {result['peak_mb']:.0f} MB of memory, of them"
        f" {result['before_mb']:.0f} MB records\n    {files}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--criteria", type=int, default=100)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--whole", action="store_true", help="with checks, outputs and pairs; write all files")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    size = parser.parse_args()
    if size.alone:
        print(json.dumps((write if size.whole else measure)(size.nodes[0], size.criteria, size.samples)))
        return
    if size.whole:
        for nodes in size.nodes:
            _print_whole(_alone(nodes, size))
        return
    print(f"{size.criteria} criteria × {size.samples} samples, reading and judging")
    print(
        f"{'nodes':>6} {'verdicts':>9} {'seconds':>8} {'CPU':>6} {'of it made up':>14} {'peak MB':>8} {'judge MB':>9}"
    )
    last: dict[str, float] | None = None
    for nodes in size.nodes:
        result = _alone(nodes, size)
        print(
            f"{nodes:>6} {result['verdicts']:>9} {result['elapsed_s']:>8.2f} {result['cpu_s']:>6.2f}"
            f" {result['making_s']:>14.2f} {result['peak_mb']:>8.0f} {result['peak_mb'] - result['before_mb']:>9.0f}"
        )
        if last:
            print(
                f"       {result['nodes'] / last['nodes']:.2f} times the nodes:"
                f" {result['cpu_s'] / last['cpu_s']:.2f} times the CPU time"
            )
        last = result


if __name__ == "__main__":
    main()
