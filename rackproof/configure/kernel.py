"""Values of the running kernel: sysctl keys, and files below /sys that hold one value."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from rackproof.configure.rollback.journal import value_line
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.plan import Change
from rackproof.parse.sysfs import files_of
from rackproof.parse.text import text_from

CLOCK_SOURCE: Final = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
"""The kernel accepts any name here, and silently keeps its own choice when it lacks or distrusts the named source."""


_SWAPPED: Final = str.maketrans("./", "/.")


def sysctl_path(key: str) -> str:
    """File of a sysctl key, e.g. ``net.core.rmem_max``; a ``/`` in a key stands for a dot in a name (``eth0/100``)."""
    return "/proc/sys/" + key.translate(_SWAPPED)


def normal(value: str) -> str:
    """A value in comparable form: one blank between words, and only the choice of ``always [madvise] never``."""
    words = value.split()
    chosen = [word[1:-1] for word in words if word.startswith("[") and word.endswith("]")]
    return chosen[0] if len(chosen) == 1 else " ".join(words)


_OFF = frozenset({"forceoff", "notsupported", "notimplemented"})
"""Values of a processor's smt/control that are at least as strict as ``off``."""


def in_force(actual: str | None, expected: str) -> bool:
    """Whether a value is the expected one or equivalent to it."""
    return actual == expected or (expected == "off" and actual in _OFF)


def values_command(sysctl: Sequence[str], patterns: Sequence[str]) -> str:
    """Shell text that prints sysctl keys and all files that shell patterns below /sys match."""
    paths = [shlex.quote(sysctl_path(key)) for key in sysctl]
    return f"grep -sH '' -- {' '.join([*paths, *patterns])} /dev/null || [ $? -le 2 ]; "


def parse_values(lines: Sequence[str]) -> dict[str, str]:
    """Answer of ``values_command``: path and value, the last line of a file that has several. Raises ParseError."""
    files = files_of(text_from(lines)) if lines else {}
    return {path: normal(values[-1]) for path, values in files.items()}


@dataclass(frozen=True, slots=True)
class Setting:
    """One file to write."""

    path: str
    actual: str | None
    expected: str

    @property
    def change(self) -> Change:
        key = self.path.removeprefix("/proc/sys/")
        if key != self.path:
            key = key.translate(_SWAPPED)
        return Change(what=key, why=f"{self.actual or 'absent'} becomes {self.expected}")


def plan_values(
    sysctl: Mapping[str, str], patterns: Mapping[str, str], actual: Mapping[str, str]
) -> tuple[Setting, ...]:
    """Values that differ, in the order in which they must be set.

    A sysctl key that the kernel lacks is planned too, so that setting it fails. A pattern without a match (no frequency
    scaling in a virtual machine) plans nothing. Files below /sys come first, then all sysctl keys: switching
    transparent huge pages makes the kernel raise vm.min_free_kbytes.
    """
    keys = {sysctl_path(key): normal(value) for key, value in sysctl.items()}
    first = [
        Setting(path, current, normal(value))
        for pattern, value in patterns.items()
        for path, current in sorted(actual.items())
        if path not in keys and fnmatchcase(path, pattern) and not in_force(current, normal(value))
    ]
    then = [
        Setting(path, actual.get(path), value) for path, value in keys.items() if first or actual.get(path) != value
    ]
    return (*first, *then)


def write_plan(settings: Sequence[Setting]) -> ScriptPlan:
    """A script that sets the values and fails at the first one that the kernel rejects."""
    lines: list[str] = []
    for setting in settings:
        path = shlex.quote(setting.path)
        lines.append(f"[ -e {path} ] || {{ echo {path}: this kernel has no such setting >&2; exit 1; }}")
        lines.append(f"printf '%s\\n' {shlex.quote(setting.expected)} > {path}")
        if setting.path == CLOCK_SOURCE:
            available = shlex.quote(CLOCK_SOURCE.replace("current", "available"))
            lines += [
                f'now=$(cat {path}); [ "$now" = {shlex.quote(setting.expected)} ] || {{ echo'
                f' "clock source: expected "{shlex.quote(setting.expected)}", actual $now; this kernel offers'
                f' $(cat {available}): dmesg says why not, or correct system.clock_source" >&2; exit 1; }}'
            ]
    kept = tuple(value_line(setting.path, setting.expected) for setting in settings)
    return ScriptPlan(tuple(lines), tuple(setting.change for setting in settings), kept)
