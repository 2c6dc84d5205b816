"""Launchers: the command line fits what is on the nodes, and what does not fit is named."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.architectures import load
from rackproof.bench.collectives.command import requested_by
from rackproof.bench.collectives.launch import inputs_of
from rackproof.bench.collectives.launchers import chosen_mpirun, exported, mpirun, srun
from rackproof.bench.collectives.nccl_used import Asked, _network_faults, check_used
from rackproof.core.programs import launcher_in, programs_of
from rackproof.core.rack import Node, Rack
from rackproof.parse import ParseError
from rackproof.parse.mpi_collectives import parse_mpi_collectives
from rackproof.parse.mpi_probe import MARK, parse_mpi_probe
from rackproof.parse.nccl_log import NcclLog, parse_nccl_log
from rackproof.shell import script
from tests.unit.shell import executable

pytestmark = pytest.mark.few(8)

V4, V5 = "mpirun (Open MPI) 4.1.4", "mpirun (Open MPI) 5.0.7"
LIB4, LIB5 = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4", "Open MPI v5.0.7, package: Debian OpenMPI"
RHEL = "/usr/lib64/openmpi/bin/mpirun"
BUILT = "mpirun /opt/rackproof/tools/openmpi/bin/mpirun mpirun (Open MPI) 4.1.8\n"
HPCX = "mpirun /opt/hpcx/ompi/bin/mpirun mpirun (Open MPI) 4.1.7rc1\n"


def answer(*lines: str, mpi4py: str = LIB5, slurm: str = "none pmix_v4 pmi2") -> str:
    return "".join(f"{line}\n" for line in (MARK, *lines, f"mpi4py {mpi4py}", f"srun {slurm}", "end of mpi"))


def default(version: str, path: str = "/usr/bin/mpirun") -> tuple[str, str]:
    return f"default {path}", f"mpirun {path} {version}"


@pytest.mark.parametrize(
    ("first", "second", "with_mpi4py", "word"),
    [
        (answer(*default(V5)), answer(*default(V5)), True, "mpirun"),
        (answer(*default(V4), mpi4py=LIB4), answer(*default(V4), mpi4py=LIB4), True, "mpirun"),
        # RHEL: outside PATH; HPC-X beside a package that mpi4py was built against; an Intel MPI first on the PATH
        (*[answer(f"mpirun {RHEL} {V4}", mpi4py=LIB4)] * 2, True, RHEL),
        (*[answer(*default(V5), HPCX.strip())] * 2, True, "mpirun"),
        (*[answer(HPCX.strip(), mpi4py="")] * 2, False, "/opt/hpcx/ompi/bin/mpirun"),
        (*[answer(*default("Intel(R) MPI Library for Linux* OS, Version 2021.9"), HPCX.strip())] * 2, False,
         "/opt/hpcx/ompi/bin/mpirun"),
        # the one that the deploy built comes first, unless mpi4py is built against another one
        (*[answer(BUILT.strip(), *default(V5), mpi4py=LIB5)] * 2, True, "mpirun"),
        (*[answer(BUILT.strip(), *default(V5), mpi4py=LIB5)] * 2, False, "/opt/rackproof/tools/openmpi/bin/mpirun"),
        (answer(BUILT.strip(), *default(V5)), answer(*default(V5)), False, "mpirun"),
        # on one PATH only
        (answer(*default(V5)), answer(f"mpirun /usr/bin/mpirun {V5}"), True, "/usr/bin/mpirun"),
    ],
)  # fmt: skip
def test_the_mpi_that_suits_all_nodes_is_taken(first: str, second: str, with_mpi4py: bool, word: str) -> None:
    assert chosen_mpirun({"a": parse_mpi_probe(first), "b": parse_mpi_probe(second)}, with_mpi4py) == word


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (answer(), answer(*default(V5)), "a has no MPI"),
        (answer(*default(V5)), answer(), "b has no /usr/bin/mpirun"),
        (answer(*default(V5)), answer(*default(V4)), "is mpirun (Open MPI) 4.1.4 on b, expected mpirun (Open MPI) 5"),
        (*[answer(*default("HYDRA build details:"))] * 2, "is HYDRA build details:, expected Open MPI 4.1 or newer"),
        (*[answer(*default("mpirun (Open MPI) 3.1.6"))] * 2, "expected Open MPI 4.1 or newer"),
        (*[answer(*default(V5), mpi4py="MPICH Version: 4.2.0")] * 2, "a is built against MPICH Version: 4.2.0"),
        (*[answer(*default(V5), mpi4py=LIB4)] * 2, "mpi4py of a is built against Open MPI v4.1.4"),
        (*[answer(*default(V5), mpi4py="ModuleNotFoundError: No module named 'mpi4py'")] * 2, "ModuleNotFoundError"),
    ],
)  # fmt: skip
def test_an_mpi_that_does_not_suit_is_named(first: str, second: str, reason: str) -> None:
    with pytest.raises(ParseError) as error:
        chosen_mpirun({"a": parse_mpi_probe(first), "b": parse_mpi_probe(second)}, True)
    assert reason in str(error.value)


def test_a_path_is_kept_and_the_collectives_of_hpcx_are_left_out() -> None:
    line = mpirun(["a", "b"], 8, "rail0", "/opt/hpcx/ompi/bin/mpirun") + exported({"NCCL_ALGO": "Ring"})
    requested = requested_by(f"{line} all_reduce_perf -b 8 -e 64 -f 2 -n 20 -w 5 -c 1 -g 1")
    assert (requested.hosts, requested.ranks, requested.environment["NCCL_ALGO"]) == (("a", "b"), 16, "Ring")
    assert "--mca coll ^hcoll,ucc" in line
    assert "hcoll" not in mpirun(["a", "b"], 8, "rail0"), "the command line of earlier runs"


def test_a_job_of_slurm_ends_with_its_limit_and_as_a_whole() -> None:
    line = srun(["a", "b"], 8, {"NCCL_DEBUG": "INFO"}, 90.0, mpi=True, gpus=True, partition="gpu")
    requested = requested_by(f"{line} all_reduce_perf -b 8 -e 64 -f 2 -n 20 -w 5 -c 1 -g 1")
    assert (requested.hosts, requested.ranks_per_node, requested.ranks) == (("a", "b"), 8, 16)
    assert {"--time=2", "--kill-on-bad-exit=1", "--mpi=pmix", "--gpus-per-node=8", "--partition=gpu"} <= set(
        line.split()
    )


def test_programs_are_those_that_the_launcher_starts() -> None:
    labels = {"engine": "nccl-tests", "op": "all_reduce"}
    for launcher, names in (("mpirun", ("mpirun", "all_reduce_perf")), ("srun", ("srun", "all_reduce_perf")),
                            ("ssh", ("all_reduce_perf",))):  # fmt: skip
        assert programs_of("collective.busbw", labels, launcher) == names
    assert programs_of("collective.busbw", {"engine": "torch", "op": "all_reduce"}, "ssh") == ("python3",)
    assert launcher_in(None) == "mpirun"
    assert launcher_in("env A=1 mpirun -n 2 all_reduce_perf") == "mpirun"
    assert launcher_in("env A=1 /opt/hpcx/ompi/bin/mpirun -n 2 all_reduce_perf") == "/opt/hpcx/ompi/bin/mpirun"
    assert launcher_in("env A=1 srun --nodes=2 all_reduce_perf") == "srun"
    assert launcher_in("env A=1 all_reduce_perf -b 8") == "ssh"


def test_nodes_with_other_inputs_are_named() -> None:
    rack = Rack("x", (Node("a", ("gpu",), {"collectives": {"launcher": "srun"}}), Node("b", ("gpu",))))
    assert inputs_of(rack, ["a"]).launcher == "srun"
    with pytest.raises(ParseError, match="collectives of b differs from that of a"):
        inputs_of(rack, ["a", "b"])


# The scripts themselves.

LOG = """gpu-01:4711:4711 [0] NCCL INFO NCCL_ALGO set by environment to Ring.
gpu-01:4711:4712 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eno1:10.0.0.1<0>
gpu-01:4711:4712 [0] NCCL INFO NET/IB : Made virtual device [1] name=mlx5_1 speed=400000 ndevs=1
gpu-01:4711:4712 [0] NCCL INFO NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2
gpu-01:4711:4712 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'
gpu-01:4711:4712 [0] NCCL INFO Loading topology file /etc/topo.xml
gpu-01:4711:4712 [0] NCCL INFO NET/0-0 :GPU/0-1a000 (3/24.0/PHB) NET/0-0 (0/5000.0/LOC)
gpu-01:4711:4712 [0] NCCL INFO Using network IB
gpu-01:4711:4712 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)
gpu-01:4711:4712 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/1/GDRDMA(PCI)/Shared
gpu-01:4711:4712 [0] NCCL INFO Channel 01/0 : 1[1] -> 0[0] [receive] via NET/IB/1(0)/GDRDMA
gpu-01:4711:4712 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[1b000] [send] via NET/IB/1
gpu-01:4711:4712 [0] NCCL INFO CollNet 00/0 : 0 [send] via COLLNET/SHARP/0
gpu-01:4711:4712 [0] NCCL INFO CollNet 01/0 : 0 [receive] via COLLNET/SHARP/0/GDRDMA(PCI)
gpu-01:4711:4712 [0] NCCL INFO Channel 02/0 : 0[0] -> 1[1] via P2P/CUMEM
gpu-01:4711:4712 [0] NCCL INFO 16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p channels
gpu-01:4711:4712 [0] NCCL INFO ncclCommInitRank comm 0x55d rank 0 nranks 2 cudaDev 0 commId 0x1 - Init COMPLETE
gpu-01:4711:4712 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
gpu-01:4711:4712 [0] NCCL INFO Setting affinity for GPU 0 to ffff

[2026-09-06 18:39:07] gpu-01:4711:4711 [0] misc/ibvwrap.cc:94 NCCL WARN Call to ibv_open_device failed

[2026-09-06 18:39:08] gpu-01:4711:4711 [0] net_ib/common.cc:178 (ncclIbAsyncThreadMain) NCCL WARN NET/IB : x async fatal
"""
"""Written to the formats of src/transport/net.cc, src/transport/coll_net.cc, src/init.cc and src/debug.cc."""


def test_the_script_condenses_a_log_and_removes_it(tmp_path: Path) -> None:
    (tmp_path / "nccl.gpu-01.4711.log").write_text(LOG)
    command = script("rackproof.bench.collectives.x", "nccl_log", home=str(tmp_path))
    texts = [subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout for _ in range(2)]
    log, empty = map(parse_nccl_log, texts)
    assert texts[0] != texts[1] != subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout
    assert (log.files, log.ranks, log.channels, log.nvls) == (1, frozenset({0}), {0: frozenset({16})}, True)
    assert log.adapters == {0: ("mlx5_0",), 1: ("mlx5_1",), 2: ("mlx5_0", "mlx5_1")}
    assert log.topology_files == {"/etc/topo.xml": 1}
    uses = {(use.device, use.receives, use.gpudirect): count for (_, use), count in log.networks.items()}
    assert uses == {(0, False, False): 1, (0, True, True): 1, (1, False, False): 1, (1, True, True): 2}
    assert (dict(log.inside), log.algorithms) == ({"P2P": 1}, frozenset({"Ring"}))
    assert log.environment == {"NCCL_ALGO": "Ring"}
    assert log.warnings == ("Call to ibv_open_device failed", "NET/IB : x async fatal")
    assert (empty.files, empty.networks) == (0, {})


@pytest.mark.parametrize("declared", [True, False])
def test_the_probe_says_what_is_there(declared: bool, tmp_path: Path) -> None:
    program, built = tmp_path / "mpirun", tmp_path / "built/mpirun"
    executable(program, f"echo\necho '{V4}'")
    executable(built, f"echo '{V5}'")
    (tmp_path / "python3").symlink_to(sys.executable)
    command = script(
        "rackproof.bench.collectives.x", "mpi_probe", declared=str(program) if declared else "", built=str(built)
    )
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    probed = parse_mpi_probe(done.stdout)
    assert [one.path for one in probed.launchers].count(str(program)) == 1
    own = probed.launchers[0 if declared else 1]
    assert (own.path, own.version, own.default) == (str(program), (4, 1, 4), True)
    other = probed.launchers[1 if declared else 0]
    assert (other.path, other.version, other.default) == (str(built), (5, 0, 7), False)


@pytest.mark.parametrize(("parser", "text"), [(parse_mpi_probe, answer(*default(V5)))])
def test_every_truncation_of_a_probe_is_refused(parser, text: str) -> None:  # type: ignore[no-untyped-def]
    for length in range(len(text)):
        with pytest.raises(ParseError):
            parser(text[:length])


WHOLE = """rackproof nccl log 1
gpu-01
6f1c6c1e-0000-4000-8000-000000000000
files 1
      1 [0] INFO Using network IB
      2 [0] INFO Channel [receive] via NET/IB/1/GDRDMA
      1 [0] WARN NET/IB : Got async event : port error
end of nccl log
"""


def test_adapters_that_nccl_merges_are_named_together() -> None:
    """As versions 2.19 to 2.23 print them: numbers are places in the list."""
    using = "[0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [2]mlx5_2:1/RoCE [RO]; OOB eno1:10.0.0.1"
    log = parse_nccl_log(WHOLE.replace("INFO Using network IB", f"INFO NET/IB : Using {using}"))
    assert log.adapters == {0: ("mlx5_0", "mlx5_1"), 1: ("mlx5_2",)}


def test_adapters_with_a_link_of_their_own_to_gpus_or_with_rail_and_plane_are_named() -> None:
    using = "[0]mlx5_0_dma:1/IB [1]mlx5_1:1:0:3/RoCE [2]mlx5_2:1::3/RoCE [RO]; OOB eno1:10.0.0.1"
    merged = "NET/IB : Made virtual device [3] name=mlx5_1+mlx5_2_dma speed=800000 ndevs=2 rail=-1 plane=16384"
    lines = f"INFO NET/IB : Using {using}\n      1 [0] INFO {merged}"
    log = parse_nccl_log(WHOLE.replace("INFO Using network IB", lines))
    assert log.adapters == {0: ("mlx5_0",), 1: ("mlx5_1",), 2: ("mlx5_2",), 3: ("mlx5_1", "mlx5_2")}


@pytest.mark.parametrize(
    ("support", "nvls"),
    [
        ("available on dev 0 (NVLS_NCHANNELS 16)", True),
        ("not available on dev 0 (NVLS_NCHANNELS 0)", False),
        ("available on dev 0, transport enabled, symmetric multimem enabled", True),
        ("available on dev 0, transport disabled, symmetric multimem enabled", False),
        ("not available on dev 0, transport enabled, symmetric multimem enabled", False),
    ],
)
def test_multicast_counts_where_collectives_may_use_it(support: str, nvls: bool) -> None:
    log = WHOLE.replace("INFO Using network IB", f"INFO NVLS multicast support is {support}")
    assert parse_nccl_log(log).nvls is nvls


def test_every_truncation_of_a_log_is_refused() -> None:
    parse_nccl_log(WHOLE)
    for length in range(len(WHOLE)):
        with pytest.raises(ParseError):
            parse_nccl_log(WHOLE[:length])


@given(st.text(max_size=80))
def test_any_other_line_is_refused_or_a_line_of_nccl(line: str) -> None:
    for parser, text in ((parse_nccl_log, WHOLE.replace("end of", f"{line}\nend of")),
                         (parse_mpi_probe, answer(line))):  # fmt: skip
        with suppress(ParseError):  # and no other exception
            parser(text)


def test_a_rank_that_fails_ends_the_others_of_its_node() -> None:
    """Without torch every rank fails; the process that started them ends with their status."""
    program = files("rackproof.bench.collectives").joinpath("torch_collectives.py")
    words = ["all_reduce", "8", "8", "2", "1", "0", "gloo", "127.0.0.1:29599", "a,b", "3", "1"]
    done = subprocess.run(
        [sys.executable, "-I", str(program), *words], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert "torch" in done.stderr
    assert not done.stdout, "no torch, no figures"


MPI = """
import numpy
class MPI:
    SUM, MAX = "sum", "max"
    def Get_library_version(): return "Open MPI v5.0.7"
    class COMM_WORLD:
        def Get_size(): return 1
        def Get_rank(): return 0
        def Barrier(): pass
        def Allreduce(send, recv, op): recv[:] = send
        def allreduce(value, op): return value
        def bcast(value): return value
        def gather(value): return [value]
"""


@pytest.mark.parametrize(("asked", "least", "most"), [("3", 3, 3), ("1s", 4, 10**9)])
def test_calls_are_counted_or_go_on_for_a_time(tmp_path: Path, asked: str, least: int, most: int) -> None:
    """One rank, with a stand-in for MPI; each call has its begin."""
    (tmp_path / "mpi4py.py").write_text(MPI)
    program = files("rackproof.bench.collectives").joinpath("collectives.py")
    words = ["all_reduce", "4194304", "4194304", "2", asked, "1"]
    done = subprocess.run(
        [sys.executable, str(program), *words], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    (point,) = parse_mpi_collectives(done.stdout).points
    assert least <= len(point.began_s) <= most
    assert point.wrong == 0
    if asked.endswith("s"):
        assert time.time() - point.began_s[0] > 1.0  # no more: a busy host may begin the last call late


def test_times_of_calls_that_do_not_rise_are_refused() -> None:
    point = {"bytes": 8, "time_us": 8.0, "algbw_GBps": 0.001, "busbw_GBps": 0.001, "wrong": 0, "samples_us": [8.0, 8.0]}
    document = {
        "rackproof_collectives": 1, "engine": "mpi", "op": "all_reduce", "ranks": 2, "hosts": ["a", "b"],
        "dtype": "float32", "warmup": 1, "results": [point],
    }  # fmt: skip
    assert parse_mpi_collectives(json.dumps(document)).points[0].began_s == ()
    for began in ([2.0], [2.0, 2.0], [2.0, 1.0]):
        point["began_s"] = began
        with pytest.raises(ParseError, match="began_s has no rising time for each sample"):
            parse_mpi_collectives(json.dumps(document))


def condensed(folder: Path) -> NcclLog:
    """``LOG`` as the script condenses it."""
    (folder / "nccl.gpu-01.4711.log").write_text(LOG)
    command = script("rackproof.bench.collectives.x", "nccl_log", home=str(folder))
    return parse_nccl_log(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("op", "keep", "accepted"),
    [
        ("gather", "sends", True),
        ("gather", "receives", True),
        ("all_reduce", "sends", False),
        ("gather", "receives through host memory", False),
    ],
)
def test_a_node_that_only_sends_copies_nothing_through_host_memory(
    tmp_path: Path, op: str, keep: str, accepted: bool
) -> None:
    """Nodes other than the root of a gather receive nothing; of other operations all do."""
    whole = condensed(tmp_path)
    uses = [(gpu, use) for gpu, use in whole.networks if use.receives is keep.startswith("receives")]
    if "host" in keep:
        uses = [(gpu, replace(use, gpudirect=False)) for gpu, use in uses]
    log = replace(whole, networks=dict.fromkeys(uses, 1))
    h100 = load("nvidia-dgx-h100").model
    assert h100.fabric is not None
    faults = list(_network_faults(log, Asked(2, 1, {}, op), h100, h100.fabric))
    assert any("copies through host memory" in fault for fault in faults) is not accepted


def test_a_run_split_by_rails_needs_the_log_of_each_of_its_ranks(tmp_path: Path) -> None:
    """The rank that prints the figures may be of the rail whose log is missing."""
    whole = condensed(tmp_path)
    log = replace(whole, warnings=(), networks={k: n for k, n in whole.networks.items() if k[1].device == 0})
    h100 = load("nvidia-dgx-h100").model
    with pytest.raises(ParseError, match="gpu-01: expected a log of each of 8 ranks, actual 1"):
        check_used({"gpu-01": log}, Asked(1, 8, {}, "all_reduce", rail=0), h100)
