"""Repositories of a version set and of the inventory: their files, their pinned signing keys, and apt's pins."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from rackproof.configure.files import RemoteFile
from rackproof.configure.inputs import Repository
from rackproof.configure.package_transaction.transaction import fetch_function, fetch_line, through_proxy
from rackproof.core.machine import Machine
from rackproof.core.versions import DISTRIBUTION, LockedRepository, Platform
from rackproof.errors import DeclarationError
from rackproof.parse.sections import sections_of
from rackproof.parse.sha256sum import parse_digests
from rackproof.shell import Script

APT_KEYRINGS: Final = "/usr/share/keyrings"
RPM_KEYS: Final = "/etc/pki/rpm-gpg"
_DECLARED: Final = {"debian": "/etc/apt/keyrings", "rhel": RPM_KEYS}
PREFERENCES: Final = "/etc/apt/preferences.d/rackproof-versions.pref"
KEY_TIMEOUT_S: Final = 60
HELD_BACK: Final = -1
"""Priority of packages that must never be installed."""

PREFERRED: Final = 1001
"""Priority of a version that may downgrade a newer installed one."""
CHOSEN: Final = 1000
"""Priority of a version that is preferred to all others; a newer installed one stays."""

DRIVER_PACKAGES: Final = (
    "nvidia-driver-*",
    "nvidia-headless-*",
    "nvidia-kernel-*",
    "nvidia-dkms-*",
    "nvidia-utils-*",
    "nvidia-compute-utils-*",
    "nvidia-firmware-*",
    "nvidia-open*",
    "nvidia-fabricmanager*",
    "libnvidia-*",
    "cuda-drivers*",
    "xserver-xorg-video-nvidia*",
)
"""Packages of a driver, by the names of all repositories. They must come from one repository: a mixture is a partial
upgrade."""
_RELEASES: Final = {"ubuntu": "Ubuntu", "debian": "Debian"}
"""``Origin`` in the distribution's own Release files, by os-release's ID."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key file on a node: path, URL and digest."""

    repository: str
    path: str
    url: str
    sha256: str
    fingerprint: str | None = None


def mirrored(url: str, mirrors: Mapping[str, str]) -> str:
    """The URL on the site's mirror; the longest matching prefix wins."""
    for beginning in sorted(mirrors, key=len, reverse=True):
        if url == beginning or url.startswith(beginning.rstrip("/") + "/"):
            return mirrors[beginning].rstrip("/") + url[len(beginning.rstrip("/")) :]
    return url


def keys(repositories: Mapping[str, LockedRepository], mirrors: Mapping[str, str]) -> tuple[Key, ...]:
    """Every signing key, in the order of the set. Raises DeclarationError for a key without a digest, which only drafts
    have."""
    signing_keys = []
    for name, repository in repositories.items():
        if repository.key.sha256 is None:
            raise DeclarationError(f"versions_lock: {name}: the key has no sha256; nothing is installed from a draft")
        signing_keys.append(
            Key(
                name,
                key_path(name, repository),
                mirrored(repository.key.url, mirrors),
                repository.key.sha256,
                repository.key.fingerprint,
            )
        )
    return tuple(signing_keys)


def key_path(name: str, repository: LockedRepository) -> str:
    if repository.kind == "dnf":
        return f"{RPM_KEYS}/RPM-GPG-KEY-rackproof-{name}"
    # apt distinguishes armoured from binary keys by the file name.
    suffix = "gpg" if urlsplit(repository.key.url).path.endswith((".gpg", ".kbx")) else "asc"
    return f"{APT_KEYRINGS}/rackproof-{name}.{suffix}"


def files(
    platform: Platform,
    repositories: Mapping[str, LockedRepository],
    machine: Machine,
    mirrors: Mapping[str, str],
    proxy: str | None = None,
) -> tuple[RemoteFile, ...]:
    """Repository files, and on Debian's family the pins. Raises DeclarationError."""
    entries = [
        _dnf_file(name, repository, mirrors, proxy)
        if repository.kind == "dnf"
        else _apt_file(name, repository, machine, mirrors)
        for name, repository in repositories.items()
    ]
    if machine.family == "debian":
        pins = preferences(platform, repositories, machine, mirrors)
        if pins:
            entries.append(RemoteFile(PREFERENCES, pins))
    return tuple(entries)


def _apt_file(name: str, repository: LockedRepository, machine: Machine, mirrors: Mapping[str, str]) -> RemoteFile:
    architectures = repository.architectures or (machine.package_arch,)
    return apt_file(
        name, mirrored(repository.url, mirrors), " ".join(repository.suites), repository.components,
        key_path(name, repository), f"Architectures: {' '.join(architectures)}",
    )  # fmt: skip


def _dnf_file(name: str, repository: LockedRepository, mirrors: Mapping[str, str], proxy: str | None) -> RemoteFile:
    more = [
        *([f"priority={repository.priority}"] if repository.priority is not None else []),
        *([f"excludepkgs={' '.join(repository.exclude)}"] if repository.exclude else []),
        # Otherwise NVIDIA's modular metadata hides versions of streams that are not enabled.
        "module_hotfixes=1",
        *([f"proxy={proxy}"] if proxy else []),
    ]
    url, key = mirrored(repository.url, mirrors), key_path(name, repository)
    return dnf_file(name, f"{name} (version set)", url, key, *more)


def apt_file(name: str, url: str, suites: str, components: Sequence[str], key: str, *more: str) -> RemoteFile:
    """The file of a repository; ``key``: path of the key on the node, which must be there first."""
    lines = [
        "# Written by rackproof.",
        "Types: deb",
        f"URIs: {url}",
        f"Suites: {suites}",
        *([f"Components: {' '.join(components)}"] if components else []),
        *more,
        f"Signed-By: {key}",
    ]
    return RemoteFile(f"/etc/apt/sources.list.d/rackproof-{name}.sources", "\n".join(lines) + "\n")


def dnf_file(name: str, title: str, url: str, key: str, *more: str) -> RemoteFile:
    """The file of a repository, as ``apt_file``."""
    lines = [
        "# Written by rackproof.", f"[rackproof-{name}]", f"name={title}", f"baseurl={url}", "enabled=1", "gpgcheck=1",
        f"gpgkey=file://{key}", *more,
    ]  # fmt: skip
    return RemoteFile(f"/etc/yum.repos.d/rackproof-{name}.repo", "\n".join(lines) + "\n")


def declared_key(name: str, source: Repository, family: str) -> Key:
    """The key of a repository that the inventory declares."""
    return Key(name, f"{_DECLARED[family]}/rackproof-{name}.asc", source.key.url, source.key.sha256)


def declared_file(name: str, title: str, source: Repository, family: str, *more: str) -> RemoteFile:
    """The file of such a repository. ``more``: further lines of a file of dnf."""
    key = declared_key(name, source, family).path
    if family == "rhel":
        return dnf_file(name, title, source.source, key, *more)
    return apt_file(name, *source.deb, key)


def preferences(
    platform: Platform, repositories: Mapping[str, LockedRepository], machine: Machine, mirrors: Mapping[str, str]
) -> str:
    """apt's pins: excluded packages, one source for the GPU driver, locked versions, and the repositories' priorities.

    Raises DeclarationError, one line.
    """
    stanzas = []
    for name, repository in repositories.items():
        for pattern in repository.exclude:
            stanzas.append((pattern, _pin(name, repositories, mirrors), HELD_BACK))
    driver = platform.components.driver
    if driver is not None:
        packages = " ".join(DRIVER_PACKAGES)
        if driver.repository == DISTRIBUTION:
            for name in repositories:
                stanzas.append((packages, _pin(name, repositories, mirrors), HELD_BACK))
        elif machine.os_id in _RELEASES:
            stanzas.append((packages, f"release o={_RELEASES[machine.os_id]}", HELD_BACK))
        # Pin dependencies to the driver's version: apt would select the newest and fail.
        stanzas.append((packages, f"version {driver.version}-*", PREFERRED))
    # A package that is installed without a version (by another deploy, as a dependency) gets the locked version.
    # Otherwise apt would install the newest, and the lock would require a downgrade.
    for _, component in platform.components.named():
        for version in dict.fromkeys(component.packages.values()):
            names = [package for package, own in component.packages.items() if own == version]
            if driver is not None and version.startswith(f"{driver.version}-"):  # pinned above
                names = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in DRIVER_PACKAGES)]
            if names:
                stanzas.append((" ".join(names), f"version {version}", CHOSEN))
    for name, repository in repositories.items():
        if repository.priority is not None:
            stanzas.append(("*", _pin(name, repositories, mirrors), repository.priority))
    if not stanzas:
        return ""
    head = "# Written by rackproof from the version set: sources of packages.\n"
    return head + "".join(
        f"\nPackage: {package}\nPin: {pin}\nPin-Priority: {priority}\n" for package, pin, priority in stanzas
    )


def _pin(name: str, repositories: Mapping[str, LockedRepository], mirrors: Mapping[str, str]) -> str:
    repository = repositories[name]
    if repository.label:
        return f"release l={repository.label}"
    place = urlsplit(mirrored(repository.url, mirrors)).hostname or ""
    shared = [
        other
        for other, another in repositories.items()
        if other != name and (urlsplit(mirrored(another.url, mirrors)).hostname or "") == place
    ]
    if shared or not place:
        with_ = f"the host {place} with {', '.join(shared)}" if shared else "no host of its own"
        raise DeclarationError(
            f"versions_lock: repositories.{name}: shares {with_}, so apt cannot select its packages by the host;"
            " set its label (Label in its Release file)"
        )
    return f'origin "{place}"'


def keys_command(wanted: Sequence[Key]) -> str:
    """Digests of existing keys."""
    return f"sha256sum -- {' '.join(shlex.quote(key.path) for key in wanted)} 2>/dev/null; echo --; "


def parse_keys(lines: Sequence[str]) -> dict[str, str]:
    """sha256 by path. Raises ValueError on anything else."""
    digests, _ = sections_of(lines, 2)
    return parse_digests(digests)


def download_head(proxy: str | None) -> tuple[str, ...]:
    """First lines of a script that downloads."""
    through = (through_proxy(proxy),) if proxy else ()
    return ("set -eu", "umask 022", "export LC_ALL=C.UTF-8", *through, fetch_function())


def keys_script(wanted: Sequence[Key], family: str, proxy: str | None = None) -> Script:
    """Shell script that downloads every key, compares its digest, and renames it; on RHEL rpm imports it.

    A key with another digest than the locked one ends the script with both digests in one line; nothing is replaced.
    """
    lines = list(download_head(proxy))
    for key in wanted:
        path, new = shlex.quote(key.path), f"{key.path}.rackproof-new"
        fingerprint = f" (fingerprint {key.fingerprint})" if key.fingerprint else ""
        lost = f"put the key of {key.repository} on the mirror (rackproof mirror list) or correct the proxy"
        other = (
            f"the key of {key.repository} has changed: compare its fingerprint with the vendor's{fingerprint}, then"
            " lock the new one"
        )
        lines.append(fetch_line(key.url, key.sha256, new, str(KEY_TIMEOUT_S), lost, other))
        new = shlex.quote(new)
        if key.path.endswith(".asc") or family == "rhel":
            binary = f"{key.repository}: {key.url} is not an armoured key; if it is binary, its URL must end in .gpg"
            lines.append(
                f"grep -q -- '-----BEGIN PGP PUBLIC KEY BLOCK-----' {new} || {{ rm -f -- {new}; echo"
                f" {shlex.quote(binary)} >&2; exit 1; }}"
            )
        lines.append(f"chmod 644 -- {new} && mv -fT -- {new} {path}")
        if family == "rhel":
            lines.append(f"rpm --import {path}")
    return Script.of(*lines)
