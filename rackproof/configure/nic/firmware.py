"""Firmware of adapters: its version, and its settings in force and at the next boot."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rackproof import shell
from rackproof.configure.files import REBOOT, pending_command, reboot_mark
from rackproof.configure.nic.inputs import Image
from rackproof.configure.package_transaction.transaction import fetch_function, through_proxy
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.plan import Change
from rackproof.errors import Refused
from rackproof.parse import ParseError
from rackproof.parse.flint import parse_flint_query
from rackproof.parse.mlxconfig import Setting, parse_mlxconfig, same_value
from rackproof.parse.pci_links import SLOT
from rackproof.parse.sections import blocks_of, sections_of
from rackproof.parse.text import text_from, version_numbers
from rackproof.shell import or_fail

MEMORY: Final = "/var/lib/rackproof/nic"
"""One file an adapter, with the boot in which its settings were written: tells a reboot that had no effect."""
IMAGE_TIMEOUT_S: Final = 300


class FirmwareProblem(Refused):
    """An adapter's firmware cannot be brought to what is declared; one line with the reason."""


class SharedAdapter(FirmwareProblem):
    """Two declarations of one adapter's firmware that contradict each other."""


@dataclass(frozen=True, slots=True)
class WantedFirmware:
    """Declared firmware of one adapter."""

    slot: str
    name: str
    """Name in messages: ``mlx5_0``, ``rail0``."""
    version: str | None = None
    """Exact version, or the oldest allowed one as ``>=28.39.1002``."""
    settings: Mapping[str, str] | None = None


def merged(one: WantedFirmware, other: WantedFirmware) -> WantedFirmware:
    """Both declarations of one adapter, perhaps of two of its ports, as one. Raises SharedAdapter."""
    both = f"{one.name} ({one.slot}) and {other.name} ({other.slot}) share one adapter"
    version = stricter(one.version, other.version)
    if version is None and one.version is not None:
        raise SharedAdapter(f"{both}: firmware {one.version} is declared for the first, {other.version} for the second")
    settings = dict(one.settings or {})
    for name, value in (other.settings or {}).items():
        first = settings.setdefault(name, value)
        if not (same_value(first, value) or same_value(value, first)):
            raise SharedAdapter(
                f"{both}: firmware_settings {name} is {first} for the first, {value} for the second; say one value"
            )
    return replace(one, version=version, settings=settings or None)


def stricter(first: str | None, other: str | None) -> str | None:
    """The version that satisfies both; None where no version does, or neither has one."""
    if first is None or other is None:
        return first or other
    for this, that in ((first, other), (other, first)):
        actual = this.removeprefix(">=").strip()
        if good_version(actual, that) and (not this.startswith(">=") or that.startswith(">=")):
            return this
    return None


@dataclass(frozen=True, slots=True)
class AdapterState:
    slot: str
    running: str | None = None
    """Version of the running firmware; None where no tool reports it."""
    stored: str | None = None
    """Version in the flash, which runs after the next reset."""
    psid: str | None = None
    values: Mapping[str, Setting] | None = None
    """None where mlxconfig does not report them."""
    output: str = ""
    """Output of the tools that could not be read."""
    written_in: str | None = None
    """Boot in which the kit wrote the settings."""


@dataclass(frozen=True, slots=True)
class FirmwareState:
    boot: str
    pending: frozenset[str]
    adapters: Mapping[str, AdapterState]


def state_command(wanted: Sequence[WantedFirmware]) -> str:
    """Command that queries every adapter."""
    adapters = (shlex.join(["adapter", adapter.slot, *(adapter.settings or ())]) for adapter in wanted)
    functions = shell.script(__name__, "firmware_state", memory=MEMORY)
    return "\n".join((functions, f"{pending_command()}echo --", *adapters))


def parse_state(lines: Sequence[str]) -> FirmwareState:
    """Answer of ``state_command``; what a tool did not report is None. Raises ValueError on anything else."""
    (boot,), pending, *sections, end = sections_of(lines)
    adapters: dict[str, AdapterState] = {}
    for section in sections:
        blocks = blocks_of("firmware", "(adapter .+|--flint|--settings)", section)
        first, *others = (head for head, _ in blocks)
        slot = first.removeprefix("adapter ")
        if end or others != ["--flint", "--settings"] or not SLOT.fullmatch(slot) or slot in adapters:
            raise ValueError(f"not the answer of an adapter: {section[:1]!r}")
        adapters[slot] = _adapter(slot, *(body for _, body in blocks))
    return FirmwareState(boot, frozenset(pending), adapters)


def _adapter(slot: str, memory: Sequence[str], flint: Sequence[str], settings: Sequence[str]) -> AdapterState:
    try:
        firmware = parse_flint_query(text_from(flint))
    except ParseError:
        firmware = None
    values: dict[str, Setting] | None = None
    answer = ""
    if settings:
        try:
            values = parse_mlxconfig("\n".join(settings) + "\n").settings
        except ParseError:
            answer = " ".join(settings)[:200]
    if firmware is None and flint:
        answer = answer or " ".join(flint)[:200]
    return AdapterState(
        slot=slot,
        running=firmware.running if firmware else None,
        stored=firmware.stored if firmware else None,
        psid=firmware.psid if firmware else None,
        values=values,
        output=answer,
        written_in=memory[0].strip() if memory else None,
    )


def good_version(actual: str | None, wanted: str) -> bool:
    """Whether ``28.43.2566`` satisfies itself or ``>=28.39.1002``."""
    if actual is None:
        return False
    if not wanted.startswith(">="):
        return actual == wanted.strip()
    try:
        return version_numbers("firmware", actual) >= version_numbers("firmware", wanted[2:].strip())
    except ValueError:
        return False


def plan_firmware(
    wanted: Sequence[WantedFirmware], state: FirmwareState, images: Mapping[str, Image], proxy: str | None = None
) -> ScriptPlan:
    """Firmware and settings to write, and pending reboots.

    ``proxy``: for downloads of images. Raises FirmwareProblem, one line that names every adapter that cannot be brought
    to its declaration.
    """
    lines: list[str] = []
    changes: list[Change] = []
    problems: list[str] = []
    for declared in wanted:
        adapter = state.adapters.get(declared.slot)
        if adapter is None:
            problems.append(f"{declared.name} ({declared.slot}): no answer about its firmware")
            continue
        try:
            for plan in (
                _version_plan(declared, adapter, state, images, proxy),
                _settings_plan(declared, adapter, state),
            ):
                lines += plan.lines
                changes += plan.changes
        except FirmwareProblem as error:
            problems.append(str(error))
    if problems:
        raise FirmwareProblem("; ".join(problems))
    return ScriptPlan(tuple(lines), tuple(changes), head=(fetch_function(),))


def _version_plan(
    wanted: WantedFirmware, adapter: AdapterState, state: FirmwareState, images: Mapping[str, Image], proxy: str | None
) -> ScriptPlan:
    if wanted.version is None or good_version(adapter.running, wanted.version):
        return ScriptPlan()
    who = f"{wanted.name} ({wanted.slot})"
    if adapter.running is None:
        raise FirmwareProblem(
            f"{who}: firmware {wanted.version} is declared and no tool reads the installed version"
            f" ({adapter.output or 'nothing'}); install mft (flint) or mstflint"
        )
    reason = f"NIC firmware of {wanted.name}"
    if good_version(adapter.stored, wanted.version):
        if f"{REBOOT}{reason}" in state.pending:
            return ScriptPlan()
        change = Change(what=who, why=f"{adapter.stored} runs after a reset", reboot=reason)
        return ScriptPlan((reboot_mark(reason),), (change,))
    image = images.get(adapter.psid or "")
    if image is None:
        raise FirmwareProblem(
            f"{who}: firmware: expected {wanted.version}, actual {adapter.running} (PSID {adapter.psid}); write it with"
            f" flint -d {wanted.slot} -i FILE burn, or declare nic: {{firmware_images: {{{adapter.psid}:"
            " {version, url, sha256}}} and the deploy does"
        )
    if not good_version(image.version, wanted.version):
        raise FirmwareProblem(
            f"{who}: firmware: the architecture says {wanted.version}, the image for {adapter.psid} is {image.version}"
        )
    change = Change(what=who, why=f"firmware {adapter.running} becomes {image.version}", reboot=reason)
    return ScriptPlan((_burn(wanted, image, reason, proxy),), (change,))


def _burn(wanted: WantedFirmware, image: Image, reason: str, proxy: str | None) -> str:
    """Download the image to a temporary file, verify it, write it, and read the flash back."""
    slot, name = shlex.quote(wanted.slot), wanted.name
    words = shlex.join((image.url, image.sha256))
    other = shlex.quote(f"nothing was written to {name}")
    failed = or_fail(f"{name}: the flash does not have {image.version} after flint burned it")
    burned = f"^FW Version:[[:space:]]+{re.escape(image.version)}[[:space:]]*$"
    return "\n".join(
        (
            *((through_proxy(proxy),) if proxy else ()),
            "flint=$(command -v flint || command -v mstflint)",
            "f=$(mktemp /var/tmp/rackproof-firmware.XXXXXX)",
            "trap 'rm -f \"$f\"' EXIT",
            f'rp_fetch {words} "$f" {IMAGE_TIMEOUT_S} "" {other}',
            f'timeout 600 "$flint" -d {slot} -i "$f" -y burn',
            f'timeout 60 "$flint" -d {slot} q | grep -Eq {shlex.quote(burned)} {failed}',
            'rm -f -- "$f"',  # the next adapter's image reuses the name
            reboot_mark(reason),
        )
    )


def _settings_plan(wanted: WantedFirmware, adapter: AdapterState, state: FirmwareState) -> ScriptPlan:
    if not wanted.settings:
        return ScriptPlan()
    who = f"{wanted.name} ({wanted.slot})"
    if adapter.values is None:
        raise FirmwareProblem(
            f"{who}: firmware settings are declared and mlxconfig does not list them ({adapter.output or 'nothing'});"
            " install mft (mlxconfig) or mstflint (mstconfig)"
        )
    unknown = [name for name in wanted.settings if name not in adapter.values]
    if unknown:
        raise FirmwareProblem(
            f"{who}: its firmware has no setting {', '.join(unknown)}; take it out of the architecture, or update it"
        )
    reason = f"NIC firmware settings of {wanted.name}"
    changes = {
        name: value for name, value in wanted.settings.items() if not same_value(adapter.values[name].next_boot, value)
    }
    waiting = [
        f"{name} is {read.current}, declared {value}"
        for name, value in wanted.settings.items()
        if (read := adapter.values[name]).current is not None and not same_value(read.current, value)
    ]
    memory = shlex.quote(f"{MEMORY}/{wanted.slot}")
    remember = f"mkdir -p {MEMORY} && cat /proc/sys/kernel/random/boot_id >{memory}"
    if changes:
        arguments = " ".join(shlex.quote(f"{name}={value}") for name, value in changes.items())
        lines = (
            "config=$(command -v mlxconfig || command -v mstconfig)",
            f'timeout 120 "$config" -d {shlex.quote(wanted.slot)} -y set {arguments}',
            remember,
            reboot_mark(reason),
        )
        shown = ", ".join(f"{name} {adapter.values[name].next_boot} becomes {value}" for name, value in changes.items())
        return ScriptPlan(lines, (Change(what=who, why=f"at the next boot {shown}", reboot=reason),))
    if not waiting:
        return ScriptPlan()
    if adapter.written_in is not None and adapter.written_in != state.boot:
        raise FirmwareProblem(
            f"{who}: {'; '.join(waiting)}, although it was written before this boot: a warm reboot does not always"
            f" apply it; run mlxfwreset -d {wanted.slot} -y reset, or switch the node off and on"
        )
    if f"{REBOOT}{reason}" in state.pending:
        return ScriptPlan()
    change = Change(what=who, why="; ".join(waiting), reboot=reason)
    return ScriptPlan((*(() if adapter.written_in else (remember,)), reboot_mark(reason)), (change,))


def not_taken(wanted: Sequence[WantedFirmware], state: FirmwareState | None) -> list[str]:
    """Settings that were just written and that the next boot does not have."""
    if state is None:
        return ["firmware settings could not be read back"]
    return [
        f"{adapter.name} ({adapter.slot}): {name}: expected {value} at the next boot, actual {next_value}"
        for adapter in wanted
        for name, value in (adapter.settings or {}).items()
        if not same_value(next_value := _next(state, adapter.slot, name), value)
    ]


def _next(state: FirmwareState, slot: str, name: str) -> str:
    adapter = state.adapters.get(slot)
    value = (adapter.values or {}).get(name) if adapter else None
    return value.next_boot if value else "nothing"
