"""Checks of GPUs with keys that the written rack's architecture does not set."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from rackproof.core.architecture.gpu import Clocks
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.rack import Node
from rackproof.remote.collect import RecordingReader
from rackproof.remote.command import CommandResult
from rackproof.selftest.written import open_rack
from rackproof.validation.context import Context
from rackproof.validation.evaluate import Case

from .checking import DATA, validators

PASSED, FAILED, UNMEASURED = CheckOutcome.PASSED, CheckOutcome.FAILED, CheckOutcome.UNMEASURED
OPEN_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build\nGCC version: 13\n"
CLOSED_MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.247.01  Mon Mar  3\nGCC version: 13\n"


@cache
def written() -> Context:
    return open_rack(DATA, "hgx-h200-roce")


class Said:
    """A written node with some other answers."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
        for part, stdout in self.answers.items():
            if part in command:
                return CommandResult("gpu-01", command, 0, stdout.encode(), b"", timeout_s=timeout_s)
        return written().readers["gpu-01"].read(command)


def asked(check_id: str, answers: dict[str, str] | None = None, **gpu: Any) -> CheckResult:
    """A check on the first node, with other keys of ``gpu`` and other answers."""
    base = written()
    assert base.arch.gpu is not None
    arch = base.arch.model_copy(update={"gpu": base.arch.gpu.model_copy(update=gpu)})
    context = replace(base, arch=arch, readers={"gpu-01": RecordingReader("gpu-01", Said(answers or {}))})
    check, function = validators()[check_id]
    return context.evaluate(function, Case(check, base.rack.node("gpu-01"), ""))


def test_dmabuf_needs_the_open_module_and_the_kernels_part() -> None:
    module, symbols = "/proc/driver/nvidia/version", "/proc/kallsyms"
    good = {module: f"{OPEN_MODULE}status 0\n", symbols: "2\nstatus 0\n"}
    assert asked("gpu.gpudirect", good, gpudirect="dmabuf").outcome is PASSED
    closed = asked("gpu.gpudirect", good | {module: f"{CLOSED_MODULE}status 0\n"}, gpudirect="dmabuf")
    assert (closed.outcome, closed.message) == (FAILED, "open kernel module: expected True, actual False")
    old_kernel = asked("gpu.gpudirect", good | {symbols: "0\nstatus 1\n"}, gpudirect="dmabuf")
    assert (old_kernel.outcome, "DMA-BUF" in old_kernel.message) == (FAILED, True)
    hidden = asked("gpu.gpudirect", good | {symbols: "grep: /proc/kallsyms: denied\nstatus 2\n"}, gpudirect="dmabuf")
    assert hidden.outcome is UNMEASURED


@pytest.mark.parametrize(
    ("text", "outcome"), [("Insufficient Permissions", UNMEASURED), ("[Insufficient Permissions]", UNMEASURED),
                          ("Unknown Error", FAILED)],
)  # fmt: skip
def test_what_the_driver_does_not_show_to_a_login_is_no_error_of_the_gpu(text: str, outcome: CheckOutcome) -> None:
    command = "nvidia-smi -q -x"
    healthy = written().readers["gpu-01"].read(command).text
    result = asked("gpu.healthy", {command: healthy.replace("<used>1 MiB<", f"<used>{text}<", 1)})
    assert (result.outcome, f"fb_memory_usage/used: {text}" in result.message) == (outcome, True)


def test_the_power_limit_is_the_gpus_own_by_default() -> None:
    query = written_file("query.xml")
    assert asked("gpu.power_limit", power_limit_w=None).outcome is PASSED
    lowered = query.replace("<current_power_limit>700.00", "<current_power_limit>650.00", 1)
    assert asked("gpu.power_limit", {"nvidia-smi -q -x": lowered}, power_limit_w=None).outcome is FAILED
    silent = query.replace("<default_power_limit>700.00 W", "<default_power_limit>N/A", 1)
    assert asked("gpu.power_limit", {"nvidia-smi -q -x": silent}, power_limit_w=None).outcome is UNMEASURED


def test_a_limit_of_applications_below_the_highest_clock_is_a_reason_of_its_own() -> None:
    text = (
        written_file("query.xml")
        .replace("<graphics_clock>1980", "<graphics_clock>1410")
        .replace("setting>Not Active", "setting>Active")
    )
    declared = Clocks(sm_max_mhz=1980, application_sm_mhz=1410)
    assert asked("gpu.clocks", {"nvidia-smi -q -x": text}, clocks=declared).outcome is PASSED


def test_clocks_of_applications_that_the_driver_no_longer_knows_cannot_be_asked_for() -> None:
    text = written_file("query.xml").replace("<graphics_clock>1980 MHz", "<graphics_clock>N/A")
    assert asked("gpu.clocks", {"nvidia-smi -q -x": text}).outcome is PASSED
    assert asked("gpu.clocks", {"nvidia-smi -q -x": text}, clocks=Clocks(application_sm_mhz=1980)).outcome is UNMEASURED


def test_an_xid_that_the_site_allows_is_no_failure() -> None:
    line = "[ 77.1] gpu-01 kernel: NVRM: Xid (PCI:0000:bb:00): 63, pid=1, name=a, Row Remapper: New row\n"
    log = f"[ 41.2] gpu-01 kernel: NVRM: loading NVIDIA UNIX Open Kernel Module\n{line}status 0\n"
    assert asked("gpu.xid", {"journalctl": log}).outcome is FAILED
    assert asked("gpu.xid", {"journalctl": log}, xid_allowed=(63,)).outcome is PASSED


def test_a_kernel_log_without_a_word_of_the_driver_is_no_answer() -> None:
    assert asked("gpu.xid", {"journalctl": "status 1\n"}).outcome is UNMEASURED


def test_a_diagnosis_whose_every_test_was_skipped_is_no_answer() -> None:
    skipped = written_file("dcgm.json").replace('"PASS"', '"SKIP"')
    assert asked("gpu.dcgm", {"dcgmi": skipped}).outcome is UNMEASURED


@pytest.mark.parametrize("check_id", ["gpu.xid", "gpu.on_bus", "gpu.kernel_module"])
def test_nodes_that_simulate_their_gpus_have_no_driver_to_ask(check_id: str) -> None:
    check, _ = validators()[check_id]
    base = written()
    assert check.items(base.arch, base.rack.node("gpu-01"), base.rack) == ("",)
    simulated = Node("gpu-01", ("gpu",), {"simulated_gpus": True})
    assert check.items(base.arch, simulated, base.rack) == ()


def written_file(name: str) -> str:
    return (DATA / "written" / "hgx-h200-roce" / "gpu-01" / "gpu" / name).read_text()


def test_imex_and_the_inventory_may_spell_an_ipv6_address_differently() -> None:
    nodes = ["2001:db8::1", "2001:0DB8:0:0::2"]
    base = written()
    data = {**base.rack.node("gpu-01").data, "gpu": {"imex": {"nodes": nodes}}}
    check, function = validators()["gpu.imex"]

    def imex(listed: str, running: str) -> CheckResult:
        answers = {
            "nodes_config.cfg": f"2001:DB8:0::1\n{listed}\nstatus 0\n",
            "nvidia-imex-ctl": written_file("imex.json")
            .replace("192.0.2.1", "2001:db8::1")
            .replace("192.0.2.2", running)
            + "status 0\n",
        }
        context = replace(base, readers={"gpu-01": RecordingReader("gpu-01", Said(answers))})
        return context.evaluate(function, Case(check, replace(base.rack.node("gpu-01"), data=data), ""))

    assert imex("2001:db8::2", "2001:db8:0::2").outcome is PASSED
    assert imex("2001:db8::2", "2001:db8::20").outcome is FAILED
    assert imex("2001:db8::20", "2001:db8::2").outcome is FAILED
