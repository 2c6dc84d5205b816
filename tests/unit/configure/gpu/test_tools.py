"""Programs that measure GPUs are built from the declared sources, and only when they are others than before."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import get_args

import pytest

from rackproof.configure.gpu import tools
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.core.architecture.profiles import Operation
from tests.unit.configure.gpu.test_packages import names
from tests.unit.shell import executable, sh

SHA = "ab" * 32
STACK = GpuInputs.model_validate(
    {
        "tools": {
            name: {"url": f"https://mirror/{name}.tar.gz", "sha256": SHA}
            for name in ("nvbandwidth", "nccl_tests", "perftest")
        }
    }
)
TOOLS = {tool.name: tool for tool in tools.wanted(STACK)}
MAKE = {
    "nvbandwidth": "echo '#!/bin/sh' >nvbandwidth && chmod 755 nvbandwidth",
    "nccl_tests": f"mkdir -p build && for p in {' '.join(TOOLS['nccl_tests'].programs)};"
    ' do echo "$NVCC_APPEND_FLAGS $*" >$p; chmod 755 $p; done',
    "perftest": "for p in " + " ".join(TOOLS["perftest"].programs) + "; do echo x >$p; chmod 755 $p; done",
}  # fmt: skip


def build(name: str, folder: Path, make: str, nvcc: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the build with programs of a folder instead of compilers."""
    programs = folder / "programs"
    mpicc = "case $1 in *incdirs) echo /mpi/include;; *) echo /mpi/lib;; esac"
    fakes = {"make": make, "cmake": "test -f CMakeLists.txt", "mpicc": mpicc}
    fakes |= {"nvcc": "exit 1"} if nvcc else {}
    for program, text in fakes.items():
        executable(programs / program, text)
    archive = folder / "sources.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for file, text in {"CMakeLists.txt": "", "autogen.sh": "#!/bin/sh\n", "configure": "#!/bin/sh\n"}.items():
            entry = tarfile.TarInfo(f"top/{file}")
            entry.size, entry.mode = len(text), 0o755
            tar.addfile(entry, io.BytesIO(text.encode()))
    script = tools.build_script(TOOLS[name], str(archive), str(folder / "tools"), str(folder / "bin"))
    script = script.replace("/var/log/", f"{folder}/").replace("/usr/local/cuda/bin/nvcc", f"{folder}/none/nvcc")
    return sh(f"set -eu\n{script}", programs=programs)


def state(folder: Path) -> dict[str, tools.Built]:
    """What the node's answer says of the programs that ``build`` has put there."""
    answer = sh(tools.STATE.replace(tools.TOOLS, f"{folder}/tools"), check=True).stdout
    return tools.parse_state(answer.replace(f"{folder}/tools", tools.TOOLS).splitlines())


@pytest.mark.parametrize("name", TOOLS)
def test_programs_and_the_digest_of_their_sources_are_installed(name: str, tmp_path: Path) -> None:
    ended = build(name, tmp_path, MAKE[name])
    assert ended.returncode == 0, ended.stderr
    tool = TOOLS[name]
    installed = tmp_path / "tools" / name
    assert (installed / "sha256").read_text() == f"{SHA}\n"
    assert state(tmp_path)[name] == tools.Built(SHA, frozenset(Path(program).name for program in tool.programs))
    for program in tool.programs:
        assert (installed / "bin" / Path(program).name).exists()
        assert (tmp_path / "bin" / Path(program).name).is_symlink() == tool.linked
    if name == "nccl_tests":
        asked = (installed / "bin/all_reduce_perf").read_text()
        assert asked.startswith(" -I/mpi/include -L/mpi/lib -j")
        assert "MPI=1" in asked


@pytest.mark.parametrize(
    ("make", "nvcc", "words"),
    [
        ("echo 'kernels.cu(7): error' >&2; exit 2", True, "kernels.cu(7): error"),
        ("true", True, "its build gives no nvbandwidth"),
        (MAKE["nvbandwidth"], False, "no nvcc on this node: gpu.cuda"),
    ],
)
def test_a_failed_build_says_why_and_leaves_the_old_programs(make: str, nvcc: bool, words: str, tmp_path: Path) -> None:
    old = tmp_path / "tools/nvbandwidth/bin/nvbandwidth"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    ended = build("nvbandwidth", tmp_path, make, nvcc)
    assert ended.returncode != 0
    assert words in ended.stderr
    assert old.read_text() == "old"


def test_what_is_built_from_these_sources_is_not_built_again() -> None:
    tool = TOOLS["nvbandwidth"]
    there = f"{tools.TOOLS}/nvbandwidth/sha256"
    assert not tools.plan(tool, tools.parse_state([f"{there} {SHA} nvbandwidth"]))
    for lines, why in (
        ([], "not built"),
        ([f"{there} {'cd' * 32} nvbandwidth"], "built from other sources"),
        ([f"{there} {SHA}"], "absent, or changed since they were built: nvbandwidth"),
    ):
        plan = tools.plan(tool, tools.parse_state(lines))
        assert [(change.what, change.why) for change in plan.changes] == [
            ("build nvbandwidth of https://mirror/nvbandwidth.tar.gz", why)
        ]
        assert SHA in plan.script


@pytest.mark.parametrize("lost", ["change", "remove", "forget"])
def test_programs_that_are_not_as_they_were_built_are_built_again(lost: str, tmp_path: Path) -> None:
    assert build("nccl_tests", tmp_path, MAKE["nccl_tests"]).returncode == 0
    installed = tmp_path / "tools/nccl_tests"
    program = installed / "bin/all_reduce_perf"
    if lost == "change":
        program.write_text("other")
    elif lost == "remove":
        program.unlink()
    else:  # an older kit wrote no digests of programs
        (installed / "programs.sha256").unlink()
    (change,) = tools.plan(TOOLS["nccl_tests"], state(tmp_path)).changes
    shown = "all_gather_perf, all_reduce_perf, alltoall_perf" if lost == "forget" else "all_reduce_perf"
    assert change.why.startswith(f"absent, or changed since they were built: {shown}")


def test_every_operation_that_a_profile_may_ask_for_is_built() -> None:
    names = {Path(program).name for program in TOOLS["nccl_tests"].programs}
    assert names == {f"{op}_perf" for op in get_args(Operation)}


@pytest.mark.parametrize("line", ["", "/opt/rackproof/tools/x/sha256 12", f"/etc/passwd {SHA}", "a b c"])
def test_an_odd_state_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"expected a tool|unpack"):
        tools.parse_state([line])


def test_builds_bring_their_packages_and_nothing_is_built_unasked() -> None:
    assert tools.wanted(GpuInputs()) == ()
    declared = {"nvbandwidth": {"url": "https://mirror/n.tar.gz", "sha256": SHA}}
    assert names("debian 13", "26b9", tools=declared)[-4:] == ["cmake", "g++", "libboost-program-options-dev", "make"]
    assert "cmake" not in names("debian 13", "26b9")
