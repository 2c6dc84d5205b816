"""``dkms status``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt

_MODULE: Final = re.compile(
    r"([\w.+-]+)(?:/| ?, ?)([\w.+~:-]+)(?:, ([\w.+~-]+)(?:, [\w-]+)?)?: ([a-z-]+)(?: ?\((.*)\))?"
)
"""``nvidia/580.126.16, 6.8.0-87-generic, x86_64: installed`` of dkms 3, ``nvidia, 580…`` of dkms 2."""
_REMARKS: Final = ("Warning", "Deprecated", "Error!")


@dataclass(frozen=True, slots=True)
class Dkms:
    """One module for one kernel."""

    name: str
    version: str
    kernel: str
    """Release; empty for a module that is only added."""
    state: str
    """``installed``, ``built``, ``added``, ``broken`` …"""
    warning: str = ""
    """dkms' warning that the loaded module may differ from the one that it built."""

    @property
    def description(self) -> str:
        return f"{self.state} with a warning" if self.warning else self.state


def parse_dkms_status(lines: Iterable[str]) -> tuple[Dkms, ...]:
    """Lines of ``dkms status``, of dkms 2 and 3; empty lines and remarks are skipped. Raises ParseError."""
    modules = []
    for line in lines:
        if not line.strip() or line.startswith(_REMARKS):
            continue
        match = _MODULE.fullmatch(line.strip())
        if match is None:
            raise ParseError("dkms", f"expected a module, got {excerpt(line)}")
        remark = match[5] or ""
        modules.append(Dkms(match[1], match[2], match[3] or "", match[4], remark if "WARNING" in remark else ""))
    return tuple(modules)
