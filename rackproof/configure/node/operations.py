"""Operations for a node's own settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackproof.configure.node import cmdline as cmdlines
from rackproof.configure.node import facts
from rackproof.configure.node import scratch as arrays
from rackproof.configure.node import settings as node_settings
from rackproof.configure.node import users as accounts
from rackproof.configure.node.inputs import User
from rackproof.configure.operation import Commands, ask, operation
from rackproof.configure.rollback.run import carried_out, journaled
from rackproof.core.plan import Change


@operation()
def kernel_arguments(wanted: cmdlines.WantedArguments) -> Commands:
    """Bring the boot loader's kernel arguments to what is declared, and mark the reboot that puts them in force.

    + wanted: arguments that are required, forbidden, and proposed where they are missing

    **Example:**

    .. code:: python

        node.kernel_arguments(name="Kernel arguments", wanted=cmdline.wanted(["iommu=pt"], ["quiet"], ()))
    """
    loader = ask(facts.BootLoader, "the boot loader")
    lacks = ", this one has not" if loader.tool and loader.marked else ""
    yield from journaled(cmdlines.plan(wanted, loader), f"the next boot has all arguments{lacks}")


@operation()
def settings(wanted: node_settings.Settings) -> Commands:
    """Set swap, time zone, tuned profile, modules, huge pages and the interrupts of network adapters.

    + wanted: the settings; what it leaves out stays as it is

    **Example:**

    .. code:: python

        node.settings(name="Settings", wanted=Settings(swap_off=True, timezone="UTC", modules=("nvme_tcp",)))
    """
    actual = ask(facts.NodeSettings, "the node's settings", wanted=wanted)
    yield from journaled(node_settings.plan(wanted, actual), "the node has all settings")


@operation()
def scratch(array: arrays.Scratch) -> Commands:
    """Make the scratch array and its file system on blank drives, or assemble it when it is not running.

    + array: drives, mount point, label, file system and chunk size

    A drive with anything else on it refuses the node.

    **Example:**

    .. code:: python

        node.scratch(
            name="Scratch array",
            array=Scratch(("/dev/disk/by-id/nvme-A", "/dev/disk/by-id/nvme-B"), "/scratch", "scratch", "xfs", 512),
        )
    """
    drives = ask(facts.ScratchArray, "the scratch drives", scratch=array)
    steps = arrays.plan(array, drives)
    script = arrays.script(array, steps, drives) if steps else ""
    changes = [Change(what=array.array, why=", ".join(steps))]
    yield from carried_out(script, changes, f"{array.array} carries {array.fstype} '{array.label}'")


@operation()
def users(wanted: Sequence[User], hashes: Mapping[str, str]) -> Commands:
    """Make accounts, and bring what is declared of them to its declared state; all else of them is left alone.

    + wanted: accounts
    + hashes: password hash by account; an account without one keeps its password

    **Example:**

    .. code:: python

        node.users(name="Users", wanted=[User(name="alice", uid=2001)], hashes={})
    """
    actual = ask(facts.Accounts, "the accounts", names=[user.name for user in wanted])
    yield from journaled(accounts.plan(wanted, hashes, actual), f"all {len(wanted)} accounts are as declared")
