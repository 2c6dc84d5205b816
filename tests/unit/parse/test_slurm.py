from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rackproof.parse import ParseError
from rackproof.parse.slurm import (
    parse_gres,
    parse_scontrol_config,
    parse_scontrol_node,
    parse_scontrol_ping,
    parse_scontrol_records,
    parse_slurmd_c,
    parse_unmunge,
)
from rackproof.parse.slurm_conf import HEADER, parse_slurm_conf
from tests.unit.refusals import refuses, refuses_parts, survives_damage

NODE = (
    "NodeName=gpu-01 Arch=x86_64 CoresPerSocket=56 CPUAlloc=0 CPUEfctv=224 CPUTot=224 CPULoad=0.41"
    " AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:h200:8(S:0-1),lscratch:28T NodeAddr=gpu-01"
    " NodeHostName=gpu-01 Version=24.11.1 OS=Linux 6.8.0-49-generic #49-Ubuntu SMP Mon Nov  4 02:06:24 UTC 2026 "
    " RealMemory=2000000 AllocMem=0 FreeMem=2010311 Sockets=2 Boards=1 State=DOWN*+DRAIN ThreadsPerCore=2 TmpDisk=0"
    " Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,debug  BootTime=2026-11-02T08:12:33 SlurmdStartTime=None"
    " CfgTRES=cpu=224,mem=2000000M,billing=224,gres/gpu=8 AllocTRES= CurrentWatts=0 AveWatts=0"
    " Reason=NHC: State=IDLE Gres=none [root@2026-11-20T22:14:09] Comment=Partitions=none\n"
)
PING = "Slurmctld(primary) at head-01 is UP\nSlurmctld(backup1) at head-02 is DOWN\n"
CONFIG = """\
Configuration data as of 2026-11-21T12:00:00
AccountingStorageHost   = (null)
HASH_VAL                = Match
HealthCheckInterval     = 300 sec
Prolog[0]               = /etc/slurm/prolog.d/*
SelectTypeParameters    =
SLURM_VERSION           = 24.11.1

Cgroup Support Configuration:
HASH_VAL                = of something else

Slurmctld(primary) at head-01 is UP
"""
SLURMD = (
    "NodeName=gpu-01 CPUs=224 Boards=1 SocketsPerBoard=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2063937 \n"
    "UpTime=19-03:47:27\n"
)
UNMUNGE = "STATUS:           Expired credential (15)\nENCODE_HOST:      gpu-01 (10.60.65.101)\n"


def test_a_node_as_the_controller_has_it() -> None:
    node = parse_scontrol_node(NODE)
    assert node.name == "gpu-01"
    assert node.states == ("DOWN", "DRAIN", "NOT_RESPONDING")
    assert node.reason == "NHC: State=IDLE Gres=none [root@2026-11-20T22:14:09]"
    assert (node.cpus, node.sockets, node.cores_per_socket, node.threads_per_core) == (224, 2, 56, 2)
    assert (node.version, node.memory_mib, node.partitions) == ("24.11.1", 2_000_000, ("gpu", "debug"))
    assert node.gres == {"gpu": 8, "lscratch": 28 * 1024**4}
    assert node.tres["gres/gpu"] == "8"


def test_a_node_that_never_registered_has_no_version_and_no_partition() -> None:
    node = parse_scontrol_node(NODE.replace("Version=24.11.1 ", "").replace("Partitions=gpu,debug", "Partitions="))
    assert (node.version, node.partitions) == (None, ())


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("IDLE", ("IDLE",)),
        ("MIXED+CLOUD", ("MIXED", "CLOUD")),
        ("IDLE*+DRAIN", ("IDLE", "DRAIN", "NOT_RESPONDING")),
        ("DOWN+NOT_RESPONDING", ("DOWN", "NOT_RESPONDING")),
        ("UNKNOWN*", ("UNKNOWN", "NOT_RESPONDING")),
    ],
)
def test_states(state: str, expected: tuple[str, ...]) -> None:
    assert parse_scontrol_node(NODE.replace("State=DOWN*+DRAIN", f"State={state}")).states == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(null)", {}),
        ("gpu:8", {"gpu": 8}),
        ("gpu", {"gpu": 1}),
        ("gpu:a100:4(S:0,1),gpu:h100:2(S:1)", {"gpu": 6}),
        ("gpu:h200:8(S:0-1),shard:16", {"gpu": 8, "shard": 16}),
    ],
)
def test_generic_resources(text: str, expected: dict[str, int]) -> None:
    assert parse_gres(text) == expected


def test_configuration_in_force() -> None:
    config = parse_scontrol_config(CONFIG)
    assert config.as_of == "2026-11-21T12:00:00"
    assert config.value("HASH_VAL") == "Match"
    assert (config.value("AccountingStorageHost"), config.value("SelectTypeParameters")) == (None, None)
    with pytest.raises(ParseError, match="the configuration has no HealthCheckProgram"):
        config.value("HealthCheckProgram")


def test_controllers() -> None:
    assert [(c.role, c.host, c.state) for c in parse_scontrol_ping(PING)] == [
        ("primary", "head-01", "UP"),
        ("backup1", "head-02", "DOWN"),
    ]


def test_hardware_that_slurmd_finds() -> None:
    hardware = parse_slurmd_c(SLURMD)
    assert (hardware.cpus, hardware.sockets, hardware.cores_per_socket, hardware.threads_per_core) == (224, 2, 56, 2)
    assert hardware.memory_mib == 2_063_937


def test_credentials() -> None:
    assert parse_unmunge(UNMUNGE) == "Expired credential"


test_bad_output_raises_with_the_reason = refuses(
    lambda case: case[0](case[1]),
    ((parse_scontrol_node, NODE + NODE), "expected one node, actual 2"),
    ((parse_scontrol_node, NODE.replace(" CPUTot=224", "")), "gpu-01 has no CPUTot"),
    ((parse_scontrol_node, NODE.replace("Gres=gpu:h200:8(S:0-1),lscratch:28T ", "Gres= ")), "gpu-01 has no Gres"),
    ((parse_scontrol_node, NODE.replace("DOWN*+DRAIN", "down")), "expected a state, got 'down'"),
    (
        (parse_scontrol_node, "slurm_load_node error: Unable to contact slurm controller\n"),
        "expected a line of NodeName",
    ),
    ((parse_scontrol_node, NODE.rstrip("\n")), "last line is cut off"),
    ((parse_gres, "8(S:0-1)"), "expected a resource"),
    ((parse_scontrol_config, "HASH_VAL = Match\n"), "expected a configuration"),
    ((parse_scontrol_config, CONFIG.replace("11-21T", "11-21 ")), "expected a configuration"),
    ((parse_scontrol_ping, "slurm_ping: error\n"), "expected a controller"),
    ((parse_slurmd_c, "UpTime=19-03:47:27\n"), "expected a node"),
    ((parse_slurmd_c, SLURMD.replace("RealMemory=2063937", "")), "the node has no RealMemory"),
    ((parse_slurmd_c, SLURMD.replace("CPUs=224", "CPUs=0")), "CPUs is 0, below 1"),
    ((parse_unmunge, "unmunge: Error: No credential specified\n"), "expected a status"),
)


PARSERS: list[tuple[Callable[[str], Any], str]] = [
    (parse_scontrol_node, NODE),
    (parse_scontrol_ping, PING),
    (parse_scontrol_config, CONFIG),
    (parse_slurmd_c, SLURMD),
    (parse_unmunge, UNMUNGE),
    (lambda text: parse_scontrol_records(text, "NodeName"), NODE),
]


test_an_output_that_ends_in_the_middle_of_a_line_is_refused = refuses_parts(*PARSERS, whole_lines=True)
test_nothing_but_parse_errors = survives_damage(*PARSERS)


@pytest.mark.parametrize("line", ["NodeName=gpu-[01-", "NodeName=gpu-01 Sockets=2", "NodeName='gpu-01"])
def test_unreadable_nodes_are_refused_in_a_file_of_the_kit_alone(line: str) -> None:
    assert parse_slurm_conf(f"{line}\n").nodes == {}
    with pytest.raises(ParseError, match=r"slurm\.conf: unreadable line of nodes"):
        parse_slurm_conf(f"{HEADER}\n{line}\n")
