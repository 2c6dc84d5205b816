"""Undo the last run: ``pyinfra inventories/lab.py deploys/rollback.py`` (look at it first: ``--dry --diff``).

Files, states of units, values of the running kernel, held packages and the kernel's arguments come back as they were
before the last run that changed any of the selected nodes. ``--data run=ID`` undoes an older run and all that came
after it, never one from the middle. A file that somebody else has changed since is refused; ``--data force=/etc/x``
names those that may be lost. Packages stay installed. A rollback is a run itself: a second one undoes the first.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from rackproof.configure.rollback import operations


@deploy("Rollback")
def rollback() -> None:
    run, force = operations.inputs({"run": host.data.get("run"), "force": host.data.get("force")})
    operations.restore(name="Files, units, values, holds and kernel arguments", run=run, force=force)


rollback()
