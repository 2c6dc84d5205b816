"""What nodes answer about their operating system. Pure; each parser raises ParseError rather than guess."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from rackproof.parse import ParseError
from rackproof.parse.text import excerpt, integer, whole_lines
from rackproof.validation.answers import Answer, answer_of

NOT_INSTALLED: Final = "not installed"


def answered(tool: str, output: str) -> Answer:
    """An answer to a command that ends with ``STATUS`` and must have ended well."""
    answer = answer_of(tool, output)
    if answer.status != 0:
        raise ParseError(tool, f"exit status {answer.status}" + (f": {excerpt(answer.body)}" if answer.body else ""))
    return answer


def cmdline_of(body: str) -> tuple[str, ...]:
    """``/proc/cmdline``: arguments of the running kernel, without quotes, those of init left out."""
    lines = whole_lines("/proc/cmdline", body)
    words = [match[0].replace('"', "") for match in re.finditer(r'(?:[^\s"]|"[^"]*")+', lines[0])]
    if len(lines) != 1 or not words:
        raise ParseError("/proc/cmdline", f"expected one line, actual {len(lines)}")
    return tuple(words[: words.index("--")] if "--" in words else words)


def in_cmdline(argument: str, cmdline: tuple[str, ...]) -> bool:
    """Dashes and underscores in names are the same to the kernel; a name alone stands for every value of it."""
    name, equals, value = _split(argument)
    return any(found[0] == name and (not equals or found[1:] == (equals, value)) for found in map(_split, cmdline))


def _split(argument: str) -> tuple[str, str, str]:
    name, equals, value = argument.partition("=")
    return name.replace("-", "_"), equals, value


def modules_of(body: str) -> dict[str, str]:
    """``/proc/modules``, a line ``built in``, and names of modules in the kernel: name and state (``Live``)."""
    lines = whole_lines("/proc/modules", body)
    if lines.count("built in") != 1:
        raise ParseError("/proc/modules", "no list of modules")
    loaded, inside = lines[: lines.index("built in")], lines[lines.index("built in") + 1 :]
    states = {}
    for name in inside:
        if not re.fullmatch(r"[\w-]+", name):
            raise ParseError("modules.builtin", f"no module: {excerpt(name)}")
        states[name.replace("-", "_")] = "built in"
    if not inside:
        raise ParseError("modules.builtin", "no modules")
    for line in loaded:
        match = re.fullmatch(r"(\w+) \d+ \S+ \S+ (Live|Loading|Unloading) 0x[0-9a-f]+(?: \([A-Z+-]+\))?", line)
        if match is None:
            raise ParseError("/proc/modules", f"no module: {excerpt(line)}")
        states[match[1]] = match[2]
    return states


@dataclass(frozen=True, slots=True)
class Dkms:
    """One module for one kernel; ``kernel`` is empty for a module that is only known."""

    name: str
    version: str
    kernel: str
    state: str


def dkms_of(lines: list[str]) -> tuple[Dkms, ...]:
    """``dkms status``, old and new; warnings that it prints between are no answer."""
    found = []
    for line in lines:
        match = re.fullmatch(
            r"([\w.+-]+)(?:/| ?, ?)([\w.+~:-]+)(?:, ([\w.+~-]+)(?:, ([\w-]+))?)?: ([a-z-]+)(.*)", line.strip()
        )
        if match:
            state = match[5] + (" with a warning" if "WARNING" in match[6] else "")
            found.append(Dkms(match[1], match[2], match[3] or "", state))
    return tuple(found)


def secure_boot_of(output: str) -> bool:
    """Answer to ``SECURE_BOOT``."""
    lines = whole_lines("efivars", output)
    if lines == ["no EFI"]:
        return False
    words = lines[0].split() if len(lines) == 1 else []
    # Four bytes of attributes, then the value.
    if len(words) != 5 or words[4] not in ("0", "1") or not all(word.isdigit() for word in words):
        raise ParseError("efivars", f"no SecureBoot variable: {excerpt(output)}")
    return words[4] == "1"


SECURE_BOOT: Final = (
    "if [ ! -d /sys/firmware/efi ]; then echo no EFI; else"
    " od -An -t u1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c; fi"
)
HOLDS: Final = (
    "if command -v apt-mark >/dev/null; then echo apt; apt-mark showhold; else echo dnf; dnf -q versionlock list; fi"
)


def holds_of(lines: list[str], names: tuple[str, ...]) -> frozenset[str]:
    """Those of the names that are held: of Debian's ``apt-mark showhold``, or of dnf's list of locked versions."""
    if lines[:1] == ["apt"]:
        held = {line.partition(":")[0] for line in lines[1:]}
        return frozenset(name for name in names if name in held)
    if lines[:1] != ["dnf"]:
        raise ParseError("apt-mark", f"no list of held packages: {excerpt(' '.join(lines[:1]))}")
    return frozenset(name for name in names if any(_locks(line, name) for line in lines[1:]))


def held_versions_of(lines: list[str], wanted: dict[str, str]) -> frozenset[str]:
    """Those of the packages that are held, on RHEL at their version: a lock of another version holds the wrong one."""
    held = holds_of(lines, tuple(wanted))
    if lines[:1] == ["apt"]:
        return held
    exact = set()
    for name in held:
        epoch = "" if ":" in wanted[name] else r"(\d+:)?"
        pattern = rf"{re.escape(name)}-{epoch}{re.escape(wanted[name])}(\.\*|\.\w+)?"
        if any(re.fullmatch(pattern, line) for line in lines[1:]):
            exact.add(name)
    return frozenset(exact)


def _locks(line: str, name: str) -> bool:
    """``kernel-0:5.14.0-427.el9.*``, or ``Package name: kernel``; ``!`` before it excludes a version."""
    # Of ``cuda-12-4-0:12.4.1-1.*`` the name is cuda-12-4: versions and releases have no dash in them.
    version = r"(\d+:)?\d[^\s:-]*(-[^\s:-]+)?"
    return line == f"Package name: {name}" or bool(re.fullmatch(rf"{re.escape(name)}-{version}", line))


def versions_of(output: str, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Installed versions of each name: more than one of several architectures, none where it is not installed."""
    found: dict[str, list[str]] = {name: [] for name in names}
    answered = set()
    for line in whole_lines("dpkg-query", output):
        words = line.split()
        if len(words) == 4 and words[0] == "package" and words[1] in found:
            answered.add(words[1])
            if words[2] == "installed":
                found[words[1]].append(words[3])
        elif len(words) == 3 and words[0] == "package" and words[1] in found and words[2] == "not-installed":
            answered.add(words[1])  # other packages speak of it: dpkg knows the name and no version
        else:
            missing = re.fullmatch(
                r"(?:dpkg-query: no packages found matching (\S+)|package (\S+) is not installed)", line
            )
            if missing is None or (missing[1] or missing[2]) not in found:
                raise ParseError("dpkg-query", f"no package: {excerpt(line)}")
            answered.add(missing[1] or missing[2])
    silent = [name for name in names if name not in answered]
    if silent:
        raise ParseError("dpkg-query", f"no answer about {', '.join(silent)}")
    return {name: tuple(several) for name, several in found.items()}


def is_version(actual: str, expected: str) -> bool:
    return fnmatchcase(actual, expected.replace("[", "[[]").replace("?", "[?]"))


def hashes_of(lines: list[str], paths: tuple[str, ...]) -> dict[str, str]:
    """``sha256sum -- PATHS``: hash of each path, or why there is none."""
    found = {}
    for line in lines:
        good = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        bad = re.fullmatch(r"sha256sum: (.+): (No such file or directory|Is a directory)", line)
        path = good[2] if good else bad[1].strip("'") if bad else ""
        if path not in paths or path in found:
            raise ParseError("sha256sum", f"unexpected line {excerpt(line)}")
        found[path] = good[1] if good else bad[2] if bad else ""
    silent = [path for path in paths if path not in found]
    if silent:
        raise ParseError("sha256sum", f"no answer about {', '.join(silent)}")
    return found


def meminfo_of(output: str) -> dict[str, int]:
    """``/proc/meminfo``: sizes in KiB, and numbers of huge pages."""
    values = {}
    for line in whole_lines("/proc/meminfo", output):
        match = re.fullmatch(r"([\w()]+): +(\d{1,18})(?: kB)?", line)
        if match is None:
            raise ParseError("/proc/meminfo", f"no size: {excerpt(line)}")
        values[match[1]] = int(match[2])
    for key in ("MemTotal", "SwapTotal"):
        if key not in values:
            raise ParseError("/proc/meminfo", f"no {key}")
    return values


def microcode_of(lines: list[str]) -> dict[str, int]:
    """``uniq -c`` of the revisions in /proc/cpuinfo: revision and number of processors."""
    found = {}
    for line in lines:
        match = re.fullmatch(r" *(\d{1,6}) (0x[0-9a-f]{1,16})", line)
        if match is None:
            raise ParseError("/proc/cpuinfo", f"no revision: {excerpt(line)}")
        found[match[2]] = int(match[1])
    if not found:
        raise ParseError("/proc/cpuinfo", "no revision of microcode")
    return found


@dataclass(frozen=True, slots=True)
class IdleState:
    """A state that some processors may go to when they have nothing to do."""

    name: str
    processors: int
    latency_us: int
    disabled: bool


IDLE_STATES: Final = (
    'echo "driver $(cat /sys/devices/system/cpu/cpuidle/current_driver)";'
    ' for s in /sys/devices/system/cpu/cpu[0-9]*/cpuidle/state[0-9]*; do [ -e "$s" ] || continue;'
    ' read -r n <"$s/name"; read -r l <"$s/latency"; read -r d <"$s/disable"; echo "state $l $d $n"; done'
    " | sort | uniq -c; echo end of idle states"
)


def idle_states_of(output: str) -> tuple[IdleState, ...]:
    """Answer to ``IDLE_STATES``; none where the kernel has no driver for them."""
    all_lines = whole_lines("cpuidle", output)
    driver, lines, last = all_lines[0], all_lines[1:-1], all_lines[-1]
    named = re.fullmatch(r"driver (\S+)", driver)
    if named is None or last != "end of idle states":
        raise ParseError("cpuidle", f"no idle states: {excerpt(output)}")
    states = []
    for line in lines:
        match = re.fullmatch(r" *(\d{1,6}) state (\d{1,9}) ([01]) (\S.*)", line)
        if match is None:
            raise ParseError("cpuidle", f"no idle state: {excerpt(line)}")
        states.append(IdleState(match[4], int(match[1]), int(match[2]), match[3] == "1"))
    if bool(states) == (named[1] == "none"):
        raise ParseError("cpuidle", f"{len(states)} idle states of the driver {named[1]}")
    return tuple(states)


@dataclass(frozen=True, slots=True)
class Frequency:
    driver: str
    """Empty where the kernel does not scale frequencies."""
    turbo: bool | None
    """None where the driver has no switch for it."""


FREQUENCY: Final = (
    "cd /sys/devices/system/cpu && for f in cpu0/cpufreq/scaling_driver intel_pstate/no_turbo cpufreq/boost;"
    ' do [ ! -e "$f" ] || echo "$f $(cat "$f")"; done && echo end of frequencies'
)


def frequency_of(output: str) -> Frequency:
    """Answer to ``FREQUENCY``."""
    *lines, last = whole_lines("cpufreq", output)
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    if last != "end of frequencies" or len(values) != len(lines):
        raise ParseError("cpufreq", f"the answer is cut off after {excerpt(last)}")
    for key, value in values.items():
        allowed = r"[\w-]+" if key == "cpu0/cpufreq/scaling_driver" else r"[01]"
        known = ("cpu0/cpufreq/scaling_driver", "intel_pstate/no_turbo", "cpufreq/boost")
        if key not in known or not re.fullmatch(allowed, value):
            raise ParseError("cpufreq", f"unexpected line {excerpt(f'{key} {value}')}")
    turbo = None
    if "intel_pstate/no_turbo" in values:
        turbo = values["intel_pstate/no_turbo"] == "0"
    elif "cpufreq/boost" in values:
        turbo = values["cpufreq/boost"] == "1"
    return Frequency(values.get("cpu0/cpufreq/scaling_driver", ""), turbo)


VULNERABILITIES: Final = (
    'for f in /sys/devices/system/cpu/vulnerabilities/*; do [ ! -e "$f" ] || echo "${f##*/}: $(cat "$f")"; done;'
    " echo end of vulnerabilities"
)


def vulnerabilities_of(output: str) -> dict[str, str]:
    """Answer to ``VULNERABILITIES``: weakness and what the kernel does about it."""
    *lines, last = whole_lines("sysfs", output)
    if last != "end of vulnerabilities" or not lines:
        raise ParseError("sysfs", f"no vulnerabilities: {excerpt(output)}")
    found = {}
    for line in lines:
        match = re.fullmatch(
            r"([a-z0-9_]+): ((?:KVM: )?(?:Not affected|Vulnerable|Mitigation|Processor vulnerable|Unknown).*)", line
        )
        if match is None:
            raise ParseError("sysfs", f"no vulnerability: {excerpt(line)}")
        found[match[1]] = match[2]
    return found


HUGEPAGES: Final = (
    'for f in /sys/kernel/mm/hugepages/hugepages-*kB/nr_hugepages; do [ ! -e "$f" ] || echo "$f $(cat "$f")"; done;'
    " echo end of huge pages"
)


def hugepages_of(output: str) -> dict[int, int]:
    """Answer to ``HUGEPAGES``: size in KiB and number of pages."""
    *lines, last = whole_lines("sysfs", output)
    if last != "end of huge pages":
        raise ParseError("sysfs", f"the answer is cut off after {excerpt(last)}")
    found = {}
    for line in lines:
        match = re.fullmatch(r"/sys/kernel/mm/hugepages/hugepages-(\d{1,12})kB/nr_hugepages (\d+)", line)
        if match is None:
            raise ParseError("sysfs", f"no huge pages: {excerpt(line)}")
        found[int(match[1])] = integer("sysfs", "huge pages", match[2])
    return found


def tuned_profile_of(output: str) -> str:
    """``tuned-adm active``; empty where none is."""
    for line in whole_lines("tuned-adm", output):
        if match := re.fullmatch(r"Current active profile: (\S(?:.*\S)?)", line.strip()):
            return match[1]
        if line.startswith("No current active profile"):
            return ""
    raise ParseError("tuned-adm", f"no profile: {excerpt(output)}")
