"""A line that a program prints before its answer: the answer is still read, and the line is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.parse import (
    ParseError,
    ceph,
    containers,
    dcgm,
    dmidecode,
    gdscheck,
    iperf3,
    kernel_log,
    lscpu,
    mlnx_qos,
    mlxconfig,
    mlxlink,
    mpi_collectives,
    nccl_tests,
    netdev,
    nvidia_driver,
    nvidia_smi,
    nvidia_topology,
    nvme,
    perftest,
    rdma,
    routes,
)
from rackproof.parse.preamble import printed_before

from . import tool_output

Parser = Callable[[str], Any]
DOCKER = (
    '{"ServerVersion":"27","Driver":"overlay2","DockerRootDir":"/x","DefaultRuntime":"runc","Runtimes":{},'
    '"SecurityOptions":[]}\n'
)
MPI = tool_output("mpi-all-reduce-4-ranks.txt")
DOCUMENTS: dict[str, tuple[Parser, str]] = {
    # command: parser, output
    "nvidia-smi -q -x": (lambda text: nvidia_smi.parse_nvidia_smi(text).gpus, tool_output("nvidia-smi-590-2gpu.xml")),
    "nvidia-smi topo -m": (nvidia_topology.parse_topology, tool_output("topology-2gpu-2nic.txt")),
    "dcgmi diag -r 1 -j": (lambda text: dcgm.parse_dcgm_diag(text).results, tool_output("dcgm-4.json")),
    "cat /proc/driver/nvidia/version": (nvidia_driver.parse_kernel_module, tool_output("kernel-module-535.txt")),
    "nv-fabricmanager --version": (
        nvidia_driver.parse_fabric_manager_version, tool_output("fabric-manager-version.txt"),
    ),
    "gdscheck -p": (gdscheck.parse_gdscheck, tool_output("gdscheck-1.13.txt")),
    "dmidecode -t 17": (dmidecode.parse_memory_modules, tool_output("dmidecode.txt")),
    "lscpu -J": (lscpu.parse_lscpu, tool_output("lscpu-nested.json")),
    "ip -j addr show": (netdev.parse_ip, tool_output("ip-addr.json")),
    "ip -j -4 route show": (routes.parse_routes, '[{"dst":"default","dev":"eth0"}]\n'),
    "rdma -j link show": (rdma.parse_rdma_link, tool_output("rdma-link.json")),
    "ibv_devinfo": (rdma.parse_ibv_devinfo, tool_output("ibv-devinfo.txt")),
    "mlnx_qos -i rail0": (mlnx_qos.parse_mlnx_qos, tool_output("mlnx-qos.txt")),
    "mlxconfig -d 0000:1a:00.0 -e query": (mlxconfig.parse_mlxconfig, tool_output("mlxconfig-extended.txt")),
    "mlxlink -d 0000:1a:00.0 -c": (mlxlink.parse_mlxlink, tool_output("mlxlink-400g.txt")),
    "nvme smart-log": (nvme.parse_smart_logs, tool_output("nvme-smart-logs.txt")),
    "dmesg": (kernel_log.parse_kernel_log, tool_output("kernel-log-dmesg.txt")),
    "ceph osd dump -f json": (ceph.parse_ceph_pool_sizes, '\n{"pools":[{"pool_name":"a","size":3}]}\n'),
    "docker info --format '{{json .}}'": (containers.parse_docker_info, DOCKER),
    "iperf3 -c 10.0.0.1 -J": (iperf3.parse_iperf3, tool_output("iperf3-3.12-two-streams.json")),
    "ib_write_bw -d mlx5_0 10.0.0.1": (perftest.parse_bandwidth, tool_output("perftest-write-bw-gbits.txt")),
    "ib_write_lat -d mlx5_0 10.0.0.1": (perftest.parse_latency, tool_output("perftest-write-lat.txt")),
    "mpirun -n 4 python3 collectives.py": (
        mpi_collectives.parse_mpi_collectives, MPI[MPI.index("{") :],
    ),
    "mpirun -n 16 all_reduce_perf": (nccl_tests.parse_nccl_tests, tool_output("nccl-all-reduce-16gpu.txt")),
}  # fmt: skip
LINES = st.from_regex(r"\A(?:WARNING|error|Note|[a-z]{3,8}): (?:[a-z]{2,8} ){1,4}[0-9]{3}\Z")


@pytest.mark.few(8)
@pytest.mark.parametrize("command", DOCUMENTS)
@settings(max_examples=25, deadline=None)
@given(line=LINES)
def test_an_unknown_line_before_a_document_is_shown_and_the_document_is_read(command: str, line: str) -> None:
    parser, output = DOCUMENTS[command]
    assert printed_before(command, output) == ""
    text = f"{line}\n\n{output}"
    assert printed_before(command, text) == line
    try:
        read = parser(text)
    except ParseError:
        return  # the check is UNMEASURED, and shows the line
    assert read == parser(output)


def test_what_open_mpi_says_before_the_engine_is_kept() -> None:
    assert printed_before("mpirun -n 4 python3 x", MPI).startswith("Warning: Permanently added '10.77.0.12' (ED25519)")


def test_little_of_a_long_preamble_is_shown() -> None:
    text = "".join(f"warning {k} {'x' * 300}\n" for k in range(9))
    shown = printed_before("lscpu -J", text + '{\n"lscpu": []}\n')
    assert len(shown) < 3 * 165
    assert "warning 2" in shown
    assert "warning 3" not in shown
    assert printed_before("lscpu -J", text) == ""  # nothing follows: the parser quotes it
    assert printed_before("unknown command", text) == ""
