"""Processors: microcode, idle states, frequency scaling, and the time that they were used."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer, matched, processor_list, whole_lines


def parse_microcode(lines: list[str]) -> dict[str, int]:
    """``uniq -c`` of the revisions in /proc/cpuinfo: revision and number of processors."""
    counts = {}
    for line in lines:
        match = matched("/proc/cpuinfo", r" *(\d{1,6}) (0x[0-9a-f]{1,16})", line, "a microcode revision")
        counts[match[2]] = int(match[1])
    if not counts:
        raise ParseError("/proc/cpuinfo", "no processor has a microcode revision")
    return counts


def parse_processor_times(tool: str, text: str) -> list[int]:
    """Line ``cpu`` of /proc/stat, without that word: jiffies of user, nice, system, idle, iowait, irq, softirq, steal.

    Guests' time is counted in user time already (proc(5)).
    """
    times = [integer(tool, "cpu", field) for field in text.split()[:8]]
    if len(times) < 8:
        raise ParseError(tool, f"expected eight times of processors, got {excerpt(text)}")
    return times


def parse_pressure(tool: str, text: str) -> int:
    """First line of /proc/pressure/RESOURCE: microseconds in which some tasks waited."""
    return int(matched(tool, r"some .*total=(\d{1,18})", text.partition("\n")[0], "pressure")[1])


@dataclass(frozen=True, slots=True)
class IdleState:
    """An idle state of some processors."""

    name: str
    processors: int
    latency_us: int
    disabled: bool


IDLE_STATES: Final = (
    'read -r o </sys/devices/system/cpu/online; echo "driver $(cat /sys/devices/system/cpu/cpuidle/current_driver)";'
    ' set -- /sys/devices/system/cpu/cpu[0-9]*/cpuidle/state[0-9]*; [ -e "$1" ] || shift;'
    ' echo "online $o states $#"; for s in "$@"; do'
    ' read -r n <"$s/name"; read -r l <"$s/latency"; read -r d <"$s/disable"; echo "${s##*/} $l $d $n"; done'
    " | sort | uniq -c; echo end of idle states"
)


def parse_idle_states(output: str) -> tuple[IdleState, ...]:
    """Output of ``IDLE_STATES``; empty where the kernel has no cpuidle driver.

    Raises ParseError unless every state is listed for every processor that is online, without a gap in their numbers.
    """
    all_lines = whole_lines("cpuidle", output)
    heads, lines, last = all_lines[:2], all_lines[2:-1], all_lines[-1]
    head = re.fullmatch(r"driver (\S+)\nonline ([\d,-]+) states (\d{1,7})", "\n".join(heads))
    if head is None or last != "end of idle states":
        raise ParseError("cpuidle", f"expected idle states, got {excerpt(output)}")
    states: list[IdleState] = []
    by_number: Counter[int] = Counter()
    for line in lines:
        match = matched("cpuidle", r" *(\d{1,6}) state(\d{1,2}) (\d{1,9}) ([01]) (\S.*)", line, "an idle state")
        states.append(IdleState(match[5], int(match[1]), int(match[3]), match[4] == "1"))
        by_number[int(match[2])] += int(match[1])
    if bool(states) == (head[1] == "none"):
        raise ParseError("cpuidle", f"the driver {head[1]} has {len(states)} idle states")
    if by_number.total() != int(head[3]):
        raise ParseError("cpuidle", f"lists {by_number.total()} of {head[3]} states of all processors")
    online = len(processor_list("cpuidle", head[2]))
    for number in range(max(by_number, default=-1) + 1):
        if by_number[number] < online:
            raise ParseError("cpuidle", f"state {number} is listed for {by_number[number]} of {online} processors")
    return tuple(states)


# Processors first: they tell a node without cpufreq from a failed command.
GOVERNORS: Final = (
    'read -r o </sys/devices/system/cpu/online && echo "online $o" &&'
    " ls -d /sys/devices/system/cpu/cpu[0-9]* && for f in /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor;"
    ' do [ ! -e "$f" ] || echo "$f $(cat "$f")"; done'
)


def parse_governors(output: str | bytes) -> dict[str, str | None]:
    """Output of ``GOVERNORS``: governor of each processor that is online.

    None where the kernel does not scale its frequency. Raises ParseError when a processor is not listed.
    """
    first, *lines = whole_lines("cpufreq", output)
    if not first.startswith("online "):
        raise ParseError("cpufreq", f"expected processors online, got {excerpt(first)}")
    online = {f"cpu{number}" for number in processor_list("cpufreq", first.removeprefix("online "))}
    governors: dict[str, str | None] = {}
    for line in lines:
        # The governor of a processor that is offline cannot be read.
        match = re.fullmatch(r"/sys/devices/system/cpu/(cpu\d+)(?:(/cpufreq/scaling_governor) (\w*))?", line)
        if match is None or (match[2] is None) == (match[1] in governors):
            raise ParseError("cpufreq", f"expected a processor, got {excerpt(line)}")
        governors[match[1]] = match[3] or None
    if unlisted := online - governors.keys():
        raise ParseError("cpufreq", f"{len(online)} processors are online, {len(unlisted)} of them are not listed")
    return {cpu: governor for cpu, governor in governors.items() if cpu in online}


@dataclass(frozen=True, slots=True)
class Frequency:
    driver: str
    """Empty where the kernel does not scale frequencies."""
    turbo: bool | None
    """None where the driver cannot switch it."""


FREQUENCY: Final = (
    "cd /sys/devices/system/cpu && for f in cpu0/cpufreq/scaling_driver intel_pstate/no_turbo cpufreq/boost;"
    ' do [ ! -e "$f" ] || echo "$f $(cat "$f")"; done && echo end of frequencies'
)


def parse_frequency(output: str) -> Frequency:
    """Output of ``FREQUENCY``."""
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
