"""Settings of one node in the inventory, validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import isclass
from ipaddress import IPv4Address, IPv4Interface
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from rackproof.core.nearest import suggestion
from rackproof.core.rack import Node
from rackproof.core.secret import Secret
from rackproof.core.texts import Drive, Host, Mac, PathId
from rackproof.errors import InventoryError


class Inputs(BaseModel):
    """Base class for the inputs of one concern: a mapping in the inventory's data (group or node).

    Every field has a default and a docstring with its meaning, its unit and the origin of the default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    KEY: ClassVar[str]
    """Key of the mapping in the inventory's data; nested mappings have none."""
    DOWNLOADS: ClassVar[bool] = False
    """Whether the mapping or its defaults name downloads of a node, which ``rackproof mirror list`` then lists."""

    @classmethod
    def given(cls, data: Mapping[str, Any]) -> tuple[str, object]:
        """Key and value of the mapping in a node's data. Raises ValueError, one line that names the key."""
        return cls.KEY, data.get(cls.KEY)


InputsT = TypeVar("InputsT", bound=Inputs)


def read_inputs(node: Node, model: type[InputsT]) -> InputsT:
    """The inputs of one concern from the mapping ``model.KEY`` of the inventory; all defaults without one.

    Raises InventoryError, one line that names the node, the key and a remedy.
    """
    try:
        key, plain = model.given(node.data)
    except ValueError as error:
        raise InventoryError(f"{node.name}: {error}") from None
    if plain is None:
        plain = {}
    if not isinstance(plain, Mapping):
        raise InventoryError(f"{node.name}: {key}: expected a mapping, actual {type(plain).__name__}")
    try:
        return model.model_validate(dict(plain))
    except ValidationError as error:
        raise InventoryError(f"{node.name}: {_complaint(key, model, error)}") from None


_SHOWN = ("literal_error", "bool_", "int_", "float_", "ip_", "greater_", "less_")
"""Prefixes of pydantic's error types whose message shows the input. With other types it may be a misplaced secret."""


def _complaint(key: str, model: type[BaseModel], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    *parents, last = (str(part) for part in first["loc"]) if first["loc"] else ("",)
    where = ".".join((key, *parents, last)) if last else key
    if first["type"] == "extra_forbidden" and (inner := _model_at(model, parents)) is not None:
        return f"{where}: no such input; {suggestion(last, inner.model_fields)}"
    return f"{where}: {_message(first)}"


def _message(error: ErrorDetails) -> str:
    """pydantic's message, with the input where that is safe."""
    text = error["msg"][:1].lower() + error["msg"][1:]
    given = error["input"]
    plain = isinstance(given, str | int | float) and not isinstance(given, Secret)
    return f"{text}, actual {given!r}" if plain and error["type"].startswith(_SHOWN) else text


def _model_at(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """The nested model at a path of fields; None when the path leads to no model."""
    for name in path:
        field = model.model_fields.get(name)
        named = [part for part in (field.annotation, *get_args(field.annotation)) if isclass(part)] if field else []
        inner = next((part for part in named if issubclass(part, BaseModel)), None)
        if inner is None:
            return None
        model = inner
    return model


class NodeSettings(BaseModel):
    """Host data that deploys read. Other keys (ssh_*, the site's own) are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)

    fabric_addresses: tuple[IPv4Interface, ...] = ()
    """Address with prefix length of rail k. Default: none; required on nodes of the fabric."""
    fabric_second_addresses: tuple[IPv4Interface, ...] = ()
    """Further addresses of a storage server, in the order of rails. Default: none."""
    management_address: IPv4Address | None = None
    """Management address to which other nodes resolve this node's name: ssh between nodes, Slurm and IMEX use it.
    Default: none, the site's DNS decides; on Soft-RoCE the address on rail 0."""
    fabric_macs: tuple[Mac, ...] = ()
    """Permanent MAC address of the NIC of rail k."""
    fabric_paths: tuple[PathId, ...] = ()
    """Instead of MAC addresses: udev's ID_PATH of the NIC of rail k, e.g. ``pci-0000:3b:00.0``."""
    simulated_gpus: bool = False
    """The node replays nvidia-smi; every page shows this."""
    virtual: bool = False
    """The node is a virtual machine; every page shows this."""
    data_drive: Drive | None = None
    """Local drive of a client: a path or a shell pattern that matches exactly one drive."""
    scratch_drives: tuple[Drive, ...] = ()
    """Drives by id of the node's local scratch array; empty: no array."""
    nfs_drive: Drive | None = None
    """Drive that an NFS server exports: a path or a shell pattern that matches exactly one drive."""
    ceph_drive: Drive | None = None
    """Drive of the virtual rack's Ceph: a path or a shell pattern that matches exactly one drive."""
    time_upstreams: tuple[Host, ...] = ()
    """Time servers outside the rack, names or addresses: for the rack's time server, or for every node when there is
    none. Default: none; a rack without a time server of its own keeps the sources of its chrony.conf."""
    mount_timeout_s: int = Field(default=30, ge=1, le=3600)
    """Seconds that one attempt to mount may take; some vendors' clients need more, and have more."""
    mount_retry_s: int = Field(default=5, ge=1, le=3600)
    """Seconds between attempts to mount at boot."""
    nfs_threads: int = Field(default=16, ge=1)
    """Threads of an NFS server; a request occupies one until the drive has answered. Default: the kit's choice, twice
    the default of nfs-utils 2.6 (nfs.conf(5))."""


def node_settings(node: Node, rails: int, every: bool = True) -> NodeSettings:
    """The settings of a node in a rack with ``rails`` rails.

    ``every``: the node must have an address on every rail; otherwise it may have only the first few, or none.

    Raises InventoryError, one line that names the node and the key.
    """
    settings = _parse(node.name, node.data)
    given = len(settings.fabric_addresses)
    if given > rails or (every and given < rails):
        has = f"{rails} rail(s)" if rails else "no fabric"
        raise InventoryError(
            f"{node.name}: fabric_addresses: the architecture has {has}, the inventory lists {given} address(es)"
        )
    if not (given or settings.fabric_macs or settings.fabric_paths):
        return settings
    if bool(settings.fabric_macs) == bool(settings.fabric_paths):
        raise InventoryError(f"{node.name}: give either fabric_macs or fabric_paths, one entry a rail")
    key, ports = (
        ("fabric_macs", settings.fabric_macs) if settings.fabric_macs else ("fabric_paths", settings.fabric_paths)
    )
    if len(ports) != given:
        raise InventoryError(f"{node.name}: {key}: expected {given} entries, one a rail, actual {len(ports)}")
    return settings


def _parse(name: str, data: Mapping[str, Any]) -> NodeSettings:
    try:
        return NodeSettings.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InventoryError(f"{name}: {key}: {_message(first)}") from None
