"""Checks that the keys of an architecture require, and values of keys.

A file that sets ``gpu.count`` requires a result of that check from every node of the role. Without a validator the
result is UNMEASURED.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from rackproof.core.architecture.base import Model
from rackproof.core.architecture.gpu import GPU_CHECKS
from rackproof.core.architecture.hardware import Expectation, Role
from rackproof.core.architecture.host import CPU_CHECKS, DRIVES_CHECKS, MEMORY_CHECKS
from rackproof.core.architecture.models import Architecture
from rackproof.core.architecture.network import FABRIC_CHECKS, NIC_CHECKS, PCIE_CHECKS, RAIL_CHECKS
from rackproof.core.architecture.node import LIMITS_CHECKS, LIMITS_DAEMON, SCRATCH_CHECKS
from rackproof.core.architecture.services import CONTAINER_CHECKS, SLURM_ALWAYS, SLURM_CHECKS, asks, service_items
from rackproof.core.architecture.storage import STORAGE_CHECKS
from rackproof.core.architecture.system import SYSTEM_CHECKS
from rackproof.core.nvlink_domain import SERVICE
from rackproof.core.rack import Node

PORT_CHECKS: Final = tuple(
    f"fabric.{name}" for name in ("address", "jumbo", "link", "loss", "mtu", "port", "port_sysctl", "rdma")
)
PROGRAM_CHECKS: Final = ("tools.present", "tools.starts")

NOTHING: Final = (None, ())
"""Values of a key that is not set."""

ABSENT: Final = object()
"""Returned by ``value_at`` for a missing key."""


@dataclass(frozen=True, slots=True)
class ExpectedCheck:
    """All nodes of ``role`` must have a result of ``check`` (for ``item``, if not empty)."""

    role: str
    check: str
    item: str
    key: str
    """Architecture key with the expected value."""
    claims: tuple[str, ...] = ()
    source: str | None = None


def expected_checks(architecture: Architecture) -> tuple[ExpectedCheck, ...]:
    """Checks that the file's hardware, fabric and storage require, in the order of the file."""
    return tuple(
        entry
        for part in (
            _of_roles(architecture),
            _of_system(architecture),
            _of_fabric(architecture),
            _of_storage(architecture),
            _of_services(architecture),
            _of_gpu(architecture),
        )
        for entry in part
    )


def items_of(
    architecture: Architecture, check: str, groups: Collection[str], leads: Collection[str] = ()
) -> tuple[str, ...]:
    """Items for which a check must have a result on a node in these groups; ``("",)`` for a check without items.

    Validators enumerate their items independently, and a test compares both: requirements must not depend on answers.
    ``leads``: roles whose first node, the server, is this node.
    """
    if check == "base.sysctl":
        items: Iterable[str] = architecture.system.sysctl
    elif check in PORT_CHECKS:
        prefix = architecture.fabric.interface_prefix if architecture.fabric else ""
        items = (f"{prefix}{rail}" for rail in range(architecture.rails if on_fabric(architecture, groups) else 0))
    elif check in PROGRAM_CHECKS:
        items = architecture.programs_of(groups)
    elif check.startswith("mount."):
        applies = next((applies for name, applies in STORAGE_CHECKS.values() if name == check), lambda storage: True)
        items = (
            name
            for name, storage in architecture.storage.items()
            if set(storage.client_roles) & set(groups) and applies(storage)
        )
    elif check.startswith("storage_server."):
        items = served_items(architecture, check, leads)
    elif check == LIMITS_DAEMON:
        items = limited_services(architecture, groups)
    elif check.startswith(("nic.", "drives.", "service.")):
        items = _of_parts(architecture, check, groups)
    else:
        items = service_items(architecture.slurm, architecture.containers, check)
    return tuple(dict.fromkeys(items)) or ("",)


def on_fabric(architecture: Architecture, groups: Collection[str]) -> bool:
    """Whether a node in these groups must have all rails.

    True for GPU nodes, for nodes whose port checks are required, and for roles with one compute port per rail. Others
    (controller, login node, server) may have fewer rails, or none.
    """
    if architecture.fabric is None:
        return False
    required = {role for role, checks in architecture.required_checks.items() if set(checks) & set(PORT_CHECKS)}
    if {"gpu", *required} & {"all", *groups}:
        return True
    nics = (nic for role in architecture.roles_of(groups) for nic in role.expect.nics)
    return any("compute" in nic.purpose and nic.count == architecture.rails for nic in nics)


def rails_of(architecture: Architecture, node: Node) -> int:
    """Number of rails of a node: all, or those in the inventory if the node may have fewer."""
    if on_fabric(architecture, node.groups):
        return architecture.rails
    return min(architecture.rails, len(node.data.get("fabric_addresses") or ()))


def _of_parts(architecture: Architecture, check: str, groups: Collection[str]) -> Iterator[str]:
    """Port purposes, drive uses, or units for which the node's role has an expectation."""
    kind = check.partition(".")[0]
    part, keys = {"nic": ("nics", NIC_CHECKS), "drives": ("drives", DRIVES_CHECKS)}.get(kind, ("services", {}))
    role = role_with(architecture, groups, part)
    if role is None:
        return
    if not keys:
        yield from architecture.roles[role].expect.services
        return
    key = next((key for key, name in keys.items() if name == check), None)
    for entry in getattr(architecture.roles[role].expect, part):
        # Checks without a key apply to every port and to NVMe drives.
        if getattr(entry, key) not in NOTHING if key else getattr(entry, "kind", "nvme") == "nvme":
            yield str(_name_in_list(entry))


def shares_gpu_memory(architecture: Architecture, groups: Collection[str]) -> bool:
    """Whether a node of these groups must run IMEX, and so is in an NVLink domain with others."""
    role = role_with(architecture, groups, "services")
    return role is not None and SERVICE in architecture.roles[role].expect.services


def limited_services(architecture: Architecture, groups: Collection[str]) -> tuple[str, ...]:
    """Services of ``system.limits`` that a node of these groups must have."""
    limits, role = architecture.system.limits, role_with(architecture, groups, "services")
    if limits is None or role is None:
        return ()
    return tuple(unit for unit in architecture.roles[role].expect.services if unit in limits.services)


def served_items(architecture: Architecture, check: str, leads: Collection[str]) -> Iterator[str]:
    for storage in architecture.storage.values():
        if storage.server_role not in leads or storage.class_ != "nfs":
            continue
        if check in ("storage_server.export", "storage_server.drive"):
            yield storage.source
        elif check == "storage_server.listens":
            transport = storage.transport or "tcp"
            yield f"{transport} {storage.port or (20049 if transport == 'rdma' else 2049)}"
        elif check == "storage_server.version":
            yield from (option.removeprefix("vers=") for option in storage.options if option.startswith("vers="))


def value_at(architecture: Architecture, key: str, stated_only: bool = False) -> Any:
    """The JSON value under a dotted key as files spell it, or ABSENT. Names may contain dots.

    ``stated_only``: without keys at their default.

    NICs and drives, which are lists, are found by purpose and use: ``roles.gpu.expect.nics.compute.mtu``.
    """
    value: Any = architecture
    remaining = key
    while remaining:
        if isinstance(value, BaseModel):
            names = {field.alias or name: name for name, field in type(value).model_fields.items()}
            head, _, remaining = remaining.partition(".")
            if head not in names:
                return ABSENT
            value = getattr(value, names[head])
        elif isinstance(value, tuple):
            head, _, remaining = remaining.partition(".")
            value = next((entry for entry in value if _name_in_list(entry) == head), None)
            if value is None:
                return ABSENT
        elif isinstance(value, dict):
            entry = next((name for name in value if remaining == name or remaining.startswith(f"{name}.")), None)
            if entry is None:
                return ABSENT
            value, remaining = value[entry], remaining[len(entry) + 1 :]
        else:
            return ABSENT
    return _plain(value, stated_only)


def _name_in_list(entry: object) -> object:
    return getattr(entry, "purpose", None) or getattr(entry, "use", None)


def role_with(architecture: Architecture, groups: Collection[str], part: str) -> str | None:
    """The node's first role, in file order, with expectations for a part (``cpu``, ``nics`` …)."""
    return next(
        (
            name
            for name, role in architecture.roles.items()
            if name in groups and role.managed and getattr(role.expect, part) not in NOTHING
        ),
        None,
    )


def _plain(value: Any, stated_only: bool) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_defaults=stated_only)
    if isinstance(value, dict):
        return {str(key): _plain(inner, stated_only) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner, stated_only) for inner in value]
    return value


def _of_gpu(architecture: Architecture) -> Iterator[ExpectedCheck]:
    gpu = architecture.gpu
    if gpu is None:
        return
    checks = GPU_CHECKS if gpu.count else {"count": GPU_CHECKS["count"]}
    yield from _of_keys("gpu", gpu, checks, "gpu", gpu)


def _of_keys(
    role: str, part: Model | None, checks: Mapping[str, str], path: str, owner: Any, item: str = ""
) -> Iterator[ExpectedCheck]:
    """The check of every key that a part of the file sets, if there is one. ``owner`` has claim and source."""
    for key, check in checks.items() if part else ():
        if getattr(part, key) not in NOTHING:
            yield ExpectedCheck(role, check, item, f"{path}.{key}", owner.claim, owner.source)


def _of_roles(architecture: Architecture) -> Iterator[ExpectedCheck]:
    for name, role in architecture.roles.items():
        if role.managed:
            yield from _of_role(name, role, role.expect)


def _of_role(name: str, role: Role, expect: Expectation) -> Iterator[ExpectedCheck]:
    prefix = f"roles.{name}.expect"
    for number, nic in enumerate(expect.nics):
        yield from _of_keys(name, nic, NIC_CHECKS, f"{prefix}.nics[{number}]", nic, nic.purpose)
    yield from _of_keys(name, expect.cpu, CPU_CHECKS, f"{prefix}.cpu", expect.cpu)
    yield from _of_keys(name, expect.memory, MEMORY_CHECKS, f"{prefix}.memory", expect.memory)
    for number, drives in enumerate(expect.drives):
        yield from _of_keys(name, drives, DRIVES_CHECKS, f"{prefix}.drives[{number}]", drives, drives.use)
    yield from _of_keys(name, expect.pcie, PCIE_CHECKS, f"{prefix}.pcie", expect.pcie)
    yield from _of_keys(name, expect.scratch, SCRATCH_CHECKS, f"{prefix}.scratch", expect.scratch)
    for unit in expect.services:
        yield ExpectedCheck(name, "service.active", unit, f"{prefix}.services", role.claim, role.source)


def _of_fabric(architecture: Architecture) -> Iterator[ExpectedCheck]:
    fabric = architecture.fabric
    if fabric is None:
        return
    for rail in range(fabric.rails):
        port = f"{fabric.interface_prefix}{rail}"
        yield ExpectedCheck("gpu", "fabric.port", port, "fabric.interface_prefix", fabric.claim, fabric.source)
        yield ExpectedCheck("gpu", "fabric.mtu", port, "fabric.mtu", fabric.claim, fabric.source)
        if fabric.loss_max_pct is not None:
            yield ExpectedCheck("gpu", "fabric.loss", port, "fabric.loss_max_pct", fabric.claim, fabric.source)
    yield from _of_keys("gpu", fabric, RAIL_CHECKS, "fabric", fabric)
    yield from _of_keys("gpu", fabric.lossless, FABRIC_CHECKS, "fabric.lossless", fabric)


def _of_system(architecture: Architecture) -> Iterator[ExpectedCheck]:
    for key, check in SYSTEM_CHECKS.items():
        if getattr(architecture.system, key) not in NOTHING:
            yield ExpectedCheck("all", check, "", f"system.{key}")
    if limits := architecture.system.limits:
        for check in LIMITS_CHECKS.values() if (limits.nofile, limits.nproc, limits.stack) != (None,) * 3 else ():
            yield ExpectedCheck("all", check, "", "system.limits")
        for name in architecture.roles:
            for unit in limited_services(architecture, {name}):
                yield ExpectedCheck(name, LIMITS_DAEMON, unit, "system.limits.services")
    for key in architecture.system.sysctl:
        yield ExpectedCheck("all", "base.sysctl", key, f"system.sysctl.{key}")
    for program in architecture.tools.programs:
        users = architecture.users_of(program)
        for role in ("all",) if "all" in users else sorted(users):
            yield ExpectedCheck(role, "tools.present", program, "tools.programs")


def _of_storage(architecture: Architecture) -> Iterator[ExpectedCheck]:
    for name, storage in architecture.storage.items():
        for key, (check, applies) in STORAGE_CHECKS.items():
            if applies(storage):
                for role in storage.client_roles:
                    yield ExpectedCheck(role, check, name, f"storage.{name}.{key}", storage.claim)


def _of_services(architecture: Architecture) -> Iterator[ExpectedCheck]:
    slurm, containers = architecture.slurm, architecture.containers
    for role in slurm.roles if slurm else ():
        for check in SLURM_ALWAYS:
            yield ExpectedCheck(role, check, "", "slurm", slurm.claim if slurm else ())
    for name, part, checks in (("slurm", slurm, SLURM_CHECKS), ("containers", containers, CONTAINER_CHECKS)):
        for key, check in checks.items() if part else ():
            if part is None or not asks(part, key):
                continue
            for role in part.roles:
                for item in service_items(slurm, containers, check) or ("",):
                    yield ExpectedCheck(role, check, item, f"{name}.{key}", part.claim, part.source)
