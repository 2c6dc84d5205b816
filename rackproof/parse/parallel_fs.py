"""Client state of parallel file systems: Lustre, BeeGFS, GPFS, WEKA, DAOS."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, excerpt, integer, matched, whole_lines


@dataclass(frozen=True, slots=True)
class Import:
    """A Lustre client's connection to one target."""

    kind: str
    """``osc`` of a data target, ``mdc`` of a metadata target."""
    target: str
    """``scratch-OST0000``."""
    state: str
    """FULL when it works; IDLE when an unused data target was disconnected; DISCONN, CONNECTING, EVICTED …"""
    nid: str | None
    """NID of the server in use: ``10.0.0.1@o2ib``; None without one."""

    @property
    def network(self) -> str | None:
        """``o2ib``, ``tcp``; without the network's number."""
        return re.sub(r"\d+$", "", self.nid.rpartition("@")[2]) if self.nid else None


_IMPORT: Final = re.compile(r"(osc|mdc)\.(\S+)\.import=")


def parse_lustre_imports(output: str | bytes) -> tuple[Import, ...]:
    """``lctl get_param osc.NAME-*.import mdc.NAME-*.import``; never empty."""
    tool = "lctl"
    blocks: list[tuple[str, dict[str, str]]] = []
    for line in whole_lines(tool, output):
        if match := _IMPORT.fullmatch(line.strip()):
            blocks.append((match[1], {}))
            continue
        if not blocks:
            if line.strip():
                raise ParseError(tool, f"expected an import, got {excerpt(line)}")
            continue
        key, colon, value = line.strip().partition(":")
        if colon and key in ("target", "state", "current_connection"):
            if key in blocks[-1][1]:
                raise ParseError(tool, f"an import has {key} twice: {excerpt(line)}")
            blocks[-1][1][key] = value.strip().strip('"')
    if not blocks:
        raise ParseError(tool, "lists no import")
    return tuple(_import(tool, kind, values) for kind, values in blocks)


def _import(tool: str, kind: str, values: dict[str, str]) -> Import:
    missing = [key for key in ("target", "state", "current_connection") if not values.get(key)]
    if missing:
        raise ParseError(tool, f"an import lacks {', '.join(missing)}")
    if not re.fullmatch(r"[A-Z_]+", values["state"]):
        raise ParseError(tool, f"expected the state of an import, got {excerpt(values['state'])}")
    nid = values["current_connection"]
    if nid != "<none>" and not re.fullmatch(r"[^@\s]+@[a-z]\w*", nid):
        raise ParseError(tool, f"expected the address of a server, got {excerpt(nid)}")
    return Import(kind, values["target"].removesuffix("_UUID"), values["state"], None if nid == "<none>" else nid)


@dataclass(frozen=True, slots=True)
class BeegfsNode:
    """A server as a BeeGFS client sees it."""

    name: str
    connections: dict[str, int]
    """By transport: ``RDMA``, ``TCP``; empty before the first request."""


def parse_beegfs_nodes(output: str | bytes) -> tuple[BeegfsNode, ...]:
    """``meta_nodes`` and ``storage_nodes`` of /proc/fs/beegfs/*, one after the other; never empty."""
    tool = "beegfs"
    nodes: list[tuple[str, dict[str, int] | None]] = []
    for line in whole_lines(tool, output):
        words = line.strip()
        if match := re.fullmatch(r"(\S.*?) \[ID: \d+\].*", words):
            nodes.append((match[1], None))
        elif words.startswith("Connections:"):
            if not nodes or nodes[-1][1] is not None:
                raise ParseError(tool, f"connections before the first node: {excerpt(line)}")
            nodes[-1] = (nodes[-1][0], _connections(tool, words))
    if not nodes:
        raise ParseError(tool, "lists no node")
    servers = []
    for name, connections in nodes:
        if connections is None:
            raise ParseError(tool, f"{name} has no line of connections")
        servers.append(BeegfsNode(name, connections))
    return tuple(servers)


def _connections(tool: str, words: str) -> dict[str, int]:
    rest = words.removeprefix("Connections:").strip()
    if rest in ("<none>", "none"):
        return {}
    counts: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in rest.split(";"))):
        match = re.fullmatch(r"([A-Z]+): (\d+) \(.*\)", part)
        if match is None:
            raise ParseError(tool, f"expected connections, got {excerpt(words)}")
        counts[match[1]] = counts.get(match[1], 0) + int(match[2])
    if not counts:
        raise ParseError(tool, f"expected connections, got {excerpt(words)}")
    return counts


@dataclass(frozen=True, slots=True)
class BeegfsTarget:
    id: int
    reachability: str
    """Online, Probably-offline, Offline."""
    consistency: str
    """Good, Needs-resync, Bad."""


def parse_beegfs_targets(output: str | bytes) -> tuple[BeegfsTarget, ...]:
    """``beegfs-ctl --listtargets --state``; never empty."""
    tool = "beegfs-ctl"
    lines = [line for line in whole_lines(tool, output) if line.strip()]
    heads = [
        index for index, line in enumerate(lines) if line.split()[:3] == ["TargetID", "Reachability", "Consistency"]
    ]
    if len(heads) != 1 or len(lines) < heads[0] + 3:
        raise ParseError(tool, "expected a table of targets")
    targets = []
    for line in lines[heads[0] + 2 :]:
        words = line.split()
        if len(words) < 3 or not re.fullmatch(r"[A-Z][\w-]*", words[1]) or not re.fullmatch(r"[A-Z][\w-]*", words[2]):
            raise ParseError(tool, f"expected a target, got {excerpt(line)}")
        targets.append(BeegfsTarget(integer(tool, "target", words[0]), words[1], words[2]))
    return tuple(targets)


def parse_mmgetstate(output: str | bytes) -> str:
    """``mmgetstate -Y``: state of this node's GPFS daemon: active, arbitrating, down, unknown …"""
    tool = "mmgetstate"
    header: list[str] | None = None
    states = []
    for line in whole_lines(tool, output):
        words = line.split(":")
        if words[:3] == ["mmgetstate", "", "HEADER"]:
            header = words
        elif words[0] == "mmgetstate" and header is not None and len(words) >= len(header):
            row = dict(zip(header, words, strict=False))
            states.append(row.get("state", ""))
        elif line.strip():
            raise ParseError(tool, f"unexpected line {excerpt(line)}")
    if len(states) != 1 or not re.fullmatch(r"[a-z_ ]+", states[0]):
        raise ParseError(tool, f"expected the state of one node, actual {excerpt(' '.join(states))}")
    return states[0]


def parse_gpfs_verbs(output: str | bytes) -> bool:
    """``mmfsadm test verbs status``: whether data goes over RDMA."""
    tool = "mmfsadm"
    lines = [line.strip() for line in whole_lines(tool, output) if line.strip()]
    match = (
        re.fullmatch(r"VERBS RDMA status: (started|stopped|disabled|enabled)", lines[0]) if len(lines) == 1 else None
    )
    if match is None:
        raise ParseError(tool, f"expected the status of RDMA, got {excerpt(lines[-1] if lines else '')}")
    return match[1] == "started"


@dataclass(frozen=True, slots=True)
class WekaDriver:
    connected: bool
    """The client container that serves the file system is connected."""
    mounted: tuple[str, ...]
    """Names of file systems."""


def parse_weka_networks(output: str | bytes) -> tuple[str, ...]:
    """Network of each client process, one per line: ``DPDK / RDMA``, ``DPDK``, ``UDP``; never empty.

    Management processes have no network, or UDP beside DPDK ones; the query omits them.
    """
    tool = "weka"
    networks = [line.strip() for line in whole_lines(tool, output) if line.strip()]
    wrong = [line for line in networks if not re.fullmatch(r"(DPDK|UDP)( / RDMA)?", line)]
    if wrong or not networks:
        raise ParseError(tool, f"expected the network of a process, got {excerpt(wrong[0] if wrong else '')}")
    return tuple(networks)


_PROVIDER: Final = re.compile(r"provider\W+([a-z+;_A-Z0-9]+)", re.IGNORECASE)


def parse_daos_providers(output: str | bytes) -> tuple[str, ...]:
    """``daos_agent dump-attachinfo``: providers of the servers, e.g. ``ofi+verbs;ofi_rxm``; never empty."""
    tool = "daos_agent"
    providers = [match[1] for line in whole_lines(tool, output) if (match := _PROVIDER.search(line))]
    if not providers or any("+" not in name for name in providers):
        raise ParseError(tool, f"expected a provider, got {excerpt(providers[0] if providers else '')}")
    return tuple(providers)


def parse_weka_interface(output: str | bytes) -> WekaDriver:
    """/proc/wekafs/interface."""
    tool = "wekafs"
    lines = whole_lines(tool, output)
    if not any(line.startswith("IO node version ") or "not connected" in line for line in lines):
        raise ParseError(tool, f"expected the state of the driver, got {excerpt(lines[0])}")
    mounted = []
    for line in lines:
        if line.startswith("mount:"):
            match = matched(tool, r"mount:\[[^\]]*\] (\S+)(?: .*)?", line, "a mount")
            mounted.append(match[1])
    return WekaDriver(not any("not connected" in line for line in lines), tuple(mounted))


DFUSE_END: Final = "end of dfuse"
DFUSE: Final = (
    'for p in /proc/[0-9]*; do [ "$(cat "$p/comm" 2>/dev/null)" = dfuse ] || continue; echo "process ${p##*/}";'
    f" tr '\\0' '\\n' <\"$p/cmdline\" | sed 's/^/argument /'; done; echo {DFUSE_END}"
)
"""Arguments of the running dfuse daemons: the kernel shows their mounts only as ``dfuse``."""
_DFUSE_VALUES: Final = {
    # options with a value, short and long
    "m": "mountpoint", "t": "thread-count", "e": "eq-count", "o": "o", "mountpoint": "mountpoint", "pool": "pool",
    "container": "container", "path": "path", "sys-name": "sys-name", "thread-count": "thread-count",
    "eq-count": "eq-count",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dfuse:
    """One dfuse daemon and its mount."""

    mountpoint: str
    pool: str | None
    """Label or UUID from the command line; None where the daemon got it elsewhere."""
    container: str | None


def parse_dfuse(output: str | bytes) -> tuple[Dfuse, ...]:
    """Output of ``DFUSE``; empty when no dfuse runs."""
    tool = "dfuse"
    lines = ended_lines(tool, output, DFUSE_END)
    processes: list[list[str]] = []
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "process" and value.isdigit():
            processes.append([])
        elif key == "argument" and processes:
            processes[-1].append(value)
        else:
            raise ParseError(tool, f"expected an argument of a daemon, got {excerpt(line)}")
    # An exiting daemon has no arguments.
    return tuple(_dfuse(tool, words[1:]) for words in processes if words)


def _dfuse(tool: str, words: list[str]) -> Dfuse:
    options: dict[str, str] = {}
    plain: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            plain.append(word)
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if name in _DFUSE_VALUES:
                options[_DFUSE_VALUES[name]] = value if equals else next(rest, "")
        elif word[1:2] in _DFUSE_VALUES:
            options[_DFUSE_VALUES[word[1]]] = word[2:] or next(rest, "")
    options |= {
        key: value
        for option in options.get("o", "").split(",")
        for key, equals, value in [option.partition("=")]
        if equals and key in ("pool", "container")
    }
    for key in ("mountpoint", "pool", "container"):
        if key not in options and plain:
            options[key] = plain.pop(0)
    if not options.get("mountpoint", "").startswith("/"):
        raise ParseError(tool, f"the arguments of a daemon name no mount point: {excerpt(' '.join(words))}")
    return Dfuse(options["mountpoint"].rstrip("/") or "/", options.get("pool"), options.get("container"))
