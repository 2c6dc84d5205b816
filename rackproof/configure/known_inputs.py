"""Every input of an inventory with its default: for ``rackproof inputs``, and to find misspelled keys."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rackproof.configure.collectives.inputs import CollectiveInputs, GuestInputs
from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.health_check.inputs import HealthInputs
from rackproof.configure.ingest.inputs import IngestInputs
from rackproof.configure.nic.inputs import NicInputs
from rackproof.configure.node.inputs import NodeInputs
from rackproof.configure.preflight.problem import PreflightInputs
from rackproof.configure.reboot.inputs import RebootInputs
from rackproof.configure.settings import Inputs, NodeSettings, read_inputs
from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.configure.storage_client.inputs import StorageClientInputs
from rackproof.configure.versions.inputs import VersionInputs
from rackproof.core.rack import FORMER_KEYS, Node

MODELS: Mapping[str, type[Inputs]] = {
    model.KEY: model
    for model in (
        CollectiveInputs,
        ContainerInputs,
        GpuInputs,
        GuestInputs,
        HealthInputs,
        IngestInputs,
        NicInputs,
        NodeInputs,
        PreflightInputs,
        RebootInputs,
        SlurmInputs,
        StorageClientInputs,
        VersionInputs,
    )
}
"""Models of mappings, by their key in the inventory's data."""

PLAIN: Mapping[str, str] = {
    "architecture": "The rack's reference architecture: an id or a file.",
    "versions_lock": "The version set that is installed and held: a file, relative to the inventory.",
    "command_timeout_s": "Seconds that one command of a validator may take on this node.",
    "nic_ports": "Names of ports by purpose, instead of the architecture's and those of ``nic.ports``.",
    "reboot_mode": "``allowed`` or ``refused``, instead of ``reboot.allowed``; for the command line.",
    "reboot_serial": "Nodes that reboot at the same time, instead of ``reboot.serial``; for the command line.",
    "rollback_keep": "Runs whose previous files a node keeps for a rollback. Default 10.",
    "rack": "Name of the node's rack, for group testing: nodes of one rack are searched together.",
    "leaf_switches": "Names of the node's leaf switches, one for each rail, for group testing.",
    "fact_prefetch": "False: a deploy does not prefetch facts.",
    "take_over": "Name of a run whose lock this run takes over; for the command line.",
}
"""Other keys of the inventory's data: neither mappings nor fields of ``NodeSettings``."""

ALIKE = 0.85
"""difflib's ratio from which a key counts as misspelled: one letter of six. Higher than usual, because a site's own
keys may resemble the kit's."""
SHORT = 4
"""Letters up to which a key of the kit is not guessed: ``gpus`` is a site's own word, no misspelled ``gpu``."""

PYINFRAS = ("_", "ssh_")
"""Prefixes of keys that pyinfra reads."""


def read_all_inputs(node: Node) -> None:
    """Validate every mapping of a node's data, also those read later. Raises InventoryError, one line."""
    for model in MODELS.values():
        read_inputs(node, model)


@dataclass(frozen=True, slots=True)
class Described:
    """One input: ``key`` with dots, the type and the default as text, and its docstring."""

    key: str
    type: str
    default: str
    text: str


def described(key: str) -> Iterator[Described]:
    """Every input below a key, nested mappings after their parent. Raises KeyError."""
    yield from _of_model(key, MODELS[key])


def plain_inputs() -> Iterator[Described]:
    """Inputs that are not in a mapping."""
    for key, text in PLAIN.items():
        yield Described(key, "", "", text)
    yield from _of_model("", NodeSettings)


def misspelled(keys: Iterable[str]) -> dict[str, str]:
    """Unknown keys of an inventory that resemble one of the kit's, with the key that was probably meant.

    Other unknown keys are the site's own, or pyinfra's.
    """
    ours = [*MODELS, *PLAIN, *NodeSettings.model_fields, *FORMER_KEYS]
    guessed = [key for key in ours if len(key) > SHORT]
    return {
        key: FORMER_KEYS.get(near[0], near[0])
        for key in keys
        if key not in ours
        and not key.startswith(PYINFRAS)
        and (near := difflib.get_close_matches(key, guessed, n=1, cutoff=ALIKE))
    }


def _of_model(prefix: str, model: type[BaseModel]) -> Iterator[Described]:
    for name, field in model.model_fields.items():
        key = f"{prefix}.{name}" if prefix else name
        place, inner = _inside(field.annotation)
        text = field.description or (inner.__doc__ if inner else None) or ""
        yield Described(key, _named(field.annotation), _default(field), inspect.cleandoc(text))
        if inner:
            yield from _of_model(f"{key}{place}", inner)


def _inside(annotation: Any) -> tuple[str, type[BaseModel] | None]:
    """The path to a nested model, and the model: ``.NAME`` below a dict, ``[]`` in a list; None without one."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "", annotation
    origin, inside = get_origin(annotation), get_args(annotation)
    if not inside:
        return "", None
    if origin is dict:
        place, model = _inside(inside[1])
        return f".NAME{place}", model
    if origin in (tuple, list, frozenset):
        place, model = _inside(inside[0])
        return f"[]{place}", model
    if origin is Annotated:
        return _inside(inside[0])
    return next((inner for argument in inside if (inner := _inside(argument))[1]), ("", None))


def _named(annotation: Any) -> str:
    """A type for readers; constraints of strings are left out, error messages show them."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _named(inside[0])
    if origin is Literal:
        return " | ".join(map(repr, inside))
    if origin in (Union, UnionType):
        named = ("None" if argument is type(None) else _named(argument) for argument in inside)
        return " | ".join(name for name in named if name != "''")
    if inside:
        names = ", ".join("..." if argument is Ellipsis else _named(argument) for argument in inside)
        return f"{origin.__name__ if origin else annotation}[{names}]"
    return str(getattr(annotation, "__name__", annotation))


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return ""
    return str(value)
