"""How long the judge takes, and how much memory, for a rack of 100, of 300 and of 1,000 nodes.

    python benchmarks/judge.py [--nodes 100 300 1000] [--criteria 100] [--samples 5]

Every size runs in a process of its own, so that its peak of memory is its own too. The judge keeps all records, as it
does when a run is read from disk; the figures are for everything from the first record to the judgement. Half of
the criteria are shares, a tenth asks for conditions and a gate, a tenth compares the nodes with each other, and a
twentieth has two ways of being met.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import GENESIS, Kind, Record
from rackproof.core.judging.judge import judge_records

METRICS = (
    ("storage.read_bandwidth", "MB/s"),
    ("storage.write_bandwidth", "MB/s"),
    ("storage.random_read_iops", "1/s"),
    ("storage.random_read_latency", "us"),
)


ABOUT = {"source": "made-up", "reason": "It is there to be judged.", "hint": "Look at the figures."}


def architecture(criteria: int) -> Architecture:
    """Criteria over as many storages as it takes; every other one is a share of the node's first storage."""
    entries: list[dict[str, Any]] = []
    outliers: list[dict[str, Any]] = []
    for number in range(criteria):
        metric, unit = METRICS[number % len(METRICS)]
        bar: dict[str, Any] = {"op": "le" if unit == "us" else "ge", "value": 50.0, "unit": unit}
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
            level = 40.0 + (index * 7919 + number * 104729) % 6007 / 100
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
                    "step": f"storage.{number}",
                },
            )


def _record(kind: Kind, body: dict[str, object]) -> Record:
    return Record(seq=0, time="2026-01-01T00:00:00Z", kind=kind, body=body, prev=GENESIS, hash=GENESIS)


def peak_mb() -> float:
    """Of this process so far, in MB (10^6 B)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure(nodes: int, criteria: int, samples: int) -> dict[str, float]:
    """Seconds and MB of one size, in this process."""
    promised = architecture(criteria)
    judge_records(promised, records(2, criteria, 1))  # units, which are imported when first asked for
    begin = time.process_time()
    for _ in records(nodes, criteria, samples):
        pass
    making = time.process_time() - begin
    before = peak_mb()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    judgement = judge_records(promised, records(nodes, criteria, samples))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--criteria", type=int, default=100)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    size = parser.parse_args()
    if size.alone:
        print(json.dumps(measure(size.nodes[0], size.criteria, size.samples)))
        return
    print(f"{size.criteria} criteria × {size.samples} samples, reading and judging")
    print(
        f"{'nodes':>6} {'verdicts':>9} {'seconds':>8} {'CPU':>6} {'of it made up':>14} {'peak MB':>8} {'judge MB':>9}"
    )
    last: dict[str, float] | None = None
    for nodes in size.nodes:
        options = ["--nodes", nodes, "--criteria", size.criteria, "--samples", size.samples, "--alone"]
        command = [sys.executable, __file__, *map(str, options)]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
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
