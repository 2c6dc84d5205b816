"""How long the judge takes, and how much memory, for a large rack.

    python benchmarks/judge.py [--nodes 1000] [--criteria 100] [--samples 5]

Records are made one at a time, as they are when a run is read from disk; the figures are for everything from the
first record to the judgement, and the peak is of the whole process.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import GENESIS, Kind, Record
from rackproof.core.judging.judge import judge_records

METRICS = (
    ("storage.read_bandwidth", "MB/s"),
    ("storage.write_bandwidth", "MB/s"),
    ("storage.random_read_iops", "1/s"),
    ("storage.random_read_latency", "us"),
)


def architecture(criteria: int) -> Architecture:
    """Criteria over as many storages as it takes; every other one is a share of the node's first storage."""
    entries = []
    for number in range(criteria):
        metric, unit = METRICS[number % len(METRICS)]
        bar = {"op": "le" if unit == "us" else "ge", "value": 50.0, "unit": unit}
        if number % 2:
            of = {"metric": metric, "where": {"storage": "s0"}, "scope": "node", "reduce": "each"}
            bar |= {"unit": "percent", "of": of}
        entries.append(
            {
                "id": f"c{number}",
                "title": "A criterion",
                "metric": metric,
                "where": {"storage": f"s{number // len(METRICS)}"},
                "scope": "node",
                "max_cv_pct": 10,
                "pass": bar,
                "source": "made-up",
                "reason": "It is there to be judged.",
                "hint": "Look at the figures.",
            }
        )
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
            "system": {"time": {"server_role": "gpu", "max_offset_ms": 1}},
            "fabric": {"kind": "roce", "mtu": 9000},
            "storage": {},
            "tools": {"packages": [], "programs": []},
            "profiles": {},
            "criteria": entries,
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
        },
    )
    for index, name in enumerate(names):
        yield _record(
            Kind.CHECK,
            {"check": "base.up", "node": name, "outcome": "passed", "protects": "All of it.", "hint": "Look."},
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
                    "conditions": {"cache": "direct", "runtime_s": 60},
                    "raw": [f"{index:032x}{number:032x}"],
                    "step": f"storage.{number}",
                },
            )


def _record(kind: Kind, body: dict[str, object]) -> Record:
    return Record(seq=0, time="2026-01-01T00:00:00Z", kind=kind, body=body, prev=GENESIS, hash=GENESIS)


def peak_mb() -> float:
    """Of this process so far, in MB (10^6 B)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--criteria", type=int, default=100)
    parser.add_argument("--samples", type=int, default=5)
    size = parser.parse_args()
    promised = architecture(size.criteria)
    before = peak_mb()
    begin = time.perf_counter()
    for _ in records(size.nodes, size.criteria, size.samples):
        pass
    making = time.perf_counter() - begin
    begin, begin_cpu = time.perf_counter(), time.process_time()
    judgement = judge_records(promised, records(size.nodes, size.criteria, size.samples))
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    print(f"{size.nodes} nodes × {size.criteria} criteria × {size.samples} samples")
    print(f"{len(judgement.verdicts)} verdicts, {judgement.outcome}")
    print(f"reading and judging {elapsed:.2f} s ({cpu:.2f} s of CPU), {making:.2f} s of it for making up the records")
    print(f"peak memory {peak_mb():.0f} MB, of which {before:.0f} MB before the first record")


if __name__ == "__main__":
    main()
