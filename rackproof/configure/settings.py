"""What the inventory says about one node, checked."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Interface
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from rackproof.core.nearest import suggestion
from rackproof.core.rack import Node
from rackproof.errors import InventoryError


class Inputs(BaseModel):
    """Base of the inputs of one concern: a mapping in the inventory's data (group or node).

    Every field has a default and says, in the text below it, what it is, its unit and where the default comes from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


InputsT = TypeVar("InputsT", bound=Inputs)


def inputs(node: Node, key: str, model: type[InputsT]) -> InputsT:
    """What the inventory says under ``key``; all defaults where it says nothing.

    Raises InventoryError, one line that names the node, the key and the way out.
    """
    plain = node.data.get(key)
    if plain is None:
        plain = {}
    if not isinstance(plain, Mapping):
        raise InventoryError(f"{node.name}: {key}: expected a mapping, actual {type(plain).__name__}")
    try:
        return model.model_validate(dict(plain))
    except ValidationError as error:
        raise InventoryError(f"{node.name}: {_complaint(key, model, error)}") from None


def _complaint(key: str, model: type[BaseModel], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in (key, *first["loc"]))
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        return f"{where}: no such input; {suggestion(str(first['loc'][0]), model.model_fields)}"
    return f"{where}: {first['msg'].lower()}"


class NodeSettings(BaseModel):
    """Host data that deploys read. Other keys (ssh_*, site data) are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    fabric_addresses: tuple[IPv4Interface, ...]
    """Address with prefix length of rail k."""
    fabric_macs: tuple[str, ...] = ()
    """Permanent MAC address of the NIC of rail k."""
    fabric_paths: tuple[str, ...] = ()
    """Instead of MAC addresses: udev's ID_PATH of rail k's NIC, e.g. ``pci-0000:3b:00.0``."""
    simulated_gpus: bool = False
    """The node replays nvidia-smi; every page says so."""
    virtual: bool = False
    """The node is a virtual machine; every page says so."""
    data_drive: str | None = None
    """Local drive of a client: a path or a shell pattern that names exactly one drive."""
    scratch_drives: tuple[str, ...] = ()
    """Drives by id that make the local scratch array of a node; none where it is empty."""
    nfs_drive: str | None = None
    """Drive that an NFS server exports, named likewise."""
    ceph_drive: str | None = None
    """Drive of the virtual rack's Ceph, named likewise."""

    @field_validator("fabric_macs")
    @classmethod
    def _lower(cls, macs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(mac.lower() for mac in macs)


def node_settings(node: Node, rails: int) -> NodeSettings:
    """The settings of a node of a rack with so many rails.

    Raises InventoryError, one line that names the node and the key.
    """
    settings = _parse(node.name, node.data)
    if len(settings.fabric_addresses) != rails:
        raise InventoryError(
            f"{node.name}: fabric_addresses: the architecture has {rails} rail(s), "
            f"the inventory lists {len(settings.fabric_addresses)} address(es)"
        )
    if bool(settings.fabric_macs) == bool(settings.fabric_paths):
        raise InventoryError(f"{node.name}: give either fabric_macs or fabric_paths, one entry a rail")
    key, ports = (
        ("fabric_macs", settings.fabric_macs) if settings.fabric_macs else ("fabric_paths", settings.fabric_paths)
    )
    if len(ports) != rails:
        raise InventoryError(f"{node.name}: {key}: expected {rails} entries, one a rail, actual {len(ports)}")
    return settings


def _parse(name: str, data: Mapping[str, Any]) -> NodeSettings:
    try:
        return NodeSettings.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InventoryError(f"{name}: {key}: {first['msg'].lower()}") from None
