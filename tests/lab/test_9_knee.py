"""Limits that are injected into the rack: the knee of a storage is where they put it, to within 20 %."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof.bench.storage.knee_reader import OUTSTANDING
from rackproof.core.evidence import Kind
from rackproof.core.knee import FACTOR
from rackproof.core.rack import Rack
from rackproof.evidence.store import read_records
from rackproof.lab import faults
from rackproof.lab.rack import Lab
from tests.lab.conftest import INVENTORY, Command

TOLERANCE = 0.2
RUN_S = 5400
"""Up to 25 loads of half a minute on a busy host, and the files."""
ANSWER_BYTES = 4096 + 28 + 12 + 44 + 8 + 16 + 66
"""READ of 4 KiB over NFS 4.2 on the wire: data, RPC header, COMPOUND, SEQUENCE, PUTFH, READ, and Ethernet to TCP."""
CEPH_ANSWER_BYTES = 4096 + 32 + 4 * 16 + 41 + 180 + 66
"""The same of CephFS, by messenger 2 in its crc mode: data, preamble, the segments' ends, header, the reply, TCP."""


@dataclass(frozen=True)
class Limit:
    """A fault that lets a storage answer at most ``rate`` requests a second, one after another."""

    fault: str
    storage: str
    block_bytes: int
    rate: float
    each_client: bool
    """Whether each client has a limit of its own, or all of them one."""


LIMITS = [
    # So slow that its queue is longer than what emulated processors add: at 27.3 Mb/s and 15 ms these doubled the 99th
    # percentile at 16 requests in flight, long before the port did.
    Limit("slow-port", "nfs-tcp", 4096, 4e6 / 8 / ANSWER_BYTES, each_client=False),
    Limit("slow-port", "cephfs", 4096, 4e6 / 8 / CEPH_ANSWER_BYTES, each_client=False),
    # One slow drive is enough: the 99th percentile is the slowest client's.
    Limit("slow-disk", "local", 16384, 1048576 / 16384, each_client=True),
]


@pytest.fixture
def measure(tmp_path: Path, command: Command) -> Any:
    """Search for the knee, and return its measurement."""

    def run(limit: Limit) -> dict[str, Any]:
        knee = {
            "block_bytes": limit.block_bytes, "file_bytes": 33554432, "most_outstanding": 64, "runtime_s": 45,
        }  # fmt: skip
        document = {
            "apiVersion": "refarch/v1",
            "extends": "virtual-rack",
            "metadata": {"id": "virtual-rack-knee", "version": "1.0.0", "title": "Virtual rack with a knee"},
            "overrides": {"profiles.knee": {"reason": "The knee alone.", "by": "tests"}},
            "profiles": {"knee": {"storage": {"storages": [limit.storage], "jobs": {}, "knee": knee}}},
        }
        path, output = tmp_path / "knee.yaml", tmp_path / "reports"
        path.write_text(yaml.safe_dump(document))
        arguments = ("--architecture", str(path), "--profile", "knee", "--output", str(output), "--quiet")
        result = command("rackproof", "bench", INVENTORY, *arguments, timeout=RUN_S)
        print(result.stdout, result.stderr)
        (folder,) = output.iterdir()
        (measurement,) = (
            record.body
            for record in read_records(folder)
            if record.kind is Kind.MEASUREMENT and record.body["metric"] == OUTSTANDING
        )
        return measurement

    return run


@pytest.mark.long
@pytest.mark.usefixtures("_nothing_is_left_on")
@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.fault}-{limit.storage}")
def test_an_injected_knee_is_found_within_20_percent(converged: Rack, lab: Lab, measure: Any, limit: Limit) -> None:
    """Little's law: requests in flight are rate × latency, so the latency of the lowest load doubles at a known load.

    Below the limit each request is answered at once, with the latency of the lowest load; above it requests wait for
    each other, and latency is requests in flight / rate.
    """
    faults.inject(lab, limit.fault)
    measurement = measure(limit)
    assert measurement["samples"], measurement["reason"]
    (curve,) = measurement["conditions"]["curves"]
    print(yaml.safe_dump(curve))
    if not limit.each_client:
        assert curve["peak_rate"] == pytest.approx(limit.rate, rel=TOLERANCE), "the rack has another limit"
    lowest = min(step["p99_us"] for step in curve["steps"] if step["load"] == 1) / 1e6
    expected = FACTOR * limit.rate * lowest * (len(measurement["members"]) if limit.each_client else 1)
    (actual,) = measurement["samples"]
    print(f"knee: expected {expected:.1f} requests in flight, actual {actual:.1f}, {actual / expected - 1:+.1%}")
    assert curve["knee"] != "not reached: the number is a lower bound"
    assert actual == pytest.approx(expected, rel=TOLERANCE)
