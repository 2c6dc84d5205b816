"""Firmware of a version set: which entry applies to an adapter, and whether the adapter runs it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackproof.configure.files import REBOOT
from rackproof.configure.nic.devices import KINDS, Adapter
from rackproof.configure.nic.firmware import (
    AdapterState,
    FirmwareState,
    SharedAdapter,
    WantedFirmware,
    good_version,
    stricter,
)
from rackproof.configure.nic.inputs import Image
from rackproof.core.versions.models import Firmware

REASON = "NIC firmware of "
"""Beginning, after ``reboot:``, of marks for adapters whose flash has the version."""


@dataclass(frozen=True, slots=True)
class Locked:
    """Locked firmware of one node's adapters."""

    entries: tuple[Firmware, ...] = ()
    images: Mapping[str, Image] = field(default_factory=dict)
    """By PSID: may be written. The inventory's image takes precedence over the set's version."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kinds of the inventory's own adapters, by PCI ids."""
    proxy: str | None = None

    def __bool__(self) -> bool:
        return bool(self.entries)


def _plain(kind: str) -> str:
    return re.sub(r"[ _-]", "", kind).lower()


def unknown_models(locked: Locked) -> tuple[str, ...]:
    """Models without any adapter of that name: their entries would never be compared."""
    known = {_plain(kind) for kind in (*KINDS.values(), *locked.kinds.values())}
    return tuple(entry.model for entry in locked.entries if entry.model and _plain(entry.model) not in known)


def known_models() -> str:
    return ", ".join(KINDS.values())


def devices_of(adapters: Iterable[Adapter]) -> dict[str, Adapter]:
    """The first function of every adapter, by its address without the function."""
    first: dict[str, Adapter] = {}
    for adapter in adapters:
        first.setdefault(adapter.slot.rpartition(".")[0], adapter)
    return first


def may_be_meant(kind: str, locked: Locked) -> bool:
    """Whether an adapter's firmware has to be queried: only the firmware knows its PSID."""
    return any(entry.psid is not None or _plain(entry.model or "") == _plain(kind) for entry in locked.entries)


def locked_version(psid: str | None, kind: str, locked: Locked) -> str | None:
    """The entry for its PSID, else for its model; None where the set has neither."""
    of_psid = (entry for entry in locked.entries if psid is not None and entry.psid == psid)
    of_model = (entry for entry in locked.entries if entry.model and _plain(entry.model) == _plain(kind))
    entry = next(of_psid, None) or next(of_model, None)
    if entry is None:
        return None
    image = locked.images.get(psid or "")
    return image.version if image else entry.version


def asked(chosen: Sequence[WantedFirmware], adapters: Iterable[Adapter], locked: Locked) -> list[WantedFirmware]:
    """Declared adapters, and all others that the set may apply to."""
    declared = {adapter.slot.rpartition(".")[0] for adapter in chosen}
    further = (
        WantedFirmware(adapter.slot, f"{adapter.kind} {adapter.slot}")
        for device, adapter in devices_of(adapters).items()
        if device not in declared and may_be_meant(adapter.kind, locked)
    )
    return [*chosen, *further]


def with_locked(
    wanted: Sequence[WantedFirmware], state: FirmwareState, adapters: Iterable[Adapter], locked: Locked
) -> list[WantedFirmware]:
    """The declarations with the set's version where an image brings it, or the flash has it and waits for a reset.

    Adapters that have neither are reported by ``compare``, at the end. Raises SharedAdapter.
    """
    kinds = {device: adapter.kind for device, adapter in devices_of(adapters).items()}
    return [
        _one(adapter, state.adapters.get(adapter.slot), kinds.get(adapter.slot.rpartition(".")[0], ""), locked)
        for adapter in wanted
    ]


def _one(wanted: WantedFirmware, adapter: AdapterState | None, kind: str, locked: Locked) -> WantedFirmware:
    psid = adapter.psid if adapter else None
    version = locked_version(psid, kind, locked)
    if version is None:
        return wanted
    both = stricter(version, wanted.version)
    if both is None:
        raise SharedAdapter(
            f"{wanted.name} ({wanted.slot}): firmware: the version set says {version}, the architecture"
            f" {wanted.version}: correct one"
        )
    if (psid in locked.images) or (adapter and good_version(adapter.stored, version)):
        return replace(wanted, version=both)
    return wanted


@dataclass(frozen=True, slots=True)
class Compared:
    """Adapters of one node, a line each."""

    right: tuple[str, ...]
    waiting: tuple[str, ...]
    """The flash has it, and a reboot that resets the adapter is marked."""
    wrong: tuple[str, ...]


def compare(adapters: Sequence[Adapter], state: FirmwareState, locked: Locked) -> Compared:
    """Running firmware compared with the locked one. An adapter that does not report its firmware is wrong."""
    right, waiting, wrong = [], [], []
    for adapter in devices_of(adapters).values():
        if not may_be_meant(adapter.kind, locked):
            continue
        who = f"{adapter.kind} at {adapter.slot}"
        actual = state.adapters.get(adapter.slot)
        if actual is None or actual.running is None or actual.psid is None:
            answer = (actual.output if actual else "") or "nothing"
            wrong.append(
                f"{who}: firmware: no tool reads the installed version ({answer}); install mft (flint) or mstflint"
            )
            continue
        expected = locked_version(actual.psid, adapter.kind, locked)
        if expected is None:
            continue
        line = f"{who} ({actual.psid}): firmware: expected {expected}, actual {actual.running}"
        if good_version(actual.running, expected):
            right.append(line)
        elif not good_version(actual.stored, expected):
            cure = f"write it with flint -d {adapter.slot} -i FILE burn, or give the set's entry a psid and a file"
            wrong.append(f"{line}; {cure}")
        elif any(mark.startswith(f"{REBOOT}{REASON}") for mark in state.pending):
            waiting.append(line)
        else:
            wrong.append(f"{line}, {actual.stored} in its flash; reboot, or mlxfwreset -d {adapter.slot} -y reset")
    return Compared(tuple(right), tuple(waiting), tuple(wrong))
