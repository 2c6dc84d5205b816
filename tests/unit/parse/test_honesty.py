"""Properties of every parser; for outputs that end too early see ``test_truncation.py``."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackproof.parse import (
    ParseError,
    aer,
    block,
    chrony,
    cpu,
    dcgm,
    dlio,
    dmidecode,
    edac,
    ethtool,
    fio,
    fscache,
    gdscheck,
    iperf3,
    kernel,
    kernel_log,
    link_counters,
    lscpu,
    lspci,
    mlnx_qos,
    mlxconfig,
    mlxlink,
    mounts,
    mpi_collectives,
    nccl_tests,
    netdev,
    nvbandwidth,
    nvidia_driver,
    nvidia_smi,
    nvidia_topology,
    nvlink_errors,
    nvme,
    packages,
    perftest,
    rdma,
    systemctl,
)
from rackproof.parse.text import whole_lines

from . import TOOLS, tool_output

pytestmark = pytest.mark.few(90)

Parser = Callable[[str | bytes], Any]


PARSERS: dict[str, tuple[Parser, str]] = {
    "fio": (fio.parse_fio, "fio-*"),
    "iperf3": (iperf3.parse_iperf3, "iperf3-*"),
    "bandwidth": (perftest.parse_bandwidth, "perftest-write-bw-*.txt"),
    "latency": (perftest.parse_latency, "perftest-write-lat*.txt"),
    "nccl": (nccl_tests.parse_nccl_tests, "nccl-*"),
    "dlio": (dlio.parse_dlio, "dlio-*.json"),
    "nvbandwidth": (nvbandwidth.parse_nvbandwidth, "nvbandwidth-*.json"),
    "mpi": (mpi_collectives.parse_mpi_collectives, "mpi-*"),
    "nvidia-smi": (nvidia_smi.parse_nvidia_smi, "nvidia-smi-*.xml"),
    "nvidia-smi -L": (nvidia_smi.parse_nvidia_smi_list, "nvidia-smi-L*.txt"),
    "topology": (nvidia_topology.parse_topology, "topology-*"),
    "nvlink": (nvidia_topology.parse_nvlink_status, "nvlink-*"),
    "nvlink -e": (nvlink_errors.parse_nvlink_errors, "*link-[en][or][rn]*"),
    "kernel module": (nvidia_driver.parse_kernel_module, "kernel-module-*"),
    "fabric manager": (nvidia_driver.parse_fabric_manager_version, "fabric-manager-*"),
    "dcgm": (dcgm.parse_dcgm_diag, "dcgm-*"),
    "gdscheck": (gdscheck.parse_gdscheck, "gdscheck-*"),
    "mountinfo": (mounts.parse_mountinfo, "mountinfo.txt"),
    "proc mounts": (mounts.parse_proc_mounts, "proc-mounts.txt"),
    "mountstats": (mounts.parse_mountstats, "mountstats.txt"),
    "fscache": (fscache.parse_fscache_stats, "fscache-stats-*"),
    "rdma link": (rdma.parse_rdma_link, "rdma-link.*"),
    "ibv_devinfo": (rdma.parse_ibv_devinfo, "ibv-devinfo.txt"),
    "tracking": (chrony.parse_chrony_tracking, "chrony-tracking*.csv"),
    "sources": (chrony.parse_chrony_sources, "chrony-sources.csv"),
    "ip": (netdev.parse_ip, "ip-*.json"),
    "ethtool -i": (ethtool.parse_ethtool_driver, "ethtool-driver-*.txt"),
    "ethtool -a": (ethtool.parse_ethtool_pause, "pause-*.txt"),
    "ethtool -S": (ethtool.parse_ethtool_statistics, "statistics-*.txt"),
    "lspci": (lspci.parse_lspci, "lspci-*.txt"),
    "mlnx_qos": (mlnx_qos.parse_mlnx_qos, "mlnx-qos.txt"),
    "mlxconfig": (mlxconfig.parse_mlxconfig, "mlxconfig-*.txt"),
    "mlxlink": (mlxlink.parse_mlxlink, "mlxlink-*.txt"),
    "lscpu": (lscpu.parse_lscpu, "lscpu-*.json"),
    "dmidecode": (dmidecode.parse_memory_modules, "dmidecode.txt"),
    "edac": (edac.parse_edac, "edac.txt"),
    "drives": (block.parse_drives, "drives.txt"),
    "smart-log": (nvme.parse_smart_logs, "nvme-smart-logs.txt"),
    "uname": (kernel.parse_release, "release.txt"),
    "kernels": (kernel.parse_kernels, "kernels.txt"),
    "loaded modules": (lambda output: kernel.parse_loaded_modules(whole_lines("cat", output)), "loaded-modules.txt"),
    "governors": (cpu.parse_governors, "governors.txt"),
    "aer": (aer.parse_aer, "aer.txt"),
    "link counters": (link_counters.parse_baseline, "link-baseline.txt"),
    "packages": (lambda output: packages.parse_package_list(whole_lines("dpkg-query", output)), "package-list.txt"),
    "systemctl show": (systemctl.parse_systemctl_show, "units.txt"),
    "kernel log": (kernel_log.parse_kernel_log, "kernel-log-*.txt"),
}
ERRORS = {"iperf3-3.12-refused.json"}
CASES = [
    pytest.param(parser, path.name, id=path.name)
    for parser, pattern in PARSERS.values()
    for path in sorted(TOOLS.glob(pattern))
    if path.name not in ERRORS
]
FREE_TEXT = "messages"
"""Remarks for people around the document; a cut-off one is harmless."""
EACH_OUTPUT = pytest.mark.parametrize(("parser", "name"), CASES)
QUICK = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def part_of(part: Any, whole: Any) -> bool:
    """Everything that ``part`` says, ``whole`` says too; None and an empty collection say nothing."""
    if part is None or part == whole:
        return True
    if type(part) is not type(whole):
        return False
    if isinstance(part, tuple):
        return all(any(part_of(item, other) for other in whole) for item in part)
    if isinstance(part, Mapping):
        return all(key in whole and part_of(value, whole[key]) for key, value in part.items())
    if dataclasses.is_dataclass(part):
        return all(
            f.name == FREE_TEXT or part_of(getattr(part, f.name), getattr(whole, f.name))
            for f in dataclasses.fields(part)
        )
    return False


def attempt(parser: Parser, output: str | bytes) -> Any:
    """The result, or None when it was refused; any exception but ParseError fails the test."""
    try:
        return parser(output)
    except ParseError:
        return None


def test_every_output_is_covered() -> None:
    covered = (
        {str(case.values[1]) for case in CASES}
        | ERRORS
        | {"chrony-no-daemon.txt", "kernel-errors-of-healthy-servers.txt"}
    )
    assert {path.name for path in TOOLS.iterdir()} == covered


@EACH_OUTPUT
def test_outputs_parse_alike_as_text_as_bytes_and_from_a_terminal(parser: Parser, name: str) -> None:
    text = tool_output(name)
    result = parser(text)
    assert result is not None
    assert parser(text.encode()) == result
    assert parser(text.replace("\n", "\r\n")) == result


@EACH_OUTPUT
@QUICK
@given(data=st.data())
def test_damaged_outputs_never_raise_anything_but_a_parse_error(parser: Parser, name: str, data: st.DataObject) -> None:
    text = tool_output(name)
    start = data.draw(st.integers(min_value=0, max_value=len(text)))
    length = data.draw(st.integers(min_value=0, max_value=40))
    filling = data.draw(
        st.text(max_size=10) | st.sampled_from(["\n", " ", "0", "-1", "nan", "9" * 25, "{", '"', "N/A"])
    )
    attempt(parser, text[:start] + filling + text[start + length :])


@EACH_OUTPUT
@QUICK
@given(seed=st.integers(0, 2**32))
def test_shuffled_lines_never_raise_anything_but_a_parse_error(parser: Parser, name: str, seed: int) -> None:
    lines = tool_output(name).splitlines()[:40]
    random.Random(seed).shuffle(lines)  # noqa: S311  (a repeatable one)
    attempt(parser, "\n".join(lines) + "\n")


@settings(QUICK, max_examples=100)
@given(output=st.text(max_size=200) | st.binary(max_size=200))
def test_what_no_tool_prints_is_refused_by_every_parser(output: str | bytes) -> None:
    assert [name for name, (parser, _) in PARSERS.items() if attempt(parser, output)] == []


@pytest.mark.parametrize("output", ["", " ", "\n", b"", "\r\n", "\0", b"\xff"], ids=repr)
def test_an_output_that_says_nothing_is_refused(output: str | bytes) -> None:
    assert [name for name, (parser, _) in PARSERS.items() if attempt(parser, output) is not None] == []


@pytest.mark.parametrize("name", sorted(path.name for path in TOOLS.iterdir()))
def test_the_output_of_another_tool_is_refused(name: str) -> None:
    own = {id(case.values[0]) for case in CASES if case.values[1] == name}
    for parser, _ in PARSERS.values():
        if id(parser) not in own:
            assert attempt(parser, tool_output(name)) is None
