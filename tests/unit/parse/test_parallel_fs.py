from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rackproof.parse.parallel_fs import (
    BeegfsNode,
    BeegfsTarget,
    WekaDriver,
    parse_beegfs_nodes,
    parse_beegfs_targets,
    parse_gpfs_verbs,
    parse_lustre_imports,
    parse_mmgetstate,
    parse_weka_interface,
)
from tests.unit.refusals import refuses, refuses_parts, survives_damage

LUSTRE = """\
osc.lfs01-OST0000-osc-ffff8c2f41d3a800.import=
import:
    name: lfs01-OST0000-osc-ffff8c2f41d3a800
    target: lfs01-OST0000_UUID
    state: FULL
    connect_flags: [ write_grant, version ]
    connection:
       failover_nids: [ 10.60.66.11@o2ib1, 10.60.66.12@o2ib1 ]
       current_connection: 10.60.66.11@o2ib1
mdc.lfs01-MDT0000-mdc-ffff8c2f41d3a800.import=
import:
    target: lfs01-MDT0000_UUID
    state: DISCONN
    connection:
       current_connection: "<none>"
"""
BEEGFS = """\
meta-01 [ID: 1]
   Connections: <none>
storage-01 [ID: 11]
   Ports: UDP: 8003; TCP: 8003
   Connections: RDMA: 8 (10.60.67.11:8003); TCP: 2 (10.60.67.11:8003 [fallback route]);
"""
TARGETS = """\

TargetID     Reachability  Consistency   NodeID
========     ============  ===========   ======
     101           Online         Good       11
     102 Probably-offline Needs-resync       11
"""
GPFS = """\
mmgetstate::HEADER:version:reserved:reserved:nodeName:nodeNumber:state:quorum:nodesUp:totalNodes:remarks:cnfsState:
mmgetstate::0:1:::gpu-01:21:active:2:24:24::(undefined):
"""
WEKA = "IO node version 2e694b326b50d08a\nmount:[wc-client:sbid-0x31a8] fs698 -o,writecache,readahead_kb=32768\n"


def test_lustre_connections() -> None:
    data, metadata = parse_lustre_imports(LUSTRE)
    assert (data.kind, data.target, data.state, data.network) == ("osc", "lfs01-OST0000", "FULL", "o2ib")
    assert (metadata.kind, metadata.state, metadata.nid, metadata.network) == ("mdc", "DISCONN", None, None)


def test_beegfs_servers() -> None:
    assert parse_beegfs_nodes(BEEGFS) == (BeegfsNode("meta-01", {}), BeegfsNode("storage-01", {"RDMA": 8, "TCP": 2}))


def test_beegfs_targets() -> None:
    assert parse_beegfs_targets(TARGETS) == (
        BeegfsTarget(101, "Online", "Good"),
        BeegfsTarget(102, "Probably-offline", "Needs-resync"),
    )


def test_gpfs() -> None:
    assert parse_mmgetstate(GPFS) == "active"
    assert parse_gpfs_verbs("VERBS RDMA status: started\n")
    assert not parse_gpfs_verbs("VERBS RDMA status: disabled\n")


def test_weka() -> None:
    assert parse_weka_interface(WEKA) == WekaDriver(True, ("fs698",))
    assert parse_weka_interface("Frontend is not connected\n") == WekaDriver(False, ())


test_bad_output_raises_with_the_reason = refuses(
    lambda case: case[0](case[1]),
    (
        (parse_lustre_imports, "error: get_param: param_path 'osc/*/import': No such file or directory\n"),
        "expected an import",
    ),
    ((parse_lustre_imports, LUSTRE.replace("    state: FULL\n", "")), "an import lacks state"),
    (
        (parse_lustre_imports, LUSTRE.replace("state: FULL", "state: FULL\n    state: IDLE")),
        "an import has state twice",
    ),
    (
        (parse_lustre_imports, LUSTRE.replace("10.60.66.11@o2ib1\nmdc", "10.60.66.11\nmdc")),
        "expected the address of a server",
    ),
    ((parse_beegfs_nodes, "cat: '/proc/fs/beegfs/*/meta_nodes': No such file or directory\n"), "lists no node"),
    ((parse_beegfs_nodes, BEEGFS.replace("   Connections: <none>\n", "")), "meta-01 has no line of connections"),
    ((parse_beegfs_nodes, BEEGFS.replace("RDMA: 8", "RDMA")), "expected connections"),
    ((parse_beegfs_targets, "Unable to reach the management server\n"), "expected a table of targets"),
    ((parse_beegfs_targets, TARGETS.replace("Online", "?")), "expected a target"),
    ((parse_mmgetstate, GPFS.splitlines()[0] + "\n"), "expected the state of one node"),
    ((parse_mmgetstate, "mmgetstate: 6027-1639 Command failed\n"), "unexpected line"),
    ((parse_gpfs_verbs, "mmfsadm: GPFS is down\n"), "expected the status of RDMA"),
    ((parse_weka_interface, "wekafs\n"), "expected the state of the driver"),
)


PARSERS: list[tuple[Callable[[str], Any], str]] = [
    (parse_lustre_imports, LUSTRE),
    (parse_beegfs_nodes, BEEGFS),
    (parse_beegfs_targets, TARGETS),
    (parse_mmgetstate, GPFS),
    (parse_weka_interface, WEKA),
]


test_an_output_that_ends_in_the_middle_of_a_line_is_refused = refuses_parts(*PARSERS, whole_lines=True)
test_nothing_but_parse_errors = survives_damage(*PARSERS)
