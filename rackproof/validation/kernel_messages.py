"""Kernel messages about PCI devices and ports since boot."""

from __future__ import annotations

from collections import Counter
from typing import Final

from testinfra.host import Host

from rackproof.parse.answer import STATUS
from rackproof.parse.kernel_log import Message, parse_kernel_log
from rackproof.remote.recording import Unmeasured
from rackproof.validation.nics import answered

# Filtered on the node: the first line, which proves that the log is complete, and the lines that
# ``rackproof.parse.device_log`` reads. When dmesg is not permitted, its error is the first line and does not parse.
_CHOSEN: Final = (
    " 2>&1 | sed -nE '1p;2,${/mlx5|infiniband|WATCHDOG|AER|DPC|PCIe|pciehp|power state|retraining|Hardware Error/p;}'"
    + STATUS
)
KERNEL_LOG: Final = f"dmesg{_CHOSEN}"
JOURNAL: Final = f"journalctl -k -b -q --no-pager -o short-monotonic{_CHOSEN}"
BEGINNING_S: Final = 1.0
"""A log that begins later than this after the kernel started has lost its beginning."""


def kernel_messages(host: Host) -> tuple[Message, ...]:
    """Messages of the ring buffer; where it has lost the beginning, of the journal and then of the buffer.

    Raises Unmeasured where neither has the beginning.
    """
    messages = parse_kernel_log(answered(host, KERNEL_LOG, "dmesg").body)
    if messages[0].seconds <= BEGINNING_S:
        return messages
    kept = parse_kernel_log(answered(host, JOURNAL, "journalctl").body)
    if kept[0].seconds > BEGINNING_S:
        raise Unmeasured(f"the kernel's log begins {kept[0].seconds:.0f} s after its start; earlier messages are lost")
    counted, later = Counter(message.text for message in kept), []
    for message in messages:  # most of them are in the journal as well, and limits count
        if counted[message.text]:
            counted[message.text] -= 1
        else:
            later.append(message)
    return (*kept, *later)


def quoted(messages: tuple[Message, ...], most: int = 3) -> str:
    """Number of messages, and the first few."""
    words = "; ".join(dict.fromkeys(message.text[:120] for message in messages[:most]))
    return f"{len(messages)}: {words}"
