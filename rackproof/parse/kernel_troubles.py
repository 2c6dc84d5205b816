"""Messages of the kernel that report a fault of any kind: known events, Xids, and other errors."""

from __future__ import annotations

from collections.abc import Iterator

from rackproof.core.load import APPLICATION, COMPLAINT, DEVICE, Trouble
from rackproof.parse.kernel_complaints import complaints_in
from rackproof.parse.kernel_events import EVENTS, OF_SLOWNESS, events_in
from rackproof.parse.kernel_log import Message
from rackproof.parse.xid import parse_driver_log


def troubles_in(messages: tuple[Message, ...]) -> tuple[Trouble, ...]:
    """Each faulty message once, in the order of the log. Raises ParseError for an unreadable Xid, or without levels."""
    kinds: dict[Message, str] = dict.fromkeys(complaints_in(messages), COMPLAINT)
    for name, several in events_in(messages, tuple(EVENTS)).items():
        kinds.update(dict.fromkeys(several, name))
    kinds.update(_of_gpus(messages))
    return tuple(
        Trouble(message.seconds, kinds[message], message.text, kinds[message] in OF_SLOWNESS)
        for message in messages
        if message in kinds
    )


def _of_gpus(messages: tuple[Message, ...]) -> Iterator[tuple[Message, str]]:
    for message in messages:
        log = parse_driver_log((message.text,))
        if log.lost or log.switch_errors or any(not xid.of_application for xid in log.xids):
            yield message, DEVICE
        elif log.xids:
            yield message, APPLICATION
