"""Programs that measure GPUs are built from the declared sources, and only when they are others than before."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from rackproof.configure.gpu import tools
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.core.architecture.profiles import Operation
from tests.unit.configure.gpu.test_packages import names
from tests.unit.shell import executable, sh

SHA, MPI_SHA = "ab" * 32, "cd" * 32


def stack(*names: str) -> GpuInputs:
    """With sources of these tools."""
    digests = {name: MPI_SHA if name == "openmpi" else SHA for name in names}
    declared = {name: {"url": f"https://mirror/{name}.tar.gz", "sha256": digest} for name, digest in digests.items()}
    return GpuInputs.model_validate({"tools": declared})


STACK = stack("nvbandwidth", "nccl_tests", "perftest")
TOOLS = {tool.name: tool for tool in tools.wanted(STACK)}
WITH_MPI = {tool.name: tool for tool in tools.wanted(stack("perftest", "nccl_tests", "mpi4py", "openmpi"))}
MAKE = {
    "nvbandwidth": "echo '#!/bin/sh' >nvbandwidth && chmod 755 nvbandwidth",
    "nccl_tests": f"mkdir -p build && for p in {' '.join(TOOLS['nccl_tests'].programs)};"
    ' do echo "$NVCC_APPEND_FLAGS $* $NVCC_GENCODE." >$p; chmod 755 $p; done',
    "perftest": "for p in " + " ".join(TOOLS["perftest"].programs) + "; do echo x >$p; chmod 755 $p; done",
    # prefix: what configure was asked for
    "openmpi": """prefix=$(sed -n 's/^--prefix=//p' asked); [ "$1" = install ] || exit 0
stage=${2#DESTDIR=}$prefix; mkdir -p "$stage/bin" "$stage/lib"; umask 077; echo "$prefix" >"$stage/lib/libmpi.so.40"
text='case $1 in *incdirs) echo PREFIX/include;; *) echo PREFIX/lib;; esac'
printf '#!/bin/sh\\n%s\\n' "$text" | sed "s|PREFIX|$prefix|g" >"$stage/bin/mpicc"
echo x >"$stage/bin/orterun"; chmod 755 "$stage/bin/"*; ln -s orterun $stage/bin/mpirun""",
    "mpi4py": "exit 1",
}  # fmt: skip
PYTHON = """case "$*" in
*--build-lib=built/lib) mkdir -p built/lib/mpi4py; echo "$MPICC" >built/lib/mpi4py/__init__.py ;;
*getsitepackages*) echo SITE ;;
*MPI) test -f mpi4py/__init__.py ;;
esac"""


def build(
    name: str, folder: Path, make: str, nvcc: bool = True, tool: tools.Tool | None = None, gpus: str = "",
    cmake: str = "test -f CMakeLists.txt",
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run the build with programs of a folder instead of compilers. ``gpus``: compute capabilities of the node's."""
    programs = folder / "programs"
    mpicc = "case $1 in *incdirs) echo /mpi/include;; *) echo /mpi/lib;; esac"
    python = PYTHON.replace("SITE", f"{folder}/site")
    fakes = {"make": make, "cmake": cmake, "mpicc": mpicc, "python3": python}
    fakes["nvidia-smi"] = f"printf '%s\\n' {gpus}" if gpus else "echo no driver; exit 9"
    fakes |= {"nvcc": "exit 1"} if nvcc else {}
    for program, text in fakes.items():
        executable(programs / program, text)
    archive = folder / "sources.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        configure = "#!/bin/sh\nprintf '%s\\n' \"$@\" >asked\n"
        for file, text in {"CMakeLists.txt": "", "autogen.sh": "#!/bin/sh\n", "configure": configure}.items():
            entry = tarfile.TarInfo(f"top/{file}")
            entry.size, entry.mode = len(text), 0o755
            tar.addfile(entry, io.BytesIO(text.encode()))
    script = tools.build_script(tool or TOOLS[name], str(archive), str(folder / "tools"), str(folder / "bin"))
    script = script.replace("/var/log/", f"{folder}/").replace("/usr/local/cuda/bin/nvcc", f"{folder}/none/nvcc")
    return sh(f"set -eu\n{script}", programs=programs)


def state(folder: Path) -> dict[str, tools.Built]:
    """State of the programs that ``build`` has put there, from the node's answer."""
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
        cuda = tmp_path / "programs/nvcc"
        assert asked.startswith(f"-Xlinker -rpath={cuda}/lib64 -I/mpi/include -L/mpi/lib -Xlinker -rpath=/mpi/lib -j")
        assert "MPI=1" in asked
        assert asked.endswith(" .\n"), "upstream's own list of architectures"


def test_machine_code_is_made_for_the_gpus_of_the_node(tmp_path: Path) -> None:
    """Code that the driver has to compile fails where CUDA is newer than the driver."""
    gpus = "9.0 9.0 10.3 '[N/A]'"
    assert build("nccl_tests", tmp_path, MAKE["nccl_tests"], gpus=gpus).returncode == 0
    asked = (tmp_path / "tools/nccl_tests/bin/all_reduce_perf").read_text()
    assert asked.endswith(" -gencode=arch=compute_103,code=sm_103 -gencode=arch=compute_90,code=sm_90.\n")
    for several, words in ((gpus, "-DCMAKE_CUDA_ARCHITECTURES=103;90\n."), ("", "nvcc\n.")):
        make = f"[ -s asked ] && {MAKE['nvbandwidth']} && cp asked {tmp_path}/cmake"
        ended = build("nvbandwidth", tmp_path, make, gpus=several, cmake="printf '%s\\n' \"$@\" >asked")
        assert ended.returncode == 0, ended.stderr
        assert (tmp_path / "cmake").read_text().endswith(f"{words}\n")


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("nvcc fatal   : Unsupported gpu architecture 'compute_60'", "Unsupported gpu architecture 'compute_60'"),
        ("CMake Error at CMakeLists.txt:17 (find_package):\n  Could NOT find Boost\n", "Could NOT find Boost"),
    ],
)
def test_a_failed_build_names_nvccs_and_cmakes_cause(log: str, cause: str, tmp_path: Path) -> None:
    text = f"cat >&2 <<'E'\n{log}\nE\necho later >&2; exit 1"
    ended = build("nvbandwidth", tmp_path, "exit 0", cmake=text)
    assert ended.returncode != 0
    assert cause in ended.stderr.splitlines()[-1]


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


def build_with_mpi(folder: Path, name: str) -> None:
    ended = build(name, folder, MAKE[name], tool=WITH_MPI[name], nvcc=name not in ("openmpi", "mpi4py"))
    assert ended.returncode == 0, ended.stderr


def test_an_mpi_is_built_before_what_is_built_with_it(tmp_path: Path) -> None:
    assert list(WITH_MPI) == ["openmpi", "mpi4py", "nccl_tests", "perftest"]
    for name in ("openmpi", "mpi4py", "nccl_tests"):
        build_with_mpi(tmp_path, name)
    mpi, built = tmp_path / "tools/openmpi", state(tmp_path)
    assert (mpi / "lib/libmpi.so.40").read_text() == f"{mpi}\n", "made for its folder"
    assert (mpi / "lib/libmpi.so.40").stat().st_mode & 0o044 == 0o044
    assert (mpi / "bin/mpirun").resolve() == mpi / "bin/orterun"
    assert not (tmp_path / "bin/mpirun").exists(), "a package has this name"
    asked = (tmp_path / "tools/nccl_tests/bin/all_reduce_perf").read_text()
    assert f"-L{mpi}/lib -Xlinker -rpath={mpi}/lib" in asked
    module = tmp_path / "site/mpi4py/__init__.py"
    assert module.read_text() == f"{mpi}/bin/mpicc\n"
    assert {name: built[name].mpi for name in built} == {"openmpi": "", "mpi4py": MPI_SHA, "nccl_tests": MPI_SHA}
    for name in built:
        assert not tools.plan(WITH_MPI[name], built)


@pytest.mark.parametrize("name", ["mpi4py", "nccl_tests"])
def test_another_mpi_is_followed_by_what_is_built_with_it(name: str, tmp_path: Path) -> None:
    for needed in ("openmpi", name):
        build_with_mpi(tmp_path, needed)
    other = replace(WITH_MPI[name], mpi="ef" * 32)
    assert [change.why for change in tools.plan(other, state(tmp_path)).changes] == ["built with another MPI"]
    (tmp_path / "tools" / name / "mpi").unlink()  # as with the distribution's
    assert [change.why for change in tools.plan(WITH_MPI[name], state(tmp_path)).changes] == ["built with another MPI"]


@pytest.mark.parametrize(
    ("path", "lost"),
    [
        ("openmpi/lib/libmpi.so.40", "lib/"),
        ("openmpi/bin/orterun", "mpirun"),
        ("mpi4py/lib/mpi4py/__init__.py", "lib/"),
    ],
)
@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_text("other")])
def test_a_changed_library_is_built_again(
    path: str, lost: str, change: Callable[[Path], object], tmp_path: Path
) -> None:
    name = path.partition("/")[0]
    for needed in dict.fromkeys(("openmpi", name)):
        build_with_mpi(tmp_path, needed)
    change(tmp_path / "tools" / path)
    (planned,) = tools.plan(WITH_MPI[name], state(tmp_path)).changes
    assert planned.why == f"absent, or changed since they were built: {lost}"


@pytest.mark.parametrize("name", ["mpi4py", "nccl_tests"])
def test_without_the_declared_mpi_nothing_is_built_with_another(name: str, tmp_path: Path) -> None:
    ended = build(name, tmp_path, MAKE[name], tool=WITH_MPI[name])
    assert ended.returncode != 0
    assert f"no {tmp_path}/tools/openmpi/bin/mpicc: gpu.tools.openmpi was not built" in ended.stderr


def test_mpi4py_needs_a_declared_mpi() -> None:
    with pytest.raises(ValidationError, match="mpi4py needs openmpi"):
        stack("mpi4py")


def test_a_failed_build_of_an_mpi_leaves_the_old_one(tmp_path: Path) -> None:
    build_with_mpi(tmp_path, "openmpi")
    for make, words in (("exit 2", "could not be built"), ('mkdir -p "${2#DESTDIR=}"', "could not be copied")):
        ended = build("openmpi", tmp_path, make, tool=WITH_MPI["openmpi"])
        assert ended.returncode != 0
        assert words in ended.stderr
        assert not tools.plan(WITH_MPI["openmpi"], state(tmp_path))


def test_a_failed_build_names_the_compilers_first_error(tmp_path: Path) -> None:
    cause = "src/cuda_memory.c:84:13: error: too few arguments to function 'cuCtxCreate_v4'"
    make = f"""echo "{cause}" >&2; for k in 1 2 3 4 5 6 7 8; do echo "  CC other$k.o, error: later"; done; exit 2"""
    ended = build("perftest", tmp_path, make)
    assert ended.returncode != 0
    assert ended.stderr.splitlines()[-1].startswith(f"perftest: it could not be built: {cause}; see {tmp_path}/")


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
    assert "libopenmpi-dev" in tools.build_packages(STACK, "debian")
    assert "openmpi-devel" in tools.build_packages(STACK, "rhel")
    for family in ("debian", "rhel"):
        own = tools.build_packages(stack("openmpi", "nccl_tests"), family)
        assert not [name for name in own if "openmpi" in name]
