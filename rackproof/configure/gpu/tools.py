"""Programs that measure GPUs and that no distribution has, and an MPI: built on the node from sources of the inventory.
Pure.

A node keeps the digests of the sources, of the MPI's sources and of the built files beside them: what has other sources
or another MPI is built again, and so are files that are absent or changed; the check of measuring programs compares
programs, too.
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
from rackproof.core.programs import MPI, TOOLS
from rackproof.core.wording import some

COMMANDS: Final = "/usr/local/bin"
"""Where programs without a packaged namesake are linked."""
_PERFTEST: Final = tuple(
    f"./ib_{what}" for what in ("write_bw", "write_lat", "read_bw", "read_lat", "send_bw", "send_lat")
)
_LIBRARIES: Final = "lib/"
"""Word for all files below this folder."""
_MPI: Final = "mpi:"
"""Before the digest of the MPI's archive."""
STATE: Final = shell.script(__name__, "tool_state", tools=TOOLS, mpi_word=_MPI, libraries=_LIBRARIES)

_PACKAGES: Final = {
    "debian": {
        "openmpi": "g++ make perl",
        "mpi4py": "cython3 gcc python3-dev python3-numpy python3-setuptools",
        "nvbandwidth": "cmake g++ libboost-program-options-dev make",
        "nccl_tests": "g++ make",
        MPI: "libopenmpi-dev",
        "perftest": "autoconf automake libibumad-dev libibverbs-dev libpci-dev librdmacm-dev libtool make",
    },
    "rhel": {
        "openmpi": "gcc-c++ make perl",
        "mpi4py": "gcc python3-devel python3-numpy python3-setuptools",
        "nvbandwidth": "boost-devel cmake gcc-c++ make",
        "nccl_tests": "gcc-c++ make",
        MPI: "openmpi-devel",
        "perftest": "autoconf automake libtool make pciutils-devel rdma-core-devel",
    },
}
"""Packages of the distribution that a build needs (READMEs of the tools); below ``MPI`` an MPI that is not built."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One archive and the programs that it gives."""

    name: str
    """The tool's key below ``gpu.tools``."""
    download: Download
    programs: tuple[str, ...]
    """Paths below the built sources."""
    linked: bool
    """Whether its programs are linked from ``COMMANDS``. Those of perftest and Open MPI are not: packages have programs
    of these names."""
    libraries: bool = False
    """Whether files below ``_LIBRARIES`` belong to the tool."""
    mpi: str = ""
    """sha256 of the archive of the MPI with which the tool is built; empty for the distribution's, and for none."""

    @property
    def parts(self) -> frozenset[str]:
        """``Built.parts`` of a node that has all of it, unchanged."""
        names = {program.rpartition("/")[2] for program in self.programs}
        return frozenset(names | ({_LIBRARIES} if self.libraries else set()))


def wanted(stack: GpuInputs) -> tuple[Tool, ...]:
    """Tools with declared sources, an MPI before those that are built with it."""
    declared = stack.tools
    mpi = declared.openmpi.sha256 if declared.openmpi else ""
    entries: tuple[tuple[str, Download | None, tuple[str, ...], bool, bool, str], ...] = (
        ("openmpi", declared.openmpi, ("bin/mpirun", "bin/mpicc"), False, True, ""),
        ("mpi4py", declared.mpi4py, (), False, True, mpi),
        ("nvbandwidth", declared.nvbandwidth, ("./nvbandwidth",), True, False, ""),
        ("nccl_tests", declared.nccl_tests, tuple(f"build/{op}_perf" for op in OPS), True, False, mpi),
        ("perftest", declared.perftest, _PERFTEST, False, False, ""),
    )
    return tuple(
        Tool(name, source, programs, linked, libraries, with_mpi)
        for name, source, programs, linked, libraries, with_mpi in entries
        if source
    )


def build_packages(stack: GpuInputs, family: str) -> tuple[str, ...]:
    """Packages of the distribution that the builds need, beside CUDA's toolkit (``gpu.cuda``)."""
    needed = _PACKAGES["debian" if family == "debian" else "rhel"]
    names = [tool.name for tool in wanted(stack)]
    names += [MPI] if "nccl_tests" in names and "openmpi" not in names else []
    return tuple(dict.fromkeys(package for name in names for package in needed[name].split()))


class Built(NamedTuple):
    """State of one tool on a node."""

    sha256: str
    """Digest of the archive with its sources."""
    parts: frozenset[str]
    """As ``Tool.parts``: programs, and libraries, that are as they were built."""
    mpi: str = ""
    """As ``Tool.mpi``."""


def parse_state(lines: Sequence[str]) -> dict[str, Built]:
    """States by tool, from the answer to ``STATE``. Raises ValueError on anything else."""
    built = {}
    for line in lines:
        path, digest, *parts = line.split(" ")
        if not path.startswith(f"{TOOLS}/") or len(digest) != 64:
            raise ValueError(f"expected a tool and the digest of its sources, got {line!r}")
        mpi = next((part.removeprefix(_MPI) for part in parts if part.startswith(_MPI)), "")
        name = path.removeprefix(f"{TOOLS}/").removesuffix("/sha256")
        built[name] = Built(digest, frozenset(part for part in parts if not part.startswith(_MPI)), mpi)
    return built


def plan(tool: Tool, built: Mapping[str, Built]) -> ScriptPlan:
    """Script that builds a tool; none where the node has all its programs, unchanged, from these sources."""
    there = built.get(tool.name)
    if there is None:
        why = "not built"
    elif there.sha256 != tool.download.sha256:
        why = "built from other sources"
    elif tool.mpi and there.mpi != tool.mpi:
        why = "built with another MPI"
    elif lost := sorted(tool.parts - there.parts):
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
        mpi=f"{folder}/openmpi" if tool.mpi else "", mpi_sha256=tool.mpi,
    )  # fmt: skip
    return f"{unpack}\n{build}"
