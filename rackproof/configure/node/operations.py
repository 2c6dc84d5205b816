"""Operations for a node's own settings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from pyinfra.api.command import StringCommand
from pyinfra.context import host

from rackproof.configure.files import REBOOT
from rackproof.configure.node import cmdline as cmdlines
from rackproof.configure.node import facts
from rackproof.configure.node import scratch as arrays
from rackproof.configure.node import settings as node_settings
from rackproof.configure.node import users as accounts
from rackproof.configure.node.inputs import User
from rackproof.configure.operation import Commands, Unreadable, ask, operation, record, record_reasons
from rackproof.configure.rollback.journal import (
    GRUB,
    INITRAMFS,
    Later,
    file_line,
    grubby_line,
    later,
    mark_lines,
    unit_line,
)
from rackproof.configure.rollback.run import journal_here
from rackproof.core.plan import Change

TUNED = ("/etc/tuned/active_profile", "/etc/tuned/profile_mode")
"""Where tuned-adm writes down what was chosen."""


@operation()
def kernel_arguments(wanted: cmdlines.WantedArguments) -> Commands:
    """Bring the boot loader's kernel arguments to what is declared, and mark the reboot that puts them in force.

    + wanted: arguments that are required, forbidden, and proposed where they are missing

    **Example:**

    .. code:: python

        node.kernel_arguments(name="Kernel arguments", wanted=cmdline.wanted(["iommu=pt"], ["quiet"], ()))
    """
    loader = ask(facts.BootLoader, "the boot loader")
    plan = cmdlines.plan(wanted, loader)
    if plan.script:
        record(plan.changes)
        kept = _kept_arguments(wanted, loader) if plan.reasons else ()
        yield StringCommand(journal_here().before(kept, plan.script))
    else:
        host.noop("the next boot has all arguments" + (", this one has not" if plan.reboot else ""))


def _kept_arguments(wanted: cmdlines.WantedArguments, loader: cmdlines.BootLoader) -> tuple[str, ...]:
    """What a rollback restores: the kit's own file; without one (grubby) the arguments."""
    marks = mark_lines((f"{REBOOT}{cmdlines.REASON}", *((GRUB,) if loader.tool == "grub" else ())))
    if loader.tool == "grub":
        text = cmdlines.dropin_text(wanted) if wanted else None
        return (*marks, file_line(cmdlines.DROPIN, text and hashlib.sha256(text.encode()).hexdigest()))
    note = " ".join(wanted.required) + "\n"
    return (*marks, grubby_line(), file_line(cmdlines.NOTE, hashlib.sha256(note.encode()).hexdigest()))


@operation()
def settings(wanted: node_settings.Settings) -> Commands:
    """Set swap, time zone, tuned profile, modules, huge pages and the interrupts of network adapters.

    + wanted: the settings; what it leaves out stays as it is

    **Example:**

    .. code:: python

        node.settings(name="Settings", wanted=Settings(swap_off=True, timezone="UTC", modules=("nvme_tcp",)))
    """
    actual = ask(facts.NodeSettings, "the node's settings", wanted=wanted)
    plan = node_settings.plan(wanted, actual)
    if not plan.lines:
        host.noop("the node has all settings")
        return
    record(plan.changes)
    kept, unknown = _kept_settings(plan)
    yield StringCommand(journal_here().before(kept, plan.script, unknown))


def _kept_settings(plan: node_settings.SettingsPlan) -> tuple[list[str], list[Later]]:
    """What a rollback restores. The time zone stays."""
    kept: list[str] = []
    unknown: list[Later] = []
    changed = {change.what for change in plan.changes}
    if "swap off" in changed:
        kept.append(unit_line("swap.target"))
    if any(what.startswith("tuned profile") for what in changed):
        kept += [*mark_lines(("restart:tuned.service",)), unit_line("tuned.service")]
        unknown += [later(path) for path in TUNED]
    if node_settings.FORBIDDEN in changed:
        kept += mark_lines((INITRAMFS,))
        # Until the initial file systems are made again the list has a line more, and stays so where that fails.
        unknown.append(later(node_settings.BLACKLIST))
    return kept, unknown


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
    drives = ask(facts.ScratchArray, "the scratch drives", array=array)
    steps = arrays.plan(array, drives)
    if steps:
        record([Change(what=array.array, why=", ".join(steps))])
        yield StringCommand(arrays.script(array, steps, drives))
    else:
        host.noop(f"{array.array} carries {array.fstype} '{array.label}'")


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
    plan = accounts.plan(wanted, hashes, actual)
    if not plan.script:
        host.noop(f"all {len(wanted)} accounts are as declared")
        return
    record_reasons(plan.reasons)
    yield StringCommand(journal_here().before(plan.kept, plan.script, plan.later), _stdin=plan.stdin)


@operation()
def unread() -> Commands:
    """Refuse a node whose machine could not be read."""
    raise Unreadable("the machine (os-release, kernel, PCI devices)")
