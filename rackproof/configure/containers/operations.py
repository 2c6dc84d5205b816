"""Operations of container runtimes."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.containers import bridge, facts, user
from rackproof.configure.containers import downloads as plans
from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.inputs import Download
from rackproof.configure.operation import Commands, ask, operation
from rackproof.configure.rollback.run import carried_out, journaled
from rackproof.configure.versions.site import policy_here
from rackproof.core.plan import Change


@operation()
def downloads(wanted: Sequence[Download], family: str) -> Commands:
    """Download packages, compare their digests, and install them in one transaction.

    + wanted: URL and sha256 of each package
    + family: ``debian`` (apt) or ``rhel`` (dnf)

    **Example:**

    .. code:: python

        containers.downloads(
            name="enroot", wanted=[Download(url="https://host/enroot_3.5.0_amd64.deb", sha256="…")], family="debian"
        )
    """
    installed = ask(facts.Installed, "the list of installed downloads")
    missing = [download for download in wanted if download.sha256 not in installed]
    script = plans.install_script(missing, family, policy_here()) if missing else ""
    changes = [Change(what=download.url, why="not installed") for download in missing]
    yield from carried_out(script, changes, f"all {len(wanted)} downloads are installed")


@operation()
def container_user(inputs: ContainerInputs, folders: Sequence[str]) -> Commands:
    """Create the unprivileged user, its subordinate ids, and its folder on every shared storage.

    + inputs: the inventory's ``containers``
    + folders: absolute paths

    **Example:**

    .. code:: python

        containers.container_user(name="User", inputs=chosen, folders=plan.folders(site, declared))
    """
    actual = ask(facts.ContainerUser, f"the user {inputs.user}", inputs=inputs, folders=tuple(folders))
    plan = user.plan(inputs, folders, actual)
    yield from journaled(plan, f"user {inputs.user} and its folders are there")


@operation()
def host_root(mountpoints: tuple[str, ...]) -> Commands:
    """Create the empty root of containers without an image, with mount points for the node's files.

    + mountpoints: of the shared storage

    **Example:**

    .. code:: python

        containers.host_root(name="Root of containers", mountpoints=plan.mountpoints(site))
    """
    complete = ask(facts.HostRoot, f"the state of {bridge.ROOT}", mountpoints=mountpoints)
    script = "" if complete else bridge.root_script(mountpoints)
    yield from carried_out(script, [Change(what=bridge.ROOT, why="absent or incomplete")], "the root is there")
