"""Drivers of adapters: the distribution's, or NVIDIA's (DOCA-OFED), and whether the running ones are the installed
ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rackproof import shell
from rackproof.configure.files import REBOOT, pending_command, reboot_mark
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.plan import Change
from rackproof.errors import Refused
from rackproof.parse.dkms import Dkms, parse_dkms_status
from rackproof.parse.mounts import parse_proc_mounts
from rackproof.parse.sections import keyed_lines, sections_of

Source = Literal["doca", "mlnx_ofed", "inbox"]

MODULES: Final = ("mlx5_core", "mlx5_ib", "ib_core", "ib_ipoib", "rdma_cm")
REMOTE: Final = ("lustre", "beegfs", "wekafs", "gpfs")
"""File systems whose client may use RDMA without showing it in the mount table."""
DKMS: Final = ("mlnx-ofed-kernel", "mlnx-ofa_kernel", "iser", "isert", "srp")
"""DKMS modules of NVIDIA's packages; the first two are the core, of Debian's and of RHEL's packages. RHEL's usual
packages (``kmod-mlnx-ofa_kernel``) build nothing on the node."""

INBOX: Final = ("ibverbs-providers", "ibverbs-utils", "infiniband-diags", "mstflint", "rdma-core", "rdmacm-utils")
"""Packages of the distribution's own stack, by Debian's names."""

OPENIBD: Final = "/etc/systemd/system/openibd.service.d/rackproof.conf"
OPENIB: Final = "/etc/infiniband/openib.conf"


@dataclass(frozen=True, slots=True)
class Module:
    loaded: str | None
    """``srcversion`` of the running module; None where it is not loaded (or built in)."""
    installed: str | None
    """``srcversion`` of the file that would be loaded."""
    path: str
    """Path of that file; empty where there is none."""

    @property
    def vendor(self) -> bool:
        """Not the distribution's own: below ``updates``, ``extra`` or ``weak-updates``."""
        return bool(re.search(r"/(updates|extra|weak-updates)/", self.path))


@dataclass(frozen=True, slots=True)
class StackState:
    ofed: str | None
    """Output of ``ofed_info -n``: ``25.10-1.7.1``; None without an OFED."""
    kernel: str
    modules: Mapping[str, Module]
    dkms: tuple[Dkms, ...]
    """Modules for the running kernel."""
    users: tuple[str, ...]
    """Mounts and drives that would lose their connection: ``/mnt/vast (nfs over RDMA)``."""
    openibd: bool
    """Whether the service exists."""
    pending: frozenset[str]


def state_command() -> str:
    return f"{shell.script(__name__, 'stack', *MODULES)}\n{pending_command()}"


def parse_state(lines: Sequence[str]) -> StackState:
    """Answer of ``state_command``. Raises ValueError on anything else."""
    stack, pending = sections_of(lines, 2)
    answers = keyed_lines("drivers", stack, ("ofed", "kernel", "module", "dkms", "mount", "nvme", "openibd"))
    modules = {}
    for line in answers.get("module", ()):
        name, loaded, installed, path = line.split(maxsplit=3)
        modules[name] = Module(_text(loaded), _text(installed), _text(path) or "")
    if not any(answers.get("kernel", ())) or set(modules) != set(MODULES):
        raise ValueError("no kernel, or not every module")
    drives = (line.split() for line in answers.get("nvme", ()))
    users = [user for line in answers.get("mount", ()) if (user := _user(line))]
    users += [f"{drive} (NVMe over RDMA)" for drive, transport in drives if transport == "rdma"]
    return StackState(
        ofed="".join(answers.get("ofed", ())).strip().rstrip(":") or None,
        kernel=answers["kernel"][0],
        modules=modules,
        dkms=parse_dkms_status(answers.get("dkms", ())),
        users=tuple(users),
        openibd="openibd" in answers,
        pending=frozenset(pending),
    )


def _text(word: str) -> str | None:
    return None if word == "-" else word


def _user(fields: str) -> str | None:
    """Mount point, type and options of a mount that RDMA may carry; None for any other mount."""
    (mount,) = parse_proc_mounts(f"none {fields} 0 0\n")
    if mount.fstype in ("nfs", "nfs4") and mount.option("proto") == "rdma":
        return f"{mount.mountpoint} (NFS over RDMA)"
    if mount.fstype.startswith(REMOTE):
        return f"{mount.mountpoint} ({mount.fstype})"
    return None


def plan_removal(source: Source, version: str | None, state: StackState, allowed: bool) -> ScriptPlan:
    """Remove an OFED that is not the declared one, before anything else is installed.

    ``version`` is that of the declared OFED (``25.10``), None where none is declared. Raises Refused where removal
    is not allowed, or a mount prevents it.
    """
    if state.ofed is None or (source != "inbox" and version is not None and _same_release(state.ofed, version)):
        return ScriptPlan()
    if source != "inbox" and version is None:
        return ScriptPlan()
    wanted = "the distribution's drivers" if source == "inbox" else f"OFED {version}"
    if not allowed:
        raise Refused(
            f"OFED {state.ofed} is installed and {wanted} declared: only one can be installed; set"
            " nic: {remove_old: true} to remove the installed one first, with everything that was built against it"
        )
    if state.users:
        raise Refused(
            f"OFED {state.ofed} cannot be removed while {', '.join(state.users)} may use it: unmount there first"
        )
    remove = "/usr/sbin/ofed_uninstall.sh"
    missing = shell.or_fail(f"{remove} is missing; remove OFED {state.ofed} with the tool that installed it")
    left = shell.or_fail(f"OFED {state.ofed} is still there after {remove}")
    return ScriptPlan(
        (
            f"[ -x {remove} ] {missing}",
            f"timeout 850 {remove} --force",
            f"! ofed_info -n >/dev/null 2>&1 {left}",
            reboot_mark(REASON),
        ),
        (Change(what=f"OFED {state.ofed} is removed", reboot=REASON),),
    )


def _same_release(installed: str, wanted: str) -> bool:
    """Whether ``25.10-1.7.1`` belongs to the release ``25.10``, or is it."""
    actual = re.sub(r"^[^0-9]*", "", installed)
    return actual == wanted or actual.startswith((f"{wanted}-", f"{wanted}."))


DRIVER: Final = "mlx5_core"
"""Driver of the devices that a restart of openibd takes down."""
REASON: Final = "drivers of the network adapters"


def plan_drivers(source: Source, dkms: Sequence[str], state: StackState, restart: bool) -> ScriptPlan:
    """Bring installed drivers into force, by a reboot or a restart of openibd.

    Raises Refused where the drivers are not installed for the running kernel, or a mount forbids the restart.
    """
    core = state.modules["mlx5_core"]
    if not core.path:
        raise Refused(
            f"no module mlx5_core for kernel {state.kernel}; "
            + (
                "dkms status says why it was not built"
                if source != "inbox"
                else "install the kernel's modules (linux-modules-extra-…, kernel-modules)"
            )
        )
    if source != "inbox":
        if not core.vendor and state.ofed is None:
            raise Refused(
                "NVIDIA's drivers are declared and none are installed: name them in the version set"
                " (components: {network: …} in versions.lock.yaml), bring them with the image, or say"
                " nic: {source: inbox}"
            )
        if not core.vendor and core.path != "(builtin)":
            raise Refused(
                f"mlx5_core of kernel {state.kernel} is the distribution's ({core.path}), not NVIDIA's: its package"
                " built nothing for this kernel; see dkms status and /var/lib/dkms/*/build/make.log"
            )
        if bad := unbuilt(dkms, state):
            raise Refused(
                f"not built for kernel {state.kernel}: {', '.join(bad)}; run dkms autoinstall -k {state.kernel} and"
                " read /var/lib/dkms/*/build/make.log"
            )
    stale = stale_modules(state)
    if not stale:
        return ScriptPlan()
    named = ", ".join(stale)
    if restarts(source, state, restart):
        if state.users:
            raise Refused(
                f"{named}: openibd cannot be restarted while {', '.join(state.users)} may use RDMA: unmount there, or"
                " say nic: {drivers_by: reboot}"
            )
        failed = shell.or_fail("openibd did not come up with the new drivers; see: journalctl -u openibd")
        change = Change(what=named, why="openibd is restarted")
        return ScriptPlan((f"timeout 600 systemctl restart openibd.service {failed}",), (change,))
    if f"{REBOOT}{REASON}" in state.pending:
        return ScriptPlan()
    return ScriptPlan((reboot_mark(REASON),), (Change(what=named, why="in use from before", reboot=REASON),))


def stale_modules(state: StackState) -> tuple[str, ...]:
    """Running modules that differ from the installed ones."""
    return tuple(name for name, module in state.modules.items() if module.loaded and module.installed != module.loaded)


def restarts(source: Source, state: StackState, restart: bool) -> bool:
    """Whether new drivers come into force by a restart of openibd, which ends every RDMA connection of the node."""
    return restart and source != "inbox" and state.openibd and bool(stale_modules(state))


def unbuilt(names: Sequence[str], state: StackState) -> tuple[str, ...]:
    """DKMS modules that are not installed for the running kernel.

    Packages' scripts hide that they failed to build. A stack without a DKMS entry of its own, beside the GPU driver's,
    is built for its kernel by the vendor; then mlx5_core's own path is sufficient. ``names``: of the version set.
    """
    if not state.dkms:
        return ()
    built = {module.name: module.state for module in state.dkms}
    required = dict.fromkeys((*names, *(name for name in DKMS if name in built)))
    return tuple(f"{name} ({built.get(name, 'not added')})" for name in required if built.get(name) != "installed")
