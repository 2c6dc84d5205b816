"""Evidence of a read benchmark as fio would have left it: commands, outputs and the measurements that they give."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from itertools import count
from typing import Any

from rackproof.bench.readers import READERS
from rackproof.bench.step import expected, reading_of
from rackproof.core.architecture import Architecture, FioJob
from rackproof.core.evidence import Kind, Measurement, Scope
from rackproof.core.fiojob import render
from rackproof.evidence.store import EvidenceStore
from rackproof.remote.command import CommandResult

_TIMES = count(1_795_314_000)
"""Seconds: no two runs print the same."""
JOB = FioJob(rw="read", block_bytes=1048576, iodepth=4, file_bytes=33554432, runtime_s=5)


def fio_json(rates: Mapping[str, float], name: str, options: Mapping[str, str]) -> str:
    """fio's document for clients by address, each with its rate in MB/s."""

    def direction(rate: float) -> dict[str, Any]:
        latency = {"min": 1, "max": 2, "mean": 1.5, "stddev": 0.1, "N": 9} | ({} if rate else {"max": 0})
        moved = int(rate * 1e6 * JOB.runtime_s)
        return {
            "io_bytes": moved, "io_kbytes": moved // 1024, "bw_bytes": int(rate * 1e6), "bw": int(rate * 1e6 / 1024),
            "iops": rate, "runtime": JOB.runtime_s * 1000, "total_ios": int(rate * JOB.runtime_s), "short_ios": 0,
            "drop_ios": 0, "slat_ns": latency, "clat_ns": latency, "lat_ns": latency,
        }  # fmt: skip

    entries = [
        {"jobname": name, "groupid": 0, "error": 0, "job options": dict(options), "hostname": address, "port": 8765,
         "read": direction(rate), "write": direction(0), "trim": direction(0)}
        for address, rate in rates.items()
    ]  # fmt: skip
    head = {"fio version": "fio-3.39", "timestamp": next(_TIMES), "global options": {}}
    return json.dumps(head | {"client_stats": entries})


def append_reads(
    store: EvidenceStore, architecture: Architecture, rates: Mapping[str, float], storage: str = "nfs", part: str = ""
) -> list[Measurement]:
    """Append one run of fio that read at these rates, MB/s by node, and its measurements; return these.

    ``part`` tells steps on different nodes apart.
    """
    addresses = {f"10.0.0.{number}": node for number, node in enumerate(rates, 1)}
    parts, arguments, options = [], [], {}
    for address, node in addresses.items():
        text = render(f"{storage}-read", JOB, f"/mnt/{storage}/rackproof-bench/{node}")
        options = dict(line.split("=", 1) for line in text.splitlines()[1:])
        parts.append(f'printf %s {shlex.quote(text)} > "$d/{node}.fio"')
        arguments.append(f'--client={address},8765 "$d/{node}.fio"')
    output = fio_json({address: rates[node] for address, node in addresses.items()}, f"{storage}-read", options)
    command = f"d=$(mktemp -d) && {' && '.join(parts)} && fio --output-format=json {' '.join(arguments)}"
    answer = CommandResult(next(iter(rates)), command, 0, output.encode(), b"", 6.0, 60.0)
    store.command(answer)
    step, labels = f"storage/{storage}/read{part}", {"storage": storage, "block_bytes": str(JOB.block_bytes)}
    read = READERS["fio"]([answer], architecture)
    places = [expected("storage.read_bandwidth", Scope.NODE, [node], labels, step) for node in rates]
    measurements = [reading_of(place, read, "fio") for place in places]
    for measurement in measurements:
        store.append(Kind.MEASUREMENT, measurement)
    store.append(Kind.STEP, {"step": step, "status": "done", "elapsed_s": 6.0})
    return measurements
