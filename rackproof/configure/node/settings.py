"""Settings that one question reads: swap, time zone, tuned, modules, huge pages, interrupts of network adapters."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rackproof.configure.files import REBOOT, pending_command, reboot_mark
from rackproof.configure.rollback.journal import INITRAMFS, Later, later, mark_lines, unit_line
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.plan import Change
from rackproof.errors import Refused
from rackproof.parse.meminfo import pages_of, pages_path
from rackproof.parse.sections import keyed_lines

BLACKLIST = "/etc/modprobe.d/rackproof-node.conf"
FORBIDDEN = "forbidden modules"
"""Reason of a plan that writes the list of forbidden modules and rebuilds the initial file systems."""
NOT_REBUILT = "# The initial file system is not rebuilt with this yet.\n"
MODULES_LOAD = "/etc/modules-load.d/rackproof-node.conf"
IRQ_SCRIPT = "/usr/local/sbin/rackproof-irq-affinity"
HUGE_REASON = "huge pages"

Record = Callable[..., None]
"""Adds one change to the plan: its description and its shell lines."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Desired settings; None and empty leave one alone."""

    swap_off: bool = False
    timezone: str | None = None
    tuned: str | None = None
    modules: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    hugepages: Mapping[int, int] = field(default_factory=dict)
    irq_affinity: bool = False


@dataclass(frozen=True, slots=True)
class SettingsState:
    swap: tuple[str, ...] = ()
    """Devices and files in use."""
    swap_masked: bool = False
    timezone: str = ""
    tuned: str = ""
    """The active profile, ``absent`` without tuned, empty when none is active."""
    loaded: frozenset[str] = frozenset()
    blacklist: str | None = None
    hugepages: Mapping[int, int] = field(default_factory=dict)
    irq_strays: tuple[str, ...] = ()
    """Interrupts of network adapters on processors of another NUMA node."""
    marks: frozenset[str] = frozenset()


def state_command(wanted: Settings) -> str:
    """Command that reads what is declared, and nothing else."""
    parts = ["export LC_ALL=C; "]
    if wanted.swap_off:
        parts.append(
            'while read -r name rest; do [ "$name" = Filename ] || echo "swap $name"; done </proc/swaps; '
            'echo "masked $(systemctl is-enabled swap.target 2>/dev/null)"; '
        )
    if wanted.timezone:
        parts.append('echo "timezone $(timedatectl show --property=Timezone --value 2>/dev/null)"; ')
    if wanted.tuned:
        parts.append(
            "if command -v tuned-adm >/dev/null; then "
            'echo "tuned $(cat /etc/tuned/active_profile 2>/dev/null)"; '
            'systemctl is-active --quiet tuned.service || echo "tuned "; else echo "tuned absent"; fi; '
        )
    if wanted.modules or wanted.forbidden:
        parts.append('while read -r name rest; do echo "module $name"; done </proc/modules; ')
        parts.append("sed -n 's/.*[/]\\(.*\\)[.]ko.*/module \\1/p' \"/lib/modules/$(uname -r)/modules.builtin\"; ")
    # Also when nothing is forbidden any more: the kit's own file is removed.
    parts.append(f"[ ! -e {BLACKLIST} ] || sed 's/^/blacklist /' {BLACKLIST}; ")
    for size in wanted.hugepages:
        path = pages_path(size)
        parts.append(f'[ ! -e {path} ] || echo "huge {path} $(cat {path})"; ')
    if wanted.irq_affinity:
        parts.append(f"[ ! -x {IRQ_SCRIPT} ] || {IRQ_SCRIPT} --check | sed 's/^/irq /'; ")
    parts.append(pending_command().replace("%s", "mark %s"))
    return "".join(parts)


def parse_state(lines: Sequence[str]) -> SettingsState:
    """Answer of ``state_command``. Raises ValueError on any other line."""
    keys = ("swap", "masked", "timezone", "tuned", "module", "blacklist", "huge", "irq", "mark")
    answers = keyed_lines("settings", lines, keys)
    return SettingsState(
        swap=tuple(answers.get("swap", ())),
        swap_masked=answers.get("masked", [""])[0] == "masked",
        timezone=answers.get("timezone", [""])[0],
        tuned=answers.get("tuned", [""])[-1].strip(),
        loaded=frozenset(name.replace("-", "_") for name in answers.get("module", ())),
        blacklist="".join(f"{line}\n" for line in answers["blacklist"]) if "blacklist" in answers else None,
        hugepages=pages_of(answers.get("huge", ())),
        irq_strays=tuple(answers.get("irq", ())),
        marks=frozenset(answers.get("mark", ())),
    )


TUNED = ("/etc/tuned/active_profile", "/etc/tuned/profile_mode")
"""Where tuned-adm writes down what was chosen."""


def module_reason(name: str) -> str:
    return f"module {name} is in use"


def plan(wanted: Settings, actual: SettingsState) -> ScriptPlan:
    """Differences. A rollback leaves the time zone. Raises Refused when a setting is impossible on this node."""
    lines: list[str] = []
    changes: list[Change] = []

    kept: list[str] = []
    unknown: list[Later] = []

    def do(
        what: str, *commands: str, reboot: str | None = None, keeps: Iterable[str] = (), later: Iterable[Later] = ()
    ) -> None:
        """``keeps``, ``later``: what a rollback restores of it."""
        changes.append(Change(what=what, reboot=reboot))
        lines.extend(commands)
        kept.extend(keeps)
        unknown.extend(later)

    if wanted.swap_off and (actual.swap or not actual.swap_masked):
        # fstab, partitions and zram all start swap through this target at boot.
        gone = "[ \"$(wc -l </proc/swaps)\" -le 1 ] || { echo 'swap is still in use after swapoff' >&2; exit 1; }"
        off = ("systemctl mask swap.target", "timeout 600 swapoff -a", gone)
        do("swap off", *off, keeps=[unit_line("swap.target")])
    if wanted.timezone and actual.timezone != wanted.timezone:
        do(f"time zone {wanted.timezone}", f"timedatectl set-timezone -- {shlex.quote(wanted.timezone)}")
    if wanted.tuned and actual.tuned != wanted.tuned:
        keeps = (*mark_lines(("restart:tuned.service",)), unit_line("tuned.service"))
        do(f"tuned profile {wanted.tuned}", *_tuned(wanted.tuned), keeps=keeps, later=map(later, TUNED))
    _modules(wanted, actual, do)
    for size, count in wanted.hugepages.items():
        _hugepages(size, count, actual, do)
    if wanted.irq_affinity and actual.irq_strays:
        do(f"{len(actual.irq_strays)} interrupts", IRQ_SCRIPT)
    return ScriptPlan(tuple(lines), tuple(changes), tuple(kept), tuple(unknown), head=("export LC_ALL=C",))


def _tuned(profile: str) -> list[str]:
    quoted = shlex.quote(profile)
    return [
        "command -v tuned-adm >/dev/null || { echo 'tuned is not installed: add it to the architecture' >&2; exit 1; }",
        "systemctl enable --now tuned.service >&2",
        f"timeout 300 tuned-adm profile {quoted} >&2",
        # tuned-adm succeeds with profiles that tuned then fails to load.
        f'actual=$(cat /etc/tuned/active_profile); [ "$actual" = {quoted} ]'
        f' || {{ echo tuned: expected {quoted}, actual "$actual" >&2; exit 1; }}',
    ]


def blacklist_text(forbidden: Sequence[str]) -> str:
    """``blacklist`` stops loading by device, ``install`` also loading by name and as a dependency."""
    body = "".join(f"blacklist {name}\ninstall {name} /bin/false\n" for name in forbidden)
    return f"# Managed by rackproof: modules that must not be loaded.\n{body}"


def _modules(wanted: Settings, actual: SettingsState, record: Record) -> None:
    text = blacklist_text(wanted.forbidden) if wanted.forbidden else None
    if actual.blacklist != text:
        # The file keeps an extra line until the initramfs images are rebuilt: a failed rebuild is run again.
        record(FORBIDDEN, *_blacklist(text), keeps=mark_lines((INITRAMFS,)), later=[later(BLACKLIST)])
    for name in wanted.forbidden:
        plain = name.replace("-", "_")
        if plain in actual.loaded and f"{REBOOT}{module_reason(name)}" not in actual.marks:
            # A module in use cannot be unloaded; the reboot removes it.
            record(
                f"module {name} out",
                f"timeout 60 modprobe -r -- {name} 2>/dev/null || {{ {reboot_mark(module_reason(name))}; }}",
                reboot=module_reason(name),
            )
    for name in wanted.modules:
        if name.replace("-", "_") not in actual.loaded:
            message = shlex.quote(f"module {name}: the running kernel {{}} does not have it")
            record(
                f"module {name} in",
                f'timeout 120 modprobe -- {name} || {{ echo {message} | sed "s/{{}}/$(uname -r)/" >&2; exit 1; }}',
            )


def _blacklist(text: str | None) -> list[str]:
    """The initial file systems have copies of this file and of the modules.

    Until they are rebuilt the file has one line more, so that a run that was cut off, or failed, is continued.
    """
    new = f"{BLACKLIST}.rackproof-new"

    def put(content: str) -> str:
        return f"printf %s {shlex.quote(content)} >{new}; mv -f {new} {BLACKLIST}"

    return [
        put(f"{text or ''}{NOT_REBUILT}"),
        "if command -v update-initramfs >/dev/null; then make='update-initramfs -u -k all';"
        " elif command -v dracut >/dev/null; then make='dracut --force --regenerate-all'; else make=true; fi",
        "timeout 900 $make >/run/rackproof-initramfs.log 2>&1 || {"
        " tail -n 3 /run/rackproof-initramfs.log >&2; exit 1; }",
        "rm -f /run/rackproof-initramfs.log",
        put(text) if text else f"rm -f {BLACKLIST}",
    ]


def _hugepages(size: int, count: int, state: SettingsState, record: Record) -> None:
    actual = state.hugepages.get(size)
    if actual is None:
        raise Refused(f"huge pages of {size} KiB: this kernel has no such size")
    if actual == count or f"{REBOOT}{HUGE_REASON}" in state.marks:
        return
    path = pages_path(size)
    # Fragmented memory yields fewer pages; early at boot there is enough.
    record(
        f"{count} huge pages of {size} KiB",
        f'echo {count} >{path}; read -r n <{path}; [ "$n" = {count} ] || {{ {reboot_mark(HUGE_REASON)}; }}',
        reboot=HUGE_REASON,
    )


def hugepages_at_boot(hugepages: Mapping[int, int]) -> dict[str, str]:
    """Files below /sys for pages that the command line does not reserve, with their values."""
    return {pages_path(size): str(count) for size, count in sorted(hugepages.items()) if size < 1 << 20}
