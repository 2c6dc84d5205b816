"""NVLink counters, the kernel module, the fabric manager, PCI devices, Xids, DCGM and gdscheck."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.architecture.profiles import DiagnosticTest
from rackproof.parse import ParseError
from rackproof.parse.dcgm import DiagResult, parse_dcgm_diag
from rackproof.parse.gdscheck import parse_gdscheck
from rackproof.parse.nvidia_driver import (
    KernelModule,
    parse_fabric_manager_version,
    parse_kernel_module,
    parse_nvidia_devices,
)
from rackproof.parse.nvlink_errors import parse_nvlink_errors
from rackproof.parse.xid import SwitchError, Xid, parse_driver_log

from . import tool_output

LOADED = "[   41.2] gpu kernel: NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build"


def test_nvlink_counters_until_hopper() -> None:
    first, second = parse_nvlink_errors(tool_output("link-errors-570-2gpu.txt"))
    assert [link.link for link in first.links] == [0, 1, 2, 3]
    assert dict(first.links[0].counters) == {"Replay Errors": 0, "Recovery Errors": 0, "CRC Errors": 0}
    assert second.links[2].counters["CRC Errors"] == 7


def test_nvlink_counters_since_blackwell_leave_out_what_is_no_fault() -> None:
    (gpu,) = parse_nvlink_errors(tool_output("link-errors-595-blackwell.txt"))
    assert [link.counters["Symbol Errors"] for link in gpu.links] == [0, 3, 0]
    assert gpu.links[0].counters["Link recovery failed events"] == 0
    assert not [kind for kind in gpu.links[0].counters if kind.startswith(("FEC", "Raw", "Tx", "Effective BER"))]


def test_a_gpu_without_nvlink_has_no_counters_and_a_link_without_some_is_refused() -> None:
    (gpu,) = parse_nvlink_errors(tool_output("nvlink-none.txt"))[:1]
    assert gpu.links == ()
    text = tool_output("link-errors-570-2gpu.txt")
    with pytest.raises(ParseError, match="different counters"):
        parse_nvlink_errors(text.replace("\t Link 3: CRC Errors: 0\n", "", 1))
    with pytest.raises(ParseError, match="no counters and no message"):
        parse_nvlink_errors(text.splitlines()[0] + "\n")


def test_nvlink_counters_that_are_not_available_are_none() -> None:
    text = tool_output("link-errors-570-2gpu.txt").replace("Replay Errors: 0", "Replay Errors: N/A")
    assert parse_nvlink_errors(text)[0].links[0].counters["Replay Errors"] is None


def test_kernel_modules_both_kinds() -> None:
    assert parse_kernel_module(tool_output("kernel-module-570-open.txt")) == KernelModule("570.172.08", open=True)
    assert parse_kernel_module(tool_output("kernel-module-535.txt")) == KernelModule("535.247.01", open=False)


def test_fabric_manager_version() -> None:
    assert parse_fabric_manager_version(tool_output("fabric-manager-version.txt")) == "570.172.08"
    with pytest.raises(ParseError, match="expected a version"):
        parse_fabric_manager_version("Fabric Manager version is : unknown\n")


def test_devices_on_the_bus() -> None:
    devices = parse_nvidia_devices("0000:18:00.0 0302: 10de:2335 (rev a1)\n0000:86:00.0 0680: 10de:22a3 (rev ff)\n")
    assert [(device.device_class, device.device, device.answers) for device in devices] == [
        ("0302", "2335", True),
        ("0680", "22a3", False),
    ]
    assert parse_nvidia_devices("") == ()
    with pytest.raises(ParseError, match="unexpected line"):
        parse_nvidia_devices("lspci: cannot open /sys/bus/pci\n")


@pytest.mark.parametrize(
    "line",
    [
        "[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 119, pid=20243, name=nvidia-smi, Timeout after 6s",
        "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 NVRM: Xid (PCI:0000:9b:00): 119, pid=20243, name=nvidia-smi, "
        "Timeout after 6s",
        "4,3973,227996636,-;NVRM: Xid (PCI:0000:9B:00): 119, pid=20243, name=nvidia-smi, Timeout after 6s",
        "[   77.1] NVRM: Xid (0000:9b:00): 119, pid=20243, name=nvidia-smi, Timeout after 6s",
        "[   77.1] NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 119, pid=20243, name=nvidia-smi, Timeout after 6s",
    ],
)
def test_xids_in_any_format_of_the_log(line: str) -> None:
    log = parse_driver_log([LOADED, line])
    assert log.loaded
    assert log.xids == (Xid("0000:9b:00", 119, "pid=20243, name=nvidia-smi, Timeout after 6s"),)
    assert not log.xids[0].of_application


def test_errors_of_applications_and_of_the_machine() -> None:
    def of_application(code: int) -> bool:
        return parse_driver_log([f"NVRM: Xid (PCI:0000:9b:00): {code}, text"]).xids[0].of_application

    assert all(of_application(code) for code in (13, 31, 43, 45, 68))
    assert not any(of_application(code) for code in (48, 63, 64, 74, 79, 94, 95, 119, 120, 140, 149, 154, 999))


def test_switches_and_gpus_that_are_gone() -> None:
    log = parse_driver_log(
        [
            "[8.0] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 63 LTSSM Fault Up",
            "[8.1] nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Non-fatal, Link 60 Minion Link DLREQ interrupt",
            "[8.2] NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.",
        ]
    )
    assert log.switch_errors[0] == SwitchError("0000:05:00.0", 20034, True, "Fatal, Link 63 LTSSM Fault Up")
    assert not log.switch_errors[1].fatal
    assert (log.lost, log.loaded) == (("0000:91:00.0",), False)


def test_an_xid_in_other_words_is_refused() -> None:
    with pytest.raises(ParseError, match="expected an Xid"):
        parse_driver_log(["NVRM: Xid on GPU 4"])


@given(st.lists(st.text(max_size=60) | st.from_regex(r"NVRM: Xid \(.{0,20}\): .{0,20}", fullmatch=True), max_size=6))
def test_any_log_is_read_or_refused(lines: list[str]) -> None:
    try:
        log = parse_driver_log(lines)
    except ParseError:
        return
    assert sum("NVRM: Xid" in line for line in lines) <= len(log.xids) + sum("NVRM: loading" in line for line in lines)


def test_dcgm_3_and_4() -> None:
    results = parse_dcgm_diag(tool_output("dcgm-3-one-failed.json")).results
    assert [result.status for result in results] == ["Pass", "Pass", "Fail", "Skip"]
    assert results[2] == DiagResult(
        "Page Retirement/Row Remap", "Fail", "1", "GPU 1 had uncorrectable memory errors and row remapping failed.",
        warned=True,
    )  # fmt: skip
    assert parse_dcgm_diag(tool_output("dcgm-4.json")).results == (
        DiagResult("software", "Pass", "0", ""),
        DiagResult("software", "Fail", "1", "Persistence mode for GPU 1 is disabled.", warned=True),
    )


def test_every_test_of_a_profile_has_one_name_in_all_versions() -> None:
    titles = (
        "Diagnostic", "GPU Memory", "Memory Bandwidth", "Memtest", "PCIe", "Pulse Test", "Targeted Power",
        "Targeted Stress",
    )  # fmt: skip
    tests = get_args(DiagnosticTest)
    assert tuple(DiagResult(title, "Pass", "0", "").named for title in titles) == tests
    assert tuple(DiagResult(test, "Pass", "0", "").named for test in tests) == tests


def test_dcgm_without_a_test_and_with_an_unknown_status() -> None:
    with pytest.raises(ParseError, match="no test was run"):
        parse_dcgm_diag('{"DCGM Diagnostic": {"test_categories": []}}')
    unknown = parse_dcgm_diag(tool_output("dcgm-4.json").replace('"Pass"', '"Perhaps"'))
    assert [result.status for result in unknown.results] == ["Perhaps", "Fail"]


@pytest.mark.parametrize("entry", ["null", "[]", "7", '{"name": "x"}', '{"name": "x", "results": [null]}'])
def test_an_odd_entry_of_dcgm_does_not_cost_the_others(entry: str) -> None:
    tests = f'[{entry}, {{"name": "memory", "results": [{{"status": "Fail", "gpu_id": "3"}}]}}]'
    text = f'Warning: something\n{{"DCGM Diagnostic": {{"test_categories": [{{"category": "c", "tests": {tests}}}]}}}}'
    diagnosis = parse_dcgm_diag(text)
    assert [result.status for result in diagnosis.results] == ["unreadable", "Fail"]
    assert diagnosis.before == "Warning: something"


def test_gdscheck() -> None:
    gds = parse_gdscheck(tool_output("gdscheck-1.13.txt"))
    assert (gds.version, gds.compat_mode, gds.verified) == ("1.13.1.3", True, True)
    assert (gds.drivers["NVMe"], gds.drivers["NVMe P2PDMA"], gds.drivers["NFS"]) == (
        "Supported", "Unsupported", "Supported",
    )  # fmt: skip
    assert dict(gds.gpus) == {0: True, 1: True}
    assert not gds.forced
    forced = tool_output("gdscheck-1.13.txt").replace(
        "use_compat_mode : true", "use_compat_mode : false\n properties.force_compat_mode : true"
    )
    assert (parse_gdscheck(forced).forced, parse_gdscheck(forced).compat_mode) == (True, True)
    cut = tool_output("gdscheck-1.13.txt").replace(" Platform verification succeeded\n", "")
    assert parse_gdscheck(cut).verified is None
