"""The kit's own command lines of collectives, read back from the evidence. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from rackproof.bench.collectives.launchers import INTERFACE
from rackproof.bench.collectives.nccl_used import DECLARED, Asked
from rackproof.parse import ParseError
from rackproof.remote.command import program

MPIRUN: Final = "mpirun"
SSH: Final = "ssh"
LAUNCHERS: Final = (MPIRUN, "srun", SSH)
MPI_PROGRAM: Final = "/collectives.py"
TORCH_PROGRAM: Final = "/torch_collectives.py"
SPLIT: Final = ("NCCL_TESTS_SPLIT_MASK", "NCCL_TESTS_SPLIT")
"""Variables of nccl-tests, each of which splits the ranks into groups; the first one is older."""
_RUNS_TORCH: Final = re.compile(rf" -I \S+{re.escape(TORCH_PROGRAM)} ")
"""Matches any interpreter (``collectives.python``)."""
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Requested:
    """Parameters on the command line."""

    ranks: int
    hosts: tuple[str, ...]
    """Empty where the program runs on the node itself."""
    ranks_per_node: int
    op: str
    sizes: tuple[int, ...]
    iterations: int
    warmup: int
    interface: str | None
    """Interface that data is bound to; None for an engine that chooses its ports."""
    engine: str
    environment: Mapping[str, str]
    backend: str | None = None
    """Backend of the engine torch."""
    seconds: int = 0
    """Seconds for which calls are repeated, ``iterations`` is then 0; 0: ``iterations`` calls."""
    topology_files: tuple[str, ...] = ()
    """Topology files that the inventory gives the nodes."""

    @property
    def rail(self) -> int | None:
        """Rail of rank 0, where the ranks are split by rails."""
        first = self.environment.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
        return int(first) if any(name in self.environment for name in SPLIT) and first.isdigit() else None

    def at(self, node: str) -> Requested:
        """The same parameters, of a program that runs on this node itself."""
        return replace(self, hosts=(node,))

    def asked(self, nodes: int) -> Asked:
        return Asked(nodes, self.ranks_per_node, self.environment, self.op, self.rail, self.topology_files)


def launcher_of(command: str) -> str | None:
    """``mpirun``, ``srun``, or ``ssh`` for a program that runs on the node itself; None for any other command."""
    name = program(command).rpartition("/")[2]
    if name in LAUNCHERS[:2]:
        return name
    return SSH if name.endswith("_perf") or _RUNS_TORCH.search(command) else None


def leads(command: str) -> bool:
    """Whether a command's output has the figures: of torch over ssh, that of the first node."""
    words = command.partition(DECLARED)[0].split()
    alone = launcher_of(command) == SSH and TORCH_PROGRAM in command
    return launcher_of(command) is not None and not (alone and words[-1] != "0")


@lru_cache(maxsize=4096)
def requested_by(command: str) -> Requested:
    """Parse the kit's command line, which group testing asks about again and again. Raises ParseError."""
    launcher = launcher_of(command)
    command, _, declared = command.partition(DECLARED)
    try:
        words = shlex.split(command)
        at = next(
            number
            for number, word in enumerate(words)
            if word.endswith((MPI_PROGRAM, TORCH_PROGRAM, "_perf")) and "=" not in word
        )
        name, before, after = words[at], words[:at], words[at + 1 :]
        assigned = [match for word in before if (match := _ASSIGNMENT.fullmatch(word))]
        environment = {match[1]: match[2] for match in assigned}
        hosts: list[str] = []
        per_node, interface, seconds = 0, None, 0
        if launcher == MPIRUN:
            hosts = [host.partition(":")[0] for host in before[before.index("--host") + 1].split(",")]
            per_node = int(before[before.index("-n") + 1]) // len(hosts)
        elif launcher == "srun":
            options = dict(word.split("=", 1) for word in before if word.startswith("--") and "=" in word)
            hosts, per_node = options["--nodelist"].split(","), int(options["--ntasks-per-node"])
        if name.endswith("_perf"):
            options = dict(zip(after[::2], after[1::2], strict=True))
            op, engine = name.rpartition("/")[2].removesuffix("_perf"), "nccl-tests"
            numbers = [int(options[key]) for key in ("-b", "-e", "-f", "-n", "-w")]
            per_node = per_node or int(options["-g"])
        else:
            op, engine = after[0], "torch" if name.endswith(TORCH_PROGRAM) else "mpi"
            seconds = int(after[4].removesuffix("s")) if after[4].endswith("s") else 0
            numbers = [int(word) for word in (*after[1:4], "0" if seconds else after[4], after[5])]
            if engine == "mpi":
                if launcher == "srun":
                    interface = environment[INTERFACE]
                else:
                    interface = before[before.index("btl_tcp_if_include") + 1]
            elif launcher == SSH:
                several = after[8].split(",")
                hosts, per_node = several if len(several) > 1 else [], int(after[9])
        low, high, factor, iterations, warmup = numbers
        if per_node < 1:
            raise ValueError
    except (ValueError, LookupError, StopIteration):
        raise ParseError(launcher or MPIRUN, "its command line is not one of the kit's") from None
    steps = tuple(sizes(low, high, factor))
    return Requested(
        per_node * max(1, len(hosts)), tuple(hosts), per_node, op, steps, iterations, warmup, interface, engine,
        environment, after[6] if engine == "torch" and len(after) > 6 else None, seconds, tuple(declared.split()),
    )  # fmt: skip


def sizes(low: int, high: int, factor: int) -> Iterable[int]:
    """Message sizes of all engines, bytes."""
    while low <= high:
        yield low
        low *= max(factor, 2)
