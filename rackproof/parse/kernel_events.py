"""Kernel messages that indicate a fault of the machine, whatever their level.

The messages are those of the kernel's sources (drivers/nvme, drivers/md, drivers/iommu, drivers/net, block, fs, mm)
and of NVIDIA's open kernel modules. Errors that are no event are in ``kernel_complaints``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.kernel_log import Message


@dataclass(frozen=True, slots=True)
class Event:
    """A kind of message."""

    means: str
    pattern: re.Pattern[str]


def _event(means: str, pattern: str) -> Event:
    return Event(means, re.compile(pattern))


EVENTS: Final[dict[str, Event]] = {
    "clock_unstable": _event(
        "the processors' clocks disagree, and the kernel switched to a slow clock source",
        r"[Mm]arking TSC unstable|[Mm]arking clocksource '?tsc'? as unstable|timekeeping watchdog .*unstable",
    ),
    "file_system": _event(
        "a file system is damaged, lost data, or was made read-only because of errors",
        r"EXT4-fs error|EXT4-fs warning .*ext4_end_bio|EXT4-fs \(\S+\): (?:Remounting filesystem read-only"
        r"|.*error count|.*I/O error|Delayed block allocation failed|failed to convert unwritten|.*[Cc]orrupt)"
        r"|JBD2: (?:Detected IO|.*I/?O error|Error -\d)|Aborting journal"
        r"|XFS \(\S+\): .*(?:[Cc]orruption|I/O [Ee]rror|[Ss]hutting down|been shut down|xfs_repair)"
        r"|BTRFS (?:error|critical)",
    ),
    "gpu_driver": _event(
        "the NVIDIA driver lost a GPU, or could not start it",
        r"(?:NVRM|nvidia).*(?:fallen off the bus|RmInitAdapter failed|rm_init_adapter failed|probe routine failed"
        r"|None of the NVIDIA devices were init|GPU is lost|probe .*failed with error|No NVIDIA GPU found)"
        r"|nvidia: probe of .* failed",
    ),
    "hard_lockup": _event("a processor was stuck with interrupts off", r"hard LOCKUP"),
    "hung_task": _event("a process was blocked for minutes", r"blocked for more than \d+ seconds"),
    "io_error": _event(
        "a drive failed to read or write, or an array or multipath device lost a member",
        r"I/O error, dev |Buffer I/O error|critical (?:medium|target|space allocation|nexus) error"
        r"|attempt to access beyond end of device|no available path|rejecting I/O to (?:offline|dead) device"
        r"|nvme\S*: .* @ LBA .*\(sct 0x|md/raid\S*: Disk failure|md: super_written gets error"
        r"|device-mapper: multipath: .*Failing path|Unrecovered read error",
    ),
    "iommu_fault": _event(
        "a device accessed memory that is not its own, or the IOMMU stopped answering",
        r"DMAR: \[(?:DMA|INTR)[^\]]*\] (?:Request device|.*fault)|DMAR: DRHD: handling fault status"
        r"|AMD-Vi: Event logged|AMD-Vi: Completion-Wait loop timed out"
        r"|arm-smmu.*(?:event 0x[0-9a-f]+ received|Unhandled context fault"
        r"|Unexpected global fault|CMD_SYNC timeout)|DMAR: .*Invalidation (?:Queue|Time-out|Completion) Error",
    ),
    "kernel_bug": _event(
        "the kernel had an internal error and runs on in an undefined state",
        r"\bOops: |kernel BUG at |BUG: (?:unable to handle|kernel NULL|scheduling while atomic|Bad page|KASAN|sleeping)"
        r"|general protection fault, |general protection fault: \d{4}|Kernel panic|^Internal error: .*\[#\d+\]",
    ),
    "machine_check": _event(
        "a processor, its memory or a bus reported a hardware error",
        r"\[Hardware Error\]|[Mm]achine check events logged|CMCI storm detected",
    ),
    "memory_error": _event(
        "memory returned wrong bits, corrected or not",
        r"EDAC \S+: \d+ (?:CE|UE) |Memory failure: 0x|soft offline: 0x|Uncorrected hardware memory error",
    ),
    "nfs_timeout": _event("an NFS server did not answer in time", r"nfs: server \S+ not responding"),
    "nic_driver": _event(
        "a NIC's firmware or driver failed, or a port stopped sending",
        r"mlx[45]_(?:core|ib)\b.*(?:health compromised|fatal error|assert_var|assert_exit_ptr|ext_synd|synd 0x"
        r"|leak of a command|timeout on recovery|[Tt][Xx] timeout|Failed to (?:load|init|recover)|health recovery"
        r"|(?:init|probe|load)_one.*failed|internal error|High temperature|Start of the command queue failed)"
        r"|NETDEV WATCHDOG: |Detected Hardware Unit Hang|transmit queue \d+ timed out",
    ),
    "nvme_timeout": _event(
        "an NVMe drive did not answer in time, or was disabled",
        r"nvme nvme\d+: (?:I/O .*timeout|.*controller is down|Device not ready|Removing after probe failure|"
        r"Abort status|Disabling device after reset failure|.*frozen state)",
    ),
    "out_of_memory": _event(
        "the machine, not a job's own limit, ran out of memory, and the kernel killed a process",
        r"^Out of memory: Kill|oom-kill:constraint=CONSTRAINT_NONE",
    ),
    "parallel_fs": _event(
        "a Ceph or Lustre server threw this client out, or the client failed",
        r"LustreError: .*(?:LBUG|ASSERTION|client was evicted)|^LNet.*LBUG"
        r"|(?:lib)?ceph: .*(?:reconnect denied|rejected session|block ?listed|blacklisted|feature set mismatch"
        r"|authorization failed|auth protocol .* failed)",
    ),
    "pcie_error": _event(
        "a PCIe device reported an error that was not corrected, or left the bus",
        r"PCIe Bus Error: severity=Uncorrect|DPC: containment event|DPC: unmasked uncorrectable error"
        r"|Slot\(.*\): Link Down|can't change power state from D3cold|AER: .*(?:device recovery failed|Uncorrectable)",
    ),
    "rcu_stall": _event(
        "a processor made no progress for many seconds", r"rcu.* detected (?:expedited )?stalls?\b|self-detected stall"
    ),
    "soft_lockup": _event(
        "a processor or a worker was stuck in the kernel for many seconds", r"BUG: (?:soft|workqueue) lockup"
    ),
    "thermal": _event(
        "a processor was too hot and slowed down",
        r"temperature(?:/speed)? (?:is )?above threshold|cpu clock throttled",
    ),
}  # fmt: skip
"""Events by their name in ``system.kernel_log``."""
OF_SLOWNESS: Final = frozenset(
    {
        *("clock_unstable", "hard_lockup", "hung_task", "nfs_timeout", "nic_driver", "nvme_timeout", "rcu_stall"),
        *("soft_lockup", "thermal"),
    }
)
"""Events that a machine also has when it does not get its turn, such as a guest on a busy host."""
INTERESTING: Final = (
    "rror|LOCKUP|lockup|blocked for more than|BUG|Oops|fault|anic|storm|achine check|ailure|offline|not responding"
    "|nvme nvme|EDAC|Out of memory|oom-kill|stall|emperature|throttled|unstable|journal|read-only|XFS|BTRFS"
    "|NVRM|fallen off|EXT4-fs|beyond end of|no available path|Failing path|dead device|DMAR: |AMD-Vi: |arm-smmu"
    "|compromised|assert_|synd|leak of a|timeout|timed out|Failed to|failed|Unit Hang|recovery|LBUG|evicted|ASSERTION"
    "|denied|rejected session|listed|mismatch|containment|Link Down|D3cold|GPU is lost|None of the|No NVIDIA"
    "|Attached SCSI|usb-storage|uas$|: rw=[0-9]"
)
"""Extended regular expression that matches every possible event, to filter on the node.

The log of a large machine has megabytes.
"""

_DEVICE: Final = re.compile(r"\b(?:dev|device) (?:(?:sr|fd|loop)\d+|(sd[a-z]+)\d*)\b")
_REMOVABLE: Final = re.compile(r"\[(sd[a-z]+)\] Attached SCSI removable disk")
_USB_HOST: Final = re.compile(r"scsi host(\d+): (?:usb-storage|uas)\b")
_DISK: Final = re.compile(r"\bsd (\d+):\d+:\d+:\d+: \[(sd[a-z]+)\] Attached SCSI")


def removable_disks(messages: tuple[Message, ...]) -> frozenset[str]:
    """Disks that are removable or on USB: media that the BMC presents, and sticks of an installation."""
    hosts = {match[1] for message in messages if (match := _USB_HOST.search(message.text))}
    disks = {match[1] for message in messages if (match := _REMOVABLE.search(message.text))}
    disks |= {match[2] for message in messages if (match := _DISK.search(message.text)) and match[1] in hosts}
    return frozenset(disks)


def is_of_other_drive(text: str, removable: frozenset[str]) -> bool:
    """Whether a message is about a drive that no load uses: virtual media, a loop device or a removable disk."""
    match = _DEVICE.search(text)
    if match is None:
        return False
    return match[1] is None or match[1] in removable


def events_in(messages: tuple[Message, ...], names: tuple[str, ...]) -> dict[str, tuple[Message, ...]]:
    """Messages of these kinds, by kind; kinds that did not occur are left out."""
    removable = removable_disks(messages)
    events: dict[str, tuple[Message, ...]] = {}
    for name in names:
        of_kind = (message for message in messages if EVENTS[name].pattern.search(message.text))
        if several := tuple(message for message in of_kind if not is_of_other_drive(message.text, removable)):
            events[name] = several
    return events
