"""Package managers' answers of a written node.

A question names packages, and the answer repeats the names of those that are there, so a fixed text cannot answer it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

_QUESTION = re.compile(
    r"(?:dpkg-query -W -f='(?P<dpkg>[^']*)'|rpm -q --qf '(?P<rpm>[^']*)') -- (?P<names>.*?) 2>/dev/null"
)
_FIELD = re.compile(r"\$\{[^}]*\}|%[{|][^}]*\}")
_END = "rackproof-end"


@dataclass(frozen=True, slots=True)
class PackageTable:
    """Packages that are completely installed, with their versions; no others are there."""

    versions: tuple[tuple[str, str], ...]

    def answer(self, command: str) -> str:
        """Answer to ``rackproof.configure.packages.installed_command``. Raises ValueError for another command."""
        words = shlex.split(command)
        script = words[-1] if words[:1] == ["sh"] else command
        match = _QUESTION.search(script)
        if match is None:
            raise ValueError(f"expected a question about packages, actual {command[:80]}")
        versions = dict(self.versions)
        lines = []
        for name in shlex.split(match["names"]):
            if name in versions:
                lines.append(_row(match["dpkg"] or match["rpm"], name, versions[name]))
            elif match["rpm"]:
                lines.append(f"package {name} is not installed\n")
        return "".join(lines) + f"{_END}\n"


def _row(form: str, name: str, version: str) -> str:
    """A row as dpkg-query(1) or rpm(8) prints it. Raises ValueError for a field that no deploy asks for."""
    fields = {
        "${db:Status-Status}": "installed", "${Package}": name, "${Version}": version, "%{NAME}": name,
    }  # fmt: skip
    if unknown := set(_FIELD.findall(form)) - fields.keys():
        raise ValueError(f"no written answer to {', '.join(sorted(unknown))}")
    return _FIELD.sub(lambda field: fields[field[0]], form).replace("\\n", "\n")


def package_table(versions: Mapping[str, str]) -> PackageTable:
    """Raises ValueError for a package without a version."""
    if bad := [name for name, version in versions.items() if not version[:1].isdigit()]:
        raise ValueError(f"packages.{bad[0]}: expected a version, actual {versions[bad[0]]!r}")
    return PackageTable(tuple(versions.items()))
