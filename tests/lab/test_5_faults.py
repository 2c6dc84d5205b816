"""Faults on the running rack: the expected check notices each, nothing else does, and afterwards all is well again.

Several faults that do not hide each other are put on at once and asked about in one reading of the rack.
"""

from __future__ import annotations

import re
import time
from functools import partial

import pytest

from rackproof import architectures
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.rack import Rack
from rackproof.lab import faults
from rackproof.lab.rack import Lab
from rackproof.remote.fleet import Fleet
from rackproof.selftest.validators import load_validators
from rackproof.validation.context import live_context
from rackproof.validation.evaluate import Case, call
from tests.lab.conftest import ROOT
from tests.lab.neighbours import may_notice
from tests.lab.test_9_storage_faults import FAULTS as FAULTS_OF_BENCHMARKS

WAVES = {
    "hosts": [
        "mtu", "kernel-parameter", "package-skew", "package-removed", "file-changed", "service-stopped",
        "service-failed", "mount-missing", "mount-covered", "memory-removed", "clock-off", "slow-disk", "slow-port",
        "gpu-lost", "pcie-width", "ecc-errors", "nvlink-down", "tool-warnings",
    ],
    "loss": ["packet-loss", "nfs-frozen", "clock-stopped", "tool-empty"],
    "cable": ["link-down", "tool-truncated", "clock-stepped"],
    "garbled": ["tool-garbled"],
    "localised": ["tool-localised"],
    "lies": ["tool-lies"],
}  # fmt: skip
GPUS_ONLY = {"garbled", "localised", "lies"}
HEALED_S = 600
"""An emulated rack needs its time to find its servers again."""
SLOW_S = 2.0
"""A throttled drive needs at least that long for 4 MiB at 1 MiB/s."""


@pytest.fixture(scope="module")
def arch() -> Architecture:
    """The virtual rack's own, and a question about lost packets, which it does not ask of emulated links.

    Without Slurm and containers: they notice nearly every fault of a node as well, in words of their own.
    """
    arch = architectures.load("virtual-rack").model
    assert arch.fabric is not None
    fabric = arch.fabric.model_copy(update={"loss_max_pct": 5.0})
    return arch.model_copy(update={"fabric": fabric, "slurm": None, "containers": None})


def read_rack(rack: Rack, arch: Architecture, gpus_only: bool = False) -> list[CheckResult]:
    """Every check of every node, or those of GPUs, through the package itself."""
    with Fleet(rack) as fleet:
        context = live_context(rack, arch, fleet)
        cases = [
            (function, Case(check, node, item))
            for check, function in load_validators(ROOT / "validators").values()
            for node in rack.nodes
            for item in check.items(arch, node, rack)
            if check.id.startswith("gpu.") or not gpus_only
        ]
        questions: dict[str, list[partial[None]]] = {}
        for function, case in cases:
            questions.setdefault(case.node.name, []).append(partial(call, function, context.given(case)))
        context.gather({node: list(asked) for node, asked in questions.items()})
        return [context.evaluate(function, case) for function, case in cases]


def bad(results: list[CheckResult]) -> dict[str, str]:
    return {f"{r.check}[{r.item}]@{r.node}": r.message for r in results if r.outcome is not CheckOutcome.PASSED}


def seconds_of_a_read(rack: Rack) -> float:
    """As dd counts them on the node: how long the host takes to get there is not the drive's."""
    with Fleet(rack) as fleet:
        result = fleet["gpu-01"].run("dd if=/dev/disk/by-label/rp-local of=/dev/null bs=1M count=4 iflag=direct", 300)
    assert result.ok, result.why
    seconds = re.search(r"copied, ([\d.e-]+) s", result.stderr.decode())
    assert seconds, result.stderr
    return float(seconds[1])


@pytest.mark.usefixtures("_nothing_is_left_on")
@pytest.mark.long
@pytest.mark.parametrize("wave", WAVES)
def test_faults_are_noticed_by_their_checks_and_heal(converged: Rack, lab: Lab, arch: Architecture, wave: str) -> None:
    on = [faults.live_fault(name) for name in WAVES[wave]]
    for fault in on:
        faults.inject(lab, fault.name)
    assert set(faults.active(lab.folder)) == set(WAVES[wave])
    results = read_rack(converged, arch, wave in GPUS_ONLY)
    for fault in on:
        if fault.check:
            outcomes = [
                r
                for r in results
                if (r.check, r.node) == (fault.check, fault.seen_on or fault.node) and fault.item in ("", r.item)
            ]
            noticed = [r for r in outcomes if r.outcome is fault.outcome or "was starved" in r.message]
            assert noticed, (fault.name, outcomes)
    unexplained = [
        r
        for r in results
        if r.outcome is not CheckOutcome.PASSED and not any(may_notice(fault, r.check, r.node) for fault in on)
    ]
    assert bad(unexplained) == {}
    slow_s = seconds_of_a_read(converged) if "slow-disk" in WAVES[wave] else None
    assert slow_s is None or slow_s > SLOW_S

    faults.inject(lab, WAVES[wave][0])  # a second time
    assert set(faults.remove_all(lab)) == set(WAVES[wave])
    assert faults.remove(lab, WAVES[wave][0]) is None
    if wave in GPUS_ONLY and wave != "lies":
        return  # the next reading of the same GPUs says whether they are well
    deadline = time.monotonic() + HEALED_S
    while (left := bad(read_rack(converged, arch, wave in GPUS_ONLY))) and time.monotonic() < deadline:
        time.sleep(5)
    assert left == {}
    assert slow_s is None or seconds_of_a_read(converged) < slow_s / 2


def test_every_live_fault_is_tried() -> None:
    assert {name for names in WAVES.values() for name in names} | FAULTS_OF_BENCHMARKS == set(faults.live_faults())
