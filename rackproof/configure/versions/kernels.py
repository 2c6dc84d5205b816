"""The locked kernel and the DKMS modules built for it."""

from __future__ import annotations

import re
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
        installed=tuple(installed),
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
    return replace(state, installed=tuple(sorted((*state.installed, release), key=_by_number)))


def _by_number(release: str) -> tuple[tuple[bool, int, str], ...]:
    """Orders releases as ``sort -V`` does."""
    parts = re.findall(r"\d+|\D+", release)
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)


def plan_boot(release: str, state: KernelState, family: str) -> ScriptPlan:
    """Make the locked kernel the boot loader's default, and leave a reboot mark when another kernel runs."""
    lines: list[str] = []
    changes: list[Change] = []
    kept: tuple[str, ...] = ()
    grub: tuple[Later, ...] = ()
    newest = state.installed[-1] if state.installed else ""
    comes = state.default or newest
    if comes != release:
        lines += _grubby(release) if family == "rhel" else _grub(release)
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


def _grub(release: str) -> list[str]:
    """Debian's GRUB starts the newest kernel by default; an older one must be named, with its submenu."""
    entry = shlex.quote(f"gnulinux-{release}-advanced-[^']*")
    sentence = f"GRUB has no entry of kernel {release}; run update-grub and look at /boot/grub/grub.cfg"
    return [
        "command -v update-grub >/dev/null || { echo 'update-grub is not installed, so the default kernel cannot be"
        " set; set it in the boot loader' >&2; exit 1; }",
        "update-grub >/dev/null 2>&1 || { echo 'update-grub fails' >&2; exit 1; }",
        f"e=$(grep -o -- {entry} /boot/grub/grub.cfg | head -n 1)",
        'm=$(grep -o -- "gnulinux-advanced-[^\']*" /boot/grub/grub.cfg | head -n 1)',
        f'[ -n "$e" ] && [ -n "$m" ] || {{ echo {shlex.quote(sentence)} >&2; exit 1; }}',
        f"mkdir -p -- {GRUB_DROP_IN.rpartition('/')[0]}",
        f"printf '# Written by rackproof: the kernel of the version set.\\n# kernel %s\\nGRUB_DEFAULT=\"%s>%s\"\\n'"
        f' {shlex.quote(release)} "$m" "$e" >{GRUB_DROP_IN}.rackproof-new',
        f"mv -fT -- {GRUB_DROP_IN}.rackproof-new {GRUB_DROP_IN}",
        "update-grub >/dev/null 2>&1 || { echo 'update-grub fails' >&2; exit 1; }",
        f'grep -qF -- "$e" /boot/grub/grub.cfg || {{ echo {shlex.quote(sentence)} >&2; exit 1; }}',
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
    kernel = shlex.quote(release)
    package = f"kernel-devel-{release}" if family == "rhel" else f"linux-headers-{release}"
    head = (
        "export LC_ALL=C",
        f"[ -e /lib/modules/{kernel}/build/Makefile ] || {{ echo 'headers of kernel '{kernel}' are missing, so no"
        f" module can be built for it; add '{shlex.quote(package)}' to the kernel of the version set' >&2; exit 1; }}",
        "command -v dkms >/dev/null || { echo 'dkms is not installed; the packages of the set should bring it' >&2;"
        " exit 1; }",
    )
    lines: list[str] = []
    for name in missing:
        module = shlex.quote(name)
        log = f"/var/lib/dkms/{name}/VERSION/build/make.log"
        lines += [
            f"v=$(dkms status -m {module} | sed -nE 's|^[^/,]+[/,] ?([^,:]+).*|\\1|p' | sort -V | tail -n 1)",
            f'[ -n "$v" ] || {{ echo {module}": dkms does not know it; is its package in the version set?" >&2;'
            " exit 1; }",
            f'dkms install -m {module} -v "$v" -k {kernel} >&2 || {{'
            f' echo {module}" $v does not build for kernel "{kernel}"; see $(echo {shlex.quote(log)}'
            ' | sed "s|VERSION|$v|"); lock a version that supports the kernel" >&2; exit 1; }',
            f'dkms status -m {module} -v "$v" -k {kernel} | grep -q ": installed" ||'
            f' {{ echo {module}" $v: built and not installed for kernel "{kernel} >&2; exit 1; }}',
        ]
    changes = tuple(Change(what=f"{name} is not installed for {release}") for name in missing)
    return ScriptPlan(tuple(lines), changes, head=head)
