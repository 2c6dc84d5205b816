"""Changes that the operation undoes, by node."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.configure import operations as common
from rackproof.configure.facts import FileStates, KernelValues, UnitStates
from rackproof.configure.files import FileState, RemoteFile
from rackproof.configure.rollback import operations
from rackproof.configure.rollback.operations import Kept
from rackproof.configure.rollback.restore import Entry, KeptRun
from rackproof.configure.units import SystemState, Unit, UnitState
from rackproof.errors import InventoryError
from tests.unit.configure.stub import StubHost, at

HERE = FileState("regular file", "644", "root", "root", "after", "after\n")


def kept(run: str, *paths: str, order: int = 1) -> KeptRun:
    entries = (Entry("file", "regular", "644", "root:root", "before", "after", "-", f"/kept/{p}", p) for p in paths)
    return KeptRun(order, run, tuple(entries))


def undo(here: StubHost, *others: StubHost, **arguments: Any) -> list[str]:
    class Active:
        @staticmethod
        def get_active_hosts() -> list[StubHost]:
            return [here, *others]

    with at(here, *others):
        here.state.inventory = Active()
        for other in others:
            other.state = here.state
        return [command.get_raw_value() for command in operations.restore._inner(**arguments)]


def node(name: str, *runs: KeptRun) -> StubHost:
    states = {entry.path: HERE for run in runs for entry in run.entries}
    return StubHost({Kept: runs, FileStates: states}, name)


def test_the_last_run_of_all_nodes_is_the_one_that_is_undone() -> None:
    first, second = node("gpu-01", kept("r1", "/a")), node("gpu-02", kept("r1", "/a"), kept("r2", "/b", order=2))
    assert undo(first, second) == []
    assert first.noops == ["nothing was changed here"]
    (script,) = undo(second, node("gpu-01", kept("r1", "/a")))
    assert "mv -fT -- /.b.rackproof-new /b" in script
    assert "/a" not in script.split("rp_close")[-1]


def test_an_older_run_is_undone_on_all_nodes_with_what_came_after_it() -> None:
    second = node("gpu-02", kept("r2", "/b"))
    (script,) = undo(second, node("gpu-01", kept("r1", "/a")), run="r1")
    assert "mv -fT -- /.b.rackproof-new /b" in script


def test_an_unknown_run_is_refused() -> None:
    (script,) = undo(node("gpu-01", kept("r1", "/a")), run="r7")
    assert "no node has kept run r7; kept runs: r1" in script
    assert script.endswith("exit 1")


def test_nothing_kept_is_nothing_to_do() -> None:
    here = node("gpu-01")
    assert undo(here) == []
    assert here.noops == ["no run has been kept"]


def test_a_node_that_cannot_be_read_is_not_touched() -> None:
    (script,) = undo(StubHost({Kept: None}), node("gpu-02", kept("r1", "/a")))
    assert "could not be read" in script


def test_a_foreign_change_is_refused() -> None:
    here = node("gpu-01", kept("r1", "/a"))
    here.facts = {**here.facts, FileStates: {"/a": FileState("regular file", "644", "root", "root", "other")}}
    (script,) = undo(here)
    assert "changed since these runs: /a" in script
    here.state = StubHost({}).state
    (script,) = undo(here, force=("/a",))
    assert "mv -fT" in script


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, (None, ())),
        ({"run": "r1", "force": "/etc/a,/etc/b"}, ("r1", ("/etc/a", "/etc/b"))),
        ({"force": ["/etc/a"]}, (None, ("/etc/a",))),
    ],
)
def test_inputs(data: dict[str, object], expected: tuple[object, ...]) -> None:
    assert operations.inputs(data.get("run"), data.get("force")) == expected


@pytest.mark.parametrize("data", [{"run": 7}, {"force": True}, {"force": "all"}, {"force": ""}])
def test_bad_inputs(data: dict[str, object]) -> None:
    with pytest.raises(InventoryError):
        operations.inputs(data.get("run"), data.get("force"))


def test_operations_keep_what_they_change() -> None:
    (script,) = run_with(common.files, {FileStates: {}}, entries=[RemoteFile("/etc/a", "x\n")])
    assert script.index("rp_file /etc/a") < script.index("tar -x")
    path = "/proc/sys/vm/swappiness"
    (script,) = run_with(
        common.kernel_values, {KernelValues: {path: "60"}}, sysctl={"vm.swappiness": "10"}, patterns={}
    )
    assert script.index(f"rp_value {path} 10") < script.index(f"> {path}")
    state = SystemState({"a.service": UnitState("loaded", "inactive", "disabled", False)}, frozenset(), {})
    (script,) = run_with(common.units, {UnitStates: state}, wanted=[Unit("a.service")])
    assert script.index("rp_unit a.service") < script.index("systemctl enable")


def run_with(operation: Any, facts: dict[type, Any], **arguments: Any) -> list[str]:
    here = StubHost(facts)
    with at(here):
        return [command.get_raw_value() for command in operation._inner(**arguments)]
