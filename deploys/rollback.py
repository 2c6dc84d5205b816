"""Undo the last run: ``pyinfra inventories/lab.py deploys/rollback.py`` (review it first: ``--dry --diff``).

Restores files, states of units, values of the running kernel, held packages and kernel arguments to their state before
the last run that changed any of the selected nodes. ``--data run=ID`` undoes an older run and all later ones, never one
from the middle. A file that was changed since is refused; ``--data force=/etc/x`` names files whose changes
may be lost. A rollback is itself a run: a second one undoes the first.

What is not restored, because that would destroy data or is not a file of the kit:

* packages and what they build or install themselves (modules, agents, the health check's kit), downloads, keys that
  rpm has imported, lists of the package manager;
* accounts with their groups, shells and passwords; root's own ssh key; file systems, arrays and what is on them;
* state of devices: firmware and its settings, ECC, MIG; addresses and names of ports until the reboot that the
  rollback requests; a cluster that the node has joined; the time zone.

The munge key of a node is restored with the rest, from the copy that only root can read. A node that is rolled back
alone (``--limit``) has the key, and the slurm.conf, that it had before: it leaves a cluster that was joined in that
run. A file that a script was writing when its connection was lost is refused like one that was changed.
"""

from __future__ import annotations

from pyinfra.context import host

from rackproof.configure.deploy import alone, deploy
from rackproof.configure.rollback import operations


@deploy("Rollback")
def rollback() -> None:
    run, force = operations.inputs(host.data.get("run"), host.data.get("force"))
    operations.restore(name="Files, units, values, holds and kernel arguments", run=run, force=force)


if alone(__name__):
    rollback()
