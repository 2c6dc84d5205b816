"""A healthy rack whose kernel says something bad, and one whose kernel complains about virtual media."""

from __future__ import annotations

import pytest

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.errors import EXIT_FAILED
from rackproof.selftest.mutation import Change
from rackproof.selftest.trial import Subject
from rackproof.validation.outcome import exit_status
from tests.unit.validation.checking import subjects

NODE = "gpu-01"
LOG = "dmesg -r -S"
DRIVER = "--grep 'NVRM: |SXid '"


def rack(name: str) -> Subject:
    return next(subject for subject in subjects() if subject.name == name)


def after(subject: Subject, *lines: str) -> list[CheckResult]:
    """Results of the checks that read the kernel's log, with these lines at its end."""
    text = "".join(f"<3>[ 9021.118207] {line}\n" for line in lines)
    change = Change(command=LOG, replace=("status 0\n", f"{text}status 0\n"))
    context = subject.altered(NODE, lambda result: change(result) if change.applies(result.command) else result)
    readers = [seen for seen in subject.healthy[NODE] if any(LOG in command for command in seen.commands)]
    assert {seen.case.check.id for seen in readers} == {"os.kernel_log", "os.kernel_complaints"}
    return [context.evaluate(seen.function, seen.case) for seen in readers]


LOST = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
FATAL = [
    LOST,
    ("NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x24:0x72:1568)",),
    ("EXT4-fs (dm-0): I/O error while writing superblock",),
    ("md/raid0:md0: Disk failure on nvme1n1p1 detected, failing array.",),
    ("block nvme0n1: no available path - failing I/O",),
    ("attempt to access beyond end of device", "nvme0n1: rw=2049, want=16, limit=8"),
    ("mlx5_core 0000:1a:00.0: CREATE_MKEY(0x200) timeout. Will cause a leak of a command resource",),
    ("DMAR: [DMA Write NO_PASID] Request device [1a:00.0] fault addr 0x7f30a000 [fault reason 0x05]",),
    ("nvme 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000b address=0x0 flags=0x0020]",),
]


@pytest.mark.parametrize("lines", FATAL, ids=lambda lines: lines[0][:40])
def test_a_known_fault_in_the_log_is_never_certified(lines: tuple[str, ...]) -> None:
    results = after(rack("hgx-h200-roce"), *lines)
    assert exit_status(results) == EXIT_FAILED
    (failed,) = [result for result in results if result.outcome is CheckOutcome.FAILED]
    assert lines[0][:20] in failed.message


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:1a:00.0: CREATE_QP(0x500) op_mod(0x0) failed, status no resources(0xf), err(-12)",
        "a driver that the kit has never seen: something is wrong",
        "ITS queue timeout (65504 65441)",
        "ITS@0x0000000022040000: failed probing (-6)",
        "pci 0000:17:00.0: BAR 1: failed to assign [mem size 0x2000000000 64bit pref]",
    ],
)
@pytest.mark.parametrize("name", ["hgx-h200-roce", "virtual-rack"])
def test_an_error_that_no_list_has_is_shown_with_its_text(name: str, line: str) -> None:
    log, complaints = sorted(after(rack(name), line), key=lambda result: not result.required)
    assert (log.outcome, complaints.outcome) == (CheckOutcome.PASSED, CheckOutcome.FAILED)
    assert line in complaints.message
    assert not complaints.required


def test_a_known_fault_is_shown_where_the_architecture_does_not_list_it() -> None:
    line = "LustreError: 167-0: lfs01-OST0000-osc-ffff8c2f: This client was evicted by lfs01-OST0000"
    log, complaints = sorted(after(rack("virtual-rack"), line), key=lambda result: not result.required)
    assert (log.outcome, complaints.outcome) == (CheckOutcome.PASSED, CheckOutcome.FAILED)
    assert line in complaints.message


@pytest.mark.parametrize("name", ["hgx-h200-roce", "virtual-rack"])
def test_virtual_media_of_the_bmc_fail_no_healthy_server(name: str) -> None:
    results = after(
        rack(name),
        "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
        "Buffer I/O error on dev sr0, logical block 0, async page read",
        "blk_update_request: I/O error, dev fd0, sector 0",
        "attempt to access beyond end of device",
        "sr0: rw=0, want=8, limit=4",
    )
    assert {result.outcome for result in results} == {CheckOutcome.PASSED}
