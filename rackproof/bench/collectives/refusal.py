"""Why Slurm gave a job no nodes: their states in the controller's view, and the way out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rackproof.bench.collectives.command import launcher_of
from rackproof.configure.reboot.drain import show_command
from rackproof.configure.slurm.nodes import node_set
from rackproof.core.grouping import grouped
from rackproof.core.wording import some
from rackproof.parse import ParseError
from rackproof.parse.slurm import no_nodes_given, node_reason, node_states, parse_scontrol_records
from rackproof.remote.command import CommandResult, program

_FREE: Final = frozenset({"IDLE", "CLOUD", "DYNAMIC_NORM"})
_RESUME: Final = "scontrol update NodeName={} State=RESUME"
_WAYS_OUT: Final = (
    ({"NOT_RESPONDING"}, f"start slurmd there; if it stays out of service then, {_RESUME}"),
    ({"DOWN", "DRAIN", "FAIL", "INVALID_REG"}, f"mend the cause, then {_RESUME}"),
    ({"MAINT", "MAINTENANCE", "RESERVED"}, "a reservation keeps it: scontrol show reservation"),
    ({"ALLOCATED", "MIXED", "COMPLETING"}, "other jobs use it: squeue --nodelist={}"),
    ({"PLANNED"}, "a waiting job comes first: squeue"),
)
"""States (scontrol(1)) and what an administrator does; the first pair that applies counts."""
_OTHERWISE: Final = "see scontrol show node {}"
_SHOWN: Final = 3


def is_refused(answer: CommandResult) -> bool:
    """Whether Slurm gave ``srun`` no nodes."""
    launched = launcher_of(answer.command) == "srun"
    return launched and bool(answer.rc) and no_nodes_given(answer.stderr)


def asking(nodes: Sequence[str]) -> str:
    """Command that shows the nodes' states."""
    return show_command(",".join(nodes))


_ASKING: Final = asking([""]).removesuffix("''")


def is_asking(command: str) -> bool:
    """Whether a recorded command is that of ``asking``."""
    return command.startswith(_ASKING)


def why_failed(answer: CommandResult, answers: Iterable[CommandResult]) -> ParseError:
    """Why a job failed; where Slurm gave it no nodes, with the states that the first answer to ``asking`` shows."""
    shown = next((one for one in answers if is_asking(one.command) and one.ok), None) if is_refused(answer) else None
    states = out_of_service(shown.stdout) if shown else ""
    return ParseError(program(answer.command), f"{answer.why}; {states}" if states else answer.why)


def out_of_service(output: str | bytes) -> str:
    """Nodes that take no new job now, with state, reason and way out, from the output of ``asking``; empty where all
    do, or it is unreadable."""
    try:
        states = [
            ((node_states(one), node_reason(one)), one["NodeName"])
            for one in parse_scontrol_records(output, "NodeName")
        ]
    except ParseError:
        return ""
    taken = grouped((key, name) for key, name in states if not _FREE.issuperset(key[0]))
    return some([_line(words, reason, names) for (words, reason), names in taken.items()], _SHOWN, "; ")


def _line(words: Sequence[str], reason: str | None, names: Sequence[str]) -> str:
    nodes = node_set(names)
    way = next((way for states, way in _WAYS_OUT if states & set(words)), _OTHERWISE).format(nodes)
    return f"{nodes}: Slurm has {'+'.join(words)}{f' ({reason})' if reason else ''}, {way}"
