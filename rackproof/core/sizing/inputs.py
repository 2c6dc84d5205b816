"""Inputs of the sizing model, from a reference architecture, a choice of workloads, and overrides."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from rackproof.core.architecture import Architecture, Figure
from rackproof.core.nearest import suggestion
from rackproof.core.sizing import words
from rackproof.core.sizing.values import (
    DEFAULT,
    SET,
    SYSTEM,
    WORKLOAD,
    Ceilings,
    Origin,
    Spec,
    System,
    Tenant,
    Unit,
)
from rackproof.core.units import UNITS, UnitError, convert, same_dimension
from rackproof.core.wording import exact
from rackproof.errors import SizingError

UNKNOWN = ("null", "none", "unknown")
"""``--set unit.read_iops=unknown`` computes the model without the figure."""

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(.*?)\s*", re.IGNORECASE)
_CHOICE = re.compile(r"(?P<name>[^:]+)(?::(?P<amount>[0-9.]+)(?P<percent>%?))?")
_WIDEST = 1e24
"""Maximum of all inputs in SI units; a larger number is a typing error and could overflow."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A workload and its part of the nodes: a number, a share, or neither for an equal part of the remaining nodes."""

    name: str
    nodes: float | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of the model in SI units, with their origins."""

    architecture: str
    unit_title: str
    system: System
    tenants: tuple[Tenant, ...]
    origins: Mapping[str, Origin]
    """Origins by the input's name in ``--set``."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all inputs for ``--set``; with several tenants, a tenant's have its name as prefix."""
        return (*SYSTEM, *(self.name_of(t, key) for t in self.tenants for key in WORKLOAD))

    def name_of(self, tenant: Tenant, key: str) -> str:
        return key if len(self.tenants) == 1 else f"{tenant.name}.{key}"

    def value(self, name: str) -> float | None:
        """Value of the input ``name``, in its SI unit. Raises SizingError for an unknown name."""
        tenants, key = self._place(name)
        if not tenants:
            value: Any = self.system
            for part in key.split("."):
                value = getattr(value, part)
        else:
            value = getattr(self.tenants[tenants[0]], key)
        return None if value is None else float(value)

    def spec(self, name: str) -> Spec:
        tenants, key = self._place(name)
        return WORKLOAD[key] if tenants else SYSTEM[key]

    def replaced(self, name: str, value: float | None, origin: Origin | None = None) -> Inputs:
        """A copy with another number, in the input's SI unit; a workload key without prefix changes all tenants.

        Raises SizingError for an unknown name and for an invalid number.
        """
        tenants, key = self._place(name)
        spec = WORKLOAD[key] if tenants else SYSTEM[key]
        _check(name, value, spec, origin.unit if origin else spec.shown)
        system, changed = self.system, list(self.tenants)
        change: Any = {key.rpartition(".")[2]: value}
        if key.startswith("unit."):
            system = replace(system, unit=replace(system.unit, **change))
        elif key.startswith("ceilings."):
            system = replace(system, ceilings=replace(system.ceilings, **change))
        elif not tenants:
            system = replace(system, **change)
        for index in tenants:
            changed[index] = replace(changed[index], **change)
        origins = self.origins
        if origin is not None:
            named = [self.name_of(self.tenants[i], key) for i in tenants] or [key]
            origins = {**origins, **{n: replace(origin, key=origins[n].key) for n in named}}
        return Inputs(self.architecture, self.unit_title, system, tuple(changed), origins)

    def lacking(self, name: str) -> str:
        """Why there is no number for ``name``: ``sizing.unit.read_iops is not published``."""
        origin = self.origins[name]
        if origin.source == SET:
            return f"{origin.key} is set to unknown"
        return f"{origin.key} is not {'given' if origin.absent else 'published'}"

    def _place(self, name: str) -> tuple[tuple[int, ...], str]:
        """Tenants of an input (none for the system's), and its key."""
        if name in SYSTEM:
            return (), name
        if name in WORKLOAD:
            return tuple(range(len(self.tenants))), name
        for index, tenant in enumerate(self.tenants):
            prefix, key = f"{tenant.name}.", name[len(tenant.name) + 1 :]
            if name.startswith(prefix) and key in WORKLOAD:
                return (index,), key
        valid_names = dict.fromkeys((*SYSTEM, *WORKLOAD, *self.names))
        raise SizingError(f"no input '{name}'; {suggestion(name, valid_names)}")


def parse_choice(text: str) -> Choice:
    """``resnet50``, ``resnet50:7`` (nodes) or ``resnet50:75%`` (of the nodes). Raises SizingError."""
    match = _CHOICE.fullmatch(text.strip())
    amount = _number(match["amount"]) if match and match["amount"] else None
    if match is None or (match["amount"] and amount is None):
        raise SizingError(f"workload '{text}': expected NAME, NAME:NODES or NAME:SHARE%")
    if amount is None:
        return Choice(match["name"])
    if not amount > 0:
        raise SizingError(f"workload '{text}': expected a number or share of nodes, more than 0")
    if match["percent"]:
        return Choice(match["name"], share=amount / 100)
    return Choice(match["name"], nodes=amount)


def parse_quantity(name: str, text: str, spec: Spec) -> tuple[float | None, str]:
    """``100Gb/s`` in the input's SI unit, and the unit as written. Raises SizingError."""
    if text.strip().lower() in UNKNOWN:
        return None, spec.shown
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise SizingError(f"{name}: expected a number with a unit such as {spec.shown}, actual '{text}'")
    value, unit = float(match[1]), {"%": "percent", "/s": "1/s"}.get(match[2], match[2])
    if not unit and spec.unit not in ("1", "1/s"):
        fitting = [u for u in UNITS if same_dimension(u, spec.unit)]
        raise SizingError(f"{name}: {text.strip()} has no unit; use one of {', '.join(fitting)}")
    try:
        return convert(value, unit or spec.unit, spec.unit), unit or spec.unit
    except UnitError as error:
        raise SizingError(f"{name}: {error}") from None


def inputs_of(architecture: Architecture, workloads: Sequence[Choice] = (), overrides: Iterable[str] = ()) -> Inputs:
    """Inputs of the model from a reference architecture.

    ``workloads`` may be empty where the architecture has one only; ``overrides`` are ``name=value`` texts. Raises
    SizingError, one line, where something is unknown, absent or impossible.
    """
    chosen = workloads or _only(architecture)
    if architecture.sizing is None:
        raise SizingError(
            f"{architecture.metadata.id} has no sizing block, which describes the system for the workloads"
        )
    for choice in chosen:
        if choice.name not in architecture.workloads:
            known = suggestion(choice.name, architecture.workloads)
            raise SizingError(f"{architecture.metadata.id} has no workload '{choice.name}'; {known}")
    if len({choice.name for choice in chosen}) < len(chosen):
        raise SizingError("a workload is selected twice; select each one once")

    origins: dict[str, Origin] = {}
    fields: dict[str, Any] = {
        key: _read(architecture, architecture.sizing, key, spec, origins, key, "sizing") for key, spec in SYSTEM.items()
    }
    plain = {key: value for key, value in fields.items() if "." not in key}
    system = System(**plain, unit=Unit(**_below(fields, "unit")), ceilings=Ceilings(**_below(fields, "ceilings")))
    tenants = []
    for choice in chosen:
        workload = architecture.workloads[choice.name]
        prefix = "" if len(chosen) == 1 else f"{choice.name}."
        where = f"workloads.{choice.name}"
        values: Any = {
            key: _read(architecture, workload, key, spec, origins, prefix + key, where)
            for key, spec in WORKLOAD.items()
            if key != "share"
        }
        origins[f"{prefix}share"] = Origin(SET, "percent", key=f"{where}.share")
        tenants.append(Tenant(name=choice.name, title=workload.title, kind=workload.kind, share=1.0, **values))
    title = architecture.sizing.unit.title
    inputs = Inputs(architecture.metadata.id, title, system, tuple(tenants), origins)
    overridden: set[str] = set()
    for override in overrides:
        name = override.partition("=")[0].strip()
        if name in overridden:
            raise SizingError(f"--set {name} is given twice")
        overridden.add(name)
        inputs = _overridden(inputs, override)
    return _shared_out(inputs, chosen)


def _only(architecture: Architecture) -> tuple[Choice, ...]:
    names = list(architecture.workloads)
    if len(names) == 1:
        return (Choice(names[0]),)
    known = f"several workloads, choose with --workload: {', '.join(names)}" if names else "no workloads block"
    raise SizingError(f"{architecture.metadata.id} has {known}")


def _read(
    architecture: Architecture,
    block: BaseModel,
    key: str,
    spec: Spec,
    origins: dict[str, Origin],
    name: str,
    where: str,
) -> float | None:
    """One input of the file; records its origin under ``name``."""
    value: Any = block
    written = True
    for part in key.split("."):
        written = written and part in value.model_fields_set
        value = getattr(value, part)
    place = f"{where}.{key}"
    if isinstance(value, Figure):
        source = architecture.metadata.sources.get(value.source)
        status = source.status if source else None
        origins[name] = Origin(value.source, value.unit, status, value.note, place)
        return None if value.value is None else convert(value.value, value.unit, spec.unit)
    origins[name] = Origin("file" if written else DEFAULT, spec.unit, key=place, absent=not written)
    return None if value is None else float(value)


def _below(fields: Mapping[str, Any], block: str) -> dict[str, Any]:
    return {key.removeprefix(f"{block}."): value for key, value in fields.items() if key.startswith(f"{block}.")}


def _overridden(inputs: Inputs, text: str) -> Inputs:
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals:
        raise SizingError(f"--set {text}: expected NAME=VALUE, as in nodes=9")
    spec = inputs.spec(name)
    if name.rpartition(".")[2] == "share" and name not in SYSTEM:
        raise SizingError(f"--set {text}: give the share with the workload: --workload NAME:SHARE%")
    number, unit = parse_quantity(name, value, spec)
    return inputs.replaced(name, number, Origin(SET, unit))


def _shared_out(inputs: Inputs, chosen: Sequence[Choice]) -> Inputs:
    """Every tenant's share of the nodes."""
    nodes = inputs.system.nodes
    shares_given = [c.share if c.share is not None else None if c.nodes is None else c.nodes / nodes for c in chosen]
    taken = sum(share for share in shares_given if share is not None)
    without_share = shares_given.count(None)
    if taken > 1 + 1e-9:
        raise SizingError(
            f"the workloads need {exact(taken * nodes)} nodes, the system has {exact(nodes)}; "
            f"reduce their parts, or --set nodes={math.ceil(taken * nodes - 1e-9)}"
        )
    if without_share and taken > 1 - 1e-9:
        raise SizingError("no nodes remain for the workloads without a part; reduce the others")
    shares = [(1 - taken) / without_share if share is None else share for share in shares_given]
    tenants = tuple(replace(t, share=share) for t, share in zip(inputs.tenants, shares, strict=True))
    return replace(inputs, tenants=tenants)


def _written(value: float, spec: Spec, shown: str) -> str:
    """The value in the unit of the file."""
    return words.in_unit(value, spec.unit, shown, exact=True) if math.isfinite(value) else exact(value)


def _check(name: str, value: float | None, spec: Spec, shown: str) -> None:
    if value is None:
        if spec.needed:
            raise SizingError(f"{name} cannot be unknown")
        return
    if value >= _WIDEST:
        raise SizingError(f"{name} is too large")
    if not value > 0:
        raise SizingError(f"{name}: expected more than 0, actual {_written(value, spec, shown)}")
    if spec.share and value > 1:
        raise SizingError(f"{name}: expected at most 1 (100 %), actual {exact(value)}")
    if spec.whole and value != int(value):
        raise SizingError(f"{name}: expected a whole number, actual {exact(value)}")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
