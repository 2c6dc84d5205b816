"""Operations of the storage clients."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api.command import StringCommand
from pyinfra.context import host, state

from rackproof.configure.operation import Commands, Unreadable, ask, operation, record_reasons
from rackproof.configure.rollback.run import journal_here
from rackproof.configure.storage.facts import Holding
from rackproof.configure.storage.steps import Step, script_of
from rackproof.errors import Refused


@operation()
def ensured(steps: Sequence[Step]) -> Commands:
    """Make every step hold that does not. One that nothing can make hold is an error, after everything else."""
    found = host.get_fact(Holding, steps=list(steps))
    if found is None or len(found) != len(steps):
        raise Unreadable("what is installed for storage")
    missing = [step for step, holds in zip(steps, found, strict=True) if not holds]
    todo = [step for step in missing if step.script]
    record_reasons(step.name for step in todo)
    # What is only read back in between is read back there: the script stops at it.
    last = missing.index(todo[-1]) if todo else -1
    if todo:
        yield StringCommand(script_of(missing[: last + 1], journal_here()))
    hopeless = missing[last + 1 :]
    if todo and hopeless and state.is_executing:
        # They were asked about before the others came: a module before its package.
        again = ask(Holding, "what is installed for storage", steps=hopeless)
        hopeless = [step for step, holds in zip(hopeless, again, strict=True) if not holds]
    # Before the run what makes them hold may not have happened yet.
    if hopeless and state.is_executing:
        raise Refused(" | ".join(f"{step.name}: {step.otherwise}" for step in hopeless))
    elif not todo:
        host.noop(f"all {len(steps)} steps hold")


@operation()
def refused(reason: str) -> Commands:
    """Fail on this node, with one line; the other nodes go on."""
    raise Refused(reason)
