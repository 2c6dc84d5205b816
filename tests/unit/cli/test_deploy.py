"""``rackproof deploy``: one run, or two around a reboot, and an exit status for all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rackproof.cli import deploy as command
from rackproof.core.evidence import DeployRecord, Kind, NodeChanges
from rackproof.core.rack import Node, Rack
from rackproof.evidence.store import read_records
from rackproof.run.converge import Converged
from rackproof.run.deploy_outcome import INTERRUPTED, Printed

RACK = Rack("inv.py", (Node("gpu-01", ("gpu",)), Node("gpu-02", ("gpu",))))


def outcome(reason: str | None = None, rebooted: tuple[str, ...] = (), **node: Any) -> Converged:
    nodes = (
        NodeChanges(node="gpu-01", reached=True, rebooted="gpu-01" in rebooted, **node),
        NodeChanges(node="gpu-02", reached=True),
    )
    record = DeployRecord(
        inventory="inv.py", deploy="deploys/cluster.py", exit_status=0, ok=reason is None, reason=reason, nodes=nodes,
        elapsed_s=1.0,
    )  # fmt: skip
    return Converged(record, Printed("inv.py", "deploys/cluster.py", False, 0, None, 1.0))


def deploy(
    monkeypatch: pytest.MonkeyPatch, folder: Path, outcomes: list[Converged], *options: str
) -> tuple[Result, list[dict[str, Any]]]:
    asked: list[dict[str, Any]] = []

    def converge(rack: Rack, **more: Any) -> Converged:
        asked.append(more)
        return outcomes[len(asked) - 1]

    monkeypatch.setattr(command, "converge", converge)
    monkeypatch.setattr(command, "load_rack", lambda inventory: RACK)
    done = CliRunner().invoke(command.deploy, ["inv.py", "--quiet", "--output", str(folder), *options])
    return done, asked


def test_after_a_reboot_the_same_deploy_runs_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = [outcome(rebooted=("gpu-01",), changed=("Reboot | Reboot",)), outcome(changed=("Storage client | Mounts",))]
    done, asked = deploy(monkeypatch, tmp_path, runs, "--reboot", "--serial", "2", "--data", "x=1")
    assert done.exit_code == 0, done.output
    assert "second pass: changes that needed the reboot of gpu-01" in done.output
    assert [call["data"] for call in asked] == [
        ("x=1", "reboot_mode=allowed-two-passes", "reboot_serial=2"),
        ("x=1", "reboot_mode=finish"),
    ]
    (folder,) = tmp_path.iterdir()
    assert [record.kind for record in read_records(folder)].count(Kind.DEPLOY) == 2


@pytest.mark.parametrize(
    ("runs", "status"),
    [
        ([outcome(rebooted=("gpu-01",)), outcome("gpu-01 failed", failed=("Storage client | Mounts",))], 1),
        ([outcome(rebooted=("gpu-01",)), outcome("gpu-01 reboot required: x", reboot="x")], 2),
        ([outcome("gpu-02 failed", rebooted=("gpu-01",), failed=("Reboot | Reboot",)), outcome()], 1),
    ],
)
def test_neither_run_hides_the_others_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: list[Converged], status: int
) -> None:
    done, asked = deploy(monkeypatch, tmp_path, runs, "--reboot")
    assert done.exit_code == status, done.output
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("first", "options"),
    [
        (outcome(), ("--reboot",)),
        (outcome(INTERRUPTED, rebooted=("gpu-01",)), ("--reboot",)),
        (outcome("gpu-01 reboot required: x", reboot="x"), ()),
    ],
)
def test_otherwise_it_runs_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: Converged, options: tuple[str, ...]
) -> None:
    done, asked = deploy(monkeypatch, tmp_path, [first], *options)
    assert len(asked) == 1
    assert done.exit_code == (0 if first.record.ok else 130 if first.record.reason == INTERRUPTED else 2)


def test_the_whole_run_has_a_limit_that_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for options, limit_s in (
        ((), None),  # the deploy's own, which knows a dry pass
        (("--reboot",), 86400.0),
        (("--reboot", "--dry"), None),
        (("--timeout", "90"), 90.0),
    ):
        _, asked = deploy(monkeypatch, tmp_path / "-".join(["run", *options]), [outcome()], *options)
        assert asked[0]["timeout_s"] == limit_s
