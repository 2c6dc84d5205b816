"""systemd: ``systemctl show`` and ``systemctl is-enabled``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, excerpt, whole_lines


def parse_systemctl_show(output: str | bytes) -> tuple[dict[str, str], ...]:
    """``systemctl show``: one mapping per unit, in the order of the arguments."""
    return parse_unit_lines(whole_lines("systemctl", output))


def parse_unit_lines(lines: Iterable[str]) -> tuple[dict[str, str], ...]:
    """Lines of ``systemctl show``; empty without units."""
    blocks: list[dict[str, str]] = [{}]
    for line in lines:
        key, equals, value = line.partition("=")
        if not line:
            blocks.append({})
        elif not equals or not re.fullmatch(r"[A-Z]\w*", key) or key in blocks[-1]:
            raise ParseError("systemctl", f"expected PROPERTY=VALUE, got {excerpt(line)}")
        else:
            blocks[-1][key] = value
    return tuple(block for block in blocks if block)


def parse_unit_list(output: str) -> tuple[str, ...]:
    """``systemctl list-units --plain --no-legend``: names of units."""
    return tuple(line.split()[0] for line in whole_lines("systemctl", output) if line.strip())


def at_boot_command(mountpoints: Sequence[str]) -> str:
    """Command that prints the mount units, their state, and the script of rackproof-mounts."""
    points = " ".join(map(shlex.quote, mountpoints))
    return (
        f"u=$(systemd-escape --path --suffix=mount -- {points}); echo $u;"
        ' for x in rackproof-mounts.service $u; do systemctl is-enabled -- "$x" 2>/dev/null || echo no; done;'
        f" cat /usr/local/sbin/rackproof-mounts 2>/dev/null; echo {_BOOT_END}"
    )


_BOOT_END: Final = "end of units"


def parse_at_boot(output: str, mountpoints: Sequence[str]) -> tuple[str, ...]:
    """Output of ``at_boot_command``: mount points that are not mounted at boot.

    ``systemctl is-enabled`` prints ``disabled`` and fails, so that ``no`` may follow.
    """
    lines = ended_lines("systemctl", output, _BOOT_END) or [""]
    units = lines[0].split()
    if len(units) != len(mountpoints) or not all(unit.endswith(".mount") for unit in units):
        raise ParseError("systemctl", f"expected mount units, got {excerpt(lines[0])}")
    words: list[str] = []
    rest = lines[1:]
    for _ in range(len(units) + 1):
        if not rest or not re.fullmatch(r"[a-z-]+", rest[0]):
            raise ParseError("systemctl", f"expected the state of a unit, got {excerpt(rest[0] if rest else '')}")
        words.append(rest.pop(0))
        if words[-1] != "no" and rest[:1] == ["no"]:
            rest.pop(0)
            words[-1] = "no"
    started = "\n".join(rest) if words[0] == "enabled" else ""
    unmounted = []
    for point, unit, word in zip(mountpoints, units, words[1:], strict=True):
        names = (f"'{unit}'", f"-{unit.removesuffix('.mount')}.service'")
        if word not in ("enabled", "generated") and not any(name in started for name in names):
            unmounted.append(point)
    return tuple(unmounted)
