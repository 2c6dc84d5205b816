"""The locked kernel and the DKMS modules built for it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rackproof import shell
from rackproof.configure.files import PENDING, REBOOT, pending_command, reboot_mark
from rackproof.configure.rollback.journal import GRUB, Later, kernel_line, later, mark_lines
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.plan import Change
from rackproof.parse.dkms import Dkms, parse_dkms_status
from rackproof.parse.kernel import release_order
from rackproof.parse.sections import sections_of

GRUB_DROP_IN: Final = "/etc/default/grub.d/60-rackproof-kernel.cfg"
CHANGED: Final = "the default kernel has changed"
"""Reason for a reboot after a rollback."""


@dataclass(frozen=True, slots=True)
class KernelState:
    running: str
    installed: tuple[str, ...]
    """Releases with an image below /boot, oldest first."""
    default: str
    """Release that the boot loader starts next; empty when it starts the newest."""
    dkms: tuple[Dkms, ...]
    pending: frozenset[str]


def kernel_command(release: str) -> str:
    """Shell text that prints kernels, the default kernel, headers of ``release`` and DKMS modules."""
    headers = f"/lib/modules/{release}/build/Makefile"
    return f"{shell.script(__name__, 'kernels', headers=headers, grub_drop_in=GRUB_DROP_IN)}\n{pending_command()}"


def parse_kernel(lines: Sequence[str]) -> KernelState:
    """Answer of ``kernel_command``. Raises ValueError on anything else."""
    running, installed, default, _, dkms, pending = sections_of(lines, 6)
    if len(running) != 1 or not dkms:
        raise ValueError("no running kernel, or no status of DKMS")
    *built, status = dkms
    if status not in ("status 0", "status 127"):
        raise ValueError(f"dkms ended with {status}")
    return KernelState(
        running=running[0],
        installed=tuple(sorted(installed, key=release_order)),
        default="".join(default[:1]).removeprefix("/boot/vmlinuz-"),
        dkms=parse_dkms_status(built),
        pending=frozenset(pending),
    )


def reboot_reason(release: str) -> str:
    return f"kernel {release} is locked and another one runs"  # part of marks on nodes


def with_kernel(state: KernelState, release: str) -> KernelState:
    """The state with the image of a kernel whose packages are still to be installed."""
    if release in state.installed:
        return state
    return replace(state, installed=tuple(sorted((*state.installed, release), key=release_order)))


def plan_boot(release: str, state: KernelState, family: str) -> ScriptPlan:
    """Make the locked kernel the boot loader's default, and leave a reboot mark when another kernel runs."""
    lines: list[str] = []
    changes: list[Change] = []
    kept: tuple[str, ...] = ()
    grub: tuple[Later, ...] = ()
    newest = state.installed[-1] if state.installed else ""
    comes = state.default or newest
    if comes != release:
        lines += (
            _grubby(release)
            if family == "rhel"
            else [shell.script(__name__, "grub", release=release, drop_in=GRUB_DROP_IN)]
        )
        changes.append(Change(what=f"the default kernel is {comes or 'unknown'}"))
        kept = mark_lines((f"{REBOOT}{CHANGED}", *(() if family == "rhel" else (GRUB,))))
        if family == "rhel":
            kept += (kernel_line(f"/boot/vmlinuz-{release}"),)
        else:
            grub = (later(GRUB_DROP_IN),)
    mark = f"{REBOOT}{reboot_reason(release)}"
    if state.running != release and mark not in state.pending:
        lines.append(reboot_mark(reboot_reason(release)))
        changes.append(Change(what=f"{state.running} runs", reboot=reboot_reason(release)))
    elif state.running == release and mark in state.pending:
        lines.append(f"rm -f -- {shlex.quote(f'{PENDING}/{mark}')}")
        changes.append(Change(what="the kernel runs already"))
    if not lines:
        return ScriptPlan()
    image = shlex.quote(f"/boot/vmlinuz-{release}")
    there = f"[ -e {image} ] || {{ echo {image}: missing, although its package is installed >&2; exit 1; }}"
    return ScriptPlan(tuple(lines), tuple(changes), kept, grub, head=(there,))


def _grubby(release: str) -> list[str]:
    image = shlex.quote(f"/boot/vmlinuz-{release}")
    return [
        f"grubby --set-default {image} >/dev/null",
        f'[ "$(grubby --default-kernel)" = {image} ] || {{ echo "grubby did not make "{image}" the default" >&2;'
        " exit 1; }",
    ]


def unbuilt(modules: Sequence[str], release: str, state: KernelState) -> tuple[str, ...]:
    """Modules that are not installed for the kernel. Modules that are only "added" or "built" cannot be loaded."""
    good = {module.name for module in state.dkms if module.kernel == release and module.state == "installed"}
    return tuple(name for name in modules if name not in good)


def plan_dkms(modules: Sequence[str], release: str, state: KernelState, family: str) -> ScriptPlan:
    """Build missing modules for the locked kernel and check them, because package scripts hide failed builds."""
    missing = unbuilt(modules, release, state)
    if not missing:
        return ScriptPlan()
    package = f"kernel-devel-{release}" if family == "rhel" else f"linux-headers-{release}"
    script = shell.script(__name__, "dkms", kernel=release, package=package, modules=" ".join(missing))
    changes = tuple(Change(what=f"{name} is not installed for {release}") for name in missing)
    return ScriptPlan((script,), changes)
