"""Processors, memory, drives and the kernel's log."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from rackproof.core.architecture.system import KernelEvent
from rackproof.parse import ParseError
from rackproof.parse.block import LocalDrive, parse_drives
from rackproof.parse.dmidecode import parse_memory_modules
from rackproof.parse.edac import Controller, parse_edac
from rackproof.parse.kernel_events import EVENTS, INTERESTING, events_in
from rackproof.parse.kernel_log import Message, parse_kernel_log
from rackproof.parse.lscpu import parse_lscpu
from rackproof.parse.nvme import parse_smart_logs
from rackproof.parse.pci_links import generation
from rackproof.parse.text import processor_list
from tests.unit.refusals import refuses

from . import tool_output

NESTED, FLAT = tool_output("lscpu-nested.json"), tool_output("lscpu-flat.json")
DRIVES, LOGS = tool_output("drives.txt"), tool_output("nvme-smart-logs.txt")


def test_lscpu_with_fields_below_each_other() -> None:
    processors = parse_lscpu(NESTED)
    assert processors.model == "AMD EPYC 9554 64-Core Processor"
    assert (processors.sockets, processors.cores_per_socket, processors.cores, processors.threads_per_core) == (
        2,
        2,
        4,
        2,
    )
    assert (processors.online, processors.offline) == (6, 2)
    assert processors.numa_nodes == 2, "the third has no processors"


def test_lscpu_in_one_list() -> None:
    processors = parse_lscpu(FLAT)
    assert (
        processors.model,
        processors.cores,
        processors.threads_per_core,
        processors.online,
        processors.numa_nodes,
    ) == (None, 4, 1, 4, 1)


test_an_lscpu_that_contradicts_itself_is_refused = refuses(
    parse_lscpu,
    (NESTED.replace('"0-5"', '"0-4"'), "8 processors, 5 online, 2 offline"),
    (NESTED.replace('"0-5"', '"5-0"'), "expected a list of processors"),
    (NESTED.replace("Socket(s):", "Sockel:"), r"has no field Socket\(s\)"),
    (NESTED.replace('"NUMA node2 CPU(s):"', '"NUMA"'), "3 NUMA nodes, but processor lists of 2"),
    (FLAT.replace('"1"', '"one"'), "not an integer"),
    (FLAT.replace('"Architecture:"', '"CPU(s):"'), "twice"),
    (FLAT[:-20], "cut off or damaged"),
)


def test_an_lscpu_without_numa_lines_has_the_rest() -> None:
    entries = [entry for entry in json.loads(FLAT)["lscpu"] if "NUMA" not in entry["field"]]
    processors = parse_lscpu(json.dumps({"lscpu": entries}) + "\n")
    assert processors.numa_nodes is None
    assert processors.online == parse_lscpu(FLAT).online


def test_lists_of_processors() -> None:
    assert processor_list("lscpu", "0-2,5") == {0, 1, 2, 5}
    assert processor_list("lscpu", "") == frozenset()


def test_memory_modules() -> None:
    new, empty, old = parse_memory_modules(tool_output("dmidecode.txt"))
    assert (new.locator, new.size_mib, new.speed_mts, new.part_number) == (
        "P1-DIMMA1", 65536, 4400, "M321R8GA0BB0-CQKZJ",
    )  # fmt: skip
    assert (empty.locator, empty.size_mib, empty.speed_mts) == ("P1-DIMMA2", 0, None)
    assert (old.locator, old.size_mib, old.speed_mts) == ("P1-DIMMB1", 16384, 2933)


test_memory_modules_that_cannot_be_read = refuses(
    lambda case: parse_memory_modules(tool_output("dmidecode.txt").replace(*case)),
    (("64 GB", "Unknown"), "expected a size"),
    (("4400 MT/s", "fast"), "expected a speed"),
    (("\tLocator: P1-DIMMA1\n", ""), "no Locator"),
    (("Memory Device", "Chassis"), "expected a memory device"),
    (("type 17", "type 16"), "no memory modules"),
)


def test_memory_controllers() -> None:
    assert parse_edac(tool_output("edac.txt")) == (
        Controller("mc0", 0, 0, 120971),
        Controller("mc1", 48211, 1, 120971),
    )
    assert parse_edac("controllers 0\nend of edac\n") == ()
    with pytest.raises(ParseError, match="lists 1 of 2 controllers"):
        parse_edac("".join(line for line in tool_output("edac.txt").splitlines(True) if not line.startswith("mc1")))
    with pytest.raises(ParseError, match="twice"):
        parse_edac(tool_output("edac.txt").replace("mc1", "mc0"))


def test_drives_in_slots_and_solid_state_disks() -> None:
    samsung, dead, disk = parse_drives(DRIVES)
    assert samsung == LocalDrive(
        "nvme0",
        "nvme",
        2 * 3750738264 * 512,
        "SAMSUNG MZQL23T8HCLS-00A07",
        "GDC5602Q",
        "live",
        "0000:18:00.0",
        4,
        4,
        ("nvme0c0n1", "nvme0c0n2"),
    )
    assert (dead.state, dead.size_bytes, dead.pcie_generation, dead.pcie_width) == ("dead", 0, None, None)
    assert (disk.name, disk.kind, disk.size_bytes, disk.firmware) == ("sda", "sata_ssd", 480103981056, "904Q")


test_drives_that_cannot_be_read = refuses(
    lambda case: parse_drives(DRIVES.replace(*case)),
    (("end of drives\n", ""), "cut off"),
    ((" transport pcie\n", ""), "nvme0: has no transport"),
    ((" firmware_rev 10.0.2\n", ""), "nvme1: has no firmware_rev"),
    (("nvme0c0n1 3750738264", "nvme0c0n1"), "expected the size of a namespace"),
    (("nvme nvme1", "nvme nvme0"), "twice"),
    ((" size 937703088", " size many"), "not an integer"),
    (("nvme nvme0\n", "cat: permission denied\nnvme nvme0\n"), "unexpected line"),
)


@pytest.mark.parametrize(
    ("speed", "expected"), [("16.0 GT/s PCIe", 4), ("32 GT/s", 5), ("Unknown", None), (None, None), ("9 GT/s", None)]
)
def test_generations_of_pcie(speed: str | None, expected: int | None) -> None:
    assert generation(speed) == expected


def test_health_of_nvme_drives() -> None:
    logs = parse_smart_logs(LOGS)
    assert list(logs) == ["nvme0", "nvme1", "nvme10"]
    well, silent, worn = logs.values()
    assert silent is None, "it did not answer"
    assert well is not None
    assert (well.critical_warning, well.warnings, well.used_pct, well.media_errors) == (0, (), 1, 0)
    assert worn is not None
    assert (worn.used_pct, worn.media_errors) == (104, 17)
    assert worn.warnings == ("spare blocks used up", "reliability degraded")
    assert parse_smart_logs("end of smart logs\n") == {}


test_health_that_cannot_be_read = refuses(
    lambda case: parse_smart_logs(LOGS.replace(*case)),
    (("end of smart logs\n", ""), "cut off"),
    (("status 4", "status 127"), "is not installed"),
    (('"percent_used": 1,', ""), "no JSON document|percent_used"),
    (('"media_errors": 0', '"media_errors": "many"'), "not an integer"),
    (("drive nvme1\n", "drive nvme0\n"), "unexpected line"),
    (("status 4\n", ""), "unexpected line|no JSON"),
)


def test_the_kernels_log_and_what_is_wrong_in_it() -> None:
    messages = parse_kernel_log(tool_output("kernel-log-dmesg.txt"))
    assert messages[0].seconds == 0
    assert len(messages) == 9, "a line without a time is no message of its own"
    events = events_in(messages, tuple(EVENTS))
    assert {name: len(several) for name, several in events.items()} == {
        "file_system": 1, "hung_task": 1, "io_error": 1, "nvme_timeout": 1, "rcu_stall": 1, "soft_lockup": 1,
    }, "a job that reached its own limit is no fault of the machine"  # fmt: skip
    assert events_in(messages, ("machine_check",)) == {}


def test_the_journal_names_machine_and_kernel() -> None:
    messages = parse_kernel_log(tool_output("kernel-log-journal.txt"))
    assert messages[1] == Message(71.747594, "mce: [Hardware Error]: Machine check events logged")
    assert set(events_in(messages, tuple(EVENTS))) == {
        "clock_unstable", "kernel_bug", "machine_check", "memory_error", "nfs_timeout", "out_of_memory", "thermal",
    }  # fmt: skip


HARMLESS = (
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "HEST: Enabling Firmware First mode for corrected errors.",
    "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0 IMC#0: DEV 0000:7e:0c.0",
    "EXT4-fs (vda): mounted filesystem 7b1f r/w with ordered data mode. Quota mode: none.",
    "EXT4-fs (vda): re-mounted 7b1f r/w. Quota mode: none.",
    "XFS (nvme0n1): Mounting V5 Filesystem 1c1c",
    "rcu: Hierarchical RCU implementation.",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "nvme nvme0: 64/0/0 default/read/poll queues",
    "traps: python3[1] general protection fault ip:7f sp:7f error:0 in libc.so.6",
    "python3[2811]: segfault at 0 ip 0000 sp 0000 error 4",
    "systemd[1]: Starting Out of memory helper",
    "clocksource: tsc: mask: 0xffffffffffffffff max_cycles: 0x1cd42e4dffb, max_idle_ns: 440795211053 ns",
    "Memory failure handling is off",
    "x86/split lock detection: #AC: crashing the kernel on kernel split_locks",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_every_healthy_kernel_prints_is_no_event(text: str) -> None:
    assert events_in((Message(1.0, text),), tuple(EVENTS)) == {}


EXAMPLES = {
    "clock_unstable": "clocksource: Marking clocksource 'tsc' as unstable because the skew is too large:",
    "file_system": "XFS (nvme0n1): Metadata corruption detected at xfs_agf_read_verify",
    "gpu_driver": "NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x24:0x72:1568)",
    "hard_lockup": "watchdog: Watchdog detected hard LOCKUP on cpu 3",
    "hung_task": "INFO: task khubd:1966 blocked for more than 120 seconds.",
    "io_error": "Buffer I/O error on dev sda1, logical block 0, async page read",
    "iommu_fault": "DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0x7f30a000 [fault reason 0x05]",
    "kernel_bug": "general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1] SMP",
    "machine_check": "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0",
    "memory_error": "EDAC MC1: 1 UE memory read error on CPU0_DIMM_A1 (channel:0 slot:0 page:0xdeadbe)",
    "nfs_timeout": "nfs: server 10.0.0.1 not responding, timed out",
    "nic_driver": "mlx5_core 0000:5d:00.0: poll_health:957:(pid 0): device's health compromised - reached miss count",
    "nvme_timeout": "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
    "out_of_memory": "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom",
    "parallel_fs": "LustreError: 167-0: scratch-MDT0000-mdc: This client was evicted by scratch-MDT0000; in progress",
    "pcie_error": "pcieport 0000:16:01.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
    "rcu_stall": "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
    "soft_lockup": "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [swapper/1:0]",
    "thermal": "mce: CPU1: Package temperature above threshold, cpu clock throttled (total events = 5)",
}


@pytest.mark.parametrize("name", get_args(KernelEvent))
def test_every_kind_of_event_is_recognised_and_for_one_kind(name: str) -> None:
    assert list(events_in((Message(1.0, EXAMPLES[name]),), tuple(EVENTS))) == [name]


@pytest.mark.parametrize("name", ["kernel-log-dmesg.txt", "kernel-log-journal.txt"])
def test_the_first_choice_on_the_node_loses_no_event(name: str) -> None:
    lines = [*tool_output(name).splitlines(), *(f"[    1.000000] {text}" for text in EXAMPLES.values())]
    chosen = [line for line in lines[1:] if re.search(INTERESTING, line)]
    assert len(chosen) < len(lines)
    every, few = (parse_kernel_log("\n".join(several) + "\n") for several in (lines, [lines[0], *chosen]))
    assert events_in(few, tuple(EVENTS)) == events_in(every, tuple(EVENTS))


def test_the_kinds_of_events_are_those_of_the_architecture() -> None:
    assert set(EVENTS) == set(get_args(KernelEvent))
