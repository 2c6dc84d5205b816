"""Reasons for a reboot: changes of the kit, the distribution's, and another kernel than the declared one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pyinfra.context import host

from rackproof import shell
from rackproof.configure.facts import Marks
from rackproof.configure.files import REBOOT, pending_command
from rackproof.core.evidence import REBOOT_REQUIRED
from rackproof.core.wording import some
from rackproof.parse.kernel import release_order
from rackproof.parse.sections import keyed_lines

REQUIRED = REBOOT_REQUIRED
SHOWN_PACKAGES = 6
UNKNOWN = "needs-restarting gives no answer within 120 s, so it is unknown whether a reboot is needed; run it by hand"
KEYS = ("boot", "kernel", "installed", "mark", "required", "package", "current", "replaced", "unknown")


@dataclass(frozen=True, slots=True)
class RebootState:
    boot_id: str
    """Differs after every boot."""
    kernel: str
    installed: tuple[str, ...] = ()
    """Releases of installed kernels."""
    marks: tuple[str, ...] = ()
    """Reasons in the kit's reboot marks."""
    required: bool = False
    """/run/reboot-required exists."""
    packages: tuple[str, ...] = ()
    """Packages that requested it."""
    replaced: tuple[str, ...] | None = None
    """Packages that needs-restarting lists; None without the program or its answer."""
    unknown: bool = False
    """needs-restarting gave no answer."""


def nothing_waits_for_a_reboot() -> bool:
    """Whether the node has no reboot mark of the kit. Evaluated during the run."""
    return not any(mark.startswith(REBOOT) for mark in host.get_fact(Marks) or ())


def state_command() -> str:
    return f"{shell.script(__name__, 'reasons')}\n{pending_command().replace('%s', 'mark %s')}"


def parse_state(lines: Sequence[str]) -> RebootState:
    """Answer of ``state_command``. Raises ValueError on anything else."""
    values = keyed_lines("reboot", (line.strip() for line in lines), KEYS)
    if len(values.get("boot", ())) != 1 or not values["boot"][0] or len(values.get("kernel", ())) != 1:
        raise ValueError("no boot id or no kernel")
    marks = [mark.removeprefix(REBOOT) for mark in values.get("mark", ()) if mark.startswith(REBOOT)]
    replaced: tuple[str, ...] | None = () if "current" in values else None
    if "replaced" in values:
        replaced = tuple(values["replaced"][0].split()) or ("packages",)
    return RebootState(
        boot_id=values["boot"][0],
        kernel=values["kernel"][0],
        installed=tuple(values.get("installed", ())),
        marks=tuple(sorted(marks)),
        required="required" in values,
        packages=tuple(values.get("package", ())),
        replaced=replaced,
        unknown="unknown" in values,
    )


def reasons(actual: RebootState, kernel: str | None = None) -> tuple[str, ...]:
    """Every reason in a few words, the kit's own first; empty when no reboot is needed.

    ``kernel``: declared release, may contain ``*``. A release that is not installed is no reason: a reboot would not
    start it.
    """
    texts = list(actual.marks)
    if kernel and not fnmatchcase(actual.kernel, kernel):
        newer = [release for release in actual.installed if fnmatchcase(release, kernel)]
        if newer:
            texts.append(f"kernel {max(newer, key=release_order)} is installed, {actual.kernel} runs")
    if actual.required or actual.packages:
        texts.append("the distribution requires it" + _listed(actual.packages))
    elif actual.replaced:
        texts.append("replaced since the boot" + _listed(actual.replaced))
    return tuple(dict.fromkeys(texts))


def _listed(names: Sequence[str]) -> str:
    return f" ({some(names, SHOWN_PACKAGES)})" if names else ""
