"""Packages that checks need: exact versions with digests from the kit's lock file.

With version ranges, nodes would install whatever was published last. So the controller reads ``uv.lock``, and pip on
the node accepts only these versions, as wheels with these digests (``--require-hashes``). Pure.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rackproof.errors import InventoryError
from rackproof.kit import LOCK

KIT: Final = "rackproof"
MACHINES: Final = ("x86_64", "aarch64")
OLDEST_PYTHON: Final = 311
NOT_HERE: Final = "sys_platform == 'win32'"
"""Marker of dependencies that no node needs."""

Key = tuple[str, str]
"""Name and version: a lock file may have two versions of one package, for different Pythons."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """One package, and its wheels for nodes."""

    name: str
    version: str
    marker: str
    """Empty where every Python needs it."""
    wheels: tuple[tuple[str, str], ...]
    """File names and SHA-256."""

    @property
    def line(self) -> str:
        """Line of a requirements file."""
        marker = f" ; {self.marker}" if self.marker else ""
        digests = " ".join(f"--hash=sha256:{digest}" for digest in sorted({digest for _, digest in self.wheels}))
        return f"{self.name}=={self.version}{marker} {digests}"


def pinned(lock: str, without: Collection[str] = ()) -> tuple[Pinned, ...]:
    """The kit's dependencies and theirs, except ``without``.

    Raises InventoryError, one line, for an incomplete lock file.
    """
    try:
        packages = tomllib.loads(lock)["package"]
        by_key: dict[Key, Mapping[str, Any]] = {(package["name"], package["version"]): package for package in packages}
        own = next(package for package in packages if package["name"] == KIT)
        conditions = _conditions(own, by_key, without)
    except (KeyError, StopIteration, tomllib.TOMLDecodeError) as error:
        raise InventoryError(f"{LOCK}: not the lock file of this kit ({error}); uv lock regenerates it") from None
    return tuple(_pinned(by_key[key], conditions[key]) for key in sorted(conditions))


def title(line: str) -> str:
    """Name and version of a line: ``click==8.3.0``."""
    return re.split(r" |;", line, maxsplit=1)[0]


def _conditions(
    own: Mapping[str, Any], by_key: Mapping[Key, Mapping[str, Any]], without: Collection[str]
) -> dict[Key, set[frozenset[str]]]:
    """By package: the markers on every path of dependencies to it; an empty path requires it unconditionally."""
    markers: dict[Key, set[frozenset[str]]] = {}
    todo = [(dependency, frozenset[str]()) for dependency in _wanted(own) if dependency["name"] not in without]
    while todo:
        wanted, before = todo.pop()
        way = before | {wanted["marker"]} if "marker" in wanted else before
        key = wanted["name"], wanted.get("version") or _only_version(wanted["name"], by_key)
        known = markers.setdefault(key, set())
        if any(other <= way for other in known):
            continue
        known.add(way)
        package = by_key[key]
        extras = [item for extra in wanted.get("extra", ()) for item in package["optional-dependencies"][extra]]
        todo += [(dependency, way) for dependency in (*_wanted(package), *extras)]
    return markers


def _wanted(package: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for dependency in package.get("dependencies", ()):
        if dependency.get("marker") != NOT_HERE:
            yield dependency


def _only_version(name: str, by_key: Mapping[Key, Mapping[str, Any]]) -> str:
    versions = [version for other, version in by_key if other == name]
    if len(versions) != 1:
        raise KeyError(f"{name} in {len(versions)} versions")
    return versions[0]


def _pinned(package: Mapping[str, Any], ways: Collection[frozenset[str]]) -> Pinned:
    name, version = package["name"], package["version"]
    named = (
        (wheel["url"].rpartition("/")[2], wheel["hash"].removeprefix("sha256:")) for wheel in package.get("wheels", ())
    )
    wheels = tuple(sorted((file, digest) for file, digest in named if fits(file)))
    if not wheels:
        raise InventoryError(
            f"{LOCK}: {name} {version} has no wheel for {' or '.join(MACHINES)}; nodes compile nothing"
        )
    marker = " or ".join(sorted(" and ".join(f"({condition})" for condition in sorted(way)) for way in ways))
    return Pinned(name, version, "" if frozenset() in ways else marker, wheels)


def fits(wheel: str) -> bool:
    """Whether a wheel, by its file name, suits a node's Python and processor."""
    python, abi, platform = wheel.removesuffix(".whl").rsplit("-", 3)[-3:]
    if platform != "any" and not ("manylinux" in platform and platform.endswith(MACHINES)):
        return False
    version = re.fullmatch(r"cp(\d+)", abi)
    if version:
        return int(version[1]) >= OLDEST_PYTHON
    return bool({"none", "abi3"} & set(abi.split("."))) and python.startswith(("py", "cp3"))
