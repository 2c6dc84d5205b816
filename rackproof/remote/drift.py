"""Drift: nodes that deviate from their peers, one line for each deviation. Pure.

``facts_of`` extracts facts that nodes of one kind should share from recordings: kernel, command line, BIOS, MTU,
firmware, sysctl, packages, GPU driver. A node whose value is not that of most peers deviates. ``difference`` compares
everything else, line by line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from rackproof.core.rack import fold
from rackproof.core.wording import some
from rackproof.parse import ParseError
from rackproof.parse.answer import STATUS, parse_answer
from rackproof.parse.block import DRIVES, parse_drives
from rackproof.parse.ethtool import parse_ethtool_driver
from rackproof.parse.kernel import KERNELS, parse_cmdline, parse_kernels, parse_release, parse_sysctl
from rackproof.parse.netdev import parse_ip
from rackproof.parse.nvidia_smi import parse_nvidia_smi
from rackproof.parse.packages import parse_package_states
from rackproof.parse.sysfs import files_of
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
    for kind in dict.fromkeys(kind for kinds in members.values() for kind in kinds):
        asked = {name: kinds[kind] for name, kinds in members.items() if kind in kinds}
        for what in dict.fromkeys(what for facts in asked.values() for what in facts):
            values = {name: facts.get(what, ABSENT) for name, facts in asked.items()}
            # Ties: the first value wins.
            rule = Counter(values.values()).most_common(1)[0][0]
            for name, value in values.items():
                if value != rule:
                    by_node[name].append((what, value, rule))
    folded: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for name, facts in by_node.items():
        if facts:
            folded.setdefault(tuple(facts), []).append(name)
    for same, names in folded.items():
        yield Deviation(tuple(names), tuple(name for name in members if name not in names), same)


def facts_of(recording: Recording) -> dict[str, dict[str, str]]:
    """Facts by kind and name, without kinds whose command was not recorded, failed or gave an unreadable answer."""
    kinds: dict[str, dict[str, str]] = {}
    for command, result in recording.results.items():
        if result.rc is None:
            continue
        for kind, (asked, read) in _KINDS.items():
            if match := asked.search(command):
                with suppress(ParseError):
                    body = parse_answer(kind, result.text).body if command.endswith(STATUS) else result.text
                    if facts := {name: value for name, value in read(match, body) if value}:
                        kinds[kind] = {**kinds.get(kind, {}), **facts}
    return kinds


Facts = Iterator[tuple[str, str]]


def _kernel(asked: re.Match[str], text: str) -> Facts:
    yield "kernel", parse_kernels(text).running if asked[0] == KERNELS else parse_release(text)


def _cmdline(_: re.Match[str], text: str) -> Facts:
    words = (word for word in parse_cmdline(anonymous(text)) if not word.startswith("BOOT_IMAGE="))
    yield "kernel command line", " ".join(words)


def _dmi(_: re.Match[str], text: str) -> Facts:
    names = {"bios_version": "BIOS version", "bios_date": "BIOS date", "product_name": "product"}
    for path, lines in files_of(text).items():
        if name := names.get(path.rpartition("/")[2]):
            yield name, lines[0].strip()


def _mtu(_: re.Match[str], text: str) -> Facts:
    for device in parse_ip(text):
        if device.kind != "loopback":
            yield f"MTU of {anonymous(device.name)}", str(device.mtu_bytes)


def _port_firmware(_: re.Match[str], text: str) -> Facts:
    for path, lines in files_of(text).items():
        device, _slash, file = path.partition("/")
        if file == "fw_ver":
            yield f"firmware of {device}", lines[0]


def _ethtool_firmware(asked: re.Match[str], text: str) -> Facts:
    yield f"firmware of {asked['port']}", parse_ethtool_driver(text).firmware or ""


def _drive_firmware(_: re.Match[str], text: str) -> Facts:
    for drive in parse_drives(text):
        yield f"firmware of {drive.name}", drive.firmware


def _sysctl(_: re.Match[str], text: str) -> Facts:
    for key, value in parse_sysctl(text).items():
        yield f"sysctl {key}", value


def _packages(_: re.Match[str], text: str) -> Facts:
    for name, states in parse_package_states(text).items():
        yield f"package {name}", " and ".join(version if word == "installed" else word for word, version in states)


def _gpu(_: re.Match[str], text: str) -> Facts:
    report = parse_nvidia_smi(text)
    yield "GPU driver", report.driver or ""
    yield "VBIOS", " and ".join(sorted({gpu.vbios for gpu in report.gpus if gpu.vbios}))
    yield "InfoROM", " and ".join(sorted({gpu.inforom for gpu in report.gpus if gpu.inforom}))


_KINDS: Final[dict[str, tuple[re.Pattern[str], Callable[[re.Match[str], str], Facts]]]] = {
    "kernel": (re.compile(f"^(uname -r|{re.escape(KERNELS)})$"), _kernel),
    "cmdline": (re.compile(r"^cat /proc/cmdline"), _cmdline),
    "dmi": (re.compile(r"/sys/class/dmi/id/bios_"), _dmi),
    "mtu": (re.compile(r"^ip -j addr show$"), _mtu),
    "port firmware": (re.compile(r"\*/fw_ver"), _port_firmware),
    "NIC firmware": (re.compile(r"^ethtool -i (?P<port>[\w.-]+)"), _ethtool_firmware),
    "drive firmware": (re.compile(f"^{re.escape(DRIVES)}$"), _drive_firmware),
    "sysctl": (re.compile(r"^sysctl "), _sysctl),
    "packages": (re.compile(r"package \$\{Package\}|package %\{NAME\}"), _packages),
    "GPU": (re.compile(r"^nvidia-smi -q -x$"), _gpu),
}
