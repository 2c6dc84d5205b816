"""A server that answers no client fails by its own name, and its clients are not blamed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.judging.judge import judge
from rackproof.core.rack import Node, Rack
from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import SERVER, Judgement
from rackproof.remote.command import CommandResult
from rackproof.report.findings import findings
from tests.unit.judging import CHECKED, architecture, check, run_info, verdicts
from tests.unit.validation.checking import outcome, subject

SILENT = "sto-01 (10.0.0.1)"


def silent(node: str, server: str = SILENT) -> CheckResult:
    return check(node, "mount.answers", "failed", "nfs", blames=server)


def judged(*results: CheckResult) -> Judgement:
    return judge(architecture(), run_info(), (), (*CHECKED, *results)).restricted_to("check")


def test_a_server_that_answers_no_client_fails_by_its_own_name_once() -> None:
    result = judged(silent("gpu-01"), silent("gpu-02"))
    assert result.outcome is Outcome.NOT_CERTIFIED
    verdict = verdicts(result, f"{SERVER}[nfs]")["sto-01"]
    assert (verdict.status, verdict.required) == (Status.FAIL, True)
    assert verdict.message == "sto-01 (10.0.0.1) does not answer 2 clients, gpu-[01-02]"
    clients = verdicts(result, "mount.answers[nfs]")
    assert {name: v.status for name, v in clients.items()} == dict.fromkeys(("gpu-01", "gpu-02"), Status.UNMEASURED)
    assert {v.message for v in clients.values()} == {f"{SILENT} does not answer; see {SERVER}"}
    assert findings(result.verdicts)[0].verdicts == (verdict,)


def test_an_address_outside_of_the_rack_is_named_by_the_rack() -> None:
    result = judged(silent("gpu-01", "10.9.9.9"), silent("gpu-02", "10.9.9.9"))
    verdict = verdicts(result, f"{SERVER}[nfs, 10.9.9.9]")["rack"]
    assert verdict.message == "10.9.9.9 does not answer 2 clients, gpu-[01-02]"


@pytest.mark.parametrize(
    "other",
    [
        check("gpu-02", "mount.answers", "passed", "nfs"),
        silent("gpu-02", "10.9.9.9"),
        check("gpu-02", "mount.answers", "failed", "nfs"),
    ],
    ids=["another-client-is-answered", "another-server", "another-failure"],
)
def test_a_client_stays_to_blame_where_the_server_need_not_be(other: CheckResult) -> None:
    result = judged(silent("gpu-01"), other)
    assert verdicts(result, "mount.answers[nfs]")["gpu-01"].status is Status.FAIL
    assert not any(v.id.startswith(SERVER) for v in result.verdicts)


def test_clients_name_the_server_of_a_mount_that_hangs() -> None:
    healthy = subject()

    def frozen(answer: CommandResult) -> CommandResult:
        hangs = "stat -f" in answer.command and "-- /mnt/nfs-tcp" in answer.command
        return replace(answer, stdout=b"status 124\n") if hangs else answer

    for node in ("gpu-01", "gpu-02"):
        context = healthy.altered(node, frozen)
        result = outcome("mount.answers", node, "nfs-tcp", context)
        assert (result.outcome, result.blames) == (CheckOutcome.FAILED, "storage-01 (10.77.0.11)")
        assert result.message.startswith("storage-01 (10.77.0.11) does not answer: ")
        result = outcome("mount.free", node, "nfs-tcp", context)
        assert result.message == "storage-01 (10.77.0.11): /mnt/nfs-tcp does not answer; see mount.answers"


@pytest.mark.parametrize("state", ["is not mounted", "does not answer"])
def test_a_container_is_not_to_blame_for_its_storage(state: str) -> None:
    def without_storage(answer: CommandResult) -> CommandResult:
        starts = "/usr/local/bin/rackproof-container" in answer.command
        words = f"rackproof-container: /mnt/nfs-tcp {state}\nstatus 69\n".encode()
        return replace(answer, stdout=words) if starts else answer

    result = outcome("container.bridge", "gpu-01", "nfs-tcp", subject().altered("gpu-01", without_storage))
    assert result.outcome is CheckOutcome.UNMEASURED
    assert result.message == f"rackproof-container: /mnt/nfs-tcp {state}; see mount.mounted and mount.answers"


def test_an_address_belongs_to_at_most_one_node() -> None:
    rack = Rack("x", (Node("storage-01", (), {"fabric_addresses": ["10.77.0.11/24"]}),))
    assert rack.at("10.77.0.11") == "storage-01 (10.77.0.11)"
    assert rack.at("10.77.0.1") == "10.77.0.1"
