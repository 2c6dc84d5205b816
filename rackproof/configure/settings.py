"""What the inventory says about one node, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import isclass
from ipaddress import IPv4Interface
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator
from pydantic_core import ErrorDetails

from rackproof.core.nearest import suggestion
from rackproof.core.rack import Node
from rackproof.core.secret import Secret
from rackproof.errors import InventoryError


class Inputs(BaseModel):
    """Base of the inputs of one concern: a mapping in the inventory's data (group or node).

    Every field has a default and says, in the text below it, what it is, its unit and where the default comes from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    KEY: ClassVar[str]
    """Key of the mapping in the inventory's data; parts of a mapping have none."""
    DOWNLOADS: ClassVar[bool] = False
    """Whether the mapping names what a node downloads, in its defaults too: a mirror has to have it."""

    @classmethod
    def given(cls, data: Mapping[str, Any]) -> tuple[str, object]:
        """Key and value of the mapping in a node's data. Raises ValueError, one line that names the key."""
        return cls.KEY, data.get(cls.KEY)


InputsT = TypeVar("InputsT", bound=Inputs)


def read_inputs(node: Node, model: type[InputsT]) -> InputsT:
    """The inputs of one concern, from the mapping ``model.KEY`` of the inventory; all defaults without one.

    Raises InventoryError, one line that names the node, the key and the way out.
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
"""Beginnings of pydantic's types of errors whose input is said. Of others it may be a secret in the wrong place."""


def _complaint(key: str, model: type[BaseModel], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    *parents, last = (str(part) for part in first["loc"]) if first["loc"] else ("",)
    where = ".".join((key, *parents, last)) if last else key
    if first["type"] == "extra_forbidden" and (inner := _model_at(model, parents)) is not None:
        return f"{where}: no such input; {suggestion(last, inner.model_fields)}"
    return f"{where}: {_said(first)}"


def _said(error: ErrorDetails) -> str:
    """pydantic's words, and the input where that is safe."""
    text = error["msg"][:1].lower() + error["msg"][1:]
    given = error["input"]
    plain = isinstance(given, str | int | float) and not isinstance(given, Secret)
    return f"{text}, actual {given!r}" if plain and error["type"].startswith(_SHOWN) else text


def _model_at(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """The model below some fields; None where that is not a plain mapping of fields."""
    for name in path:
        field = model.model_fields.get(name)
        named = [part for part in (field.annotation, *get_args(field.annotation)) if isclass(part)] if field else []
        inner = next((part for part in named if issubclass(part, BaseModel)), None)
        if inner is None:
            return None
        model = inner
    return model


TimeServer = Annotated[str, StringConstraints(pattern=r"^[^\s#]+$")]


class NodeSettings(BaseModel):
    """Host data that deploys read. Other keys (ssh_*, site data) are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    fabric_addresses: tuple[IPv4Interface, ...] = ()
    """Address with prefix length of rail k. Default: none; a node that must be on the fabric is refused without."""
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
    time_upstreams: tuple[TimeServer, ...] = ()
    """Time servers outside the rack, names or addresses: for the node that serves the time inside, or for every node
    where none does. Default: none; a rack without a node that serves keeps the sources that its chrony.conf has."""
    nfs_threads: int = Field(default=16, ge=1)
    """Threads of an NFS server; a request holds one until the drive has answered. Default: ours, twice what nfs-utils
    2.6 starts by itself (nfs.conf(5))."""

    @field_validator("fabric_macs")
    @classmethod
    def _lower(cls, macs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(mac.lower() for mac in macs)


def node_settings(node: Node, rails: int, every: bool = True) -> NodeSettings:
    """The settings of a node of a rack with so many rails.

    ``every``: the node has all of them; another one may have the first few, or none.

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
        raise InventoryError(f"{name}: {key}: {_said(first)}") from None
