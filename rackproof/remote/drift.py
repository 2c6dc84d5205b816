"""Drift: nodes that deviate from their peers, one line for each deviation. Pure.

``facts_of`` extracts facts that nodes of one kind should share from recordings: kernel, command line, BIOS, MTU,
firmware, sysctl, packages, GPU driver. A node whose value is not that of most peers deviates. ``difference`` compares
everything else, line by line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rackproof.core.rack import fold
from rackproof.core.wording import some
from rackproof.remote.noise import anonymous
from rackproof.remote.recording import Recording

DMI: Final = "grep -sH '' /sys/class/dmi/id/bios_version /sys/class/dmi/id/bios_date /sys/class/dmi/id/product_name"
PACKAGES: Final = (
    "if command -v dpkg-query >/dev/null; then "
    "dpkg-query -W -f='package ${Package} ${db:Status-Status} ${Version}\\n'; "
    "else rpm -qa --qf 'package %{NAME} installed %{VERSION}-%{RELEASE}\\n' | sort; fi"
)
SYSCTL: Final = "sysctl -a 2>/dev/null | grep -E '^(kernel|net|vm|fs|sunrpc)[.]' | grep -vE '{}'".format(
    # Counters, and values that differ at every boot or on every machine.
    "random|aio-nr|[.](inode|dentry|file)-(nr|state)|hostname|domainname|pty[.]nr|ns_last_pid|nf_conntrack_count|boot_id|uuid"
    "|entropy_avail|stat_refresh|netdev_rss_key|tcp_fastopen_key|perf_event_max_sample_rate|user[.]max_|quota"
    "|nr_hugepages_mempolicy|overflow[gu]id|tainted|threads-max|file-max|tcp_mem|udp_mem|min_free_kbytes"
)
QUESTIONS: Final = ("uname -r", "cat /proc/cmdline", "ip -j addr show", DMI, PACKAGES, SYSCTL)
"""Commands that ``rackproof record --drift`` records in addition to those of the architecture's checks."""
SHOWN: Final = 8
"""Maximum number of facts in one line."""
ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True)
class Deviation:
    """Nodes that deviate from their peers in the same way."""

    nodes: tuple[str, ...]
    peers: tuple[str, ...]
    facts: tuple[tuple[str, str, str], ...]
    """Name, value of these nodes, value of the others."""

    @property
    def line(self) -> str:
        facts = [f"{what} {value}, others {other}" for what, value, other in self.facts]
        verb = "differs" if len(self.nodes) == 1 else "differ"
        return f"{fold(self.nodes)} {verb} from {fold(self.peers)}: {some(facts, SHOWN, '; ')}"


def deviations(recordings: Sequence[Recording]) -> list[Deviation]:
    """Deviations within every group of nodes with the same roles. Facts that were not recorded are ignored."""
    groups: dict[tuple[str, ...], dict[str, Mapping[str, Mapping[str, str]]]] = {}
    for recording in recordings:
        groups.setdefault(recording.node.groups, {})[recording.node.name] = facts_of(recording)
    return [deviation for members in groups.values() if len(members) > 1 for deviation in _of_peers(members)]


def _of_peers(members: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Iterator[Deviation]:
    by_node: dict[str, list[tuple[str, str, str]]] = {name: [] for name in members}
    kinds = dict.fromkeys(kind for kinds in members.values() for kind in kinds)
    for kind in kinds:
        asked = {name: kinds_[kind] for name, kinds_ in members.items() if kind in kinds_}
        for what in dict.fromkeys(what for facts in asked.values() for what in facts):
            values = {name: facts.get(what, ABSENT) for name, facts in asked.items()}
            # Ties: the first value wins.
            rule = Counter(values.values()).most_common(1)[0][0]
            for name, value in values.items():
                if value != rule:
                    by_node[name].append((what, value, rule))
    folded: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for name, found in by_node.items():
        if found:
            folded.setdefault(tuple(found), []).append(name)
    for facts, names in folded.items():
        yield Deviation(tuple(names), tuple(name for name in members if name not in names), facts)


def facts_of(recording: Recording) -> dict[str, dict[str, str]]:
    """Facts by kind and name. Kinds whose command was not recorded, or failed, are left out."""
    found: dict[str, dict[str, str]] = {}
    for command, result in recording.results.items():
        if result.rc is None:
            continue
        for kind, (asked, read) in _KINDS.items():
            if match := asked.search(command):
                facts = dict(read(match, result.text))
                if facts:
                    found[kind] = {**found.get(kind, {}), **facts}
    return found


Facts = Iterator[tuple[str, str]]


def _kernel(_: re.Match[str], text: str) -> Facts:
    if first := text.split("\n", 1)[0].strip():
        yield "kernel", first


def _cmdline(_: re.Match[str], text: str) -> Facts:
    words = [word for word in anonymous(text.split("\n", 1)[0]).split() if not word.startswith("BOOT_IMAGE=")]
    if words:
        yield "kernel command line", " ".join(words)


def _dmi(_: re.Match[str], text: str) -> Facts:
    names = {"bios_version": "BIOS version", "bios_date": "BIOS date", "product_name": "product"}
    for line in text.splitlines():
        path, _colon, value = line.partition(":")
        key = path.rpartition("/")[2]
        if key in names:
            yield names[key], value.strip()


def _mtu(_: re.Match[str], text: str) -> Facts:
    try:
        links = json.loads(text)
    except ValueError:
        return
    for link in links if isinstance(links, list) else ():
        if isinstance(link, dict) and link.get("link_type") != "loopback" and "ifname" in link and "mtu" in link:
            yield f"MTU of {anonymous(str(link['ifname']))}", str(link["mtu"])


def _port_firmware(_: re.Match[str], text: str) -> Facts:
    for line in text.splitlines():
        if match := re.fullmatch(r"(\w+)/fw_ver:(.+)", line):
            yield f"firmware of {match[1]}", match[2].strip()


def _ethtool_firmware(asked: re.Match[str], text: str) -> Facts:
    if version := re.search(r"(?m)^firmware-version: ?(\S.*)$", text):
        yield f"firmware of {asked['port']}", version[1].strip()


def _drive_firmware(_: re.Match[str], text: str) -> Facts:
    drive = ""
    for line in text.splitlines():
        if match := re.fullmatch(r"nvme (\w+)", line):
            drive = match[1]
        elif drive and (match := re.fullmatch(r" firmware_rev (.*)", line)):
            yield f"firmware of {drive}", match[1].strip()


def _sysctl(_: re.Match[str], text: str) -> Facts:
    for line in text.splitlines():
        key, equals, value = line.partition(" = ")
        if equals:
            yield f"sysctl {key}", " ".join(value.split())


def _packages(_: re.Match[str], text: str) -> Facts:
    for line in text.splitlines():
        if match := re.fullmatch(r"package (\S+) (\S+) (\S+)", line):
            yield f"package {match[1]}", match[3] if match[2] == "installed" else match[2]


def _gpu(_: re.Match[str], text: str) -> Facts:
    for key, name in (("driver_version", "GPU driver"), ("vbios_version", "VBIOS"), ("img_version", "InfoROM")):
        values = sorted(set(re.findall(rf"<{key}>([^<]*)</{key}>", text)))
        if values:
            yield name, " and ".join(values)


_KINDS: Final[dict[str, tuple[re.Pattern[str], Callable[[re.Match[str], str], Facts]]]] = {
    "kernel": (re.compile(r"^uname -r"), _kernel),
    "cmdline": (re.compile(r"^cat /proc/cmdline"), _cmdline),
    "dmi": (re.compile(r"/sys/class/dmi/id/"), _dmi),
    "mtu": (re.compile(r"^ip -j addr show"), _mtu),
    "port firmware": (re.compile(r"\*/fw_ver"), _port_firmware),
    "NIC firmware": (re.compile(r"\bethtool -i (?P<port>[\w.-]+)"), _ethtool_firmware),
    "drive firmware": (re.compile(r"firmware_rev"), _drive_firmware),
    "sysctl": (re.compile(r"^sysctl "), _sysctl),
    "packages": (re.compile(r"package \$\{Package\}|package %\{NAME\}"), _packages),
    "GPU": (re.compile(r"nvidia-smi -q -x"), _gpu),
}
