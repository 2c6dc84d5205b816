"""Benchmark programs: installed, and able to start."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.programs import OFF_PATH
from rackproof.core.rack import Node, Rack
from rackproof.parse.answer import STATUS, parse_answer
from rackproof.parse.programs import parse_programs
from rackproof.validation import Unmeasured, announce, answered, check, read

# Commands for programs without --version.
HARMLESS = {"ibv_devinfo": "ibv_devinfo -l", "nvbandwidth": "nvbandwidth --help"}
# Importing numpy takes an emulated node many seconds; finding it is enough.
MPI4PY = (
    "python3 -c 'import mpi4py, importlib.util as u;"
    f' print(mpi4py.__version__, u.find_spec("numpy").origin)\' 2>&1{STATUS}'
)


def programs(arch: Architecture, node: Node, rack: Rack) -> tuple[str, ...]:
    return arch.programs_of(node.groups)


def where(names: Iterable[str]) -> str:
    words = " ".join(shlex.quote(program) for program in names)
    return f'for p in {words}; do echo "$p $(command -v "$p")"; done'


def location(host: Host, arch: Architecture, node: Node, name: str) -> str | None:
    """Path of a program, on root's PATH or where its package installs it outside."""
    names = arch.programs_of(node.groups)
    path = parse_programs(read(host, where(names)), names)[name]
    if path is not None or name not in OFF_PATH:
        return path
    elsewhere = " || ".join(f"command -v {path}" for path in OFF_PATH[name])
    return parse_programs(read(host, f'echo "{name} $({elsewhere})"'), (name,))[name]


@check(
    "tools.present",
    reads="tools.programs",
    each=programs,
    protects="Without its benchmark programs a node cannot be measured, hence not certified.",
    hint="Install the package that provides the program; add it to tools.packages of the architecture.",
)
def test_present(host: Host, arch: Architecture, node: Node, item: str) -> None:
    if location(host, arch, node, item) is None:
        raise AssertionError(f"expected {item} on root's PATH, actual not found")


@check(
    "tools.starts",
    reads="tools.programs",
    each=programs,
    protects="A program with missing libraries fails in the middle of a run.",
    hint="Run it with --version; ldd shows the missing library.",
)
def test_starts(host: Host, arch: Architecture, node: Node, item: str) -> None:
    command = HARMLESS.get(item, f"{shlex.quote(item)} --version")
    start = f"{command} 2>&1{STATUS}"
    announce(host, where(arch.programs_of(node.groups)), start)
    path = location(host, arch, node, item)
    if path is None:
        raise Unmeasured(f"{item} is not installed; see tools.present")
    if path in OFF_PATH.get(item, ()):
        start = f"{path} --version 2>&1{STATUS}"
    answer = parse_answer(item, read(host, start))
    # perftest programs print their version and exit with 1.
    if answer.status != 0 and not (answer.status == 1 and any(line.startswith("Version: ") for line in answer.lines)):
        raise AssertionError(f"expected {command} to succeed, actual {answer.failure}")
    if not any(character.isdigit() for character in answer.body):
        raise Unmeasured(f"{item}: no version in its output")


@check(
    "tools.mpi4py",
    reads="tools.packages",
    when=lambda arch, node, rack: "python3-mpi4py" in arch.tools.packages,
    protects="On racks without NCCL, mpi4py measures collectives.",
    hint="python3 -c 'import mpi4py, numpy' on the node names the missing module.",
)
def test_mpi4py(host: Host) -> None:
    answer = answered(host, MPI4PY, "python3", good=None)
    if answer.status != 0:
        raise AssertionError(f"expected mpi4py and numpy, actual {answer.reason}")
    version, _, path = answer.body.strip().partition(" ")
    if not version[:1].isdigit() or not path.startswith("/"):
        raise Unmeasured(f"python3: unexpected output {answer.body.strip()!r}")
