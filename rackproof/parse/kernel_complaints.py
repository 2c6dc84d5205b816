"""Errors in the kernel's log that are neither a known event nor known to be harmless.

Every message of level ``err`` or worse counts, whatever driver printed it, unless ``HARMLESS`` gives a reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.kernel_events import EVENTS, is_of_other_drive, removable_disks
from rackproof.parse.kernel_log import ERROR, Message

HARMLESS: Final[tuple[tuple[str, str], ...]] = (
    (r"\[Firmware (?:Bug|Warn|Info)\]", "a mistake in the firmware's tables, which the kernel works around"),
    (
        r"^ACPI(?: BIOS)? (?:Error|Exception|Warning)|^ACPI: (?:SPCR|\\_|\\\\)"
        r"|^\s*(?:No (?:Local Variables|Arguments) are|(?:Initialized )?(?:Local Variables|Arguments) )",
        "a mistake in the firmware's ACPI code; checks count the devices that it describes",
    ),
    (
        r"^(?:ERST|BERT|EINJ|GHES|HEST): (?!.*[Hh]ardware [Ee]rror)|^APEI: Can not request \[mem",
        "the firmware offers no log of its own errors",
    ),
    (
        r"^(?:usb|hub|usbhid|hid|input|xhci_hcd|ehci|uhci|ohci)\b|^(?:i8042|atkbd|psmouse|serial8250|serial|8250)\b"
        r"|^(?:cdc_\w+|rndis_host|usbnet) |^Error: Driver 'pcspkr'",
        "keyboards, serial lines, USB hubs and networks over USB, mostly of the BMC; no load uses them",
    ),
    (
        r"\b(?:dev|device) (?:sr|fd)\d+\b|\[sr\d+\]|^(?:sr|fd)\d|^floppy|^(?:isofs|ISOFS|UDF-fs)",
        "a CD or floppy drive is a medium that the BMC presents",
    ),
    (
        r"^(?:\[drm|drm|nouveau|ast|mgag200|fb\d|fbcon|efifb|vesafb|simple-framebuffer|vgaarb|snd|HDA|Bluetooth|cfg80211"
        r"|iwlwifi|platform regulatory)\b|^\S*snd_hda|^nvidia-modeset: ",
        "displays, sound and wireless are not used",
    ),
    (
        r"^(?:ipmi\w*|IPMI\w*|power_meter|hpilo|dcdbas|mei|mei_me|i801_smbus|piix4_smbus|i2c\w*|lpc_ich|pnp|rtc\w*|hpet"
        r"|iTCO_wdt|wdat_wdt|sp5100_tco|NMI watchdog|dell_smbios|dell_wmi\w*|amd_hsmp|hsmp_acpi|spi-nor|intel-spi)\b",
        "sensors, watchdogs and buses of the board; no load uses them",
    ),
    (r"^tpm\b|^tpm_\w+|^TPM", "a TPM that is not set up"),
    (
        r"^(?:integrity|efi|EFI|efivars|MODSIGN|blacklist|X\.509|PKCS\S*|Couldn't get size|Lockdown|evm|ima)\b"
        r"|^(?:secureboot|Secure boot|Problem loading (?:in-kernel )?X\.509)\b",
        "keys of Secure Boot; `os.secure_boot` reads its state",
    ),
    (
        r"^(?:Spectre V\d|RETBleed|Speculative|MMIO Stale Data|Transient Scheduler|x86/CPU|microcode)\b"
        r"|^(?:MDS|TAA|SRSO|L1TF|GDS|VMSCAPE): |^ITS: (?:Mitigation|Vulnerable|WARNING)",  # Arm: a part of the GIC
        "weaknesses of processors; `os.mitigations` reads their state",
    ),
    (
        r"^(?:kvm|kvm_intel|kvm_amd|SVM|VMX|ccp|sev|SEV|SGX|sgx)\b|^x86/cpu: (?:SGX|VMX) .*disabled",
        "virtualisation or enclaves are off, or not offered",
    ),
    (
        r"^(?:amd_pstate|intel_pstate|acpi_cpufreq|cpufreq)\b|^Could not retrieve (?:perf counters|highest)",
        "`base.cpu_governor` reads the state of the processors",
    ),
    (r"AMD-Vi: Unable to (?:read/)?write to IOMMU perf counter", "a counter of the IOMMU that nothing reads"),
    (r"^(?:idxd|ioatdma|dca|QAT|4xxx|c6xx|c3xxx|dh895xcc)\b", "accelerators of the processor that no load uses"),
    (
        r"^(?:__common_interrupt|do_IRQ): \d+\.\d+ No irq handler for vector|^ERROR: Unable to locate IOAPIC for GSI",
        "an interrupt at the start, before its driver, or one that nothing uses",
    ),
    (
        r"^Failed to find cpu\d+ device node|^Unable to detect cache hierarchy|^cacheinfo",
        "the machine has no device tree; `lscpu` has the processors",
    ),
    (
        r"^tsc: Fast TSC calibration failed|^Initramfs unpacking failed"
        r"|^\.\.MP-BIOS bug: 8254 timer not connected to IO-APIC",  # also of a virtual machine on a busy host
        "the kernel continues with another or slower way",
    ),
    (r"^(?:audit|SELinux|AppArmor|apparmor)\b", "records of access control"),
    (r"^overlayfs: ", "container engines try which file systems can carry an overlay"),
    (r"^Memory cgroup out of memory|^\[?\s*Tasks state|^oom_reaper", "a job reached its own memory limit"),
    (r"^\S+\[\d+\]: ", "a process wrote the line, not the kernel; `base.failed_units` asks for daemons"),
    (
        r"\[sd\w+\] (?:No Caching mode page|Assuming drive cache|Asking for cache data failed|Test WP failed"
        r"|Incomplete mode parameter data)"
        r"|^(?:ses|scsi) \S+ (?:Wrong diagnostic page|Failed to get diagnostic page|.*enclosure)",
        "a drive or enclosure that leaves out an optional page",
    ),
    (
        r"^UBSAN: array-index-out-of-bounds in \S*drivers/scsi/(?:megaraid|mpt3sas|hpsa)"
        r"|^index \d+ is out of range for type '\w+ \[1\]'|^=+$",
        "arrays of storage drivers that are declared with one entry and have more, as their authors mean it",
    ),
    (
        r"^nvme\d+: .*\(sct 0x0 / sc 0x(?:1|2|b|c|16)\)|^nvme nvme\d+: (?:missing or invalid SUBNQN|Ignoring bogus)",
        "the driver asked a drive for a command that is optional",
    ),
    (r"^pcieport \S+ DPC: RP PIO log size \d"
     r"|^pci\S* \S+ (?:BAR \d+|bridge window)(?=.*\[io ).*(?:failed to assign|no space)",
     "a root port without a log, or a window for I/O ports, which no device of the rack needs"),
    (
        r"^mlx5_core .*ACCESS_REG\(0x805\).*status bad (?:parameter|operation)|^mlx5_core .*query_mcia_reg failed",
        "a tool asked a port for a register or module that it does not have",
    ),
    (
        r"^(?:rdma_rxe: )?rxe\d+: qp#\d+ make_send_cqe: non-flush error status = 12$",
        "Soft-RoCE gave up a connection after its retries, as on a busy host; the step that used it fails, and"
        " `link.rdma_retries` counts",
    ),
    (
        r"^NVRM: (?:loading |Xid |GPU at PCI:|GPU Board Serial|GPU\d+ (?:GSP RPC|RPC history)|\s*(?:entry|-?\d+)\s)"
        r"|^NVRM: (?:Persistence mode is deprecated)|^nvidia-nvswitch\d+: SXid",
        "the driver's start, or an Xid, which `gpu.xid` judges",
    ),
    (r"^rcu: |^\"echo 0 > /proc/sys/kernel/hung_task|^\s*(?:Not t|T)ainted:? |^hung_task: ", "details of an event"),
)  # fmt: skip
"""Patterns of errors that healthy servers print, and why each is harmless."""

_HARMLESS: Final = re.compile("|".join(f"(?:{pattern})" for pattern, _ in HARMLESS))


def complaints_in(messages: tuple[Message, ...], judged: Collection[str] = tuple(EVENTS)) -> tuple[Message, ...]:
    """Errors that are neither an event nor harmless. Raises ParseError where the log has no levels.

    ``judged``: kinds of events that are judged, or left out on purpose, elsewhere; others are complaints at any level.
    An event of a loop device or a removable disk is a complaint; an event of virtual media is harmless.
    """
    if all(message.level is None for message in messages):
        raise ParseError("dmesg", "the log has no levels; record it again with `dmesg -r`")
    removable = removable_disks(messages)

    def complains(message: Message) -> bool:
        kinds = {name for name, event in EVENTS.items() if event.pattern.search(message.text)}
        if kinds and not is_of_other_drive(message.text, removable):  # first: no harmless words hide an event
            return kinds.isdisjoint(judged)
        is_error = message.level is not None and message.level <= ERROR
        return is_error and not _HARMLESS.search(message.text)

    return tuple(message for message in messages if complains(message))
