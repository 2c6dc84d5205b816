"""Errors of the kernel: known faults, harmless messages, and everything else."""

from __future__ import annotations

import re

import pytest

from rackproof.parse.errors import ParseError
from rackproof.parse.kernel_complaints import HARMLESS, complaints_in
from rackproof.parse.kernel_events import EVENTS, INTERESTING, events_in
from rackproof.parse.kernel_log import Message, parse_kernel_log
from rackproof.parse.xid import parse_driver_log

from . import tool_output

FIRST = "<5>[    0.000000] Linux version 6.8.0\n"


def log(*lines: str) -> tuple[Message, ...]:
    return parse_kernel_log(FIRST + "".join(f"{line}\n" for line in lines))


def errors(*texts: str) -> tuple[Message, ...]:
    return log(*(f"<3>[ 9000.00000{number}] {text}" for number, text in enumerate(texts)))


BAD = [
    ("gpu_driver", "NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x24:0x72:1568)"),
    ("gpu_driver", "NVRM: The NVIDIA probe routine failed for 1 device(s)."),
    ("gpu_driver", "nvidia: probe of 0000:b3:00.0 failed with error -1"),
    ("gpu_driver", "nvidia 0000:b3:00.0: probe with driver nvidia failed with error -1"),
    ("file_system", "EXT4-fs (dm-0): I/O error while writing superblock"),
    ("file_system", "EXT4-fs (dm-0): previous I/O error to superblock detected"),
    ("file_system", "EXT4-fs warning (device dm-0): ext4_end_bio:342: I/O error 10 writing to inode 42"),
    ("file_system", "JBD2: I/O error when updating journal superblock for dm-0-8."),
    ("file_system", "XFS (md127): Filesystem has been shut down due to log error (0x2)."),
    ("io_error", "md/raid0:md0: Disk failure on nvme1n1p1 detected, failing array."),
    ("io_error", "md/raid1:md0: Disk failure on sda1, disabling device."),
    ("io_error", "block nvme0n1: no available path - failing I/O"),
    ("io_error", "kworker/u9:1: attempt to access beyond end of device nvme0n1: rw=2049, sector=9, limit=8"),
    ("io_error", "nvme0n1: Read(0x2) @ LBA 2048, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR"),
    ("io_error", "device-mapper: multipath: 253:0: Failing path 8:16."),
    ("io_error", "sd 0:0:3:0: rejecting I/O to offline device"),
    ("iommu_fault", "DMAR: DRHD: handling fault status reg 2"),
    ("iommu_fault", "DMAR: [DMA Read] Request device [3b:00.0] fault addr 7f30a000 [fault reason 06] PTE Read access"),
    ("iommu_fault", "nvme 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000b address=0x0 flags=0x0020]"),
    ("iommu_fault", "arm-smmu-v3 arm-smmu-v3.0.auto: event 0x10 received:"),
    ("nic_driver", "mlx5_core 0000:5d:00.0: CREATE_MKEY(0x200) timeout. Will cause a leak of a command"),
    ("nic_driver", "mlx5_core 0000:5d:00.0: print_health_info:484:(pid 0): assert_var[0] 0x00000001"),
    ("nic_driver", "mlx5_core 0000:5d:00.0: probe_one:1765:(pid 9): mlx5_init_one failed with error code -110"),
    ("kernel_bug", "Internal error: synchronous external abort: 0000000096000410 [#1] SMP"),
    ("kernel_bug", "Internal error: Oops - Undefined instruction: 0000000002000000 [#1] SMP"),
    ("memory_error", "EDAC MC0: 1 CE on mc#0csrow#2channel#3 (csrow:2 channel:3 page:0x7d2 offset:0x0 grain:64)"),
    ("soft_lockup", "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 32s!"),
    ("pcie_error", "pcieport 0000:16:01.0: DPC: containment event, status:0x1f01 source:0x0000"),
    ("parallel_fs", "ceph: mds0 reconnect denied"),
    ("parallel_fs", "LustreError: 2811:0:(ldlm_lock.c:213:ldlm_lock_put()) ASSERTION( lock->l_refc == 0 ) failed:"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), BAD)
def test_known_faults_are_events_at_any_level_and_pass_the_filter(name: str, text: str) -> None:
    assert re.search(INTERESTING, text)
    assert list(events_in(log(f"[ 9000.000001] {text}"), tuple(EVENTS))) == [name]


@pytest.mark.parametrize(("name", "text"), BAD)
def test_events_that_nothing_judges_are_complaints(name: str, text: str) -> None:
    messages = log(f"<6>[ 9000.000001] {text}")
    assert complaints_in(messages) == ()
    assert len(complaints_in(messages, ())) == 1
    assert len(complaints_in(messages, [kind for kind in EVENTS if kind != name])) == 1


UNKNOWN = [
    "mlx5_core 0000:5d:00.0: CREATE_QP(0x500) op_mod(0x0) failed, status no resources(0xf), err(-12)",
    "NVRM: GPU 0000:b3:00.0: some sentence of a future driver",
    "nvme nvme0: globally duplicate IDs for nsid 1",
    "md: cannot handle a word of a future kernel",
    "ceph: something new",
    "ionic 0000:81:00.0: a driver that the kit has never seen complains",
    "workqueue: a sentence that no list has",
    "ata3: COMRESET failed (errno=-16)",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_error_that_no_list_has_is_a_complaint(text: str) -> None:
    messages = errors(text)
    assert events_in(messages, tuple(EVENTS)) == {}
    assert [message.text for message in complaints_in(messages)] == [text]
    assert complaints_in(log(f"<4>[ 9000.000001] {text}", f"<27>[ 9000.000002] {text}")) == ()
    assert len(complaints_in(log(f"<11>[ 9000.000001] {text}"))) == 1, "written to /dev/kmsg"


HEALTHY = [
    "ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PC00.RP01], AE_NOT_FOUND (20230628/psargs-330)",
    "ACPI Error: Aborting method \\_SB.PMI0._GHL due to previous error (AE_NOT_EXIST) (20230628/psparse-529)",
    "No Local Variables are initialized for Method [_GHL]",
    "ACPI: SPCR: Unexpected SPCR Access Width. Defaulting to byte size",
    "DMAR: [Firmware Bug]: RMRR entry for device 01:00.0 is broken - applying workaround",
    "AMD-Vi: [Firmware Bug]: : IOAPIC[128] not in IVRS table",
    "usb 1-14: device descriptor read/64, error -71",
    "usb usb1-port14: unable to enumerate USB device",
    "ipmi_ssif: Unable to find any System Interface(s)",
    "power_meter ACPI000D:00: Ignoring unsafe software power cap!",
    "i8042: No controller found",
    "iTCO_wdt iTCO_wdt: unable to reset NO_REBOOT flag, device disabled by hardware/BIOS",
    "tpm tpm0: A TPM error (256) occurred attempting the self test",
    "integrity: Problem loading X.509 certificate -65",
    "blacklist: Problem blacklisting hash (-13)",
    "kvm: support for 'kvm_intel' disabled by bios",
    "ccp 0000:45:00.1: SEV: failed to INIT error 0x1, rc -5",
    "amd_pstate: the _CPC object is not present in SBIOS or ACPI disabled",
    "RETBleed: WARNING: Spectre v2 mitigation leaves CPU vulnerable to RETBleed attacks, data leaks possible!",
    "Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible via Spectre v2 BHB attacks!",
    "Failed to find cpu0 device node",
    "Unable to detect cache hierarchy from DT for CPU 0",
    "tsc: Fast TSC calibration failed",
    "..MP-BIOS bug: 8254 timer not connected to IO-APIC",
    "nouveau 0000:b3:00.0: unknown chipset (180000a1)",
    "ast 0000:03:00.0: [drm] No connected outputs",
    "[drm:nv_drm_load [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00001b00] Failed to allocate NvKmsKapiDevice",
    "sd 6:0:0:0: [sdb] No Caching mode page found",
    "sd 6:0:0:0: [sdb] Assuming drive cache: write through",
    "ses 0:0:8:0: Wrong diagnostic page; asked for 10 got 0",
    "nvme0: Identify(0x6), Invalid Field in Command (sct 0x0 / sc 0x2)",
    "pcieport 0000:16:01.0: DPC: RP PIO log size 0 is invalid",
    "mlx5_core 0000:5d:00.0: mlx5_cmd_out_err:838: ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3)",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build",
    "NVRM: Xid (PCI:0000:9b:00): 31, pid=11, name=python3, MMU Fault",
    "NVRM: Persistence mode is deprecated and will be removed in a future release.",
    "Memory cgroup out of memory: Killed process 418220 (python3) total-vm:81234560kB, anon-rss:67108864kB",
    "overlayfs: filesystem on '/var/lib/docker/check-overlayfs-support' not supported as upperdir",
    "ERST: Failed to get Error Log Address Range.",
    "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
    "blk_update_request: I/O error, dev fd0, sector 0",
    "Buffer I/O error on dev sr0, logical block 0, async page read",
    "(udev-worker): attempt to access beyond end of device sr0: rw=0, want=8, limit=4",
    "systemd[1]: Failed to start something.",
    "rxe0: qp#18 make_send_cqe: non-flush error status = 12",
]


OBSERVED = [line for line in tool_output("kernel-errors-of-healthy-servers.txt").splitlines() if line[:1] != "#"]


def test_a_healthy_servers_log_is_quiet() -> None:
    for text in (*HEALTHY, *OBSERVED):
        messages = errors(text)
        assert events_in(messages, tuple(EVENTS)) == {}, text
        assert complaints_in(messages) == (), text


@pytest.mark.parametrize(
    "text",
    [
        "UBSAN: array-index-out-of-bounds in drivers/scsi/pm8001/pm8001_sas.c:786:17",
        "index 28 is out of range for type 'pm8001_phy [16]'",
        "x86/cpu: machine check bank 7 is broken",
        "pci 0000:00:00.2: AMD-Vi: IOMMU could not be enabled",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        "mlx5_core 0000:9a:00.0: Port module event[error]: module 0, Cable error, Module isn't plugged",
        "rxe0: qp#18 make_send_cqe: non-flush error status = 10",  # remote access error
        "mlx5_0: qp#18 make_send_cqe: non-flush error status = 12",
    ],
)
def test_what_is_like_a_harmless_message_is_named(text: str) -> None:
    assert [message.text for message in complaints_in(errors(text))] == [text]


def test_every_harmless_message_has_a_reason_and_none_is_a_known_fault() -> None:
    for pattern, reason in HARMLESS:
        assert len(reason) > 10, pattern
    for _, text in BAD:
        assert not any(re.search(pattern, text) for pattern, _ in HARMLESS), text


@pytest.mark.parametrize("harmless", [text for text in HEALTHY if not re.search(r"\b(?:sr|fd)0\b", text)])
def test_no_harmless_words_beside_it_hide_an_event(harmless: str) -> None:
    for _, bad in BAD:
        for text in (f"{harmless} {bad}", f"{bad} {harmless}"):
            if events_in(errors(text), tuple(EVENTS)):
                assert complaints_in(errors(text), ()), text


THREE_LINES = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


@pytest.mark.parametrize(
    "lines",
    [
        [f"<3>[   17.034112] {line}" for line in THREE_LINES],
        [f"<3>[   17.034112] {THREE_LINES[0]}", *(f"               {line}" for line in THREE_LINES[1:])],
    ],
)
def test_a_gpu_that_fell_off_the_bus_over_three_lines(lines: list[str]) -> None:
    (message,) = events_in(log(*lines), tuple(EVENTS))["gpu_driver"]
    assert message.text == (
        "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:2330) installed in this system has "
        "fallen off the bus and is not responding to commands."
    )
    assert parse_driver_log(lines).lost == ("0000:b3:00.0",)


def test_a_gpu_that_did_not_start_has_no_xid() -> None:
    driver = parse_driver_log(["[ 17.0] NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x24:0x72:1568)"])
    assert driver.failed == ("NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x24:0x72:1568)",)


ATTACHED = (
    "<6>[    9.000001] scsi host6: usb-storage 1-1:1.0",
    "<5>[    9.000002] sd 6:0:0:0: [sdb] Attached SCSI disk",
    "<5>[    9.000003] sd 7:0:0:0: [sdc] Attached SCSI removable disk",
    "<5>[    9.000004] sd 0:0:0:0: [sda] Attached SCSI disk",
)


@pytest.mark.parametrize(
    ("device", "fails", "complains"),
    [("sda", True, False), ("sdb", False, True), ("sdc", False, True), ("sdc1", False, True), ("loop3", False, True),
     ("sr0", False, False), ("dm-0", True, False), ("nvme0n1", True, False), ("vda", True, False)],
)  # fmt: skip
def test_an_error_of_a_drive_that_no_load_uses_fails_nothing(device: str, fails: bool, complains: bool) -> None:
    messages = log(*ATTACHED, f"<3>[ 9000.000001] I/O error, dev {device}, sector 2048 op 0x0:(READ) flags 0x0")
    assert bool(events_in(messages, tuple(EVENTS))) is fails
    assert bool(complaints_in(messages)) is complains


def test_the_two_lines_of_an_access_beyond_the_end_are_one() -> None:
    lines = ["attempt to access beyond end of device", "sr0: rw=0, want=8, limit=4"]
    assert events_in(log(*(f"<6>[ 9.000001] {line}" for line in lines)), ("io_error",)) == {}
    lines[1] = lines[1].replace("sr0", "sda")
    assert events_in(log(*(f"<6>[ 9.000001] {line}" for line in lines)), ("io_error",))


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[32m<3>[ 9.000000] \x1b[0m\x1b[31mI/O error, dev nvme0n1, sector 5\x1b[0m",
        "\x1b[32m<3>[ 9.000000] \x1b[0m\x1b[33mblk_update_request: \x1b[0mI/O error, dev nvme0n1, sector 5",
        "<3>[ 9.000000][ T4711] I/O error, dev nvme0n1, sector 5",
        "<4>[ 9.000000] gpu-01 kernel: I/O error, dev nvme0n1, sector 5",
    ],
)
def test_colours_callers_and_host_names_hide_no_event(line: str) -> None:
    assert list(events_in(log(line), tuple(EVENTS))) == ["io_error"]


def test_a_log_of_daemons_only_has_levels_and_no_complaints() -> None:
    log = parse_kernel_log("<28>[ 1895.561385] systemd-sysv-generator[2566]: This logic is deprecated.\n")
    assert complaints_in(log) == ()


def test_a_log_without_levels_has_no_answer_about_errors() -> None:
    with pytest.raises(ParseError, match="no levels"):
        complaints_in(parse_kernel_log("[    0.000000] Linux version 6.8.0\n"))
