"""Operations of container runtimes."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api.command import StringCommand
from pyinfra.context import host

from rackproof.configure.containers import bridge, facts, user
from rackproof.configure.containers import downloads as plans
from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.inputs import Download
from rackproof.configure.operation import Commands, ask, operation
from rackproof.configure.rollback.journal import later
from rackproof.configure.rollback.run import journal_here
from rackproof.configure.versions.site import policy_here


@operation()
def downloads(wanted: Sequence[Download], family: str) -> Commands:
    """Download packages, compare their digests, and install them in one transaction.

    + wanted: URL and sha256 of each package
    + family: ``debian`` (apt) or ``rhel`` (dnf)

    **Example:**

    .. code:: python

        operations.downloads(
            name="enroot", wanted=[Download(url="https://host/enroot_3.5.0_amd64.deb", sha256="…")], family="debian"
        )
    """
    installed = ask(facts.Installed, "the list of installed downloads")
    missing = plans.missing(wanted, installed)
    if missing:
        yield StringCommand(plans.install_script(missing, family, policy_here()))
    else:
        host.noop(f"all {len(wanted)} downloads are installed")


@operation()
def container_user(inputs: ContainerInputs, folders: Sequence[str]) -> Commands:
    """The unprivileged user, and its folder on every shared storage."""
    found = ask(facts.ContainerUser, f"the user {inputs.user}", inputs=inputs, folders=tuple(folders))
    lines = user.plan(inputs, folders, found)
    if lines:
        ranges = [later(path) for path in user.ranges(inputs, found)]
        yield StringCommand(journal_here().before((), "\n".join(("set -eu", *lines)), ranges))
    else:
        host.noop(f"user {inputs.user} and its folders are there")


@operation()
def host_root(mountpoints: tuple[str, ...]) -> Commands:
    """An empty root file system with places for what the node lends to a container that has no image."""
    found = ask(facts.HostRoot, f"the state of {bridge.ROOT}", mountpoints=mountpoints)
    if found:
        host.noop("the root is there")
    else:
        yield StringCommand(bridge.root_script(mountpoints))
