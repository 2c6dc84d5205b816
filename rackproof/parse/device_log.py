"""Kernel messages that report faults of PCI devices and Mellanox ports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rackproof.parse.kernel_log import Message

_PCIE: Final = re.compile(
    r"PCIe Bus Error: severity=|AER: .*[Ee]rror.* (?:received|from)|AER: (?:aer_status|Multiple|Corrected|Uncorrect)"
    r"|DPC: containment event|DPC: unmasked uncorrectable error|broken device, retraining|pciehp: Slot\(.*\): Link Down"
    r"|can't change power state from D3cold|\[Hardware Error\]:.*PCIe error"
)
_DRIVER: Final = re.compile(
    r"(?i)health compromised|fatal error|assert_var|assert_exit_ptr|synd(?:rome)? 0x|ext_synd|poll_health"
    r"|will cause a leak|timeout on recovery|cmd.*(?:timeout|timed out)|tx timeout|transmit queue \d+ timed out"
    r"|port module event.*(?:error|high temp|unplugged|unknown)|insufficient power|high temperature|temp.* warning"
    r"|pci slot is unavailable|failed to (?:load|init|recover)|probe.*failed|cqe error|dump error"
)


def pcie_troubles(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Errors of PCIe links: advanced error reporting, containment, unexpected hot removal."""
    return tuple(message for message in messages if _PCIE.search(message.text))


def driver_troubles(messages: Iterable[Message], names: Iterable[str]) -> tuple[Message, ...]:
    """Driver errors about a device with one of these names: PCI address, RDMA device, interface."""
    known = {name for name in names if name}
    return tuple(
        message
        for message in messages
        if _DRIVER.search(message.text) and known & set(re.split(r"[\s(),;]+|:(?:\s|$)", message.text))
    )
