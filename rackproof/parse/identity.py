"""What tells a machine from others: machine-id, boot id and serial numbers."""

from __future__ import annotations

import re
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines

_FILES: Final = {
    "/etc/machine-id": "machine_id",
    "/proc/sys/kernel/random/boot_id": "boot_id",
    "/sys/class/dmi/id/product_serial": "product",
    "/sys/class/dmi/id/board_serial": "board",
    "/sys/class/dmi/id/chassis_serial": "chassis",
}
IDENTITY_COMMAND: Final = f"grep -s '' {' '.join(_FILES)} /dev/null; true"
"""``path:value`` for every file that there is; serial numbers are for root only, and virtual machines have none."""

_MACHINE_ID: Final = re.compile("[0-9a-f]{32}")
_BOOT_ID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PLACEHOLDER: Final = re.compile(
    r"(?i)(|[0.\-xf ]+|none|n/?a|not (specified|available|applicable)|default string|to be filled by o\.?e\.?m\.?"
    r"|(system|chassis|base ?board|board|product)[ -]?serial[ -]?(number|#)?|empty|unknown|123456789|0123456789)"
)
"""Placeholders that firmware prints when no serial number is set."""


def parse_identity(output: str | bytes) -> tuple[str, str, str]:
    """machine-id, boot id, and serial numbers as ``product=…; board=…``; empty where the machine has none.

    Raises ParseError where an id is malformed, or the boot id is missing: every kernel has one.
    """
    values: dict[str, str] = {}
    for line in whole_lines("identity", output):
        path, colon, value = line.partition(":")
        if colon and path in _FILES:
            values.setdefault(_FILES[path], value.strip())
    boot_id, machine_id = values.get("boot_id", ""), values.get("machine_id", "")
    if not _BOOT_ID.fullmatch(boot_id):
        raise ParseError("identity", f"expected a boot id, actual {excerpt(boot_id)}")
    if machine_id not in ("", "uninitialized") and not _MACHINE_ID.fullmatch(machine_id):
        raise ParseError("identity", f"expected a machine-id, actual {excerpt(machine_id)}")
    serials = [
        f"{part}={values[part]}"
        for part in ("product", "board", "chassis")
        if part in values and not _PLACEHOLDER.fullmatch(values[part])
    ]
    return ("" if machine_id == "uninitialized" else machine_id), boot_id, "; ".join(serials)
