"""Kernel arguments: declared ones, those of the running kernel, and those of the boot loader's entries.

Debian and Ubuntu: one drop-in of ``/etc/default/grub.d`` that filters and adds, then ``update-grub``. RHEL and its
rebuilds: ``grubby`` for all kernels, and a note of what was added, so that it can be removed again. Nothing is appended
to other tools' files, so no argument is written twice.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rackproof import shell
from rackproof.configure.files import PENDING, REBOOT, pending_command, reboot_mark
from rackproof.configure.rollback.journal import GRUB, file_line, grubby_line, mark_lines
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.machine import Machine
from rackproof.core.plan import Change
from rackproof.errors import DeclarationError, Refused
from rackproof.parse.kernel import REPEATED, arguments_in, in_force
from rackproof.parse.sections import keyed_lines

DROPIN = "/etc/default/grub.d/zz-rackproof.cfg"
"""Sorts last: what packages and clouds put there is read before."""
NOTE = "/etc/rackproof/kernel-arguments"
REASON = "kernel arguments"
MARK = f"{PENDING}/{REBOOT}{REASON}"
"""Lists removed arguments that are in force until the reboot."""
GPU_VENDOR = "10de"

_HUGE = ("hugepagesz", "hugepages")


@dataclass(frozen=True, slots=True)
class WantedArguments:
    """Arguments that the kernel is started with, and without. Ordered: hugepagesz and hugepages belong together."""

    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.required or self.forbidden)


def name_of(argument: str) -> str:
    """Name of an argument, as the kernel compares it: dashes are underscores."""
    return argument.partition("=")[0].replace("-", "_")


def _is(argument: str, pattern: str) -> bool:
    """Whether two arguments match: a name alone matches every value of it."""
    if name_of(argument) != name_of(pattern):
        return False
    return "=" not in pattern or argument.partition("=")[2] == pattern.partition("=")[2]


def missing(wanted: WantedArguments, arguments: Sequence[str]) -> tuple[str, ...]:
    """Arguments that a command line lacks or must not have, as texts."""
    problems = [
        argument for argument in wanted.required if name_of(argument) not in _HUGE and not in_force(argument, arguments)
    ]
    huge = tuple(argument for argument in wanted.required if name_of(argument) in _HUGE)
    if huge and tuple(argument for argument in arguments if name_of(argument) in _HUGE) != huge:
        problems.append(" ".join(huge))
    problems += [f"without {word}" for word in wanted.forbidden if any(_is(argument, word) for argument in arguments)]
    return tuple(problems)


def proposals(machine: Machine, chosen: Sequence[str]) -> tuple[str, ...]:
    """Proposed arguments for machines with NVIDIA GPUs, by platform; none for other machines."""
    if not machine.devices(GPU_VENDOR, "03"):
        return ()
    arm = machine.arch == "aarch64"
    known = {
        "iommu": "iommu.passthrough=1" if arm else "iommu=pt",
        "numa_balancing": "numa_balancing=disable",
        "init_on_alloc": "init_on_alloc=0",
        "acs_redirection": "pci=disable_acs_redir=pci:0:0",
    }
    return tuple(known[name] for name in chosen)


def hugepage_arguments(hugepages_kib: dict[int, int]) -> tuple[str, ...]:
    """Pages of a GiB and more have to be reserved at boot; smaller ones can be allocated later."""
    arguments: list[str] = []
    for size_kib, count in sorted(hugepages_kib.items()):
        if size_kib >= 1 << 20:
            arguments += [f"hugepagesz={size_kib >> 20}G", f"hugepages={count}"]
    return tuple(arguments)


def wanted(
    required: Sequence[str], forbidden: Sequence[str], proposed: Sequence[str], huge: Sequence[str] = ()
) -> WantedArguments:
    """Declared arguments, and proposals that contradict none of them.

    Raises DeclarationError when an argument is required and forbidden.
    """
    for argument in (*required, *huge):
        if clash := next((other for other in forbidden if _is(argument, other)), None):
            raise DeclarationError(f"kernel argument {argument} is required, and {clash} is forbidden")
    groups = {"iommu", "iommu.passthrough", "intel_iommu", "amd_iommu"}
    taken = {name_of(argument) for argument in (*required, *forbidden)}
    if taken & groups:  # an argument about the IOMMU replaces all proposals about it
        taken |= groups
    kept = [
        argument
        for argument in proposed
        if name_of(argument) not in (taken - REPEATED) and not any(_is(argument, other) for other in forbidden)
    ]
    return WantedArguments(tuple(dict.fromkeys((*required, *kept))) + tuple(huge), tuple(forbidden))


# State of the node


@dataclass(frozen=True, slots=True)
class BootLoader:
    """``tool``: grub, grubby, or empty where none is known. ``entries``: arguments of each kernel it can start."""

    tool: str
    running: tuple[str, ...]
    entries: tuple[tuple[str, ...], ...] = ()
    dropin: str | None = None
    note: tuple[str, ...] = ()
    marked: bool = False
    gone: tuple[str, ...] = ()
    """Removed from the entries since the last boot."""


def state_command() -> str:
    """Command that reads the command line, the boot loader, its entries, and the kit's own files."""
    state = shell.script(__name__, "cmdline_state", dropin=DROPIN, note=NOTE, mark=MARK)
    return f"{state}\n{pending_command().replace('%s', 'mark %s')}"


def parse_state(lines: Sequence[str]) -> BootLoader:
    """Answer of ``state_command``. Raises ValueError on any other line."""
    answers = keyed_lines("boot loader", lines, ("running", "tool", "entry", "dropin", "note", "gone", "mark"))
    if len(answers.get("running", ())) != 1:
        raise ValueError("no command line of the running kernel")
    # GRUB removes quotes of both kinds. The recovery entry starts a single-user shell: no choice for the next boot.
    entries = [arguments_in(value.replace("'", "")) for value in answers.get("entry", ())]
    return BootLoader(
        tool=answers.get("tool", [""])[0],
        running=arguments_in(answers["running"][0]),
        entries=tuple(entry for entry in entries if not {"single", "recovery"} & set(entry)),
        dropin="".join(f"{line}\n" for line in answers["dropin"]) if "dropin" in answers else None,
        note=tuple(word for line in answers.get("note", ()) for word in line.split()),
        marked=f"{REBOOT}{REASON}" in answers.get("mark", ()),
        gone=tuple(word for line in answers.get("gone", ()) for word in line.split()),
    )


# Plan


def dropin_text(want: WantedArguments) -> str:
    """Shell text that grub-mkconfig reads: removes own and forbidden arguments, then appends required ones."""
    patterns = [*want.forbidden, *_replaced(want.required)]
    cases = "|".join(
        f"{shlex.quote(name)}|{shlex.quote(name)}=*" if "=" not in pattern else shlex.quote(pattern)
        for pattern in patterns
        for name in _spellings(pattern)
    )
    filtered = (
        [
            "rackproof_without() {",
            "    for word in $1; do",
            f"        case $word in {cases}) ;; *) printf '%s ' \"$word\" ;; esac",
            "    done",
            "}",
            'GRUB_CMDLINE_LINUX=$(rackproof_without "${GRUB_CMDLINE_LINUX:-}")',
            'GRUB_CMDLINE_LINUX_DEFAULT=$(rackproof_without "${GRUB_CMDLINE_LINUX_DEFAULT:-}")',
        ]
        if cases
        else []
    )
    # Appended, because of a repeated name the kernel takes the last value.
    added = (
        [f'GRUB_CMDLINE_LINUX_DEFAULT="${{GRUB_CMDLINE_LINUX_DEFAULT:-}} "{shlex.quote(" ".join(want.required))}']
        if want.required
        else []
    )
    return "\n".join(["# Managed by rackproof: arguments of the kernel.", *filtered, *added]) + "\n"


def _spellings(argument: str) -> tuple[str, ...]:
    name = argument.partition("=")[0]
    return tuple(dict.fromkeys((name, name.replace("-", "_"), name.replace("_", "-"))))


def _replaced(required: Sequence[str]) -> tuple[str, ...]:
    """Patterns to filter out before ``required`` is appended: names, or whole arguments of names that may repeat."""
    names = [
        argument if name_of(argument) in REPEATED and name_of(argument) not in _HUGE else argument.partition("=")[0]
        for argument in required
    ]
    return tuple(dict.fromkeys(names))


def plan(want: WantedArguments, loader: BootLoader) -> ScriptPlan:
    """Differences, for the next boot and for the running kernel.

    Raises Refused when a change is needed and the boot loader is unknown.
    """
    now = missing(want, loader.running)
    menu = tuple(dict.fromkeys(argument for entry in loader.entries for argument in missing(want, entry)))
    owned = _owned(want, loader)
    if not loader.tool:
        if now:
            raise Refused(
                f"kernel arguments: expected {', '.join(now)}; no grubby and no update-grub here to set them with."
                " Set them in this machine's boot loader by hand and reboot"
            )
        return ScriptPlan()
    lines: list[str] = []
    if owned or menu or (want and not loader.entries):
        lines += _grub(want) if loader.tool == "grub" else _grubby(want, loader)
    stale = _stale(want, loader)
    lasting = {*loader.gone} & {*loader.running} - {*want.required}
    if (now or stale) and not loader.marked:
        lines.append(reboot_mark(REASON))
    elif loader.marked and not now and not stale and not lasting:
        lines.append(f"rm -f -- {shlex.quote(MARK)}")
    if stale:
        lines.append(f"printf '%s\\n' {shlex.join(stale)} >>{shlex.quote(MARK)}")
    if not lines:
        return ScriptPlan()
    reboot = REASON if now or stale else None
    changes = tuple(Change(what=reason, reboot=reboot) for reason in (*menu, *owned))
    kept = _kept(want, loader) if changes else ()
    if reboot and not changes:
        changes = (Change(what="the running kernel has other arguments", reboot=reboot),)
    return ScriptPlan(tuple(lines), changes, kept, head=("export LC_ALL=C",))


def _kept(want: WantedArguments, loader: BootLoader) -> tuple[str, ...]:
    """State that a rollback restores: the kit's own file; without one (grubby) the arguments."""
    marks = mark_lines((f"{REBOOT}{REASON}", *((GRUB,) if loader.tool == "grub" else ())))
    if loader.tool == "grub":
        text = dropin_text(want) if want else None
        return (*marks, file_line(DROPIN, text and hashlib.sha256(text.encode()).hexdigest()))
    note = " ".join(want.required) + "\n"
    return (*marks, grubby_line(), file_line(NOTE, hashlib.sha256(note.encode()).hexdigest()))


def _owned(want: WantedArguments, loader: BootLoader) -> tuple[str, ...]:
    """Whether the kit's own file differs from what it would write now."""
    if loader.tool == "grub":
        expected = dropin_text(want) if want else None
        return () if loader.dropin == expected else (DROPIN,)
    return () if loader.note == want.required else (NOTE,)


def _stale(want: WantedArguments, loader: BootLoader) -> tuple[str, ...]:
    """Arguments of an earlier deploy that are no longer declared and are still in force."""
    if loader.tool == "grubby":
        gone = [argument for argument in loader.note if argument not in want.required]
    else:
        line = next((x for x in (loader.dropin or "").splitlines() if x.startswith('GRUB_CMDLINE_LINUX_DEFAULT="')), "")
        words = shlex.split(line.partition('DEFAULT:-} "')[2]) if line else []
        gone = [argument for word in words for argument in word.split() if argument not in want.required]
    return tuple(argument for argument in gone if argument in loader.running)


def _grub(want: WantedArguments) -> list[str]:
    """The file is replaced atomically; when update-grub fails, it gets its old content back.

    update-grub replaces the menu, or leaves it.
    """
    old, new, log = "/run/rackproof-grub.old", f"{DROPIN}.rackproof-new", "/run/rackproof-grub.log"
    lines = [
        f"mkdir -p {DROPIN.rpartition('/')[0]} /boot/grub; rm -f {old}; [ ! -e {DROPIN} ] || cp -p {DROPIN} {old}",
        f"back() {{ if [ -e {old} ]; then mv -f {old} {DROPIN}; else rm -f {DROPIN}; fi; }}",
    ]
    if want:
        lines.append(f"printf %s {shlex.quote(dropin_text(want))} >{new}; chmod 644 {new}; mv -f {new} {DROPIN}")
    else:
        lines.append(f"rm -f {DROPIN}")
    lines.append(f"timeout 600 update-grub >{log} 2>&1 || {{ tail -n 3 {log} >&2; back; exit 1; }}")
    lines.append(f"rm -f {old} {log}")
    for argument in want.required:
        failed = shell.or_fail(f"update-grub ended well and no entry of /boot/grub/grub.cfg has {argument}")
        lines.append(f"grep -qF -- {shlex.quote(argument)} /boot/grub/grub.cfg {failed}")
    return lines


def _grubby(want: WantedArguments, loader: BootLoader) -> list[str]:
    """All kernels, and what new ones inherit. Arguments of an earlier deploy are removed first."""
    gone = [argument for argument in loader.note if argument not in want.required]
    out = tuple(dict.fromkeys((*gone, *want.forbidden, *(x for x in _replaced(want.required) if "=" not in x))))
    command = "grubby --update-kernel=ALL"
    lines = []
    if out:
        lines.append(f"{command} --remove-args={shlex.quote(' '.join(out))}")
    if want.required:
        lines.append(f"{command} --args={shlex.quote(' '.join(want.required))}")
    folder = NOTE.rpartition("/")[0]
    note = shlex.quote(" ".join(want.required))
    lines.append(f"mkdir -p {folder} && printf '%s\\n' {note} >{NOTE}.new && mv -f {NOTE}.new {NOTE}")
    for argument in want.required:
        failed = shell.or_fail(f"grubby ended well and the default kernel would start without {argument}")
        lines.append(f"grubby --info=DEFAULT | grep -qF -- {shlex.quote(argument)} {failed}")
    return lines
