"""Checks of one node, from its answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, ParamSpec

from rackproof.configure.gpu.driver import SUPPORTED, choose, hardware_problems, secure_boot_problem
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.mounts import DesiredMount, mount_differences
from rackproof.configure.network import Link, in_use
from rackproof.configure.nic.declared_ports import DeclaredPort, adapter_paths
from rackproof.configure.nic.devices import adapters, missing_adapters, missing_rails
from rackproof.configure.nic.links import foreign_problem
from rackproof.configure.preflight.problem import (
    FOREIGN_PORT,
    HELD,
    MISSING_PORT,
    PORT_IN_USE,
    PreflightInputs,
)
from rackproof.configure.preflight.state import NodeState
from rackproof.configure.slurm.cluster import CGROUP_V2_SINCE, V1_ARGUMENT, cgroup_problem
from rackproof.core.architecture import Architecture, Gpu
from rackproof.core.gpu_generations import UnsupportedGpu
from rackproof.core.machine import Machine
from rackproof.core.plan import Problem
from rackproof.core.rack import Node
from rackproof.core.version_numbers import numbers
from rackproof.core.versions import LockedPackage
from rackproof.core.versions.models import Driver
from rackproof.errors import Refused

P = ParamSpec("P")

OLDEST_KERNEL: Final = (5, 14)
"""Kernel of RHEL 9, the oldest of the supported systems."""
ARCHITECTURES: Final = ("x86_64", "aarch64")
GOING: Final = ("stopping", "offline", "maintenance", "unknown")
"""States of systemd in which a deploy must not begin; ``unknown``: its manager does not answer."""
_ADDRESS = re.compile(r"[0-9.]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*")
"""Node names that are addresses."""
ASKING_S: Final = 90.0
"""Maximum age of an answer in seconds: facts are prefetched."""


def os_problems(machine: Machine) -> Iterator[Problem]:
    versions = SUPPORTED.get(machine.os_id)
    if versions is None or not any(machine.os_version == v or machine.os_version.startswith(f"{v}.") for v in versions):
        known = ", ".join(f"{name} {'/'.join(versions)}" for name, versions in SUPPORTED.items())
        what = f"operating system: expected one of {known}, actual {machine.label}"
        yield Problem("os.supported", what, "install one of these, or remove the node from the inventory")
    if machine.arch not in ARCHITECTURES:
        what = f"processor: expected {' or '.join(ARCHITECTURES)}, actual {machine.arch}"
        yield Problem("os.architecture", what, "remove the node from the inventory")
    oldest = ".".join(map(str, OLDEST_KERNEL))
    if not re.match(r"[0-9]+\.[0-9]", machine.kernel):
        yield Problem("os.kernel", f"kernel: expected {oldest} or newer, actual {machine.kernel!r}", "look at uname -r")
    elif numbers(machine.kernel) < OLDEST_KERNEL:
        what = f"kernel: expected {oldest} or newer, actual {machine.kernel}"
        yield Problem("os.kernel", what, "install the distribution's current kernel and reboot")


def secure_boot_problems(machine: Machine, architecture: Architecture) -> Iterator[Problem]:
    declared = architecture.system.secure_boot
    state_names = {
        True: "on",
        False: "off",
        None: "unknown (the firmware has no variable SecureBoot, or efivarfs is missing)",
    }
    if declared is False and machine.efi and machine.secure_boot is not False:
        what = f"Secure Boot: the architecture expects it off, actual {state_names[machine.secure_boot]}"
        yield Problem("boot.secure_boot", what, "switch it off in the firmware's setup, or correct system.secure_boot")
    elif declared is True and not machine.secure_boot:
        actual = state_names[machine.secure_boot] if machine.efi else "no EFI firmware"
        what = f"Secure Boot: the architecture expects it on, actual {actual}"
        yield Problem("boot.secure_boot", what, "switch it on in the firmware's setup, or correct system.secure_boot")


def gpu_problems(machine: Machine, declared: Gpu, stack: GpuInputs, locked: Driver | None) -> Iterator[Problem]:
    """GPUs on the PCI bus without a supported driver, or other than the architecture declares."""
    try:
        choice = choose(machine, declared, stack, locked)
    except UnsupportedGpu as error:
        yield Problem("gpu.supported", str(error))
    else:
        if text := secure_boot_problem(machine, choice):
            yield Problem("boot.secure_boot", text)
    for text in hardware_problems(machine, declared):
        yield Problem("gpu.inventory", text, "look at lspci -d 10de:, power and risers, or correct the architecture")


def nic_problems(
    machine: Machine, architecture: Architecture, node: Node, named: Mapping[str, str]
) -> Iterator[Problem]:
    """Adapters of rails, and of the slots that the architecture names. ``named``: the inventory's own kinds."""
    try:
        known = adapters(machine, named)
    except Refused as error:
        yield Problem("nic.unknown", str(error))
        return
    paths = tuple(map(str, node.data.get("fabric_paths") or ()))
    if problem := missing_rails(paths, machine, known):
        yield Problem("nic.rails", problem)
    kinds = {adapter.slot: adapter.kind for adapter in known}
    present = {device.address for device in machine.pci if device.kind.startswith("02")}
    for role in node.groups:
        expected = architecture.roles.get(role)
        for nic in expected.expect.nics if expected else ():
            missing = [slot for slot in nic.slots if slot not in present]
            if missing:
                what = f"{nic.purpose} NICs: expected at {', '.join(nic.slots)}, actual none at {', '.join(missing)}"
                yield Problem("nic.slots", what, "look at lspci, or correct the slots in the architecture")
            if nic.model:
                odd = [
                    f"{kinds[slot]} at {slot}"
                    for slot in nic.slots
                    if slot in kinds and not re.search(nic.model, kinds[slot])
                ]
                if odd:
                    what = f"{nic.purpose} NICs: expected {nic.model}, actual {', '.join(odd)}"
                    yield Problem("nic.model", what, "change the adapter, or correct the model in the architecture")


def slurm_problems(
    machine: Machine, architecture: Architecture, packages: Sequence[LockedPackage]
) -> Iterator[Problem]:
    """For a node that runs slurmd. ``packages``: of its version set."""
    locked = {package.name: package.version for package in packages}
    arguments = (*machine.cmdline, *architecture.system.cmdline_required)
    if what := cgroup_problem(machine, locked, arguments):
        remedy = (
            f"lock a slurmd of {CGROUP_V2_SINCE} or newer in the version set, or put {V1_ARGUMENT} into"
            " system.cmdline_required; accept this with the reason where another repository has a newer Slurm"
        )
        yield Problem("slurm.cgroups", what, remedy)


def refusal(id_: str, plan: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Iterator[Problem]:
    """The problem for which the planner of a later operation refuses the node; none when it plans."""
    try:
        plan(*args, **kwargs)
    except Refused as error:
        yield Problem(id_, str(error))


def port_problems(foreign: Sequence[tuple[str, str]]) -> Iterator[Problem]:
    """Ports that files of another tool also configure."""
    if text := foreign_problem(foreign):
        yield Problem(FOREIGN_PORT, text)


def other_port_problems(
    declared: Sequence[DeclaredPort], machine: Machine, named: Mapping[str, str], links: Sequence[Link]
) -> Iterator[Problem]:
    """Ports other than rails that lack an adapter, or are in use under another name. ``named``: as ``nic_problems``."""
    try:
        missing = missing_adapters(adapter_paths(declared), "nic.ports", machine, adapters(machine, named))
    except Refused:
        missing = None  # reported by nic_problems
    if missing:
        yield Problem(MISSING_PORT, missing)
    if text := in_use([declared_port.port for declared_port in declared if not declared_port.rail], links):
        yield Problem(PORT_IN_USE, text)


def state_problems(node: str, state: NodeState, inputs: PreflightInputs, now_s: float | None) -> Iterator[Problem]:
    """``now_s``: seconds since 1970 on the machine that runs the deploy; None for recorded answers."""
    name = node.rpartition("/")[2]  # pyinfra's @connector/name
    if not _ADDRESS.fullmatch(name) and state.name.split(".")[0].lower() != name.split(".")[0].lower():
        what = f"host name: expected {name}, actual {state.name}"
        yield Problem("host.name", what, "correct the address in the inventory, or the name: hostnamectl hostname NAME")
    if now_s is not None:
        yield from _clock(state.clock_s, now_s, inputs.max_clock_offset_s)
    for path, expected in inputs.free_mib.items():
        free = state.free_mib.get(path)
        if free is None:
            what = f"free space at {path}: expected {expected} MiB, actual unknown (df gives no answer)"
            yield Problem("disk.free", what, f"look at df {path}")
        elif free < expected:
            what = f"free space at {path}: expected {expected} MiB, actual {free} MiB"
            yield Problem("disk.free", what, "make room (apt-get clean, old kernels, journalctl --vacuum-size=100M)")
    if not state.manager:
        what = "package manager: expected dpkg or rpm, actual neither"
        yield Problem("packages.broken", what, "look at PATH of root")
    elif state.broken:
        cure = "dpkg --configure -a, then apt-get -f install" if state.manager == "dpkg" else "rpm --rebuilddb"
        what = f"{state.manager}: expected no complaint, actual {' '.join(' '.join(state.broken).split())}"
        yield Problem("packages.broken", what, cure)
    if state.lock_holder:
        what = f"package manager: expected to be free, actual held by process {state.lock_holder}"
        yield Problem("packages.lock", what, "let it finish or end it, then run again")
    if state.system in GOING or state.shutdown:
        actual = f"{state.shutdown} is scheduled" if state.shutdown else state.system
        what = f"system: expected running, actual {actual}"
        yield Problem("node.rebooting", what, "wait until it is back, or shutdown -c")


def _clock(clock_s: float, now_s: float, most_s: float) -> Iterator[Problem]:
    ahead, behind = clock_s - now_s, now_s - ASKING_S - clock_s
    if max(ahead, behind) > most_s:
        actual = f"{ahead:.0f} s ahead" if ahead > 0 else f"about {now_s - clock_s:.0f} s behind"
        what = f"clock: expected within {most_s:g} s of this machine's, actual {actual}"
        yield Problem("clock.offset", what, "set it (chronyc makestep, or date -s), and look at the time server")


def run_problems(state: NodeState, own: Collection[str | None]) -> Iterator[Problem]:
    """Another run that holds the node. ``own``: this run, and one that the lock may be taken from."""
    if state.held is not None and state.held.run not in own:
        remedy = f"wait for its end, or take the node from it: --data take_over={state.held.run}"
        yield Problem(HELD, state.held.sentence, remedy)


def mount_problems(mounts: Sequence[DesiredMount], state: NodeState) -> Iterator[Problem]:
    """Mounts that the deploy would remount while processes use them."""
    for mount in mounts:
        actual = state.mounted.get(mount.where)
        users = state.users.get(mount.where, ())
        if actual is None or not users:
            continue
        if reasons := mount_differences(mount, actual):
            actually = f"{'; '.join(reasons)} and used by {' '.join(users)}"
            what = f"{mount.where}: expected idle or as declared, actual {actually}"
            yield Problem("mounts.busy", what, "end these processes, or drain the node, then run again")
