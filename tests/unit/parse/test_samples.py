"""Outputs of real hardware that others published, against what a person read in them.

They run where ``RACKPROOF_SAMPLES`` names a folder that holds them; see tests/data/README.md.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from rackproof.parse import (
    ParseError,
    dcgm,
    ethtool,
    fio,
    gdscheck,
    iperf3,
    lscpu,
    lspci,
    mlnx_qos,
    mlxconfig,
    mlxlink,
    mounts,
    nccl_tests,
    nvbandwidth,
    nvidia_smi,
    nvidia_topology,
    rdma,
    slurm,
    xid,
)
from rackproof.parse.perftest import BandwidthUnit, parse_bandwidth, parse_latency

SAMPLES = os.environ.get("RACKPROOF_SAMPLES")
pytestmark = pytest.mark.skipif(
    not SAMPLES or not Path(SAMPLES).is_dir(), reason="RACKPROOF_SAMPLES names no folder of outputs"
)


def sample(name: str) -> bytes:
    return (Path(SAMPLES or "") / name).read_bytes()


def test_fio_2_6_client_mode_with_unified_directions() -> None:
    result = fio.parse_fio(sample("fio/client-stats-fio2.6-mixed.json"))
    assert (result.version, result.jobs) == ("2.6", ())


def test_fio_2_1_several_jobs() -> None:
    result = fio.parse_fio(sample("fio/multi-job-old-us-units.json"))
    assert (result.version, len(result.jobs), result.failed) == ("2.1.4", 5, ())
    (job,) = [job for job in result.jobs if job.jobname == "sequential_read"]
    assert job.read is not None
    assert job.read.bandwidth_bytes_per_s == 129836 * 1024
    assert job.read.clat_ns is not None
    assert job.read.clat_ns == pytest.approx(250_667_060)


def test_fio_3_16() -> None:
    result = fio.parse_fio(sample("fio/nvme-fio3.16-randrw.json"))
    (job,) = result.jobs
    assert (result.version, job.error) == ("3.16", 0)
    assert job.read is not None
    assert job.write is not None
    assert job.read.bandwidth_bytes_per_s // 1024 == 340570
    assert job.read.iops == pytest.approx(85138.89, abs=0.01)
    assert job.write.bandwidth_bytes_per_s // 1024 == 340283
    assert job.read.lat_ns is not None


@pytest.mark.parametrize(
    ("name", "unit", "size", "average", "rows", "mtu", "link"),
    [
        ("ib_read_bw-cx5-roce-freq-warning.txt", BandwidthUnit.MB, 65536, 10401.68, 1, 1024, "Ethernet"),
        ("ib_write_bw-cx5-roce-gbits.txt", BandwidthUnit.GBIT, 65536, 92.40, 1, 4096, "Ethernet"),
        ("ib_write_bw-hdr-loopback-8MiB.txt", BandwidthUnit.MB, 8388608, 24056.72, 2, 4096, "IB"),
    ],
)
def test_perftest_bandwidth(
    name: str, unit: BandwidthUnit, size: int, average: float, rows: int, mtu: int, link: str
) -> None:
    report = parse_bandwidth(sample(f"ib-perftest/{name}"))
    assert [(row.bytes, row.unit, row.average) for row in report.rows] == [(size, unit, average)] * rows
    assert (report.conditions.mtu_bytes, report.conditions.link_layer) == (mtu, link)


def test_perftest_latency() -> None:
    (row,) = parse_latency(sample("ib-perftest/ib_write_lat-cx5-roce-freq-warning.txt")).rows
    assert (row.bytes, row.iterations) == (2, 1000)
    assert (row.typical_us, row.average_us, row.p99_us, row.p999_us) == (1.58, 1.58, 1.65, 2.13)


def test_iperf3_short_run_is_judged_by_its_receiver() -> None:
    result = iperf3.parse_iperf3(sample("iperf3/iperf3.9-tcp-short.json"))
    assert (result.version, result.protocol, result.streams, result.retransmits) == ("3.9", "TCP", 1, 0)
    assert result.received_bits_per_s == pytest.approx(680239.35, abs=0.01)


@pytest.mark.parametrize(
    ("name", "op", "ranks", "hosts", "largest", "busbw", "average", "checked"),
    [
        ("a100-8gpu-allreduce-old-error-column", "all_reduce", 8, 1, 8589934592, (235.26, 235.03), 68.4048, False),
        ("a3-mega-2node-allgather", "all_gather", None, 0, 8589934592, (188.73, 188.90), 53.8932, True),
        ("dgx-a100-4node-allreduce", "all_reduce", None, 0, 4294967296, (191.05, 191.56), 113.289, True),
        ("gb200-nvl72-allreduce", "all_reduce", 72, 1, 8589934592, (834.57, 846.82), 745.53, True),
        ("h100-8gpu-allreduce-nccl2.2x", "all_reduce", 8, 1, 17179869184, (479.90, 479.99), 159.151, True),
        ("k80-2node-no-check", "all_reduce", 2, 2, 1073741824, (0.61, 0.61), 0.565546, False),
        ("p5-2node-allreduce-srun-label", "all_reduce", None, 0, 17179869184, (487.09, 487.26), None, True),
    ],
)
def test_nccl_tests(
    name: str,
    op: str,
    ranks: int | None,
    hosts: int,
    largest: int,
    busbw: tuple[float, float],
    average: float | None,
    checked: bool,
) -> None:
    result = nccl_tests.parse_nccl_tests(sample(f"nccl-tests/{name}.txt"), op)
    assert (result.ranks, len(result.hosts)) == (ranks, hosts)
    last = result.rows[-1]
    assert last.bytes == largest
    assert (last.out_of_place.busbw_gb_per_s, last.in_place.busbw_gb_per_s) == busbw
    assert result.average_busbw_gb_per_s == average
    assert result.complete is (average is not None)
    assert result.checked is checked
    assert result.out_of_bounds == (0 if checked and average is not None else None)
    assert {t.wrong for row in result.rows for t in (row.out_of_place, row.in_place)} <= {0, None}


def test_nccl_rows_of_size_0_and_deviations() -> None:
    rows = nccl_tests.parse_nccl_tests(sample("nccl-tests/a3-mega-2node-allgather.txt")).rows
    assert [row.bytes for row in rows[:6]] == [0, 0, 0, 0, 0, 256]
    old = nccl_tests.parse_nccl_tests(sample("nccl-tests/dgx-a100-4node-allreduce.txt")).rows[-1]
    assert (old.out_of_place.wrong, old.out_of_place.deviation) == (None, 1e-6)


@pytest.mark.parametrize(
    ("name", "driver", "attached", "gpu", "memory", "ecc", "pcie"),
    [
        ("a100-sxm4-v12", "535.54.03", 4, "NVIDIA A100-SXM4-80GB", 81920, "Enabled", (4, 4, 16)),
        ("rtx-4090-driver-535", "535.86.05", 1, "NVIDIA GeForce RTX 4090", 24564, "Disabled", (1, 3, 16)),
        ("rtx-pro-6000-driver-580", None, None, "NVIDIA RTX PRO 6000 Blackwell", None, None, (None,) * 3),
        ("tesla-p100", "510.47.03", 1, "Tesla P100-PCIE-16GB", 16384, "Enabled", (3, 3, 16)),
        ("tesla-t4", "515.105.01", 1, "Tesla T4", 15360, "Enabled", (3, 3, 8)),
    ],
)
def test_nvidia_smi_xml(
    name: str,
    driver: str | None,
    attached: int | None,
    gpu: str,
    memory: int | None,
    ecc: str | None,
    pcie: tuple[int | None, int | None, int | None],
) -> None:
    report = nvidia_smi.parse_nvidia_smi(sample(f"nvidia-smi-xml/{name}.xml"))
    (device,) = report.gpus
    assert (report.driver, report.attached_gpus, report.missing) == (driver, attached, (attached or 1) - 1)
    assert (device.name, device.memory_total_mib, device.ecc) == (gpu, memory, ecc)
    assert (device.pcie_generation, device.pcie_generation_max, device.pcie_width) == pcie
    assert device.problems == ()


def test_nvidia_smi_xml_details() -> None:
    def gpu(name: str) -> nvidia_smi.Gpu:
        return nvidia_smi.parse_nvidia_smi(sample(f"nvidia-smi-xml/{name}.xml")).gpus[0]

    assert gpu("tesla-p100").serial == "0324217145110"
    assert gpu("tesla-p100").ecc_volatile == nvidia_smi.EccErrors(0, 0)
    assert gpu("tesla-p100").remapped_rows is None
    assert gpu("a100-sxm4-v12").mig == "Enabled"
    assert gpu("a100-sxm4-v12").ecc_volatile == nvidia_smi.EccErrors(0, 0)
    assert gpu("rtx-4090-driver-535").serial is None
    assert gpu("rtx-4090-driver-535").ecc_volatile == nvidia_smi.EccErrors(None, None)
    assert gpu("tesla-t4").mig is None


@pytest.mark.parametrize(
    ("name", "gpus", "links", "speed"),
    [
        ("a100-sxm4-1gpu-azure", [7], 12, 25.0),
        ("a100-sxm4-8gpu", list(range(8)), 12, 25.0),
        ("h100-sxm5-18links", [0], 18, 26.562),
    ],
)
def test_nvlink(name: str, gpus: list[int], links: int, speed: float) -> None:
    listed = nvidia_topology.parse_nvlink_status(sample(f"nvidia-smi-nvlink/{name}.txt"))
    assert [gpu.index for gpu in listed] == gpus
    assert all([link.index for link in gpu.links] == list(range(links)) for gpu in listed)
    assert {link.gb_per_s for gpu in listed for link in gpu.links} == {speed}


def test_a_gpu_without_nvlink() -> None:
    (gpu,) = nvidia_topology.parse_nvlink_status(sample("nvidia-smi-nvlink/l40s-unsupported.txt"))
    assert gpu.links == ()
    assert gpu.note


@pytest.mark.parametrize(
    ("name", "gpus", "path"),
    [
        ("a100-8gpu-nv12", 8, "NV12"),
        ("h100-8gpu-nv18", 8, "NV18"),
        ("h100-1gpu-vm-ansi", 1, None),
    ],
)
def test_topology(name: str, gpus: int, path: str | None) -> None:
    topology = nvidia_topology.parse_topology(sample(f"nvidia-smi-topo/{name}.txt"))
    assert len(topology.gpus) == gpus
    assert {p for (a, b), p in topology.paths.items() if a != b} == ({path} if path else set())


def test_mounts() -> None:
    mountinfo = mounts.parse_mountinfo(sample("proc-mounts/mountinfo-nfs4.txt"))
    assert len(mountinfo) == 16
    nfs4, nfs3 = (mounts.find_mount(mountinfo, point) for point in ("/shared/dir1", "/shared/dir2"))
    assert nfs4 is not None
    assert (nfs4.fstype, nfs4.source, nfs4.option("vers")) == ("nfs4", "hostname1:/shared_dir1", "4")
    assert nfs3 is not None
    assert (nfs3.fstype, nfs3.option("vers")) == ("nfs", "3")
    old = mounts.parse_proc_mounts(sample("proc-mounts/rhel6-nfs3.txt"))
    assert len(old) == 19
    network = {mount.mountpoint: mount for mount in old if mount.fstype.startswith("nfs")}
    assert set(network) == {"/sa/net", "/users"}
    assert {(m.option("vers"), m.option("proto"), m.option("rsize")) for m in network.values()} == {
        ("3", "tcp", "8192")
    }
    stats = mounts.parse_mountstats(sample("proc-mounts/mountstats-nfs.txt"))
    assert [(m.mountpoint, m.fstype) for m in stats] == [("/A", "nfs"), ("/B", "nfs4"), ("/C", "nfs"), ("/D", "nfs4")]
    assert {(m.connections, m.protocol) for m in stats} == {(1, "tcp")}
    assert [len(m.operations) for m in stats] == [22, 46, 22, 68]
    assert stats[1].operations["READ"] == mounts.Operation(calls=9797, transmissions=9797, timeouts=0)


def test_slurm() -> None:
    text = sample("slurm/scontrol-show-config.txt")
    config = slurm.parse_scontrol_config(text)
    assert (config.value("SLURM_VERSION"), config.value("HASH_VAL")) == ("23.02.2", "Match")
    assert config.value("HealthCheckProgram") is None
    assert [(c.role, c.host, c.state) for c in slurm.parse_scontrol_ping(text)] == [
        ("primary", "slurm", "UP"),
        ("backup", "slurmdb", "UP"),
    ]
    partitions = slurm.parse_scontrol_records(sample("slurm/scontrol-show-partition-oneliner.txt"), "PartitionName")
    assert (partitions[0]["PartitionName"], partitions[0]["State"]) == ("partition1", "UP")
    assert partitions[0]["TRES"].endswith("gres/gpu=22384")
    cells = [line.split("|") for line in sample("slurm/sinfo-pipe-format.txt").decode().splitlines()]
    column = [name.strip() for name in cells[0]].index("GRES")
    assert [slurm.parse_gres(row[column].strip())["gpu"] for row in cells[1:]] == [8, 8, 8, 2]


def test_rdma_links() -> None:
    links = rdma.parse_rdma_link(sample("rdma-link/cx-4ports-2-down.txt"))
    assert [(link.device, link.netdev, link.up) for link in links] == [
        ("mlx5_0", "eno33", True),
        ("mlx5_1", "eno34", False),
        ("mlx5_2", "enp65s0f0", True),
        ("mlx5_3", "enp65s0f1", False),
    ]


def test_ibv_devinfo() -> None:
    (hca,) = rdma.parse_ibv_devinfo(sample("ibv_devinfo/cx5-roce-active.txt"))
    assert (hca.name, hca.firmware) == ("mlx5_0", "16.23.1020")
    (port,) = hca.ports
    assert (port.state, port.active_mtu_bytes, port.link_layer) == ("PORT_ACTIVE", 1024, "Ethernet")
    hcas = rdma.parse_ibv_devinfo(sample("ibv_devinfo/cx7-2ports-down.txt"))
    assert [hca.firmware for hca in hcas] == ["28.44.1036"] * 2
    assert {port.state for hca in hcas for port in hca.ports} == {"PORT_DOWN"}


def test_ethtool_driver() -> None:
    info = ethtool.parse_ethtool_driver(sample("ethtool/driver-info-cx4lx.txt"))
    assert (info.driver, info.firmware, info.bus) == ("mlx5_core", "14.21.2328 (MT_2470112034)", "0000:3b:00.0")


def test_lspci() -> None:
    (nic,) = lspci.parse_lspci(sample("lspci/connectx7-vvv.txt"))
    assert (nic.slot, nic.name) == ("0000:1a:00.0", "Mellanox Technologies MT2910 Family [ConnectX-7]")
    (gpu,) = lspci.parse_lspci(sample("lspci/h100-sxm5-gpu-vvv.txt"))
    assert (gpu.slot, gpu.name) == ("0000:19:00.0", "NVIDIA Corporation Device 2330")
    (drive,) = lspci.parse_lspci(sample("lspci/nvme-micron-vvv.txt"))
    assert drive.kind == "Non-Volatile memory controller"
    listed = lspci.parse_lspci(sample("lspci/a100-nn-azure.txt") + b"\n")  # published without its last newline
    counts = Counter(device.ids for device in listed)
    assert (counts["10de:20b2"], counts["10de:1af1"], counts["15b3:101c"], counts["1414:b111"]) == (8, 6, 8, 8)


def test_mellanox_tools() -> None:
    qos = mlnx_qos.parse_mlnx_qos(sample("mlnx_qos/roce-pfc-prio5-trimmed.txt"))
    assert (qos.trust, qos.pfc) == ("dscp", frozenset({5}))
    firmware = mlxconfig.parse_mlxconfig(sample("mlxconfig/cx7-query-elided.txt"))
    assert (firmware.type, firmware.part) == ("ConnectX7", "MCX715105AS-WEAT_Ax")
    values = {name: setting.next_boot for name, setting in firmware.settings.items()}
    assert (values["ADVANCED_PCI_SETTINGS"], values["SAFE_MODE_ENABLE"]) == ("False(0)", "True(1)")
    assert values["MEMIC_SIZE_LIMIT"] == "_256KB(1)"
    assert not {"(...)", "LINK_TYPE_P1"} & set(values)
    link = mlxlink.parse_mlxlink(sample("mlxlink/b200-nvlink-xdr.txt"))
    assert (link.state, link.physical_state, link.speed, link.width) == ("Active", None, "NVLink-XDR", "2x")
    assert (link.status, link.firmware, link.effective_ber) == (0, "36.2014.1676", None)


def test_lscpu() -> None:
    arm = lscpu.parse_lscpu(sample("lscpu/arm-288cpu-flat.json"))
    assert (arm.model, arm.sockets, arm.cores, arm.threads_per_core, arm.online) == (None, 4, 288, 1, 288)
    assert arm.numa_nodes == 4, "the other 32 have no processors"


@pytest.mark.parametrize(
    ("name", "failed"),
    [
        ("dcgm2-r1-pass", set()),
        ("dcgm2-r1-fail", {("Persistence Mode", ""), ("Environment Variables", "")}),
        ("dcgm3-nvvs-4gpu", {("sm_stress", "0"), ("sm_stress", "2"), ("sm_stress", "3")}),
    ],
)
def test_dcgm(name: str, failed: set[tuple[str, str]]) -> None:
    results = dcgm.parse_dcgm_diag(sample(f"dcgmi-diag/{name}.json")).results
    assert {(result.test, result.gpus) for result in results if result.status in ("Fail", "Warn")} == failed


def test_gdscheck() -> None:
    whole = gdscheck.parse_gdscheck(sample("gdscheck/1.14-threadripper-rtx6000ada.txt"))
    assert (whole.version, whole.drivers["NVMe"], whole.drivers["NFS"]) == ("1.14.0.30", "Supported", "Unsupported")
    assert (dict(whole.gpus), whole.compat_mode, whole.verified) == ({0: True, 1: True}, False, True)
    without_gpu = gdscheck.parse_gdscheck(sample("gdscheck/1.18-no-gpu-compat.txt") + b"\n")
    assert (without_gpu.drivers["NVMe"], dict(without_gpu.gpus), without_gpu.verified) == ("compat", {}, None)


@pytest.mark.parametrize(
    ("name", "codes", "bus_id"),
    [
        ("xid119-gsp-timeout", {119: 5}, "0000:9b:00"),
        ("xid13-43-decode-iso", {13: 16, 43: 1}, "0000:38:00"),
    ],
)
def test_xids(name: str, codes: dict[int, int], bus_id: str) -> None:
    log = xid.parse_driver_log(sample(f"dmesg/{name}.txt").decode().splitlines())
    assert Counter(xid.code for xid in log.xids) == codes
    assert {xid.bus_id for xid in log.xids} == {bus_id}


def test_nvbandwidth() -> None:
    result = nvbandwidth.parse_nvbandwidth(sample("nvbandwidth/1gpu-r565.json"))
    statuses = Counter(result.statuses.values())
    assert (statuses["Passed"], statuses["Waived"], result.driver) == (15, 17, "565.02")
    assert result.matrix("host_to_device_memcpy_ce") == ((12.3964,),)


@pytest.mark.parametrize("name", ["8gpu-d2d-write-ce.txt", "gh200-v0.6.txt"])
def test_nvbandwidth_without_json(name: str) -> None:
    with pytest.raises(ParseError, match="no JSON document"):
        nvbandwidth.parse_nvbandwidth(sample(f"nvbandwidth/{name}"))
