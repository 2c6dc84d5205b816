"""Read and lock ``versions.lock.yaml``; errors name the line.

The digest is over the content, not the bytes: comments and layout may change, a version may not.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rackproof.core.architecture.complaints import keys_at
from rackproof.core.architecture.document import Document, dotted
from rackproof.core.architecture.problem import KeyPath
from rackproof.core.nearest import suggestion
from rackproof.core.versions.models import VersionSet
from rackproof.core.wording import and_more
from rackproof.errors import ArchitectureError, VersionSetError

REMEDY: Final = "revert the change, or review it and lock the file again: `rackproof versions lock"


def read_versions(text: str, name: str) -> VersionSet:
    """The set, locked or a draft. ``name`` names the file in errors.

    Raises VersionSetError, ``file:line: key: what is wrong``, also for a file that was edited after it was locked.
    """
    try:
        document = Document(text, name)
    except ArchitectureError as error:
        raise VersionSetError(str(error)) from None
    if not isinstance(document.data, dict):
        raise VersionSetError(f"{name}:1: expected a mapping, actual {type(document.data).__name__}")
    try:
        versions = VersionSet.model_validate(document.data)
    except ValidationError as error:
        raise VersionSetError(_complaint(error, document)) from None
    if versions.digest is not None and versions.digest != digest_of(document.data):
        _, line = document.place(("digest",))
        raise VersionSetError(f"{name}:{line}: digest: the file was edited after it was locked; {REMEDY} {name}`")
    if versions.locked and (empty := unpinned(versions)):
        raise VersionSetError(f"{name}: {empty[0]}: a locked set pins everything that is downloaded, actual null")
    return versions


def require_locked(versions: VersionSet, name: str) -> None:
    """Raises VersionSetError for a draft: nothing is installed from one."""
    if not versions.locked:
        raise VersionSetError(f"{name}: is a draft, not a lock; `rackproof versions lock {name}` seals it")


def digest_of(data: Any) -> str:
    """sha256 of a file's content without its digest."""
    content = {key: value for key, value in data.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str, ensure_ascii=False).encode()).hexdigest()


def unpinned(versions: VersionSet) -> tuple[str, ...]:
    """Keys of downloads without a digest; with one, the set stays a draft."""
    keys = []
    for platform_name, platform in versions.platforms.items():
        here = f"platforms.{platform_name}"
        for name, repository in platform.repositories.items():
            if repository.key.sha256 is None:
                keys.append(f"{here}.repositories.{name}.key.sha256")
        for name, component in platform.components.named():
            for number, file in enumerate(component.files):
                if file.sha256 is None:
                    keys.append(f"{here}.components.{name}.files[{number}].sha256")
        for number, firmware in enumerate(platform.components.nic_firmware):
            if firmware.file and firmware.file.sha256 is None:
                keys.append(f"{here}.components.nic_firmware[{number}].file.sha256")
    return tuple(keys)


def sealed(text: str, name: str) -> str:
    """The text with its digest, and with its comments.

    Raises VersionSetError for a malformed file and for a download without a digest.
    """
    bare = re.sub(r"^digest:.*\n", "", text, flags=re.MULTILINE)
    versions = read_versions(bare, name)
    if empty := unpinned(versions):
        raise VersionSetError(
            f"{name}: {empty[0]}: cannot be locked without it{and_more(len(empty) - 1)};"
            " fill in `sha256sum` of the file on your mirror"
        )
    line = f"digest: {digest_of(Document(bare, name).data)}\n"
    with_digest, count = re.subn(r"^(name:.*\n)", lambda match: match[1] + line, bare, count=1, flags=re.MULTILINE)
    if not count:
        raise VersionSetError(f"{name}: the key name must be on its own line: `name: …`")
    read_versions(with_digest, name)  # verify the result
    return with_digest


def to_text(versions: VersionSet) -> str:
    """A set as a file, without its digest and default values."""
    plain = versions.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"digest"})
    head = {key: plain[key] for key in ("apiVersion", "name")}
    dumped: str = yaml.safe_dump({**head, "platforms": plain["platforms"]}, sort_keys=False, width=100)
    return dumped


def _complaint(error: ValidationError, document: Document) -> str:
    errors: list[ErrorDetails] = error.errors(include_url=False)
    misspelled = {problem["loc"][:-1] for problem in errors if problem["type"] == "extra_forbidden"}
    # a misspelled required key is two errors for one mistake: report the misspelling
    errors = [problem for problem in errors if problem["type"] != "missing" or problem["loc"][:-1] not in misspelled]
    first, *others = sorted(errors, key=lambda problem: document.place(problem["loc"])[1])
    path: KeyPath = tuple(first["loc"])
    name, line = document.place(path)
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if first["type"] == "extra_forbidden":
        message = f"unknown key; {suggestion(str(path[-1]), keys_at(path[:-1], VersionSet))}"
    elif first["type"] == "missing":
        message = "required key is missing"
    elif not isinstance(first["input"], dict | list):
        message += f", actual {first['input']!r}"
    where = f"{dotted(path)}: " if path else ""
    return f"{name}:{line}: {where}{' '.join(message.split())}{and_more(len(others))}"
