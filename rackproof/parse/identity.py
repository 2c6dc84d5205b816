"""What tells a machine from others: machine-id, boot id and serial numbers."""

from __future__ import annotations

import re
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import text_of

_FILES: Final = {
    "/etc/machine-id": "machine_id",
    "/proc/sys/kernel/random/boot_id": "boot_id",
    "/sys/class/dmi/id/product_serial": "product",
    "/sys/class/dmi/id/board_serial": "board",
    "/sys/class/dmi/id/chassis_serial": "chassis",
}
IDENTITY_COMMAND: Final = f"grep -s '' {' '.join(_FILES)} /dev/null; true"
"""``path:value`` for every file that there is; serial numbers are for root only, and virtual machines have none."""

_PLACEHOLDER: Final = re.compile(
    r"(?i)(|[0.\-xf ]+|none|n/?a|not (specified|available|applicable)|default string|to be filled by o\.?e\.?m\.?"
    r"|(system|chassis|base ?board|board|product)[ -]?serial[ -]?(number|#)?|empty|unknown|123456789|0123456789)"
)
"""Placeholders that firmware prints when no serial number is set."""


def parse_identity(output: str | bytes) -> tuple[str, str, str]:
    """machine-id, boot id, and serial numbers as ``product=…; board=…``; empty where the machine has none.

    Raises ParseError where the boot id is missing: every kernel has one.
    """
    values: dict[str, str] = {}
    for line in text_of("identity", output).splitlines():
        path, colon, value = line.partition(":")
        if colon and path in _FILES:
            values.setdefault(_FILES[path], value.strip())
    if not values.get("boot_id"):
        raise ParseError("identity", "no boot id")
    serials = [
        f"{part}={values[part]}"
        for part in ("product", "board", "chassis")
        if part in values and not _PLACEHOLDER.fullmatch(values[part])
    ]
    machine_id = values.get("machine_id", "")
    return ("" if machine_id == "uninitialized" else machine_id), values["boot_id"], "; ".join(serials)
