"""The end of DCGM's tests: nothing of them keeps running on the GPUs.

DCGM's daemon starts the program of a diagnosis, ``nvvs``, so it is no process of the kit's command. ``dcgmi`` asks the
daemon to end it at SIGTERM (dcgmi/Diag.cpp of NVIDIA/DCGM), which is the first signal at a time limit, at an interrupt
and when the controller is lost. The kit looks whether it has ended, because the daemon may hang with the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rackproof.evidence.session import Session
from rackproof.parse import ParseError
from rackproof.parse.processes import parse_process_ids
from rackproof.remote.command import CommandResult
from rackproof.remote.interrupt import STOPPING
from rackproof.shell import script

NAME: Final = "nvvs"
LISTED: Final = f"ps -C {NAME} -o pid="
"""Exit status 1 where none runs."""
PATIENCE_S: Final = 20
"""DCGM's daemon sends SIGTERM four times, every 4 s, then SIGKILL (modules/diag/DcgmDiagManager.cpp)."""
SHORT_S: Final = 1
"""The same after an interrupt."""
_LIMIT_S: Final = 60.0


@contextmanager
def ended_diagnoses(session: Session, nodes: Sequence[str], say: Callable[[str], None]) -> Iterator[None]:
    """End what DCGM started during the block, and say so. What ran before is another's, and stays."""
    before = session.run(dict.fromkeys(nodes, LISTED), _LIMIT_S)
    known = {name: pids for name, answer in before.items() if (pids := _listed(answer)) is not None}
    try:
        yield
    finally:
        if STOPPING.is_set():
            commands = {name: ending(pids, SHORT_S) for name, pids in known.items()}
            session.fleet.each(commands, lambda c: c.clean_up(commands[c.node.name]), "the end of DCGM's tests")
        else:
            answers = session.run({name: ending(pids, PATIENCE_S) for name, pids in known.items()}, _LIMIT_S)
            for name, answer in answers.items():
                if line := answer.text.strip() if answer.ok else f"DCGM's {NAME} may still run: {answer.why}":
                    say(f"{name}: {line}")


def ending(before: Sequence[str], patience_s: int, program: str = NAME) -> str:
    """Command that ends programs of this name with other process ids than ``before``."""
    return script(__name__, "diagnosis_end", *before, program=program, patience_s=patience_s)


def _listed(answer: CommandResult) -> tuple[str, ...] | None:
    """Process ids; None where they are unknown."""
    if answer.rc not in (0, 1) or answer.stderr:
        return None
    try:
        return parse_process_ids(answer.text)
    except ParseError:
        return None
