"""Programs that measure GPUs and that no distribution has: built on the node from sources of the inventory. Pure.

A node keeps the digests of the sources and of the programs beside them: other sources are built again, and so are
programs that are absent or changed; the check of measuring programs compares them, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rackproof import shell
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.inputs import Download
from rackproof.configure.script_plan import ScriptPlan
from rackproof.configure.storage_client import install
from rackproof.core.collective import OPS
from rackproof.core.plan import Change
from rackproof.core.programs import TOOLS
from rackproof.core.wording import some

COMMANDS: Final = "/usr/local/bin"
"""Where programs without a packaged namesake are linked."""
_PERFTEST: Final = tuple(
    f"./ib_{what}" for what in ("write_bw", "write_lat", "read_bw", "read_lat", "send_bw", "send_lat")
)
STATE: Final = (
    f'for f in {TOOLS}/*/sha256; do [ ! -f "$f" ] || echo "$f" $(cat "$f"; cd "${{f%/*}}/bin" 2>/dev/null && '
    "LC_ALL=C sha256sum -c ../programs.sha256 2>/dev/null | sed -n 's/: OK$//p'); done"
)

_PACKAGES: Final = {
    "debian": {
        "nvbandwidth": "cmake g++ libboost-program-options-dev make",
        "nccl_tests": "g++ libopenmpi-dev make",
        "perftest": "autoconf automake libibumad-dev libibverbs-dev libpci-dev librdmacm-dev libtool make",
    },
    "rhel": {
        "nvbandwidth": "boost-devel cmake gcc-c++ make",
        "nccl_tests": "gcc-c++ make openmpi-devel",
        "perftest": "autoconf automake libtool make pciutils-devel rdma-core-devel",
    },
}
"""What a build needs of the distribution (READMEs of the tools)."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One archive and the programs that it gives."""

    name: str
    """Its key below ``gpu.tools``."""
    download: Download
    programs: tuple[str, ...]
    """Paths below the built sources."""
    linked: bool
    """Whether its programs are linked from ``COMMANDS``. perftest's are not: a package has programs of these names."""


def wanted(stack: GpuInputs) -> tuple[Tool, ...]:
    """Tools with declared sources."""
    declared = stack.tools
    entries = (
        ("nvbandwidth", declared.nvbandwidth, ("./nvbandwidth",), True),
        ("nccl_tests", declared.nccl_tests, tuple(f"build/{op}_perf" for op in OPS), True),
        ("perftest", declared.perftest, _PERFTEST, False),
    )
    return tuple(Tool(name, source, programs, link) for name, source, programs, link in entries if source)


def build_packages(stack: GpuInputs, family: str) -> tuple[str, ...]:
    """Packages of the distribution that the builds need, beside CUDA's toolkit (``gpu.cuda``)."""
    needed = _PACKAGES["debian" if family == "debian" else "rhel"]
    return tuple(dict.fromkeys(package for tool in wanted(stack) for package in needed[tool.name].split()))


class Built(NamedTuple):
    """What a node has of a tool."""

    sha256: str
    """Digest of the archive with its sources."""
    programs: frozenset[str]
    """Names of the programs that are as they were built."""


def parse_state(lines: Sequence[str]) -> dict[str, Built]:
    """What is built, by tool, from the answer to ``STATE``. Raises ValueError on anything else."""
    built = {}
    for line in lines:
        path, digest, *programs = line.split(" ")
        if not path.startswith(f"{TOOLS}/") or len(digest) != 64:
            raise ValueError(f"expected a tool and the digest of its sources, got {line!r}")
        built[path.removeprefix(f"{TOOLS}/").removesuffix("/sha256")] = Built(digest, frozenset(programs))
    return built


def plan(tool: Tool, built: Mapping[str, Built]) -> ScriptPlan:
    """Script that builds a tool; none where the node has all its programs, unchanged, from these sources."""
    there = built.get(tool.name)
    if there is None:
        why = "not built"
    elif there.sha256 != tool.download.sha256:
        why = "built from other sources"
    elif lost := sorted({program.rpartition("/")[2] for program in tool.programs} - there.programs):
        why = f"absent, or changed since they were built: {some(lost, 3)}"
    else:
        return ScriptPlan()
    lines = (install.fetch(tool.download), build_script(tool, install.place(tool.download), TOOLS, COMMANDS))
    return ScriptPlan(lines, (Change(what=f"build {tool.name} of {tool.download.url}", why=why),))


def build_script(tool: Tool, sources: str, folder: str, commands: str) -> str:
    """Shell lines that build downloaded sources and put the programs below ``folder``."""
    unpack = shell.script(install.__name__, "unpack", sources=sources)
    build = shell.script(
        __name__, "build_tool", *tool.programs, tool=tool.name, prefix=f"{folder}/{tool.name}",
        sha256=tool.download.sha256, links=commands if tool.linked else "",
    )  # fmt: skip
    return f"{unpack}\n{build}"
