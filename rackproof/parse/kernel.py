"""The running kernel: release, command line, modules, sysctl, Secure Boot and CPU vulnerabilities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, matched, whole_lines


def parse_release(output: str | bytes) -> str:
    """``uname -r``."""
    lines = whole_lines("uname", output)
    if len(lines) != 1 or not re.fullmatch(r"\d+\.\d+\S*", lines[0]):
        raise ParseError("uname", f"expected a kernel release, got {excerpt(lines[0])}")
    return lines[0]


KERNELS: Final = (
    'uname -r; for f in /lib/modules/*/modules.dep; do [ ! -e "$f" ] || echo "$f"; done;'
    " [ ! -e /run/reboot-required ] || echo reboot required; echo end of kernels"
)


@dataclass(frozen=True, slots=True)
class Kernels:
    running: str
    installed: tuple[str, ...]
    """Releases that have modules."""
    reboot_required: bool

    @property
    def newest(self) -> str:
        """The newest installed release; the running one when no installed one is newer."""
        return max((self.running, *self.installed), key=release_order)


def parse_kernels(output: str | bytes) -> Kernels:
    """Output of ``KERNELS``."""
    running, *lines = whole_lines("uname", output)
    if lines[-1:] != ["end of kernels"]:
        raise ParseError("uname", f"the answer is cut off after {excerpt(str(output))}")
    required = lines[-2:-1] == ["reboot required"]
    installed = []
    for line in lines[: -2 if required else -1]:
        match = matched("uname", r"/lib/modules/([^/]+)/modules\.dep", line, "an installed kernel")
        installed.append(match[1])
    return Kernels(parse_release(running + "\n"), tuple(installed), required)


def release_order(release: str) -> list[tuple[int, str]]:
    """Sort key of a release, in the order of package managers: a number is newer than a word (``427.13.1.el9`` over
    ``427.el9``). Flavours of one release (``-generic``, ``+64k``, ``+debug``) are equal."""
    plain = re.sub(r"\+(?:\d+k|debug|rt)\b.*$|-[a-z][\w-]*$", "", release)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[A-Za-z]+", plain)]


def parse_sysctl(output: str) -> dict[str, str]:
    """``sysctl KEY…``; one space separates the numbers of a key."""
    values = {}
    for line in whole_lines("sysctl", output):
        match = matched("sysctl", r"([\w./*-]+) =(?: (.*))?", line, "KEY = VALUE")
        values[match[1]] = " ".join((match[2] or "").split())
    return values


def parse_cmdline(body: str) -> tuple[str, ...]:
    """``/proc/cmdline``: arguments of the running kernel, without quotes and without arguments for init."""
    lines = whole_lines("/proc/cmdline", body)
    words = arguments_in(lines[0])
    if len(lines) != 1 or not words:
        raise ParseError("/proc/cmdline", f"expected one line, actual {len(lines)}")
    return words


def arguments_in(line: str) -> tuple[str, ...]:
    """Arguments in a command line, running or a boot loader's, without quotes and without arguments for init."""
    words = [match[0].replace('"', "") for match in re.finditer(r'(?:[^\s"]|"[^"]*"?)+', line)]
    return tuple(words[: words.index("--")] if "--" in words else words)


REPEATED: Final = frozenset(("console", "earlycon", "hugepages", "hugepagesz", "modprobe.blacklist", "pci", "memmap"))
"""Names of arguments that a command line may have several times; of every other one the last counts."""


def in_force(argument: str, cmdline: Sequence[str]) -> bool:
    """Whether the kernel uses an argument: of a name that is there several times the last one, unless it uses all."""
    name = _split(argument)[0]
    same = [other for other in cmdline if _split(other)[0] == name]
    return in_cmdline(argument, same if name in REPEATED else same[-1:])


def in_cmdline(argument: str, cmdline: Sequence[str]) -> bool:
    """Whether the command line has an argument. Dashes and underscores in names are equal; a name alone matches any
    value."""
    name, equals, value = _split(argument)
    return any(
        argument[0] == name and (not equals or argument[1:] == (equals, value)) for argument in map(_split, cmdline)
    )


def _split(argument: str) -> tuple[str, str, str]:
    name, equals, value = argument.partition("=")
    return name.replace("-", "_"), equals, value


def parse_modules(body: str) -> dict[str, str]:
    """``/proc/modules``, a line ``built in``, and names of built-in modules: name and state (``Live``)."""
    lines = whole_lines("/proc/modules", body)
    if lines.count("built in") != 1:
        raise ParseError("/proc/modules", "the answer has no list of loaded modules")
    loaded, inside = lines[: lines.index("built in")], lines[lines.index("built in") + 1 :]
    states = {}
    for name in inside:
        matched("modules.builtin", r"[\w-]+", name, "a module")
        states[name.replace("-", "_")] = "built in"
    if not inside:
        raise ParseError("modules.builtin", "the answer has no modules")
    return states | parse_loaded_modules(loaded)


def parse_loaded_modules(lines: Iterable[str]) -> dict[str, str]:
    """Lines of ``/proc/modules``: name and state (``Live``)."""
    states = {}
    for line in lines:
        match = matched(
            "/proc/modules",
            r"(\w+) \d+ \S+ \S+ (Live|Loading|Unloading) 0x[0-9a-f]+(?: \([A-Z+-]+\))?",
            line,
            "a module",
        )
        states[match[1]] = match[2]
    return states


SECURE_BOOT: Final = (
    "if [ ! -d /sys/firmware/efi ]; then echo no EFI; else"
    " od -An -t u1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c; fi"
)


def parse_secure_boot(output: str) -> bool:
    """Output of ``SECURE_BOOT``."""
    lines = whole_lines("efivars", output)
    if lines == ["no EFI"]:
        return False
    words = lines[0].split() if len(lines) == 1 else []
    # Four bytes of attributes, then the value.
    if len(words) != 5 or words[4] not in ("0", "1") or not all(word.isdigit() for word in words):
        raise ParseError("efivars", f"expected the variable SecureBoot, got {excerpt(output)}")
    return words[4] == "1"


VULNERABILITIES: Final = (
    'for f in /sys/devices/system/cpu/vulnerabilities/*; do [ ! -e "$f" ] || echo "${f##*/}: $(cat "$f")"; done;'
    " echo end of vulnerabilities"
)


ALWAYS_LISTED: Final = frozenset(
    (
        "itlb_multihit",
        "l1tf",
        "mds",
        "meltdown",
        "spec_store_bypass",
        "spectre_v1",
        "spectre_v2",
        "srbds",
        "tsx_async_abort",
    )
)
"""Listed by Linux 5.8 and by the kernels of RHEL 8, on every processor (drivers/base/cpu.c)."""


def parse_vulnerabilities(output: str) -> dict[str, str]:
    """Output of ``VULNERABILITIES``: vulnerability and the kernel's mitigation."""
    *lines, last = whole_lines("sysfs", output)
    if last != "end of vulnerabilities" or not lines:
        raise ParseError("sysfs", f"expected vulnerabilities, got {excerpt(output)}")
    vulnerabilities = {}
    for line in lines:
        match = matched(
            "sysfs",
            r"([a-z0-9_]+): ((?:KVM: )?(?:Not affected|Vulnerable|Mitigation|Processor vulnerable|Unknown).*)",
            line,
            "a vulnerability",
        )
        vulnerabilities[match[1]] = match[2]
    return vulnerabilities


def is_vulnerable(state: str) -> bool:
    """Whether the kernel's words about a vulnerability name no mitigation."""
    if re.search(r"\bVulnerable\b|^Processor vulnerable|No mitigations", state):
        return True
    return not state.removeprefix("KVM: ").startswith(("Not affected", "Mitigation", "Unknown"))


def is_unknown(state: str) -> bool:
    """Whether the kernel cannot tell, as in a guest."""
    return state.removeprefix("KVM: ").startswith("Unknown")
