"""List every download of a rack, for the mirror of a site without Internet access. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from rackproof.core.versions.models import DISTRIBUTION, VersionSet

SCHEMA: Final = "rackproof.mirror/v1"
Kind = Literal["repository", "key", "package", "wheel", "file", "image", "unlisted"]
ORDER: Final = ("repository", "key", "package", "wheel", "file", "image", "unlisted")


@dataclass(frozen=True, slots=True)
class MirrorItem:
    """One download, or (``unlisted``) a need that cannot be listed, with the reason as its name.

    ``platform`` is empty for downloads that do not depend on the operating system.
    """

    kind: Kind
    name: str
    platform: str = ""
    version: str = ""
    """Empty: the version in the distribution's repository."""
    repository: str = ""
    url: str = ""
    sha256: str = ""
    """Empty for packages, which their repository signs, and for downloads without a pinned digest."""
    needed_by: str = ""
    """Component, or key of the inventory's data."""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def of_versions(versions: VersionSet) -> Iterator[MirrorItem]:
    """Repositories, keys, packages and files of a set."""
    for platform, contents in versions.platforms.items():
        for name, repository in contents.repositories.items():
            suites = " ".join((*repository.suites, *repository.components))
            yield MirrorItem("repository", name, platform, suites, name, repository.url, "", "versions_lock")
            key = repository.key
            yield MirrorItem("key", name, platform, "", name, key.url, key.sha256 or "", f"repository {name}")
        for name, component in contents.components.named():
            for package, version in component.packages.items():
                url = contents.repositories[component.repository].url if component.repository != DISTRIBUTION else ""
                yield MirrorItem("package", package, platform, version, component.repository, url, "", name)
            for file in component.files:
                yield MirrorItem(
                    "file", _basename(file.url), platform, component.version, "", file.url, file.sha256 or "", name
                )
        for firmware in contents.components.nic_firmware:
            if firmware.file:
                yield MirrorItem(
                    "file", _basename(firmware.file.url), platform, firmware.version, "", firmware.file.url,
                    firmware.file.sha256 or "", f"firmware of {firmware.psid or firmware.model}",
                )  # fmt: skip


def of_names(
    names: Iterable[str], platform: str, needed_by: str, repository: str = DISTRIBUTION
) -> Iterator[MirrorItem]:
    """Packages in the version of their repository."""
    for name in names:
        yield MirrorItem("package", name, platform, "", repository, "", "", needed_by)


def unlisted(reason: str, platform: str, needed_by: str) -> MirrorItem:
    """A need that cannot be listed, because it depends on unknown facts. It is listed as such, not left out."""
    return MirrorItem("unlisted", reason, platform, needed_by=needed_by)


def of_inputs(plain: Any, key: str) -> Iterator[MirrorItem]:
    """Every URL in a concern's inputs, with the digest beside it.

    ``url`` goes with ``sha256``, ``key_url`` with ``key_sha256`` and so on; ``image`` and ``images`` are references of
    container images; ``source`` may be an apt source line with a URL.
    """
    if isinstance(plain, Mapping):
        for name, value in plain.items():
            path = f"{key}.{name}"
            if isinstance(value, str) and (name == "url" or name.endswith("_url")):
                yield from _of_url(plain, name, value, key)
            elif name == "source" and isinstance(value, str) and "://" in value:
                url, _, suites = value[value.index("http") :].partition(" ") if "http" in value else (value, "", "")
                yield MirrorItem("repository", _basename(url), "", suites, "", without_secrets(url), "", key)
            elif name in ("image", "images") and value:
                for image in [value] if isinstance(value, str) else value:
                    if isinstance(image, str):
                        yield MirrorItem("image", image, needed_by=path)
                    else:
                        yield from of_inputs(image, path)
            else:
                yield from of_inputs(value, path)
    elif isinstance(plain, list | tuple):
        for number, value in enumerate(plain):
            yield from of_inputs(value, f"{key}[{number}]")


def _of_url(plain: Mapping[Any, Any], name: str, value: str, key: str) -> Iterator[MirrorItem]:
    url = without_secrets(value)
    if not url or url.startswith("file:"):
        return
    stem = name.removesuffix("url")
    digest = plain.get(f"{stem}sha256")
    version = plain.get("version")
    is_repository = stem.startswith("repository") or "index" in stem or f"{stem}key_url" in plain
    kind: Kind = (
        "key"
        if stem.endswith("key_") or (not stem and key.endswith(".key"))
        else "repository"
        if is_repository
        else "file"
    )
    yield MirrorItem(
        kind,
        _basename(url),
        "",
        version if isinstance(version, str) else "",
        "",
        url,
        digest if isinstance(digest, str) else "",
        key,
    )


def without_secrets(url: str) -> str:
    """A URL for printing: without user, password, query and fragment."""
    match = re.match(r"(\w+://)([^/?#]*)([^?#]*)", url)
    return f"{match[1]}{match[2].rpartition('@')[2]}{match[3]}" if match else ""


def _basename(url: str) -> str:
    return without_secrets(url).rstrip("/").rpartition("/")[2] or url


def merged(items: Iterable[MirrorItem]) -> tuple[MirrorItem, ...]:
    """Items without duplicates, in a fixed order."""
    return tuple(sorted(set(items), key=lambda item: (ORDER.index(item.kind), *item.as_json().values())))
