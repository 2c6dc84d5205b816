"""Reference architectures on disk: finding, reading, and saying where a file is wrong.

An architecture is named by id (``virtual-rack`` is ``architectures/virtual-rack.yaml``, looked up in the working
directory first, then among the kit's) or by the path of a file. Every complaint is an ArchitectureError of one line::

    architectures/virtual-rack.yaml:12: storage.nfs-tcp.mountpiont: unknown key; did you mean 'mountpoint'?
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rackproof import kit
from rackproof.core.architecture import Architecture, Drop, Metadata, Weakening
from rackproof.core.architecture.complaints import model_problems
from rackproof.core.architecture.consistency import problems, unknown_checks
from rackproof.core.architecture.document import Document, dotted
from rackproof.core.architecture.inheritance import Merged, parent_of
from rackproof.core.architecture.nesting import DUMPER
from rackproof.core.architecture.overrides import overridden
from rackproof.core.architecture.problem import Problem
from rackproof.core.architecture.published import PUBLISHED
from rackproof.core.architecture.scaled_claims import against_published
from rackproof.core.architecture.smoke import with_smoke
from rackproof.core.architecture.weakening import key_path, reason_key, unused_reasons, weakenings
from rackproof.core.nearest import suggestion
from rackproof.core.rack import Rack
from rackproof.core.texts import SHA256
from rackproof.core.wording import shortened
from rackproof.errors import ArchitectureError
from rackproof.read_file import DOCUMENT, read_bytes

_SUFFIXES = (".yaml", ".yml")
SUMS = "SHA256SUMS"
"""Beside the kit's files: their sha256, as sha256sum writes and checks them."""


@dataclass(frozen=True, slots=True)
class LoadedArchitecture:
    """A valid architecture and its text. The model has the profile ``smoke`` as well.

    ``text`` is the file's, or, where it extends others, all of them merged; ``sha256`` is of ``text``.
    """

    model: Architecture
    path: Path
    text: str
    sha256: str


@dataclass(frozen=True, slots=True)
class AvailableArchitecture:
    """A file that ``load(id)`` would find. ``problem`` says why it cannot be used; ``title`` is then empty."""

    id: str
    path: Path
    title: str
    problem: str | None


def default_search() -> tuple[Path, ...]:
    """Folders to search for an id, nearest first."""
    return (Path("architectures"), kit.folder("architectures"))


def available(search: Sequence[Path] | None = None) -> list[AvailableArchitecture]:
    """Every architecture that can be named by id, sorted. Of files with the same id the nearest counts."""
    architectures = []
    for id_, path in sorted(_index(search).items()):
        try:
            architectures.append(AvailableArchitecture(id_, path, load(path).model.metadata.title, None))
        except ArchitectureError as error:
            architectures.append(AvailableArchitecture(id_, path, "", str(error)))
    return architectures


def load(
    ref: str | Path, search: Sequence[Path] | None = None, checks: Collection[str] | None = None
) -> LoadedArchitecture:
    """Read and check one architecture, by id or by path.

    ``checks`` are the ids of the checks that validators give; with them a severity of any other check is refused.

    Raises ArchitectureError, one line.
    """
    if isinstance(ref, Path) or "/" in ref or ref.endswith(_SUFFIXES):
        return _read(Path(ref), search, checks)
    index = _index(search)
    if ref not in index:
        raise ArchitectureError(f"no reference architecture '{ref}'; {suggestion(ref, sorted(index))}")
    loaded = _read(index[ref], search, checks)
    if loaded.model.metadata.id != ref:
        raise ArchitectureError(
            f"{loaded.path}: metadata.id: expected '{ref}' as the file's name says, actual '{loaded.model.metadata.id}'"
        )
    return loaded


def parse(text: str, name: str, stored: bool = False) -> Architecture:
    """The architecture in ``text``, which extends no other; ``name`` is the file in errors.

    If ``stored``, sections without criteria are allowed. Raises ArchitectureError.
    """
    document = Document(text, name)
    if parent_of(document) is not None:
        raise ArchitectureError(f"{name}: extends another file; load it by its path")
    return _checked(document, stored)


def stored(text: str, name: str) -> LoadedArchitecture:
    """The architecture whose text was stored with a run. Raises ArchitectureError.

    Weakenings against the published architecture of its id, or the one that it was compared with, are computed again:
    a user may have edited the text, and a newer kit may demand more.
    """
    model = parse(text, name, stored=True)
    told = model.metadata
    id_ = told.compared_with.split()[0] if told.compared_with else told.id
    kits = kit.folder("architectures") / f"{id_}.yaml"
    if id_ in PUBLISHED and kits.is_file() and not _as_published(kits, text):
        reference = _checked(_merged(kits, None, ()).document)
        known = {(weakening.path, weakening.here) for weakening in told.weakened}
        weaker = {w.path: w for w in weakenings(reference, model, {}) if (w.path, w.here) not in known}
        if weaker:
            compared = told.compared_with or f"{id_} {reference.metadata.version}"
            unchanged = (weakening for weakening in told.weakened if weakening.path not in weaker)
            told = told.model_copy(update={"compared_with": compared, "weakened": (*unchanged, *weaker.values())})
            model = model.model_copy(update={"metadata": told})
    return LoadedArchitecture(with_smoke(model), Path(name), text, hashlib.sha256(text.encode()).hexdigest())


def stored_file(path: Path) -> LoadedArchitecture:
    """The architecture in a file that the kit wrote; ``load`` refuses metadata that the kit sets.

    Raises ArchitectureError.
    """
    return stored(_text(path), str(path))


def beside_rack(path: Path) -> LoadedArchitecture:
    """The architecture that a rack file names: the deploy's, which is whole, or a user's, which may extend another.

    Raises ArchitectureError.
    """
    text = _text(path)
    return stored(text, str(path)) if parent_of(_document(text, str(path))) is None else load(path)


def of_run(ref: str) -> LoadedArchitecture:
    """Architecture for a run's deploy: an id or file, or the stored copy named by its sha256.

    The copy is needed because the user may edit the file during the run. Raises ArchitectureError.
    """
    path = Path(ref)
    if not re.fullmatch(SHA256, path.name) or not _exists(path):
        return load(ref)
    loaded = stored_file(path)
    if loaded.sha256 != path.name:
        raise ArchitectureError(f"{_shown(path)}: changed after the run stored it")
    return loaded


def json_schema() -> str:
    """JSON Schema of an architecture's file. A file that extends another may leave out what its parent has."""
    schema = Architecture.model_json_schema(by_alias=True)
    schema["required"] = ["apiVersion", "metadata"]
    for name in ("Metadata", "Criterion", "Curve", "Outlier"):  # what a file that extends another changes in part
        schema["$defs"][name]["required"] = ["id"]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "rackproof reference architecture"}
    return json.dumps(head | {k: v for k, v in schema.items() if k != "title"}, indent=2, ensure_ascii=False) + "\n"


@lru_cache(maxsize=64)
def _checked(document: Document | Merged, stored: bool = False) -> Architecture:
    try:
        model = Architecture.model_validate(document.data)
    except ValidationError as error:
        raise document.refused(model_problems(error, document)) from None
    wrong = list(problems(model, stored))
    if wrong:
        raise document.refused(wrong)
    changed = overridden(model)
    if changed is not model and (wrong := list(problems(changed, stored))):
        # the file's own thresholds are valid, so an override is not
        first = wrong[0]
        raise ArchitectureError(f"{document.name}: overrides: {dotted(first.path, document.data)}: {first.message}")
    return changed


def _index(search: Sequence[Path] | None) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for folder in default_search() if search is None else search:
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if path.suffix in _SUFFIXES and path.is_file():
                    files.setdefault(path.stem, path)
    return files


def _read(path: Path, search: Sequence[Path] | None, checks: Collection[str] | None) -> LoadedArchitecture:
    chain = _merged(path, search, ())
    document, text = chain.document, chain.text
    model = _checked(document)
    if checks is not None and (wrong := list(unknown_checks(model, checks))):
        raise document.refused(wrong)
    if model.scale is not None:
        scaled = _checked(_merged(_find(model.scale.of, search, path.parent), search, ()).document)
        if wrong := list(against_published(scaled, model)):
            raise document.refused(wrong)
    metadata: dict[str, Any] = {"derived_from": chain.parents} if chain.parents else {}
    reference, edited = _reference(chain)
    if reference is not None:
        metadata |= _weakened(reference, model, chain)
    if edited:
        metadata["edited"] = True
    if metadata:
        text = _whole_text(document, json.dumps(metadata))
        told = Metadata.model_validate(model.metadata.model_dump() | metadata)
        model = model.model_copy(update={"metadata": told})
    return LoadedArchitecture(with_smoke(model), path, text, hashlib.sha256(text.encode()).hexdigest())


def _reference(chain: _Chain) -> tuple[Architecture | None, bool]:
    """The architecture that a file is compared with, and whether the kit's own file was edited after it was published.

    It is the nearest of the file and its ancestors that has the id of a published architecture, as published; where
    none has, the topmost ancestor. None for files as they were published, and for a file that extends nothing.
    """
    if chain.published:
        return None, False
    for part in (chain, *chain.ancestors):
        id_ = part.document.data["metadata"]["id"]
        if id_ not in PUBLISHED:
            continue
        if part.published:
            return _checked(part.document), False
        original = kit.folder("architectures") / f"{id_}.yaml"
        if part is chain and part.path.resolve() == original.resolve():
            return None, True
        kits = _merged(original, None, ())
        return _checked(kits.document), not kits.published
    return (_checked(chain.ancestors[-1].document), False) if chain.ancestors else (None, False)


def _as_published(path: Path, text: str) -> bool:
    """Whether the text is that of the file that the kit publishes under this name."""
    return _sums(kit.folder("architectures") / SUMS).get(path.name) == hashlib.sha256(text.encode()).hexdigest()


@cache
def _sums(path: Path) -> dict[str, str]:
    """Name of a published file: its sha256. Raises ArchitectureError."""
    return {name: sha256 for sha256, name in (line.split() for line in _text(path).splitlines() if line.strip())}


def _weakened(reference: Architecture, model: Architecture, chain: _Chain) -> dict[str, Any]:
    """Metadata of a file that is compared with another. Raises ArchitectureError for a weakening without a reason."""
    document = chain.document
    weaker = _explained(reference, model, chain)
    name = f"{reference.metadata.id} {reference.metadata.version}"
    wrong = [
        Problem(
            key_path(document.data, weakening.path),
            f"weakens {reference.metadata.id}: published {weakening.published}, here {weakening.here}; "
            f"say why: overrides: {{{reason_key(weakening)}: {{reason: …, by: …}}}}",
        )
        for weakening in weaker
        if weakening.reason is None
    ]
    wrong = wrong or [
        Problem(("overrides", key), f"changes nothing, and {name} is not weakened there: remove it")
        for key in unused_reasons(model, weaker)
        if document.place(("overrides", key))[0] == document.name
    ]
    if wrong:
        raise document.refused(wrong)
    return {"compared_with": name, "weakened": [weakening.model_dump(mode="json") for weakening in weaker]}


def _explained(reference: Architecture, model: Architecture, chain: _Chain) -> list[Weakening]:
    """Weakenings with their reasons. A parent's override explains what the parent weakened, nothing else."""
    document = chain.document
    dropped = document.dropped if isinstance(document, Merged) else {}
    drops = {id_: Drop.model_validate(drop) for id_, drop in dropped.items()}
    weaker = weakenings(reference, model, drops)
    own = {key: why for key, why in model.overrides.items() if document.place(("overrides", key))[0] == document.name}
    if len(own) == len(model.overrides):
        return list(weaker)
    inherited = {(w.path, w.here) for w in weakenings(reference, _checked(chain.ancestors[0].document), drops)}
    by_own = weakenings(reference, model.model_copy(update={"overrides": own}), drops)
    return [
        with_all if (with_all.path, with_all.here) in inherited else with_own
        for with_all, with_own in zip(weaker, by_own, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Chain:
    """A file laid over everything that it extends."""

    document: Document | Merged
    text: str
    """The file's own."""
    parents: list[str]
    """As the files name them, nearest first."""
    path: Path
    published: bool
    """The file, and everything that it extends, is as the kit publishes it."""
    ancestors: list[_Chain]
    """The parents, each merged with its own parents."""


def _merged(path: Path, search: Sequence[Path] | None, below: tuple[Path, ...]) -> _Chain:
    text = _text(path)
    if path.resolve() in [other.resolve() for other in below]:
        circle = " → ".join(str(other) for other in (*below, path))
        raise ArchitectureError(f"{below[0]}: extends in a circle: {circle}")
    document = _document(text, str(path))
    _refuse_told(document)
    wanted = parent_of(document)
    if wanted is None:
        return _Chain(document, text, [], path, _as_published(path, text), [])
    try:
        parent_path = _find(wanted, search, path.parent)
        parent = _merged(parent_path, search, (*below, path))
    except ArchitectureError as error:
        line = document.place(("extends",))[1]
        if "in a circle" in str(error):
            raise
        raise ArchitectureError(f"{path}:{line}: extends {_shown(wanted)}: {error}") from None
    if not isinstance(parent.document.data, dict):
        raise ArchitectureError(f"{parent_path}: expected a mapping, actual something else")
    merged = _laid_over(parent.document, document)
    published = parent.published and _as_published(path, text)
    return _Chain(merged, text, [wanted, *parent.parents], path, published, [parent, *parent.ancestors])


# A command reads the same few files several times; documents and models are not changed after they are made.


@lru_cache(maxsize=64)
def _document(text: str, name: str) -> Document:
    return Document(text, name)


@lru_cache(maxsize=64)
def _laid_over(parent: Document | Merged, document: Document) -> Merged:
    return Merged(parent, document)


@lru_cache(maxsize=64)
def _whole_text(document: Document | Merged, metadata: str) -> str:
    """A run stores one text: the file with everything that it extends and with ``metadata`` (JSON)."""
    data = {key: value for key, value in document.data.items() if key not in ("extends", "drop")}
    data["metadata"] = {**data["metadata"], **json.loads(metadata)}
    dumped: str = yaml.dump(data, Dumper=DUMPER, sort_keys=False, allow_unicode=True, width=120)
    return dumped


def _refuse_told(document: Document) -> None:
    """Raises ArchitectureError for metadata that only the kit sets."""
    metadata = document.data.get("metadata") if isinstance(document.data, dict) else None
    wrong = [
        Problem(("metadata", key), "is set by the kit, never in a file")
        for key in ("derived_from", "compared_with", "weakened", "edited")
        if isinstance(metadata, dict) and key in metadata
    ]
    if wrong:
        raise document.refused(wrong)


def _find(ref: str, search: Sequence[Path] | None, beside: Path) -> Path:
    """The file of an id, or of a path, which may be relative to the file that names it."""
    if "/" in ref or ref.endswith(_SUFFIXES):
        return beside / ref if _exists(beside / ref) else Path(ref)
    for suffix in _SUFFIXES:
        if _exists(beside / f"{ref}{suffix}"):
            return beside / f"{ref}{suffix}"
    index = _index(search)
    if ref not in index:
        raise ArchitectureError(f"no reference architecture '{_shown(ref)}'; {suggestion(ref, sorted(index))}")
    return index[ref]


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # the name is too long or has a null byte; reading the file reports it
        return False


def architecture_of(rack: Rack, requested: str | None) -> LoadedArchitecture:
    """The requested architecture, or the inventory's. Raises ArchitectureError."""
    if requested:
        return load(requested)
    named = {str(node.data["architecture"]) for node in rack.nodes if node.data.get("architecture")}
    if len(named) != 1:
        problem = f"names several architectures ({', '.join(sorted(named))})" if named else "names no architecture"
        raise ArchitectureError(
            f"{rack.source} {problem}: set `architecture` in group_data/all.py or give --architecture"
        )
    return load(named.pop())


def _text(path: Path) -> str:
    try:
        raw = read_bytes(path, DOCUMENT)
    except OSError as error:
        raise ArchitectureError(f"{_shown(path)}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ArchitectureError(f"{_shown(path)}: cannot be read: {error}") from None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ArchitectureError(f"{path}:{line}: not UTF-8 text") from None


def _shown(path: str | Path) -> str:
    """A path as one printable line of at most 200 characters."""
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(path))
    return shortened(text, 200)
