"""Operations of the storage clients."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api.command import StringCommand
from pyinfra.context import host, state

from rackproof.configure.facts import answer
from rackproof.configure.operation import Commands, Unreadable, ask, operation, record_reasons
from rackproof.configure.rollback.run import journal_here
from rackproof.configure.storage_client.steps import Step, holding_command, parse_holding, script_of
from rackproof.errors import Refused

Holding = answer("Holding", holding_command, parse_holding)
"""Whether the tests of steps succeed, in their order."""


@operation()
def ensured(steps: Sequence[Step]) -> Commands:
    """Run the scripts of all steps whose tests fail, in order. Refuses a node where a test still fails.

    + steps: tests and scripts

    **Example:**

    .. code:: python

        storage_client.ensured(name="Client software", steps=client.install)
    """
    holding = ask(Holding, "the state of the storage clients", steps=list(steps))
    if len(holding) != len(steps):
        raise Unreadable("the state of the storage clients")
    missing = [step for step, holds in zip(steps, holding, strict=True) if not holds]
    todo = [step for step in missing if step.script]
    record_reasons(step.name for step in todo)
    # Steps without a script that precede the last script are tested in it; the script stops at a failed test.
    last = missing.index(todo[-1]) if todo else -1
    if todo:
        yield StringCommand(script_of(missing[: last + 1], journal_here()))
    hopeless = missing[last + 1 :]
    if todo and hopeless and state.is_executing:
        # The script may have changed the result, e.g. installed the package of a missing module.
        again = ask(Holding, "the state of the storage clients", steps=hopeless)
        hopeless = [step for step, holds in zip(hopeless, again, strict=True) if not holds]
    # While planning, earlier operations that affect the tests have not run.
    if hopeless and state.is_executing:
        raise Refused(" | ".join(f"{step.name}: {step.otherwise}" for step in hopeless))
    elif not todo:
        host.noop(f"all {len(steps)} steps hold")
