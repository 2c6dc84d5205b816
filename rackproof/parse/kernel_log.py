"""Messages of the kernel since boot.

``kernel_events`` has the messages that indicate a fault, ``kernel_complaints`` every other error. Xid and SXid messages
are parsed in ``xid``, PCIe errors in ``device_log``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines

_TOOL: Final = "dmesg"
_LINE: Final = re.compile(r"(?:<(\d{1,3})>)?\[ *(\d{1,10}\.\d{6})\](?:\[[^\]]*\])? (?:\S+ kernel: )?(.*)")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONTINUED: Final = re.compile(r"NVRM: The NVIDIA GPU [0-9a-f:.]+|.*attempt to access beyond end of device")
"""First lines of messages that the kernel prints with one call over several lines."""
_USER: Final = 1
"""Facility of messages written to /dev/kmsg; the kernel's own is 0."""

ERROR: Final = 3
"""Syslog's level ``err``; lower numbers are worse."""
DEBUG: Final = 7


@dataclass(frozen=True, slots=True)
class Message:
    seconds: float
    """Seconds since the kernel started."""
    text: str
    level: int | None = None
    """Syslog's level, 0 (emerg) to 7 (debug), which also stands for all messages of daemons. None: without a level."""


def parse_kernel_log(body: str | bytes) -> tuple[Message, ...]:
    """``dmesg``, ``dmesg -r`` or ``journalctl -k -o short-monotonic``. The caller verifies that the output is complete.

    Lines of one message are joined where the first does not say what happened. Other lines without a timestamp are
    ignored.
    """
    messages: list[Message] = []
    for coloured in whole_lines(_TOOL, body):
        line = _COLOUR.sub("", coloured)
        if match := _LINE.fullmatch(line):
            message = Message(float(match[2]), match[3], _level(match[1]))
            if messages and _continues(messages[-1], message):
                messages[-1] = _joined(messages[-1], message.text)
            else:
                messages.append(message)
        elif messages and line[:1].isspace() and _CONTINUED.match(messages[-1].text):
            messages[-1] = _joined(messages[-1], line)
    if not messages:
        raise ParseError(_TOOL, f"expected kernel messages with timestamps, got {excerpt(str(body))}")
    return tuple(messages)


def _level(priority: str | None) -> int | None:
    if priority is None:
        return None
    return DEBUG if int(priority) >> 3 > _USER else int(priority) & 7


def _continues(before: Message, message: Message) -> bool:
    """Whether ``message`` is a further line of the message before it: the same call, hence the same time and level."""
    same_call = (before.seconds, before.level) == (message.seconds, message.level)
    return same_call and _CONTINUED.match(before.text) is not None


def _joined(message: Message, line: str) -> Message:
    text = line.strip()
    if message.text.startswith("NVRM: "):
        text = text.removeprefix("NVRM: ")
    return replace(message, text=f"{message.text.rstrip()} {text}")
