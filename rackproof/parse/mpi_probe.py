"""Answer of ``rackproof/bench/collectives/mpi_probe.sh``: the MPIs of a node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, marked_lines

MARK: Final = "rackproof mpi 1"
"""First line of every answer, and part of the command."""
TOOL: Final = "mpirun"
_END: Final = "end of mpi"
_VERSION: Final = re.compile(r"Open MPI\)?,? v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})")
_PMIX: Final = re.compile(r"\bpmix(?:_v\d+)?\b")


@dataclass(frozen=True, slots=True)
class Mpirun:
    path: str
    version: tuple[int, int, int] | None
    """Version of Open MPI; None for another MPI."""
    text: str
    """First line of ``--version``."""
    default: bool
    """Whether it is the one on the PATH."""


@dataclass(frozen=True, slots=True)
class MpiFound:
    launchers: tuple[Mpirun, ...]
    """The declared one first, then the built one, the one on the PATH, and those in known folders."""
    library: str
    """mpi4py's report of its library, or why there is none."""
    library_version: tuple[int, int, int] | None
    """Version of mpi4py's Open MPI; None for another MPI, and without mpi4py."""
    pmix: bool
    """Whether srun starts MPI by PMIx."""


def parse_mpi_probe(output: str | bytes) -> MpiFound:
    """Raises ParseError where the answer is incomplete or unreadable."""
    launchers: list[Mpirun] = []
    default, library, srun = "", None, ""
    for line in marked_lines(TOOL, output, MARK, _END):
        word, _, rest = line.partition(" ")
        if word == "default":
            default = rest
        elif word == "mpirun":
            path, _, text = rest.partition(" ")
            launchers.append(Mpirun(path, _version(text), text, path == default))
        elif word == "mpi4py":
            library = rest
        elif word == "srun":
            srun = rest
        else:
            raise ParseError(TOOL, f"expected the MPIs of a node, got {excerpt(line)}")
    if library is None:
        raise ParseError(TOOL, "the answer does not speak of mpi4py")
    return MpiFound(tuple(launchers), library, _version(library), _PMIX.search(srun) is not None)


def _version(text: str) -> tuple[int, int, int] | None:
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
