"""slurm.conf and gres.conf, and what a changed one asks of the daemons."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from rackproof.configure.inputs import Repository
from rackproof.configure.slurm import conf, plan
from rackproof.configure.slurm.cluster import Cluster, check_mig, cluster_of, package_names
from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.configure.slurm.nodes import folded, node_line, parse_state, skew_s
from rackproof.configure.versions.repositories import declared_file
from rackproof.core.architecture import Architecture, Slurm
from rackproof.core.rack import Rack
from rackproof.errors import DeclarationError, InventoryError, Refused
from rackproof.parse.slurm import NodeHardware
from rackproof.parse.slurm_conf import HEADER, NodeLine, parse_slurm_conf
from tests.unit.configure.rack import architecture, rack, site
from tests.unit.refusals import refuses

BIG = NodeLine(2, 56, 2, 2031616)

KEY = {"url": "https://mirror.example/key", "sha256": "0" * 64}
REPOSITORY = {"source": "https://mirror.example/slurm", "key": KEY}
OLDER = {
    "repository_url": "https://mirror.example/slurm",
    "repository_key_url": "https://mirror.example/key",
    "repository_key_sha256": "0" * 64,
}


def arch(**keys: Any) -> Architecture:
    declared = {"controller_role": "storage", "gres": {"gpu": 8}, "partitions": ["gpu"], **keys}
    return architecture().model_copy(update={"slurm": Slurm.model_validate(declared)})


def cluster(inputs: dict[str, Any] | None = None, **keys: Any) -> Cluster:
    slurm = cluster_of(arch(**keys), rack(), SlurmInputs.model_validate(inputs or {}))
    assert slurm is not None
    return slurm


def text(cluster: Cluster, lines: dict[str, NodeLine] | None = None) -> str:
    lines = {"gpu-01": BIG, "gpu-02": BIG} if lines is None else lines
    here = site("gpu-01", arch())
    return plan.configuration(here, cluster, conf.node_text(cluster, lines), conf.partition_text(cluster, lines))


def test_what_is_written_reads_back() -> None:
    read = parse_slurm_conf(text(cluster()))
    assert read.ours
    assert read.controller == "storage-01"
    assert read.values["slurmctldhost"] == "storage-01(10.77.0.11)"
    assert read.values["grestypes"] == "gpu"
    assert read.values["selecttype"] == "select/cons_tres"
    assert read.nodes == {"gpu-01": BIG, "gpu-02": BIG}
    assert read.partitions == ("gpu",)


@pytest.mark.parametrize("bare", ["storage-01", "gpu-02"])
def test_a_controller_is_reached_by_name_where_a_node_of_the_cluster_has_no_rail(bare: str) -> None:
    nodes = tuple(replace(n, data={}) if n.name == bare else n for n in rack().nodes)
    slurm = cluster_of(arch(), Rack("test", nodes), SlurmInputs())
    assert slurm is not None
    assert slurm.controller_address is None
    assert parse_slurm_conf(text(slurm)).values["slurmctldhost"] == "storage-01"


def test_nodes_that_are_alike_share_a_line() -> None:
    lines = conf.node_text(cluster({"memory_reserved_mib": 4096}), {"gpu-01": BIG, "gpu-02": BIG})
    assert lines == [
        "NodeName=gpu-[01-02] Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2031616 MemSpecLimit=4096"
        " Gres=gpu:8 State=UNKNOWN"
    ]


def test_processors_that_are_kept_from_jobs_and_from_slurms_own_daemons() -> None:
    written = text(cluster({"cpu_spec_list": [8, 12]}))
    assert "RealMemory=2031616 CpuSpecList=8,12 Gres=gpu:8" in written
    assert "\nTaskPluginParam=SlurmdOffSpec\n" in written
    read, plain = parse_slurm_conf(written), parse_slurm_conf(text(cluster()))
    assert read.kept == {"gpu-01": "8,12", "gpu-02": "8,12"}
    assert read.nodes == plain.nodes
    assert "SlurmdOffSpec" not in text(cluster())
    # slurmd makes its control groups when it starts.
    assert conf.needs_restart(plain, read)
    other = parse_slurm_conf(text(cluster({"cpu_spec_list": [8]})))
    assert conf.needs_restart(read, other)
    assert not conf.needs_restart(read, read)


def test_task_parameters_of_the_sites_own_are_written_once() -> None:
    own = {"cpu_spec_list": [8], "extra": {"TaskPluginParam": "SlurmdOffSpec,autobind=cores"}}
    assert text(cluster(own)).count("TaskPluginParam") == 1


@pytest.mark.parametrize(
    ("kept", "says"),
    [([8, 224], "expected numbers below 224, actual 224"), (list(range(0, 224, 2)), "none is left for jobs")],
)
def test_processors_that_cannot_be_kept(kept: list[int], says: str) -> None:
    lines = {"gpu-01": BIG, "gpu-02": BIG}
    conf.check_kept(cluster({"cpu_spec_list": kept[:-1]}), lines)
    conf.check_kept(cluster(), lines)
    with pytest.raises(Refused, match=re.escape(says)) as caught:
        conf.check_kept(cluster({"cpu_spec_list": kept}), lines)
    assert str(caught.value).startswith("slurm.cpu_spec_list: gpu-[01-02]: ")


def test_a_name_with_two_numbers_has_one_pair_of_brackets() -> None:
    lines = {f"r{rack_}-gpu-{n:02}": BIG for rack_ in (1, 2) for n in (1, 2)}
    assert [names for names, _ in folded(lines)] == ["r1-gpu-[01-02],r2-gpu-[01-02]"]
    read = parse_slurm_conf("\n".join([HEADER, *conf.node_text(cluster(), lines)]))
    assert read.nodes == lines


def test_first_partition_is_the_default_and_options_are_added() -> None:
    slurm = cluster({"partition_options": {"gpu": {"MaxTime": "2-00:00:00"}}}, partitions=["gpu", "debug"])
    lines = conf.partition_text(slurm, {"gpu-01": BIG, "gpu-02": BIG})
    assert lines == [
        "PartitionName=gpu Nodes=gpu-[01-02] Default=YES MaxTime=2-00:00:00 State=UP",
        "PartitionName=debug Nodes=gpu-[01-02] Default=NO MaxTime=INFINITE State=UP",
    ]


@pytest.mark.parametrize(
    ("inputs", "keys", "expected", "absent"),
    [
        ({}, {}, "AccountingStorageType=accounting_storage/none", "HealthCheckProgram"),
        ({}, {"health_check": "/usr/local/sbin/rackproof-health"}, "HealthCheckNodeState=ANY,CYCLE", "Prolog="),
        (
            {"health_check_interval_s": 0},
            {"health_check": "/x"},
            "ProctrackType=proctrack/cgroup",
            "HealthCheckProgram",
        ),
        ({"accounting_host": "db-01"}, {}, "AccountingStorageTRES=gres/gpu\n", "accounting_storage/none"),
        ({"prolog": "/etc/slurm/prolog.sh"}, {}, "Prolog=/etc/slurm/prolog.sh", "Epilog="),
        (
            {"controller_parameters": ["node_reg_mem_percent=95"]},
            {},
            "SlurmctldParameters=node_reg_mem_percent=95",
            "x=",
        ),
        ({"extra": {"SuspendTime": "-1"}}, {}, "SuspendTime=-1", "SlurmctldParameters"),
        ({}, {"gres": {}}, "PropagateResourceLimitsExcept=MEMLOCK", "GresTypes"),
    ],
)
def test_inputs_reach_the_file(inputs: dict[str, Any], keys: dict[str, Any], expected: str, absent: str) -> None:
    written = text(cluster(inputs, **keys))
    assert expected in written
    assert absent not in written


test_inputs_that_cannot_be = refuses(
    SlurmInputs.model_validate,
    ({"extra": {"slurmctldhost": "evil"}}, "slurmctldhost is written by the kit"),
    ({"extra": {"DebugFlags": "a\nNodeName=b"}}, "extra.DebugFlags"),
    ({"cpu_spec_list": [4, 4]}, "a processor is listed twice"),
    ({"cpu_spec_list": [-1]}, "greater than or equal to 0"),
    ({"cpu_spec_list": [4], "extra": {"taskpluginparam": "Verbose"}}, "it has to say SlurmdOffSpec, too"),
    ({"partition_options": {"gpu": {"MaxTime": "1 Nodes=ALL"}}}, "partition_options.gpu.MaxTime"),
    ({"partition_options": {"gpu": {"Nodes": "ALL"}}}, "follows from the architecture"),
    ({"repository": {"source": "https://mirror.example/slurm"}}, "repository.key\n"),
    ({"repository": {"source": "slurm", "key": KEY}}, "repository.source\n.*pattern"),
    ({"repository": REPOSITORY, "repository_url": "https://mirror.example/slurm"}, "repository_url\n"),
    ({"repository_url": "https://mirror.example/slurm"}, "repository.key.url\n"),
    (
        {"repository_url": "https://mirror.example/slurm", "repository_key_url": "https://mirror.example/key"},
        "repository.key.sha256\n",
    ),
    ({"repository_key_url": "https://mirror.example/key"}, "repository.key.sha256\n"),
    ({"repository_key_sha256": "0" * 63}, "expected 64 hexadecimal digits"),
    ({"url": "https://mirror.example/slurm", **OLDER}, "url\n"),
    ({"prolog": "prolog.sh"}, "pattern"),
    ({"cluster_name": "Rack 1"}, "pattern"),
    ({"return_to_service": 3}, "0, 1 or 2"),
    error=ValueError,
)


test_an_architecture_that_cannot_be = refuses(
    lambda keys: cluster(**keys),
    ({"controller_role": "storge"}, "no role 'storge' in this architecture; .*storage"),
    ({"roles": ["cpu"]}, "no role 'cpu'"),
    ({"gres": {"gpu": 4}}, "slurm.gres.gpu is 4, gpu.count is 8"),
    error=InventoryError,
)


def test_the_former_keys_of_the_repository_still_load() -> None:
    assert SlurmInputs.model_validate(OLDER) == SlurmInputs.model_validate({"repository": REPOSITORY})
    assert SlurmInputs.model_validate({"repository_url": None}).repository is None


def test_the_key_of_the_repository_is_a_file_that_was_compared() -> None:
    entry = declared_file("slurm", "Slurm", Repository.model_validate(REPOSITORY), "rhel")
    assert entry.path == "/etc/yum.repos.d/rackproof-slurm.repo"
    assert "gpgkey=file:///etc/pki/rpm-gpg/rackproof-slurm.asc\n" in entry.content
    assert "gpgcheck=1\n" in entry.content


def test_gres_without_gpus() -> None:
    without = arch().model_copy(update={"gpu": None})
    with pytest.raises(InventoryError, match=r"slurm\.gres\.gpu is 8, and the architecture has no GPUs"):
        cluster_of(without, rack(), SlurmInputs())


def test_a_partition_that_only_its_options_know() -> None:
    with pytest.raises(InventoryError, match="no partition 'big'"):
        cluster({"partition_options": {"big": {"MaxTime": "1"}}})


def test_a_controller_elsewhere_is_left_alone() -> None:
    assert cluster_of(arch(controller_role=None), rack(), SlurmInputs()) is None


SIMULATED = """\
# Simulated: devices with nothing behind them.
AutoDetect=off
Name=gpu File=/dev/rackproof-gpu[0-7]
"""


@pytest.mark.parametrize(
    ("method", "simulated", "nvml", "expected"),
    [
        ("auto", True, True, SIMULATED),
        ("auto", False, True, "AutoDetect=nvml\nName=gpu\n"),
        ("auto", False, False, "AutoDetect=off\nName=gpu File=/dev/nvidia[0-7]\n"),
        ("off", False, True, "AutoDetect=off\nName=gpu File=/dev/nvidia[0-7]\n"),
        ("nvidia", False, False, "AutoDetect=nvidia\nName=gpu\n"),
    ],
)
def test_gres_conf(method: str, simulated: bool, nvml: bool, expected: str) -> None:
    gres = conf.gres_text(cluster({"gres_autodetect": method}), simulated, nvml)
    assert gres.split("\n", 1)[1] == expected


def with_mig(**inputs: str) -> Cluster:
    whole = arch(gres={"gpu": 56})
    whole = whole.model_copy(update={"gpu": whole.gpu.model_copy(update={"mig": "Enabled"})})  # type: ignore[union-attr]
    slurm = cluster_of(whole, rack(), SlurmInputs.model_validate(inputs))
    assert slurm is not None
    return slurm


def test_partitions_of_mig_are_found_by_nvml_or_refused() -> None:
    slurm = with_mig()
    check_mig(slurm, "gpu-01")
    named = with_mig(gres_autodetect="nvml")
    check_mig(named, "gpu-01")
    # A given method means that the library is there, perhaps in an unusual path.
    assert conf.gres_text(named, False, nvml=False).endswith("AutoDetect=nvml\nName=gpu\n")
    assert conf.gres_text(slurm, False, nvml=True).endswith("AutoDetect=nvml\nName=gpu\n")
    with pytest.raises(Refused, match=r"only NVML finds partitions of MIG .* has no gpu_nvml\.so"):
        conf.gres_text(slurm, False, nvml=False)
    assert "File=/dev/rackproof-gpu[0-55]" in conf.gres_text(slurm, True, nvml=False)  # simulated: counted


@pytest.mark.parametrize("method", ["off", "nvidia", "rsmi"])
def test_another_way_to_find_partitions_is_refused_before_anything_is_touched(method: str) -> None:
    with pytest.raises(InventoryError, match=rf"^gpu-01: slurm\.gres_autodetect: {method} does not find partitions"):
        check_mig(with_mig(gres_autodetect=method), "gpu-01")
    check_mig(cluster({"gres_autodetect": method}), "gpu-01")


def test_one_gpu_has_no_brackets() -> None:
    one = arch(gres={"gpu": 1})
    one = one.model_copy(update={"gpu": one.gpu.model_copy(update={"count": 1})})  # type: ignore[union-attr]
    slurm = cluster_of(one, rack(), SlurmInputs())
    assert slurm is not None
    assert "File=/dev/nvidia0\n" in conf.gres_text(slurm, False, False)


@pytest.mark.parametrize(
    ("change", "restart"),
    [
        (("MaxTime=INFINITE", "MaxTime=60"), False),
        (("RealMemory=2031616", "RealMemory=1031616"), False),
        (("MessageTimeout=30", "MessageTimeout=60"), False),
        (("gpu-[01-02] Sockets", "gpu-[01-03] Sockets"), True),
        (("SlurmctldPort=6817", "SlurmctldPort=7000"), True),
        (("ProctrackType=proctrack/cgroup", "ProctrackType=proctrack/linuxproc"), True),
    ],
)
def test_restart_or_reconfigure(change: tuple[str, str], restart: bool) -> None:
    before = text(cluster())
    assert change[0] in before
    after = parse_slurm_conf(before.replace(*change))
    assert conf.needs_restart(parse_slurm_conf(before), after) is restart


def test_the_first_configuration_is_a_restart() -> None:
    assert conf.needs_restart(None, parse_slurm_conf(text(cluster())))


test_two_controllers = refuses(
    lambda present: conf.check_ours("gpu-01", parse_slurm_conf(present), cluster()),
    ("ClusterName=old\nSlurmctldHost=head-01\nNodeName=x Procs=4\n", "controller head-01 is not the kit's"),
    ("# by hand\n", "is not the kit's"),
    (f"{HEADER}\nSlurmctldHost=gpu-01(10.0.0.1)\n", "the controller is gpu-01, the inventory says storage-01"),
    error=Refused,
)


@pytest.mark.parametrize(
    ("memory_mib", "tolerance", "before", "memory"),
    [
        (1536, 10, None, 1536),
        (1531, 10, None, 1520),
        (2063872, 10, None, 2048000),
        (2063990, 10, None, 2048000),
        (1531, 0, None, 1531),
        (1531, 10, 1500, 1500),
        (1531, 10, 1532, 1520),
        (1531, 10, 1200, 1520),
    ],
)
def test_memory_is_steady(memory_mib: int, tolerance: float, before: int | None, memory: int) -> None:
    old = NodeLine(1, 2, 1, before) if before else None
    line = node_line(NodeHardware(2, 1, 2, 1, memory_mib), tolerance, old)
    assert line.memory_mib == memory
    assert memory_mib * (1 - tolerance / 100) <= line.memory_mib <= memory_mib
    assert node_line(NodeHardware(2, 1, 2, 1, memory_mib), tolerance, line) == line


STATE = [
    "1763748000.25", "--",
    "NodeName=gpu-01 CPUs=2 Boards=1 SocketsPerBoard=2 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=1536", "--",
    "400 munge", f"{'ab12' * 16}  -", "--", "IyBXcml0dGVuIGJ5IHJhY2twcm9vZgo=", "--",
    "/usr/lib/x86_64-linux-gnu/slurm-wlm/gpu_nvml.so", "--", "changed",
]  # fmt: skip


def test_state_of_a_node() -> None:
    state = parse_state(STATE)
    assert state.hardware == NodeHardware(2, 2, 1, 1, 1536)
    assert state.key == ("ab12" * 16, "400", "munge")
    assert state.conf == "# Written by rackproof\n"
    assert state.nvml
    assert state.changed


def test_state_of_a_bare_node() -> None:
    state = parse_state(["1763748000.25", "--", "--", "--", "--", "--"])
    assert (state.hardware, state.key, state.conf, state.nvml, state.changed) == (None, None, None, False, False)


test_an_invalid_state_is_refused = refuses(
    parse_state,
    ([], "sections"),
    (["1.0", "--", "--"], "sections"),
    (["x", "--", "--", "--", "--", "--"], "float"),
    (["1.0", "--", "--", "400 munge", "--", "--", "--"], "unpack"),
    error=ValueError,
)


@pytest.mark.parametrize(
    ("node", "other", "apart"),
    [
        ((100.0, (100.0, 101.0)), (105.0, (105.0, 106.0)), 0.0),
        ((100.0, (100.0, 101.0)), (200.0, (105.0, 106.0)), 94.0),
        ((200.0, (105.0, 106.0)), (100.0, (100.0, 101.0)), 94.0),
        ((100.0, (90.0, 120.0)), (100.0, (100.0, 100.0)), 0.0),
    ],
)
def test_clocks(
    node: tuple[float, tuple[float, float]], other: tuple[float, tuple[float, float]], apart: float
) -> None:
    assert skew_s(*node, *other) == pytest.approx(apart)


@pytest.mark.parametrize(
    ("node", "family", "expected"),
    [
        ("storage-01", "debian", ("munge", "slurm-client", "slurmctld")),
        ("gpu-01", "debian", ("munge", "slurm-client", "slurmd")),
        ("gpu-01", "rhel", ("munge", "slurm", "slurm-slurmd")),
    ],
)
def test_packages(node: str, family: str, expected: tuple[str, ...]) -> None:
    assert package_names(cluster(), rack().node(node), family) == expected


def test_unequal_inputs_stop_before_anything_is_touched() -> None:
    here = site("gpu-01", arch())
    here.node.data["slurm"] = {"cluster_name": "other"}  # type: ignore[index]
    with pytest.raises(DeclarationError, match="not the inputs of storage-01"):
        plan.cluster_here(here)
