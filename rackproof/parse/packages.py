"""Package managers: dpkg, apt, rpm and dnf."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, matched, whole_lines

_LISTED: Final = re.compile(r"([a-z-]+) ([A-Za-z0-9][\w.+-]*)(?: (\S*))?")
_MISSING: Final = re.compile(r"package \S+ is not installed")


def parse_package_list(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Lines ``STATUS NAME[ VERSION]`` of dpkg-query or rpm: packages that are completely installed, and their versions.

    A package has several versions for several architectures, or where RHEL keeps several installed.
    """
    versions: dict[str, tuple[str, ...]] = {}
    for line in lines:
        match = _LISTED.fullmatch(line)
        if match is None and not _MISSING.fullmatch(line):
            raise ParseError("dpkg-query", f"expected a package, got {excerpt(line)}")
        if match and match[1] == "installed":
            known = versions.setdefault(match[2], ())
            versions[match[2]] = tuple(dict.fromkeys((*known, match[3]))) if match[3] else known
    return versions


NOT_INSTALLED: Final = "not installed"


_STATED: Final = re.compile(
    r"package (\S+) (?:([a-z-]+) (\S+)|not-installed ?)"
    r"|dpkg-query: no packages found matching (\S+)|package (\S+) is not installed"
)


def parse_package_states(output: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Lines ``package NAME STATUS VERSION`` of dpkg-query or rpm: status and version, once per architecture.

    Packages that were asked for by name and are unknown have none; dpkg prints ``not-installed`` without a version for
    names from other packages' dependencies.
    """
    states: dict[str, tuple[tuple[str, str], ...]] = {}
    for line in whole_lines("dpkg-query", output):
        match = matched("dpkg-query", _STATED, line, "a package")
        name = match[1] or match[4] or match[5]
        states[name] = (*states.get(name, ()), *([(match[2], match[3])] if match[2] else []))
    return states


def parse_package_versions(output: str, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Installed versions of each name: one per architecture, none where it is not installed."""
    states = parse_package_states(output)
    for problem, different in (
        ("unexpected output for", states.keys() - set(names)),
        ("no output for", set(names) - states.keys()),
    ):
        if different:
            raise ParseError("dpkg-query", f"{problem} {', '.join(sorted(different))}")
    return {name: tuple(version for status, version in states[name] if status == "installed") for name in names}


def is_version(actual: str, expected: str) -> bool:
    return fnmatchcase(actual, expected.replace("[", "[[]").replace("?", "[?]"))


HOLDS: Final = (
    "if command -v apt-mark >/dev/null; then echo apt; apt-mark showhold; else echo dnf; dnf -q versionlock list; fi"
)


def parse_holds(lines: Sequence[str], wanted: Mapping[str, str | None]) -> frozenset[str]:
    """Output of ``HOLDS``: names in ``wanted`` that are held, as ``held_packages``."""
    families = {"apt": "debian", "dnf": "rhel"}
    if not lines or lines[0] not in families:
        raise ParseError("apt-mark", f"expected a list of held packages, got {excerpt(' '.join(lines[:1]))}")
    return held_packages(lines[1:], wanted, families[lines[0]])


def held_packages(entries: Collection[str], wanted: Mapping[str, str | None], family: str) -> frozenset[str]:
    """Names in ``wanted`` that are held, by entries of ``apt-mark showhold`` or ``dnf versionlock list``.

    ``wanted``: name and version. On RHEL a lock on another version does not count; None accepts a lock on any version.
    """
    if family == "debian":
        names = {entry.strip().partition(":")[0] for entry in entries}
        return frozenset(name for name in wanted if name in names)
    return frozenset(
        name for name, version in wanted.items() if any(_locks(entry.strip(), name, version) for entry in entries)
    )


def _locks(entry: str, name: str, version: str | None) -> bool:
    """``kernel-0:5.14.0-427.el9.*``, or ``Package name: kernel``; ``!`` before it excludes a version."""
    if version is None:
        # The name in ``cuda-12-4-0:12.4.1-1.*`` is cuda-12-4: versions and releases contain no dash.
        pattern = r"(\d+:)?\d[^\s:-]*(-[^\s:-]+)?"
    else:
        pattern = ("" if ":" in version else r"\d+:") + re.escape(version) + r"(\.\*|\.\w+)?"
    return (version is None and entry == f"Package name: {name}") or bool(
        re.fullmatch(f"{re.escape(name)}-{pattern}", entry)
    )


def parse_apt_config(output: str) -> dict[str, str]:
    """``apt-config dump``."""
    values = {}
    for line in whole_lines("apt-config", output):
        match = matched("apt-config", r'(\S+) "(.*)";', line, "a setting")
        values[match[1]] = match[2]
    return values
