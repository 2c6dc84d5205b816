"""The scaled systems on the running rack, each with a stage throttled harder than declared: the claim about it fails,
and the other claims of the same steps hold.

Each run has the steps of a few claims only, in a profile of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof.core.rack import Rack
from tests.lab.conftest import INVENTORY, ROOT, Command

RUN_S = 3600
"""With the deploy of the packages that the virtual rack alone does not have."""


@dataclass(frozen=True)
class Negative:
    """A harder limit of one stage of a scaled system."""

    seed: str
    parts: dict[str, tuple[str, ...]]
    """Part of the profile and its keys that stay; of ``ingest`` the jobs."""
    scale: dict[str, Any]
    """Further entries of the file's ``scale``."""
    fail: set[str]
    hold: set[str] = field(default_factory=set)


def _slower(times: float, **link: Any) -> dict[str, Any]:
    """One more limit: the least one counts."""
    reason = "Less than the system has."
    factor = {"title": "Less than declared", "published": 1, "here": times, "unit": "ratio", "reason": reason}
    return {"factors": {"slower": factor}, "links": {"slower": {"unit": "Gb/s", "reason": reason} | link}}


def _slower_drive(storage: str, published: float, factor: str) -> dict[str, Any]:
    limit = {"storage": storage, "published": published, "unit": "GB/s", "by": [factor], "reason": "A slower drive."}
    return {"drives": {"slower": limit}}


LINKS = ("rdma_block_bytes", "rdma_duration_s", "latency_iterations", "tcp_duration_s", "tcp_streams", "runs")
FIO = ("storages", "jobs")
NEGATIVES = [
    Negative(
        "dell-isilon-f800-dgx1", {"links": (*LINKS, "to_storage")},
        _slower(0.5, role="storage", published=40, by=["port", "slower"]), {"T18"}, {"T2"},
    ),
    Negative(
        "hitachi-v225g", {"ingest": ("epochs", "from-memory", "ports")},
        _slower(0.3, role="gpu", published=100, by=["port", "slower"], series=True), {"C3"}, {"C2", "C10"},
    ),
    Negative("hpe-apollo6500-weka", {"storage": FIO}, _slower_drive("cephfs", 5, "matrix-drive"), {"A3"}, {"A4"}),
    Negative(
        "dell-scaling-little", {"storage": (*FIO, "random_reads")}, _slower_drive("nfs-tcp", 3, "drive"),
        {"B2"}, {"B3"},
    ),
    # All three say of one number that it is large: the rate of inference from the shared storage.
    Negative(
        "weka-inference-nvme-dram", {"ingest": ("matrix", "nvme")},
        _slower(1.5e-6, role="gpu", published=100, by=["slower"]), {"A9", "A10", "A11"},
    ),
    Negative(
        "weka-inference-nvme-dram", {"storage": (*FIO, "connections")},
        _slower(
            0.4, role="storage", published=1.5, unit="GB/s", each_connection_of="nfs-tcp", by=["connection", "slower"]
        ), {"A12"},
    ),
]  # fmt: skip


def document(negative: Negative) -> dict[str, Any]:
    """The system's file with the harder limit, and a profile of the steps alone."""
    own = yaml.safe_load((ROOT / "architectures" / f"{negative.seed}-scaled.yaml").read_text())["profiles"]["lab"]
    profile: dict[str, Any] = {}
    for part, keys in negative.parts.items():
        if part == "ingest":
            jobs = {name: own[part]["jobs"][name] for name in keys}
            sets = {job["dataset"]: own[part]["datasets"][job["dataset"]] for job in jobs.values()}
            profile[part] = {"datasets": sets, "jobs": jobs}
        else:
            profile[part] = {key: own[part][key] for key in keys}
    return {
        "apiVersion": "refarch/v1",
        "extends": f"{negative.seed}-scaled",
        "metadata": {"id": f"{negative.seed}-throttled", "version": "1.0.0", "title": "A throttled stage"},
        "overrides": {"profiles.throttled": {"reason": "The steps of a few claims.", "by": "tests"}},
        "profiles": {"throttled": profile},
        "scale": negative.scale,
    }


@pytest.mark.long
@pytest.mark.parametrize("negative", NEGATIVES, ids=lambda negative: "-".join([negative.seed, *sorted(negative.fail)]))
def test_a_throttled_stage_fails_its_claim_and_no_other(
    converged: Rack, command: Command, tmp_path: Path, negative: Negative
) -> None:
    path, output = tmp_path / "throttled.yaml", tmp_path / "reports"
    path.write_text(yaml.safe_dump(document(negative)))
    arguments = ("--architecture", str(path), "--profile", "throttled", "--output", str(output), "--quiet")
    result = command("rackproof", "certify", INVENTORY, *arguments, timeout=RUN_S)
    print(result.stdout, result.stderr)
    (folder,) = (entry for entry in output.iterdir() if entry.is_dir())
    certificate = json.loads((folder / "certificate.json").read_text())
    status = {claim["id"]: claim["status"] for claim in certificate["claims"]}
    measured = {id_ for id_, one in status.items() if one not in (None, "UNMEASURED")}
    for limit in certificate["throttles"]:
        print(limit["title"], limit["here"], limit["here_unit"], "in force:", limit["in_force"])
        assert " on " in limit["in_force"] or "in jobs of several rates only" in limit["title"]
    print(status)
    assert {id_ for id_ in measured if status[id_] not in ("PASS", "WARN")} == negative.fail
    assert {status[id_] for id_ in negative.fail} == {"FAIL"}, "the host was too busy to blame the throttle"
    assert negative.hold <= measured
