"""Package managers: dpkg, apt, rpm and dnf."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines


@lru_cache(maxsize=16)  # several checks read the same output
def parse_installed_packages(output: str) -> frozenset[str]:
    """``dpkg-query -W -f='${db:Status-Status} ${Package}\\n'``: names that are completely installed."""
    names = set()
    for line in whole_lines("dpkg-query", output):
        match = re.fullmatch(r"([a-z-]+) ([a-z0-9][a-z0-9+.-]*)", line)
        if match is None:
            raise ParseError("dpkg-query", f"no package: {excerpt(line)}")
        if match[1] == "installed":
            names.add(match[2])
    return frozenset(names)


NOT_INSTALLED: Final = "not installed"


def parse_package_versions(output: str, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Installed versions of each name: more than one of several architectures, none where it is not installed."""
    versions: dict[str, list[str]] = {name: [] for name in names}
    covered = set()
    for line in whole_lines("dpkg-query", output):
        words = line.split()
        if len(words) == 4 and words[0] == "package" and words[1] in versions:
            covered.add(words[1])
            if words[2] == "installed":
                versions[words[1]].append(words[3])
        elif len(words) == 3 and words[0] == "package" and words[1] in versions and words[2] == "not-installed":
            covered.add(words[1])  # dpkg knows the name from other packages' dependencies, without a version
        else:
            missing = re.fullmatch(
                r"(?:dpkg-query: no packages found matching (\S+)|package (\S+) is not installed)", line
            )
            if missing is None or (missing[1] or missing[2]) not in versions:
                raise ParseError("dpkg-query", f"no package: {excerpt(line)}")
            covered.add(missing[1] or missing[2])
    silent = [name for name in names if name not in covered]
    if silent:
        raise ParseError("dpkg-query", f"no output for {', '.join(silent)}")
    return {name: tuple(several) for name, several in versions.items()}


def is_version(actual: str, expected: str) -> bool:
    return fnmatchcase(actual, expected.replace("[", "[[]").replace("?", "[?]"))


HOLDS: Final = (
    "if command -v apt-mark >/dev/null; then echo apt; apt-mark showhold; else echo dnf; dnf -q versionlock list; fi"
)


def parse_holds(lines: list[str], names: tuple[str, ...]) -> frozenset[str]:
    """The names that are held: from Debian's ``apt-mark showhold``, or of dnf's list of locked versions."""
    if lines[:1] == ["apt"]:
        held = {line.partition(":")[0] for line in lines[1:]}
        return frozenset(name for name in names if name in held)
    if lines[:1] != ["dnf"]:
        raise ParseError("apt-mark", f"no list of held packages: {excerpt(' '.join(lines[:1]))}")
    return frozenset(name for name in names if any(_locks(line, name) for line in lines[1:]))


def parse_held_versions(lines: list[str], wanted: dict[str, str]) -> frozenset[str]:
    """The packages that are held; on RHEL only at their installed version: a lock on another version does not count."""
    held = parse_holds(lines, tuple(wanted))
    if lines[:1] == ["apt"]:
        return held
    exact = set()
    for name in held:
        epoch = "" if ":" in wanted[name] else r"(\d+:)?"
        pattern = rf"{re.escape(name)}-{epoch}{re.escape(wanted[name])}(\.\*|\.\w+)?"
        if any(re.fullmatch(pattern, line) for line in lines[1:]):
            exact.add(name)
    return frozenset(exact)


def _locks(line: str, name: str) -> bool:
    """``kernel-0:5.14.0-427.el9.*``, or ``Package name: kernel``; ``!`` before it excludes a version."""
    # Of ``cuda-12-4-0:12.4.1-1.*`` the name is cuda-12-4: versions and releases have no dash in them.
    version = r"(\d+:)?\d[^\s:-]*(-[^\s:-]+)?"
    return line == f"Package name: {name}" or bool(re.fullmatch(rf"{re.escape(name)}-{version}", line))


def parse_apt_config(output: str) -> dict[str, str]:
    """``apt-config dump``."""
    values = {}
    for line in whole_lines("apt-config", output):
        match = re.fullmatch(r'(\S+) "(.*)";', line)
        if match is None:
            raise ParseError("apt-config", f"no setting: {excerpt(line)}")
        values[match[1]] = match[2]
    return values
