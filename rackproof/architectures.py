"""Reference architectures on disk: finding, reading, and saying where a file is wrong.

An architecture is named by id (``virtual-rack`` is ``architectures/virtual-rack.yaml``, looked up in the working
directory first, then beside the kit) or by the path of a file. Every complaint is an ArchitectureError of one line::

    architectures/virtual-rack.yaml:12: storage.nfs-tcp.mountpiont: unknown key; did you mean 'mountpoint'?
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.complaints import model_problems
from rackproof.core.architecture.consistency import problems
from rackproof.core.architecture.document import Document
from rackproof.core.nearest import suggestion
from rackproof.errors import ArchitectureError

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class LoadedArchitecture:
    """A valid architecture and exactly the bytes it was read from."""

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
    """Folders that are looked through for an id, nearest first."""
    kit = Path(__file__).resolve().parent
    return (Path("architectures"), kit.parent / "architectures", kit / "data" / "architectures")


def available(search: Sequence[Path] | None = None) -> list[AvailableArchitecture]:
    """Every architecture that can be named by id, sorted; of two with one id the nearer one."""
    found = []
    for id_, path in sorted(_index(search).items()):
        try:
            found.append(AvailableArchitecture(id_, path, load(path).model.metadata.title, None))
        except ArchitectureError as error:
            found.append(AvailableArchitecture(id_, path, "", str(error)))
    return found


def load(ref: str | Path, search: Sequence[Path] | None = None) -> LoadedArchitecture:
    """Read and check one architecture, by id or by path.

    Raises ArchitectureError, one line, for everything that is wrong with it.
    """
    if isinstance(ref, Path) or "/" in ref or ref.endswith(_SUFFIXES):
        return _read(Path(ref))
    index = _index(search)
    if ref not in index:
        raise ArchitectureError(f"no reference architecture '{ref}'; {suggestion(ref, sorted(index))}")
    loaded = _read(index[ref])
    if loaded.model.metadata.id != ref:
        raise ArchitectureError(
            f"{loaded.path}: metadata.id: expected '{ref}' as the file's name says, actual '{loaded.model.metadata.id}'"
        )
    return loaded


def parse(text: str, name: str) -> Architecture:
    """The architecture in ``text``; ``name`` stands for the file in errors. Raises ArchitectureError."""
    document = Document(text, name)
    try:
        model = Architecture.model_validate(document.data)
    except ValidationError as error:
        raise ArchitectureError(document.sentence(model_problems(error, document))) from None
    wrong = list(problems(model))
    if wrong:
        raise ArchitectureError(document.sentence(wrong))
    return model


def _index(search: Sequence[Path] | None) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in default_search() if search is None else search:
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if path.suffix in _SUFFIXES and path.is_file():
                    found.setdefault(path.stem, path)
    return found


def _read(path: Path) -> LoadedArchitecture:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ArchitectureError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ArchitectureError(f"{path}:{line}: not UTF-8 text") from None
    return LoadedArchitecture(parse(text, str(path)), path, text, hashlib.sha256(raw).hexdigest())
