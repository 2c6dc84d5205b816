"""Programs that measure collectives, and their command lines. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rackproof.bench.collectives.nccl_used import ENVIRONMENT, MNNVL
from rackproof.bench.user import HOME
from rackproof.core.architecture import CollectiveProfile


@dataclass(frozen=True, slots=True)
class Sweep:
    """Message sizes of one command, bytes."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Engine:
    """Commands of one implementation of collectives."""

    name: str
    loads_gpus: bool
    one_rail: bool
    """Whether a run uses one rail only."""
    needs_mpi: bool
    source: str = ""
    """The kit's own program, a file beside this module that is copied to all nodes; empty for an installed tool."""

    def program(
        self, op: str, profile: CollectiveProfile, sweep: Sweep, python: str = "python3", seconds: int = 0
    ) -> str:
        """Command line of one process; nccl-tests needs its number of GPUs after it.

        ``seconds``: of a program of the kit, how long calls go on instead of a number of them.
        """
        calls = f"{seconds}s" if seconds else str(profile.iterations)
        numbers = f"{sweep.low} {sweep.high} {profile.factor} {calls} {profile.warmup}"
        if self.source:
            return f"{shlex.quote(python)} -I {HOME}/{self.source} {op} {numbers}"
        return (
            f"{op}_perf -b {sweep.low} -e {sweep.high} -f {profile.factor} -n {profile.iterations}"
            f" -w {profile.warmup} -c 1"
        )

    def environment(self, interface: str, algorithm: str | None = None) -> dict[str, str]:
        """Variables of NCCL; none for an engine without it."""
        if self.name == "mpi":
            return {}
        asked = {} if algorithm is None else {"NCCL_ALGO": algorithm}
        if algorithm is not None and algorithm != "NVLS":
            asked["NCCL_NVLS_ENABLE"] = "0"
        return {"NCCL_SOCKET_IFNAME": interface, **ENVIRONMENT, **asked}


ENGINES: Final[Mapping[str, Engine]] = {
    engine.name: engine
    for engine in (
        Engine("mpi", False, True, True, "collectives.py"),
        Engine("nccl-tests", True, False, True),
        Engine("torch", True, False, False, "torch_collectives.py"),
    )
}


def split_by_rails(rail: int, ranks_per_node: int) -> dict[str, str]:
    """Variables that split the ranks of nccl-tests by their place in the node, rank 0 on the rail's GPU.

    The table shows rank 0's group. Source: nccl-tests src/common.cu; a mask is known to all versions since 2.11,
    ``MOD`` to those since 2.14.
    """
    power_of_two = ranks_per_node & (ranks_per_node - 1) == 0
    split = (
        {"NCCL_TESTS_SPLIT_MASK": f"{ranks_per_node - 1:#x}"}
        if power_of_two
        else {"NCCL_TESTS_SPLIT": f"MOD {ranks_per_node}"}
    )
    gpus = [(rail + place) % ranks_per_node for place in range(ranks_per_node)]
    return {**split, "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), MNNVL: "0"}
