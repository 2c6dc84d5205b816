"""Kernel messages since boot, and those that indicate a fault.

Xid and SXid messages are parsed in ``xid``, PCIe errors in ``device_log``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines

_TOOL: Final = "dmesg"


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
        "a file system is damaged, or was made read-only because of errors",
        r"EXT4-fs error|EXT4-fs \(\S+\): Remounting filesystem read-only|EXT4-fs \(\S+\): .*error count"
        r"|JBD2: Detected IO|Aborting journal|XFS \(\S+\): .*(?:[Cc]orruption|I/O [Ee]rror|[Ss]hutting down)"
        r"|BTRFS (?:error|critical)",
    ),
    "hard_lockup": _event("a processor was stuck with interrupts off", r"hard LOCKUP"),
    "hung_task": _event("a process was blocked for minutes", r"blocked for more than \d+ seconds"),
    "io_error": _event(
        "a drive failed to read or write",
        r"I/O error, dev |Buffer I/O error|critical (?:medium|target|space allocation|nexus) error",
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
    "nvme_timeout": _event(
        "an NVMe drive did not answer in time, or was disabled",
        r"nvme nvme\d+: (?:I/O .*timeout|.*controller is down|Device not ready|Removing after probe failure|"
        r"Abort status|Disabling device after reset failure|.*frozen state)",
    ),
    "out_of_memory": _event(
        "the machine, not a job's own limit, ran out of memory, and the kernel killed a process",
        r"^Out of memory: Kill|oom-kill:constraint=CONSTRAINT_NONE",
    ),
    "rcu_stall": _event(
        "a processor made no progress for many seconds", r"rcu.* detected (?:expedited )?stalls?\b|self-detected stall"
    ),
    "soft_lockup": _event("a processor was stuck in the kernel for many seconds", r"BUG: soft lockup"),
    "thermal": _event(
        "a processor was too hot and slowed down",
        r"temperature(?:/speed)? (?:is )?above threshold|cpu clock throttled",
    ),
}  # fmt: skip
"""Events by their name in ``system.kernel_log``."""
INTERESTING: Final = (
    "rror|LOCKUP|lockup|blocked for more than|BUG|Oops|fault|anic|storm|achine check|ailure|offline|not responding"
    "|nvme nvme|EDAC|Out of memory|oom-kill|stall|emperature|throttled|unstable|journal|read-only|XFS|BTRFS"
)
"""Extended regular expression that matches every possible event, to filter on the node.

The log of a large machine has megabytes.
"""


@dataclass(frozen=True, slots=True)
class Message:
    seconds: float
    """Seconds since the kernel started."""
    text: str


def parse_kernel_log(body: str | bytes) -> tuple[Message, ...]:
    """``dmesg`` or ``journalctl -k -o short-monotonic``. The caller verifies that the output is complete.

    Lines without a timestamp are ignored.
    """
    messages = []
    for line in whole_lines(_TOOL, body):
        match = re.fullmatch(r"(?:<\d+>)?\[ *(\d{1,10}\.\d{6})\](?:\[[^\]]*\])? (?:\S+ kernel: )?(.*)", line)
        if match:
            messages.append(Message(float(match[1]), match[2]))
    if not messages:
        raise ParseError(_TOOL, f"expected kernel messages with timestamps, got {excerpt(str(body))}")
    return tuple(messages)


def events_in(messages: tuple[Message, ...], names: tuple[str, ...]) -> dict[str, tuple[Message, ...]]:
    """Messages of these kinds, by kind; kinds that did not occur are left out."""
    events = {name: tuple(m for m in messages if EVENTS[name].pattern.search(m.text)) for name in names}
    return {name: several for name, several in events.items() if several}
