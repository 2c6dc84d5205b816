"""Answer of ``rackproof/bench/programs.sh``: programs, their owners, and files that differ from their packages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rackproof.core.programs import Installed, Program, in_image
from rackproof.core.texts import SHA256
from rackproof.parse.errors import ParseError
from rackproof.parse.sections import sections_of
from rackproof.parse.sha256sum import parse_sha256sum
from rackproof.parse.text import excerpt, marked_lines, matched

MARK: Final = "rackproof programs 1"
"""First line of every answer, and part of the command."""
_TOOL: Final = "programs.sh"
_END: Final = "end of programs"
_DOCUMENTS: Final = re.compile(r"/usr/share/(?:doc|man|info|locale|lintian|bash-completion)(?:/|$)|.*\.pyc$")
"""Files that minimal systems leave out, or that programs write themselves."""


def parse_programs_found(output: str | bytes) -> Installed:
    """Raises ParseError where the answer is incomplete or unreadable."""
    asked, sums, owned, verified, _ = sections_of([*marked_lines(_TOOL, output, MARK, _END), _END], 5)
    images: dict[str, list[str]] = {}
    built: dict[str, tuple[str, str]] = {}
    paths: dict[str, str] = {}
    for line in asked:
        if line.startswith("image "):
            match = matched(_TOOL, r"image (\S+) (\S+)", line, "a container's image")
            images.setdefault(match[1], []).append(match[2])
        elif line.startswith("contained "):
            match = matched(_TOOL, rf"contained ({SHA256})((?: \S+)*)", line, "the site's image with its digests")
            images[in_image(match[1])] = match[2].split()
        elif line.startswith("built "):
            match = matched(_TOOL, rf"built (/\S+) ({SHA256}) ({SHA256})", line, "the digests of a built program")
            built[match[1]] = match[2], match[3]
        else:
            match = matched(_TOOL, r"program (\S+)(?: (/\S+))?", line, "a program")
            paths[match[1]] = match[2] or ""
    known = tuple(dict.fromkeys(path for path in paths.values() if path))
    hashes = parse_sha256sum(list(dict.fromkeys(sums)), known) if known else {}
    owners = _owners(owned)
    programs = {
        name: Program(
            path, hashes[path], owners.get(path) or owners.get(path.removeprefix("/usr"), ()), *built.get(path, ())
        )
        if path
        else None
        for name, path in paths.items()
    }
    changed = _changed(verified)
    packages = {package for program in programs.values() if program for package in program.packages}
    if missing := packages - changed.keys():
        raise ParseError(_TOOL, f"no verification of {', '.join(sorted(missing))}")
    return Installed(programs, changed, {name: tuple(own) for name, own in images.items()})


def _owners(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for line in lines:
        packages, colon, path = line.partition(": ")
        if line.startswith("diversion ") or not line:
            continue
        if not colon or not path.startswith("/"):
            raise ParseError(_TOOL, f"expected the owner of a file, got {excerpt(line)}")
        owners[path] = tuple(package for package in packages.split(", ") if package)
    return owners


def _changed(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """By package: files with another content, size or target, and missing ones; configuration files are the site's."""
    changed: dict[str, list[str]] = {}
    ended = True
    for line in lines:
        if started := re.fullmatch(r"package (\S+)", line):
            files = changed.setdefault(started[1], [])
            ended = False
            continue
        if (status := re.fullmatch(r"status (\d{1,3})", line)) and changed:
            if int(status[1]) > 2:
                raise ParseError(_TOOL, f"the verification of {[*changed][-1]} ended with status {status[1]}")
            ended = True
            continue
        match = None if ended else re.fullmatch(r"(missing|[.?A-Z0-9]{8,9})\s+(?:([a-z]) )?\s*(/.*?)(?: \(.*\))?", line)
        if match is None:
            raise ParseError(_TOOL, f"unreadable result of the verification: {excerpt(line)}")
        if match[1][2] == "?" and match[2] not in ("c", "d", "g"):
            raise ParseError(_TOOL, f"the content of {match[3]} could not be verified")
        content = match[1] == "missing" or match[1][0] == "S" or match[1][2] == "5" or match[1][4] == "L"
        if content and match[2] not in ("c", "d", "g") and not _DOCUMENTS.match(match[3]):
            files.append(match[3])
    if not ended:
        raise ParseError(_TOOL, f"the verification of {[*changed][-1]} is cut off")
    return {package: tuple(files) for package, files in changed.items()}
