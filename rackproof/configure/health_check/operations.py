"""Operation: install the kit on a node."""

from __future__ import annotations

from rackproof.configure.facts import answer
from rackproof.configure.health_check.kit import Kit, install_script, standard_input, state_command
from rackproof.configure.operation import Commands, ask, operation
from rackproof.configure.rollback.run import carried_out
from rackproof.core.plan import Change

InstalledKit = answer("InstalledKit", state_command, lambda lines: lines[0].strip() if lines else "")
"""Stamp of the installed kit; empty when none is installed or it does not start."""


@operation()
def kit(wanted: Kit) -> Commands:
    """Install the kit of this checkout, unless the node has exactly this version.

    + wanted: the kit's files, their digest, and where pip takes its dependencies from

    **Example:**

    .. code:: python

        operations.kit(name="Kit", wanted=plan.wanted_kit(inputs))
    """
    installed = ask(InstalledKit, "the installed kit", directory=wanted.inputs.directory)
    script = "" if installed == wanted.stamp else install_script(wanted)
    changes = [Change(what=wanted.inputs.directory, why="another version" if installed else "not installed")]
    # pip may take many minutes on a slow node; the script limits it.
    yield from carried_out(script, changes, "the kit is installed", _stdin=standard_input(wanted), _timeout=1900)
