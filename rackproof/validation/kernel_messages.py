"""Kernel messages since boot."""

from __future__ import annotations

from collections import Counter
from typing import Final

from testinfra.host import Host

from rackproof.parse.answer import STATUS
from rackproof.parse.kernel_events import INTERESTING
from rackproof.parse.kernel_log import Message, parse_kernel_log
from rackproof.remote.recording import Unmeasured
from rackproof.validation.checks import answered

_DEVICES: Final = "mlx5|infiniband|WATCHDOG|AER|DPC|PCIe|pciehp|power state|retraining|Hardware Error"
"""Lines that ``rackproof.parse.device_log`` reads."""


_JOURNAL: Final = "journalctl -k -b -q --no-pager -o short-monotonic"
_ERRORS: Final = "^<([0-3]|8|9|10|11)>"
"""Levels emerg to err of the kernel, and of messages written to /dev/kmsg."""


def _filtered(program: str, pattern: str) -> str:
    """The first line, which proves that the log is complete, and the lines that match."""
    return f"{program} | sed -nE '1p;2,${{/{pattern}/p;}}'"


# When dmesg is not permitted, its error is the first line and does not parse.
DEVICE_LOG: Final = (
    _filtered("dmesg 2>&1", _DEVICES) + STATUS,
    _filtered(f"{_JOURNAL} 2>&1", _DEVICES) + STATUS,
)
"""Commands for the ring buffer and for the journal: messages about PCI devices and ports."""
KERNEL_LOG: Final = DEVICE_LOG[0]
EVENT_LOG: Final = (
    # -S asks the kernel itself, which repeats time and level on every line of a message.
    _filtered("dmesg -r -S", f"{_ERRORS}|{INTERESTING}") + STATUS,
    f"{{ {_filtered(f'{_JOURNAL} -p 4..7', INTERESTING)}; {_JOURNAL} -p 0..3 | sed 's/^\\[/<3>[/'; }}{STATUS}",
)
"""Likewise, with levels: errors, and messages that can be an event of ``rackproof.parse.kernel_events``."""
BEGINNING_S: Final = 1.0
"""A complete log begins within this time after the kernel started, in seconds."""


def kernel_messages(host: Host, log: tuple[str, str] = DEVICE_LOG) -> tuple[Message, ...]:
    """Messages of the ring buffer; if it has lost the beginning, the journal's followed by the buffer's.

    Raises Unmeasured if neither has the beginning.
    """
    messages = parse_kernel_log(answered(host, log[0], "dmesg").body)
    if messages[0].seconds <= BEGINNING_S:
        return messages
    kept = parse_kernel_log(answered(host, log[1], "journalctl").body)
    kept = tuple(sorted(kept, key=lambda message: message.seconds))
    if kept[0].seconds > BEGINNING_S:
        raise Unmeasured(f"the kernel's log begins {kept[0].seconds:.0f} s after its start; earlier messages are lost")
    counted, later = Counter(message.text for message in kept), []
    for message in messages:  # most are in the journal as well; checks limit their number
        if counted[message.text]:
            counted[message.text] -= 1
        else:
            later.append(message)
    return (*kept, *later)


def quoted(messages: tuple[Message, ...]) -> str:
    """Number of messages, and the first three."""
    words = "; ".join(dict.fromkeys(message.text[:160] for message in messages[:3]))
    return f"{len(messages)}: {words}"
