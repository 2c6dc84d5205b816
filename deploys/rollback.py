"""Undo the last run: ``pyinfra inventories/lab.py deploys/rollback.py`` (look at it first: ``--dry --diff``).

Files, states of units, values of the running kernel, held packages and the kernel's arguments come back as they were
before the last run that changed any of the selected nodes. ``--data run=ID`` undoes an older run and all that came
after it, never one from the middle. A file that was changed since is refused; ``--data force=/etc/x``
names those that may be lost. A rollback is a run itself: a second one undoes the first.

What stays as it is, because taking it back would destroy something or is no file of the kit's:

* packages and what they build or install themselves (modules, agents, the health check's kit), downloads, keys that
  rpm has imported, lists of the package manager;
* accounts with their groups, shells and passwords; root's own ssh key; file systems, arrays and what is on them;
* what devices keep: firmware and its settings, ECC, MIG; addresses and names of ports until the reboot that is asked
  for; a cluster that the node has joined; the time zone.

The munge key of a node is restored with the rest, from the copy that only root can read. A node that is rolled back
alone (``--limit``) has the key, and the slurm.conf, that it had before: it leaves a cluster that was joined in that
run. A file that a script was writing when its connection was lost is refused like one that was changed.
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from rackproof.configure.alone import alone
from rackproof.configure.rollback import operations


@deploy("Rollback")
def rollback() -> None:
    run, force = operations.inputs({"run": host.data.get("run"), "force": host.data.get("force")})
    operations.restore(name="Files, units, values, holds and kernel arguments", run=run, force=force)


if alone(__name__):
    rollback()
