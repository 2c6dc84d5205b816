"""Operations of container runtimes."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from rackproof.configure.containers import bridge, facts, user
from rackproof.configure.containers import downloads as plans
from rackproof.configure.containers.inputs import ContainerInputs, Download
from rackproof.configure.operations import Commands, refuse, unreadable
from rackproof.configure.rollback.journal import later
from rackproof.configure.rollback.run import journal_here


@operation()
def downloads(wanted: Sequence[Download], family: str) -> Commands:
    """Install packages that are known by URL and sha256."""
    installed = host.get_fact(facts.Installed)
    if installed is None:
        yield from unreadable("the list of installed downloads")
        return
    missing = plans.missing(wanted, installed)
    if missing:
        yield StringCommand(plans.install_script(missing, family))
    else:
        host.noop(f"all {len(wanted)} downloads are installed")


@operation()
def container_user(inputs: ContainerInputs, folders: Sequence[str]) -> Commands:
    """The unprivileged user, and its folder on every shared storage."""
    found = host.get_fact(facts.ContainerUser, inputs=inputs, folders=tuple(folders))
    if found is None:
        yield from unreadable(f"the user {inputs.user}")
        return
    try:
        lines = user.plan(inputs, folders, found)
    except user.ForeignUser as error:
        yield from refuse(str(error))
        return
    if lines:
        ranges = [later(path) for path in user.ranges(inputs, found)]
        yield StringCommand(journal_here().before((), "\n".join(("set -eu", *lines)), ranges))
    else:
        host.noop(f"user {inputs.user} and its folders are there")


@operation()
def host_root(mountpoints: tuple[str, ...]) -> Commands:
    """An empty root file system with places for what the node lends to a container that has no image."""
    found = host.get_fact(facts.HostRoot, mountpoints=mountpoints)
    if found is None:
        yield from unreadable(f"the state of {bridge.ROOT}")
    elif found:
        host.noop("the root is there")
    else:
        yield StringCommand(bridge.root_script(mountpoints))
