"""Programs and jobs on a node whose driver is to be replaced; works with and without a driver. Pure.

Programs are processes that have a device of the driver open. Slurm's jobs are found by their steps on the node, and by
asking the controller where Slurm's programs are installed, because a job may have no step yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rackproof import shell
from rackproof.configure.reboot import drain
from rackproof.core.wording import some
from rackproof.parse.sections import sections_of
from rackproof.parse.slurm import job_of_step

BUSY: Final = "gpu.busy"
"""Id of the check."""
SERVICES: Final = (
    *("nvidia-persistenced", "nv-fabricmanager", "nvidia-imex", "nv-hostengine", "dcgm-exporter", "nvidia-smi"),
    "slurmd",
)
"""Programs that always have devices open and lose no work when they are restarted: the driver's own services, DCGM,
monitoring, and slurmd, which uses NVML."""
_NAME_LENGTH: Final = 15
"""Length of a program's name in /proc/PID/comm."""
SHOWN: Final = 5
"""Maximum number of programs, jobs or packages in a message."""


@dataclass(frozen=True, slots=True)
class Use:
    programs: tuple[str, ...] = ()
    """``python3 (4711)``; without those of ``SERVICES``."""
    jobs: tuple[str, ...] = ()
    """Ids of Slurm's jobs on the node."""
    jobs_known: bool = True
    """False when slurmd runs and the controller does not list the jobs."""
    node: drain.DrainState | None = None
    """State in Slurm's controller; None when it does not know the node, or does not answer."""


def use_command(node: str) -> str:
    return shell.script(__name__, "gpu_users", node=node, limit_s=drain.COMMAND_S)


def parse_use(lines: Sequence[str]) -> Use:
    """Answer of ``use_command``. Raises ValueError on anything else."""
    opened, daemons, queue, node = sections_of(lines, 4)
    programs = []
    for line in opened:
        pid, _, name = line.partition(" ")
        if not pid.isdigit() or not name:
            raise ValueError(f"no process: {line!r}")
        if name not in {service[:_NAME_LENGTH] for service in SERVICES}:
            programs.append(f"{name} ({pid})")
    steps = [job for line in daemons if (job := job_of_step(line))]
    answered = queue[:1] == ["answered"]
    queued = [line.strip() for line in queue[1:] if line.strip()] if answered else []
    return Use(
        programs=tuple(programs),
        jobs=tuple(dict.fromkeys(queued or steps)),
        jobs_known=answered or "slurmd" not in daemons,
        node=drain.parse_node("\n".join(node)),
    )


REBOOTS: Final = ("the node reboots",)


def obstacle(use: Use, due: Sequence[str], drains: bool) -> tuple[str, str] | None:
    """Why ``due`` must not be replaced now, or the node not reboot (``REBOOTS``), and the remedy; None when it may.
    ``drains``: the deploy itself drains the node in Slurm; otherwise it must already be drained."""
    obstacles = []
    if use.programs:
        obstacles.append(f"programs on the GPUs: {some(use.programs, SHOWN)}")
    if use.jobs:
        obstacles.append(f"Slurm's jobs {some(use.jobs, SHOWN)}")
    if not use.jobs_known:
        obstacles.append("jobs unknown: slurmd runs, and Slurm's controller does not answer about this node")
    if not drains and use.node is not None and not use.node.withdrawn:
        obstacles.append("not drained in Slurm, so the next job would meet two versions, or a node that goes down")
    if not obstacles:
        return None
    return (
        f"GPUs and network: expected no programs and jobs while {some(due, SHOWN)}, actual {'; '.join(obstacles)}",
        "drain the node (scontrol update NodeName=… State=DRAIN Reason=…), let it become idle, and run again",
    )
