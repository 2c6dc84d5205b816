"""Removes differences that do not matter from output: between two readings of a machine, or between two equal machines.
Pure.

``quiet(command, text)`` applies a table of rules, so that the rest can be compared. Measured values become
``‹varies›``. Counters other than zero become ``‹n›``: only the change from zero matters. ``anonymous`` removes what
is unique to a machine: hardware addresses, serial numbers, UUIDs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

VARIES: Final = "‹varies›"
COUNT: Final = "‹n›"
_V, _N = VARIES, COUNT


@dataclass(frozen=True, slots=True)
class Rule:
    """Replacements for the output of commands that ``command`` matches.

    ``order`` matches the first line of a block; if given, blocks are sorted, because their order is arbitrary.
    """

    command: re.Pattern[str]
    changes: tuple[tuple[re.Pattern[str], str], ...]
    order: re.Pattern[str] | None = None

    def apply(self, text: str) -> str:
        for pattern, replacement in self.changes:
            text = pattern.sub(replacement, text)
        return _sorted_blocks(text, self.order) if self.order is not None else text


def _rule(command: str, *changes: tuple[str, str], order: str | None = None) -> Rule:
    compiled = tuple((re.compile(pattern), replacement) for pattern, replacement in changes)
    return Rule(re.compile(command), compiled, None if order is None else re.compile(order))


_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_XML_VALUES = (
    r"timestamp|\w*temp|fan_speed|(?:average_|instant_)?power_draw|\w+_util|\w+_volt|performance_state|used|free|pid"
    r"|clocks_event_reason_(?:gpu_idle|sw_power_cap)|average_\w+"
)
_JSON_TIMES = r"epoch|age|quorum_age|election_epoch|created|modified|stamp|last_\w+|since|(?:valid|preferred)_life_time"
_JSON_SIZES = r"bytes_\w+|\w+_bytes|\w+_bytes_sec|\w+_op_per_sec|num_objects|num_bytes|kb_\w+|utilization|pgs?_?num_\w*"

_DIAGNOSTIC_MODULES = r"(?:\w+_)?diag"  # the kernel loads them when someone runs ss
_TRAFFIC = "bytes|packets|octets|unicast|multicast|broadcast|xmit_data|rcv_data|xmit_pkts|rcv_pkts"

RULES: Final = (
    _rule(
        r"nvidia-smi",
        (rf"(<({_XML_VALUES})>)[^<]*(?=</\2>)", rf"\1{_V}"),
        (
            r"(?s)(<(clocks|processes|accounted_processes|clocks_event_reasons_counters)>).*?(?=</\2>)",
            rf"\1{_V}",
        ),
        (
            r"(?m)^(\s*(?:Timestamp|Fan Speed|Performance State|.*Temp(?:erature)?|.*Power Draw|.*Utilization|Used|Free"
            r"|Tx Throughput|Rx Throughput)\s*: ).*$",
            rf"\1{_V}",
        ),
    ),
    _rule(
        r"chronyc .*tracking",
        (r"(?m)^([^,\n]*,[^,\n]*,\d+),.*,([A-Za-z][\w ]*)$", rf"\1,{_V},\2"),
        (r"(?m)^((?:Ref time|System time|.*offset|Frequency|.*freq|Skew|Root .*|Update .*)\s*: ).*$", rf"\1{_V}"),
    ),
    _rule(r"chronyc .*sources", (r"(?m)^([\^=#],.,[^,\n]*,\d+),.*$", rf"\1,{_V}")),
    _rule(r"compares the clocks", (r"(?m)^(\S+)(?: -?\d+\.\d{6}){2}$", rf"\1 {_V}")),
    _rule(r"\bping\b", (r"time=?\s?[\d.]+ ?ms", f"time {_V}"), (r"(?m)^rtt .*$", f"rtt {_V}")),
    _rule(
        r"\bmountstats\b",
        (r"(?m)^(\t(?:age|bytes|events):).*$", rf"\1\t{_V}"),
        (r"(?m)^(\txprt:\t\w+) .*$", rf"\1 {_V}"),
        (r"(?m)^(\t\s*[A-Z][A-Z0-9_]+): [\d ]+$", rf"\1: {_V}"),
        order=r"device ",
    ),
    _rule(
        r"\bmountinfo\b",
        (r"(?m)^\d+ \d+ \d+:\d+ ", ""),
        (r"(?<=/overlay-containers/)[0-9a-f]{64}", _V),
        (r"\b(shared|master|propagate_from|fd|pgrp|pipe_ino)([:=])\d+", rf"\1\2{_V}"),
        order=r"",
    ),
    _rule(r"/proc/modules|\blsmod\b", (rf"(?m)^{_DIAGNOSTIC_MODULES} .*\n", "")),
    _rule(r"\bdpkg-query -W|\bapt-config dump|\blsmod\b", order=r""),
    _rule(r"/proc/modules", (r"(?m)^(\w+) \d+ \d+ \S+ (Live) 0x[0-9a-f]+(?= |$)", r"\1 \2"), order=r""),
    _rule(r"\bstat -f\b.*%S %b %a", (r"(?m)^((?:\S+ status \d+ )?\d+ \d+) \d+$", rf"\1 {_V}"), order=r""),
    _rule(r"\bstat -f\b.*%c %d", (r"(?m)^(\d+) \d+$", rf"\1 {_V}")),
    _rule(r"date \+%s%N", (r"\b\d{19}\b", _V)),
    _rule(r"\bdf\b", (r"(?m)^(\S+\s+(?:\S*[a-z]\S*\s+)?\d\S*)\s+\d\S*\s+\d\S*\s+\d+%", rf"\1 {_V}")),
    _rule(
        r"meminfo",
        (r"(?m)^(?!MemTotal|SwapTotal|HugePages_Total|Hugepagesize|Hugetlb)(\w+(?:\(\w+\))?:).*$", rf"\1 {_V}"),
    ),
    _rule(r"\buptime\b|loadavg|/proc/stat\b", (r"(?m)^.+$", _V)),
    _rule(
        r"cpuinfo|lscpu",
        (r"(?m)^(\s*(?:cpu MHz|CPU MHz|CPU\(s\) scaling MHz|bogomips|BogoMIPS)\s*:).*$", rf"\1 {_V}"),
        (r"(\"field\": *\"(?:BogoMIPS|CPU MHz|CPU\(s\) scaling MHz):\",\s*\"data\": *)\"[^\"]*\"", rf'\1"{_V}"'),
        (r"(\"data\": *)\"[^\"]*\"(?=,\s*\"field\": *\"(?:BogoMIPS|CPU MHz|CPU\(s\) scaling MHz):\")", rf'\1"{_V}"'),
    ),
    _rule(
        r"systemctl",
        (
            r"(?m)^(\w*Timestamp\w*|\w*PID|InvocationID|\w*NSec|Memory(?:Current|Peak|Available)|TasksCurrent)=.*$",
            rf"\1={_V}",
        ),
    ),
    _rule(
        r"dmesg|journalctl",
        (r"(?m)^\[ *\d+\.\d+\] ", ""),
        (rf"(?m)^{_MONTH} [ \d]\d {_CLOCK} ", ""),
        (r"(?m)(\b[\w.@/-]+)\[\d+\](?=:)", rf"\1[{_V}]"),
        order=r"",  # drivers start concurrently
    ),
    _rule(
        r"counters|statistics|ethtool -S",
        (rf"(?m)((?:^|[\s/])[\w.\[\]-]*(?:{_TRAFFIC})[\w.\[\]-]*[: ]+)\d+$", rf"\1{_N}"),
    ),
    _rule(
        r"counters|statistics|aer_dev|carrier_(?:up|down|changes)|ethtool -S|\bedac\b|/mc\d*/",
        (r"(?m)((?:^|[:\s])(?:[\w.\[\]/*-]+[: ]+)?)[1-9]\d*$", rf"\1{_N}"),
    ),
    _rule(
        r"mlxlink",
        (
            r"(?m)^((?:Time Since Last Clear|.*BER|.*Temperature|.*Voltage|.*Bias Current|.*Power)[^:\n]*:).*$",
            rf"\1 {_V}",
        ),
        (r"(?m)^((?:Effective|Symbol|Raw|Link Down)[^:\n]*(?:Errors|Counter)[^:\n]*: *)[1-9]\d*$", rf"\1{_N}"),
    ),
    _rule(
        r"\bnvme\b|smartctl",
        (
            r"(?i)(\"?(?:temperature\w*|power_on_hours|data_units_\w+|host_\w+_commands|controller_busy_time"
            r"|warning_temp_time|usedbytes|used_?bytes|usedsize|physicalsize_used)\"?\s*:\s*)[^,}\n]+",
            rf"\1{_V}",
        ),
        (r"(?i)(\"?(?:media_errors|num_err_log_entries|unsafe_shutdowns|power_cycles)\"?\s*:\s*)[1-9]\d*", rf"\1{_N}"),
    ),
    _rule(
        r"\bceph\b|\bip -j|\bip -s",
        (rf"(\"(?:{_JSON_TIMES})\":\s*)(?:\"[^\"]*\"|[\d.]+)", rf'\1"{_V}"'),
        (rf"(\"(?:{_JSON_SIZES})\":\s*)[\d.]+", rf'\1"{_V}"'),
    ),
    _rule(
        r"scontrol|sinfo|sdiag|slurmd",
        (
            r"\b(UpTime|BootTime|SlurmdStartTime|LastBusyTime|ResumeAfterTime|CPULoad|FreeMem|AllocMem|CurrentWatts|AveWatts"
            r"|ConsumedJoules|ExtSensorsTemp|CPUAlloc)=\S+",
            rf"\1={_V}",
        ),
    ),
    _rule(r"\bunmunge\b", (r"\(\d{9,11}\)", f"({_V})")),
    _rule(r"/proc/fs/fscache", (r"(?m)^[0-9a-f]{8}( +)[\d ]+(?= \S)", rf"{_V}\1{_V}")),
    _rule(
        r"\blctl\b",
        (r"-ffff[0-9a-f]{12}\b", "-‹instance›"),
        (
            r"(?m)^(\s+(?:inflight|unregistering|timeouts|avg_waittime|\w*estimate|transactions?|last_\w+|generation"
            r"|connection_attempts|\w*_replay|\w*_reply|connect_time|idle|sec_\w+|history_\w+|\w*_data_\w+):).*$",
            rf"\1 {_V}",
        ),
    ),
    _rule(r"/proc/fs/beegfs", (r"\b(RDMA|TCP): \d+ \(", rf"\1: {_V} (")),
    _rule(r"ipmitool|sensors", (r"-?\d+(?:\.\d+)? (degrees C|RPM|Watts|Volts|Amps)", rf"{_V} \1")),
    _rule(
        r"^(?!.*(?:uname|/proc/version|--version))",
        (rf"\b\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z| ?[+-]\d\d:?\d\d)?", _V),
        (rf"\b{_DAY},? (?:{_MONTH} +\d+|\d+ {_MONTH}) (?:\d{{4}} )?{_CLOCK}(?: [A-Z]{{3,5}})?(?: \d{{4}})?", _V),
    ),
)

_MACHINE_IDENTIFIERS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?i)\b(?!00(?::00){5}\b|ff(?::ff){5}\b)[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?:(?::[0-9a-f]{2}){14})?\b", "‹mac›"),
        (r"\benx[0-9a-f]{12}\b", "enx‹mac›"),
        (r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "‹uuid›"),
        (r"(?i)\bfe80(?::[0-9a-f]{4}){7}\b", "‹gid›"),
        (r"(?i)\bfe80::[0-9a-f:]+", "‹link-local›"),
        (r"(?i)(?<![0-9a-f:])(?!0{4}(?::0{4}){3})[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?![0-9a-f:])", "‹guid›"),
        (r"(?i)(guid\W{1,6}0x)[0-9a-f]{16}\b", r"\1‹guid›"),
        (r"(?i)(machine.?id\W{1,4})[0-9a-f]{32}\b", r"\1‹id›"),
        (r"(<(\w*serial)>)[^<]*(?=</\2>)", r"\1‹serial›"),
        (r"(?i)(\"?(?:serial(?:[ _]?number)?|serialnumber|sn)\"?\s*[:=]\s*)(?:\"[^\"\n]*\"|[^\s\",}]+)", r"\1‹serial›"),
    )
)


def quiet(command: str, text: str) -> str:
    """A command's output without values that vary."""
    for rule in RULES:
        if rule.command.search(command):
            text = rule.apply(text)
    return text


def anonymous(text: str) -> str:
    """The text without identifiers that are unique to a machine."""
    for pattern, replacement in _MACHINE_IDENTIFIERS:
        text = pattern.sub(replacement, text)
    return text


def _sorted_blocks(text: str, first: re.Pattern[str]) -> str:
    blocks: list[str] = []
    for line in text.splitlines(keepends=True):
        if first.match(line) or not blocks:
            blocks.append(line)
        else:
            blocks[-1] += line
    return "".join(sorted(blocks))
