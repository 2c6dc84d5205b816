"""Varied answers of a healthy machine, as at another time.

Temperatures, clocks and uptimes move, traffic counters grow, free space shrinks a little, and lists and keys without
meaningful order are shuffled. Error counters stay unchanged. Pure: the time is a seed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rackproof.remote.command import CommandResult
from rackproof.selftest.partial import JSON

Vary = Callable[[random.Random, re.Match[str]], str]

_TRAFFIC = r"(?:bytes|packets|octets|unicast|multicast|broadcast|xmit_data|rcv_data|xmit_pkts|rcv_pkts)"


@dataclass(frozen=True, slots=True)
class Rule:
    """Places in the answers of commands that contain ``command``; ``vary`` returns the new text of group ``n``."""

    command: str
    place: re.Pattern[str]
    vary: Vary


def _rule(command: str, place: str, vary: Vary) -> Rule:
    return Rule(command, re.compile(place, re.MULTILINE), vary)


def _moves(by: float, least: float = 0.0) -> Vary:
    """Move a number up or down by at most ``by``, keeping its decimals."""

    def vary(chance: random.Random, match: re.Match[str]) -> str:
        text = match["n"]
        value = max(least, float(text) + chance.uniform(-by, by))
        return f"{value:.{len(text.partition('.')[2])}f}"

    return vary


def _grows(by: int) -> Vary:
    return lambda chance, match: str(int(match["n"]) + chance.randrange(by))


def _shrinks(share: float) -> Vary:
    return lambda chance, match: str(int(int(match["n"]) * (1 - chance.uniform(0, share))))


def _below(limit: int) -> Vary:
    return lambda chance, match: str(chance.randrange(limit))


RULES: tuple[Rule, ...] = (
    _rule("nvidia-smi", r"<timestamp>(?P<n>[^<]+)<",
          lambda chance, match: f"Sat Nov 21 08:{chance.randrange(60):02d}:00 2026"),
    _rule("nvidia-smi", r"<(?:gpu|memory)_temp>(?P<n>\d+) C<", _moves(6)),
    _rule("nvidia-smi", r"<(?:average|instant)_power_draw>(?P<n>[\d.]+) W<", _moves(9)),
    _rule("nvidia-smi", r"<[tr]x_util>(?P<n>\d+) KB/s<", _below(900)),
    _rule("chronyc -n -c tracking", r"^[^,]+,\d[^,]*,\d+,(?P<n>[\d.]+),", _moves(300)),
    _rule("chronyc -n -c tracking", r"^(?:[^,]*,){4}(?P<n>-?\d+\.\d+),", _moves(0.0005, -1)),
    _rule("chronyc -n -c sources", r"^(?:[^,]*,){6}(?P<n>\d+),", _below(17)),
    _rule("compares the clocks", r"^\S+ (?P<n>-?\d\.\d{6}) ", _moves(0.0005, -1)),
    _rule("ping ", r"mdev = (?P<n>[\d.]+)/", _moves(3, 0.01)),
    _rule("ping ", r"loss, time (?P<n>\d+)ms", _moves(20)),
    _rule("mountstats", r"^\tage:\t(?P<n>\d+)$", _grows(90_000)),
    _rule("mountstats", r"^\tevents:\t(?P<n>\d+) ", _grows(9_000)),
    _rule("mountstats", r"^\tbytes:\t(?P<n>\d+) ", _grows(9_000_000)),
    _rule("stat -f", r"^\d+ \d+ (?P<n>\d+)$", _shrinks(0.01)),
    _rule("meminfo", r"^MemFree: +(?P<n>\d+) kB$", _shrinks(0.2)),
    _rule("meminfo", r"^(?:Cached|Buffers|Dirty|Active|Inactive): +(?P<n>\d+) kB$", _shrinks(0.2)),
    _rule("uptime", r"^(?P<n>\d+\.\d\d) \d+\.\d\d$", _moves(600, 3600)),
    _rule("loadavg", r"^(?P<n>\d+\.\d\d) ", _moves(0.4)),
    _rule("ethtool -S", rf"^ *\S*{_TRAFFIC}\S*: (?P<n>\d+)$", _grows(1 << 40)),
    _rule("statistics", rf"[rt]x_{_TRAFFIC}\S* (?P<n>\d+)$", _grows(1 << 40)),
    _rule("hw_counters", rf"{_TRAFFIC}\S*[ :=]+(?P<n>\d+)$", _grows(1 << 40)),
    _rule("nvme", r'"power_on_hours" ?: ?(?P<n>\d+)', _grows(200)),
    _rule("nvme", r'"data_units_(?:read|written)" ?: ?(?P<n>\d+)', _grows(1 << 30)),
    _rule("nvme", r'"host_(?:read|write)_commands" ?: ?(?P<n>\d+)', _grows(1 << 30)),
    _rule("nvme", r'"temperature(?:_sensor_\d)?" ?: ?(?P<n>\d+)', _moves(4)),
    _rule("ceph", r'"(?:quorum_age|election_epoch)" ?: ?(?P<n>\d+)', _grows(90_000)),
    _rule("systemctl", r"^(?:MainPID|ExecMainPID)=(?P<n>[1-9]\d*)$", _grows(4000)),
)  # fmt: skip

SHUFFLED_LINES = ("dpkg-query -W", "apt-config dump")
"""Commands whose lines have no order, unless an ``echo`` marks their end."""
SHUFFLED_LISTS = ("ip -j addr", "ip -j link", "rdma -j", "rdma link")
"""Commands whose JSON is a list without order."""


def varies(result: CommandResult) -> bool:
    """Whether ``at_another_moment`` can change the answer."""
    marks = (*(rule.command for rule in RULES), *SHUFFLED_LINES)
    return any(mark in result.command for mark in marks) or result.text.lstrip()[:1] in ("[", "{")


def at_another_moment(result: CommandResult, seed: str) -> CommandResult:
    """An answer that the same healthy machine could give at another time; the same seed gives the same answer."""
    chance = random.Random(f"{seed} {result.node} {result.command}")  # noqa: S311  (a repeatable one)
    try:
        text = result.stdout.decode("utf-8")
    except UnicodeDecodeError:
        return result
    for rule in RULES:
        if rule.command in result.command:
            text = rule.place.sub(lambda match, rule=rule: _varied(chance, match, rule.vary), text)  # type: ignore[misc]
    if any(words in result.command for words in SHUFFLED_LINES) and "echo" not in result.command:
        lines = text.splitlines(keepends=True)
        chance.shuffle(lines)
        text = "".join(lines)
    if match := JSON.fullmatch(text):
        text = _reordered(chance, match, any(words in result.command for words in SHUFFLED_LISTS))
    return replace(result, stdout=text.encode())


def _varied(chance: random.Random, match: re.Match[str], vary: Vary) -> str:
    begin, end = match.start("n") - match.start(), match.end("n") - match.start()
    return match[0][:begin] + vary(chance, match) + match[0][end:]


def _reordered(chance: random.Random, match: re.Match[str], list_too: bool) -> str:
    try:
        document = json.loads(match[2])
    except ValueError:
        return match[0]
    if list_too and isinstance(document, list):
        chance.shuffle(document)
    return match[1] + json.dumps(_keys_shuffled(chance, document), ensure_ascii=False) + match[3]


def _keys_shuffled(chance: random.Random, value: Any) -> Any:
    if isinstance(value, list):
        return [_keys_shuffled(chance, item) for item in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    chance.shuffle(keys)
    return {key: _keys_shuffled(chance, value[key]) for key in keys}
