"""Files, units, kernel arguments and the scratch array of a node."""

from __future__ import annotations

from typing import Any

from rackproof.configure.files import Absent, Entry
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.node import cmdline, declared
from rackproof.configure.node.inputs import NodeInputs
from rackproof.configure.node.scratch import Scratch
from rackproof.configure.node.settings import IRQ_SCRIPT, MODULES_LOAD, Settings
from rackproof.configure.shared_files import boot_modules, drive_unit, rendered
from rackproof.configure.site import Site
from rackproof.configure.units import Unit
from rackproof.core.architecture.expectations import role_with
from rackproof.core.machine import Machine
from rackproof.errors import DeclarationError

OWN_PROFILE = "rackproof"
IRQ_SERVICE = "rackproof-irq-affinity.service"
IDLE_SERVICE = "rackproof-idle-limit.service"
IDLE_SCRIPT = "/usr/local/sbin/rackproof-idle-limit"
TUNED = ("/etc/tuned/rackproof/tuned.conf", "/etc/tuned/profiles/rackproof/tuned.conf")
"""Directories of tuned's profiles, before 2.23 and since."""


def accounts(site: Site, inputs: NodeInputs) -> NodeInputs:
    """The inputs with the users that the architecture declares. Raises DeclarationError for a contradiction."""
    return inputs.model_copy(update={"users": declared.users(site.architecture.system, inputs)})


def password_hashes(inputs: NodeInputs) -> dict[str, str]:
    """Password hashes by user. Raises DeclarationError when one cannot be read."""
    hashes = {user.name: user.password_hash() for user in inputs.users}
    return {name: value for name, value in hashes.items() if value is not None}


def arguments(site: Site, inputs: NodeInputs, machine: Machine) -> cmdline.WantedArguments:
    """Raises DeclarationError when an argument is required and forbidden."""
    system = site.architecture.system
    required = [*system.cmdline_required, *inputs.kernel_arguments]
    if inputs.idle_limit == "cmdline":
        required.append("processor.max_cstate=1")
        if machine.cpu_vendor == "GenuineIntel":
            required.append("intel_idle.max_cstate=1")
    proposed = () if site.settings.virtual else cmdline.proposals(machine, inputs.proposals)
    return cmdline.wanted(
        required, system.cmdline_forbidden, proposed, cmdline.hugepage_arguments(system.hugepages or {})
    )


def settings(site: Site, inputs: NodeInputs) -> Settings:
    system = site.architecture.system
    return Settings(
        swap_off=system.swap is False,
        timezone=inputs.timezone,
        tuned=system.tuned_profile,
        modules=system.modules,
        forbidden=system.modules_forbidden,
        hugepages=system.hugepages or {},
        irq_affinity=moves_interrupts(site, inputs),
    )


def moves_interrupts(site: Site, inputs: NodeInputs) -> bool:
    system = site.architecture.system
    return system.irq_affinity == "local" or (inputs.irq_affinity and system.irqbalance is False)


def files(site: Site, inputs: NodeInputs) -> tuple[Entry, ...]:
    system = site.architecture.system
    entries: list[Entry] = []
    if system.modules:
        entries.append(boot_modules("node", "node", system.modules))
    else:
        entries.append(Absent(MODULES_LOAD))
    if system.tuned_profile == OWN_PROFILE:
        entries += [
            rendered(
                path, template="/etc/tuned/rackproof.conf", restart=("tuned.service",), base=inputs.tuned_base,
                governor=system.cpu_governor, hugepages=system.transparent_hugepages, sysctl=system.sysctl,
            )
            for path in TUNED
        ]  # fmt: skip
    entries += _services(moves_interrupts(site, inputs), IRQ_SERVICE, IRQ_SCRIPT, {"root": ""}, {}) + _services(
        inputs.idle_limit == "latency",
        IDLE_SERVICE,
        IDLE_SCRIPT,
        {"bytes": "".join(f"\\{byte:03o}" for byte in inputs.idle_latency_us.to_bytes(4, "little"))},
        {"latency_us": inputs.idle_latency_us},
    )
    wanted = declared.service_limits(site.architecture.system, inputs)
    limits = {f"Limit{name}": value for name, value in wanted.items()}
    folder = "/etc/systemd/system"
    entries += [
        rendered(f"{folder}/{service}.d/60-rackproof-limits.conf", template=f"{folder}/limits.conf", limits=limits)
        for service in declared.limited_services(system, inputs)
    ]
    return tuple(entries)


def _services(
    wanted: bool, service: str, script: str, of_script: dict[str, Any], of_unit: dict[str, Any]
) -> list[Entry]:
    unit = f"/etc/systemd/system/{service}"
    if not wanted:
        return [Absent(unit), Absent(script)]
    return [
        rendered(script, mode="755", restart=(service,), **of_script),
        rendered(unit, restart=(service,), **of_unit),
    ]


def units(site: Site, inputs: NodeInputs) -> tuple[Unit, ...]:
    system = site.architecture.system
    wanted = []
    if system.irqbalance is not None:
        wanted.append(Unit("irqbalance.service", enabled=system.irqbalance, running=system.irqbalance))
    if system.tuned_profile:
        wanted.append(Unit("tuned.service"))
    moves = moves_interrupts(site, inputs)
    idle = inputs.idle_limit == "latency"
    wanted.append(Unit(IRQ_SERVICE, enabled=moves, running=moves))
    wanted.append(Unit(IDLE_SERVICE, enabled=idle, running=idle))
    return tuple(wanted)


def scratch_array(site: Site, inputs: NodeInputs) -> Scratch | None:
    """None without a declared array. Raises DeclarationError when the drives cannot be used."""
    drives = site.settings.scratch_drives
    role = role_with(site.architecture, site.node.groups, "scratch")
    inputs = declared.scratch_inputs(site.architecture.roles[role].expect.scratch if role else None, drives, inputs)
    if not drives:
        return None
    if len(drives) < 2:
        raise DeclarationError(f"scratch_drives: a RAID0 has at least two drives, the inventory names {drives[0]}")
    if bad := next((drive for drive in drives if not drive.startswith("/dev/disk/by-")), None):
        raise DeclarationError(
            f"scratch_drives: {bad} is another drive after the next reboot; name it by /dev/disk/by-id"
        )
    if twice := next((drive for drive in drives if drives.count(drive) > 1), None):
        raise DeclarationError(f"scratch_drives: {twice} is listed twice")
    return Scratch(drives, inputs.scratch_path, inputs.scratch_label, inputs.scratch_fstype, inputs.scratch_chunk_kib)


def scratch_mount(array: Scratch) -> DesiredMount:
    """By label, with nofail: a machine whose array is broken still boots."""
    options = ("noatime", "nofail")
    return DesiredMount(
        name="scratch",
        what=f"LABEL={array.label}",
        where=array.where,
        type=array.fstype,
        options=options,
        fstype=array.fstype,
        required=("noatime",),
        forbidden=("ro",),
        network=False,
        source_pattern="/dev/md*",
    )


def scratch_units(array: Scratch | None) -> tuple[Unit, ...]:
    return (Unit(scratch_mount(array).unit, running=None),) if array else ()


def scratch_files(array: Scratch | None) -> tuple[Entry, ...]:
    return (drive_unit(scratch_mount(array), "Scratch array"),) if array else ()
