"""flint and mstflint: the firmware of an adapter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import last_words, whole_lines

_FIELD: Final = re.compile(r"(FW Version|FW Version\(Running\)|PSID):\s+(\S+)\s*")


@dataclass(frozen=True, slots=True)
class AdapterFirmware:
    stored: str
    """In flash: loaded at the next reset of the adapter."""
    running: str
    psid: str | None
    """Parameter-set id: the board of an image."""


def parse_flint_query(output: str | bytes) -> AdapterFirmware:
    """``flint -d DEVICE q``, stderr included. Raises ParseError when it prints no version."""
    fields: dict[str, str] = {}
    for line in whole_lines("flint", output):
        if match := _FIELD.fullmatch(line):
            fields.setdefault(match[1], match[2])
    if "FW Version" not in fields:
        raise ParseError("flint", f"no firmware version; the output ends with {last_words(str(output))}")
    stored = fields["FW Version"]
    return AdapterFirmware(stored, fields.get("FW Version(Running)", stored), fields.get("PSID"))
