"""Files of a version set: URL, sha256 and path on the node. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackproof.configure.files import FileState
from rackproof.configure.package_transaction.transaction import fetch_line
from rackproof.configure.versions.repositories import download_head, mirrored
from rackproof.core.versions import Component
from rackproof.errors import DeclarationError
from rackproof.shell import Script

FETCH_TIMEOUT_S = 1800
"""An installer of a few GB over a slow mirror."""


@dataclass(frozen=True, slots=True)
class Placed:
    component: str
    path: str
    mode: str
    url: str
    sha256: str


def placed(components: Iterable[tuple[str, Component]], mirrors: Mapping[str, str]) -> tuple[Placed, ...]:
    """Every file of these components. Raises DeclarationError for a file without a digest, which only drafts have."""
    files = []
    for name, component in components:
        for file in component.files:
            if file.sha256 is None:
                raise DeclarationError(
                    f"versions_lock: {name}: {file.path} has no sha256; nothing is installed from a draft"
                )
            files.append(Placed(name, file.path, file.mode, mirrored(file.url, mirrors), file.sha256))
    return tuple(files)


def differences(wanted: Sequence[Placed], state: Mapping[str, FileState]) -> dict[Placed, str]:
    """Files that differ from the set, and how."""
    wrong = {}
    for file in wanted:
        actual = state.get(file.path)
        if actual is None or not actual.kind.startswith("regular"):
            wrong[file] = f"{file.path}: expected sha256 {file.sha256}, actual not there"
        elif actual.sha256 != file.sha256:
            wrong[file] = f"{file.path}: expected sha256 {file.sha256}, actual {actual.sha256}"
        elif actual.mode != file.mode:
            wrong[file] = f"{file.path}: expected mode {file.mode}, actual {actual.mode}"
    return wrong


def script(wanted: Sequence[Placed], proxy: str | None = None) -> Script:
    """Shell script that downloads each file to a temporary name beside its path, compares the digest, and renames it.

    A file with another digest than the locked one replaces nothing.
    """
    lines = list(download_head(proxy))
    for file in wanted:
        path, new = shlex.quote(file.path), f"{file.path}.rackproof-new"
        lost = f"put the file of {file.component} on the mirror (rackproof mirror list) or correct the proxy"
        other = f"it is not the locked file of {file.component}: lock the new one, or correct the mirror"
        lines.append(fetch_line(file.url, file.sha256, new, str(FETCH_TIMEOUT_S), lost, other))
        new = shlex.quote(new)
        lines.append(f"chmod {file.mode} -- {new} && sync -- {new} && mv -fT -- {new} {path}")
    return Script.of(*lines)
