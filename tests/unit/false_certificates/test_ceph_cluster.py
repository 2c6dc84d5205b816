"""A file system of another cluster of Ceph, of the same name and from the same addresses, gives no number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.storage.commands import state_of
from rackproof.core.rack import Node, Rack
from tests.unit.benchmarked import Bench, commands
from tests.unit.fakes import lab_rack, virtual_rack
from tests.unit.storage_nodes import StorageNodes, with_long_runs
from tests.unit.transfer_answers import FSID

ARCHITECTURE = with_long_runs(virtual_rack())
OWN = Bench(ARCHITECTURE, lab_rack(1), "lab")
OTHER = "11111111-2222-3333-4444-555555555555"
STEP = "storage/cephfs/read"


def older(text: str) -> str:
    """Mounts in the syntax that names no cluster."""
    return text.replace(f"client@{FSID}.rackfs=/ rw", "10.77.0.11:3300:/ rw,mds_namespace=rackfs")


def other(text: str) -> str:
    return text.replace(FSID, OTHER)


class OtherClient(StorageNodes):
    """The kernel's client is one of another cluster."""

    def _transfer(self, *words: Any) -> list[str]:
        return [other(line) for line in super()._transfer(*words)]


def external(fsid: str) -> Bench:
    """The cluster is not the kit's; the inventory tells its FSID, or not."""
    data = {"storage_client": {"cephfs": {"fsid": fsid}}} if fsid else {}
    nodes = (Node(node.name, node.groups, {**node.data, **data}) for node in lab_rack(1).nodes)
    return Bench(ARCHITECTURE.model_copy(update={"ceph": None}), Rack("inventories/lab.py", tuple(nodes)), "lab")


def reasons(bench: Bench, folder: Path, nodes: StorageNodes) -> set[str]:
    """Why there are no numbers; an empty reason for a number."""
    made = bench.measure(folder, nodes.answer, bench.steps(STEP))
    assert made
    assert bench.faults(folder) == {}
    return {"" if measurement.samples else str(measurement.reason) for measurement in made}


@pytest.mark.parametrize("bench", [OWN, external(OTHER), external("")], ids=["own", "external", "unknown"])
@pytest.mark.parametrize("syntax", [str, older])
def test_a_healthy_mount_is_measured_in_both_syntaxes(
    tmp_path: Path, bench: Bench, syntax: Callable[[str], str]
) -> None:
    assert reasons(bench, tmp_path, StorageNodes(bench.architecture, mountinfo=syntax)) == {""}
    assert {state[0] for command in commands(tmp_path) if (state := state_of(command))} >= {"before", "after"}


@pytest.mark.parametrize("bench", [OWN, external(FSID.upper())], ids=["own", "external"])
def test_a_mount_of_another_cluster_gives_no_number(tmp_path: Path, bench: Bench) -> None:
    for name, nodes, when in (
        ("before", StorageNodes(bench.architecture, mountinfo=other), "before"),
        ("after", StorageNodes(bench.architecture, mountinfo_after=other), "after"),
        ("older", OtherClient(bench.architecture, mountinfo=older), "before"),
    ):
        for reason in reasons(bench, tmp_path / name, nodes):
            assert f"mount: {when} the run: source: expected cluster " in reason
            assert reason.endswith(f", actual {OTHER}")


def test_an_older_mount_is_not_judged_where_the_kernel_shows_no_client(tmp_path: Path) -> None:
    nodes = StorageNodes(ARCHITECTURE, mountinfo=older, clients_rc=1)
    assert not any("expected cluster" in reason for reason in reasons(OWN, tmp_path, nodes))
