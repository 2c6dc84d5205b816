"""Declaration of a node, from architecture and inventory. Pure.

The inventory fills in what the architecture leaves open, and must not contradict it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rackproof.configure.node.inputs import NodeInputs, User
from rackproof.core.architecture import Limits, Scratch, System
from rackproof.core.architecture.expectations import NOTHING
from rackproof.errors import DeclarationError


def limits(system: System, inputs: NodeInputs) -> dict[str, int | str | None]:
    """Value by name in limits.conf; None leaves a limit alone. Raises DeclarationError for a contradiction."""
    declared = system.limits or Limits.model_construct()
    limits: dict[str, int | str | None] = {"memlock": system.limits_memlock}
    for name in ("nofile", "nproc", "stack"):
        limits[name] = _one(f"node.{name}", f"system.limits.{name}", getattr(declared, name), inputs, name)
    return limits


_LIMITS = {"memlock": 1024, "nofile": 1, "nproc": 1, "stack": 1024}
"""Names in limits.conf, and the factor to systemd's units (bytes, or pieces)."""


def login_limits(system: System, inputs: NodeInputs) -> dict[str, str]:
    """In the notation of limits.conf: memory in KiB. Raises DeclarationError for a contradiction."""
    values = limits(system, inputs)
    return {name: str(value) for name, value in values.items() if value is not None}


def service_limits(system: System, inputs: NodeInputs) -> dict[str, str]:
    """Values by name in systemd's notation: bytes, or pieces."""
    return {
        name.upper(): "infinity" if value == "unlimited" else str(int(value) * _LIMITS[name])
        for name, value in login_limits(system, inputs).items()
    }


def limited_services(system: System, inputs: NodeInputs) -> tuple[str, ...]:
    """Services that get the limits in a drop-in of their own."""
    declared = system.limits.services if system.limits else ()
    return tuple(dict.fromkeys((*inputs.limited_services, *declared)))


def users(system: System, inputs: NodeInputs) -> tuple[User, ...]:
    """Accounts to make. Raises DeclarationError for a contradiction."""
    own = {user.name: user for user in inputs.users}
    joined: dict[str, User] = {}
    for user in system.users:
        has = own.get(user.name, User(name=user.name))
        values: dict[str, Any] = {
            key: _one(f"node.users: {user.name}: {key}", "system.users", getattr(user, key), has, key)
            for key in ("uid", "groups", "shell", "ssh_keys", "sudo")
        }
        joined[user.name] = has.model_copy(update=values)
    accounts = (*joined.values(), *(user for user in inputs.users if user.name not in joined))
    numbers = [user.uid for user in accounts if user.uid is not None]
    if twice := next((uid for uid in numbers if numbers.count(uid) > 1), None):
        raise DeclarationError(f"node.users: uid {twice} is another account's in the architecture's system.users")
    return accounts


def scratch_inputs(declared: Scratch | None, drives: tuple[str, ...], inputs: NodeInputs) -> NodeInputs:
    """The inventory's ``scratch_…`` with what the architecture declares about the array.

    Raises DeclarationError for a contradiction, and where the drives are too many or too few.
    """
    if declared is None:
        return inputs
    if len(drives) != declared.drives:
        raise DeclarationError(
            f"scratch_drives: the architecture declares an array of {declared.drives} drives, the inventory names"
            f" {len(drives) or 'none'}; name them by /dev/disk/by-id"
        )
    keys = {"path": "mountpoint", "fstype": "fstype", "label": "label", "chunk_kib": "chunk_kib"}
    values = {
        f"scratch_{own}": _one(
            f"node.scratch_{own}", f"scratch.{key}", getattr(declared, key), inputs, f"scratch_{own}"
        )
        for own, key in keys.items()
    }
    return inputs.model_copy(update=values)


def checked_only(
    system: System, packages: Collection[str], files: Collection[str], dkms: Collection[str]
) -> str | None:
    """One line with the declared properties that are only checked, because no deploy sets them; None without any.
    ``packages``, ``files``, ``dkms``: names that the deploys do set."""
    left = {
        "package_versions": [name for name in system.package_versions or {} if name not in packages],
        "files": [path for path in system.files or {} if path not in files],
        "dkms": [name for name in system.dkms if name not in dkms],
    }
    parts = [f"system.{key} ({', '.join(names)})" for key, names in left.items() if names]
    if not parts:
        return None
    return f"checked, not set: {', '.join(parts)}; a version set that has them (versions_lock) sets them, or the site"


def _one(where: str, key_there: str, declared: Any, inputs: NodeInputs | User, key: str) -> Any:
    """The architecture's value, else the inventory's. Raises DeclarationError when both are given and differ."""
    given = getattr(inputs, key)
    if declared in NOTHING:
        return given
    if key in inputs.model_fields_set and given != declared:
        raise DeclarationError(
            f"{where}: the architecture's {key_there} says {declared}, the inventory {given}; say it once"
        )
    return declared
