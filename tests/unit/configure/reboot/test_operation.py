"""The operation: says, refuses, or does; and what the deploy makes of the inventory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from paramiko import SSHException
from pyinfra.api.command import FunctionCommand

from rackproof.configure.fact_prefetch import MayDisconnect
from rackproof.configure.known_inputs import misspelled
from rackproof.configure.reboot import operations
from rackproof.configure.reboot import plan as deploy
from rackproof.configure.reboot.drain import DrainState
from rackproof.configure.reboot.facts import DriverUse
from rackproof.configure.reboot.gpu_users import Use, parse_use
from rackproof.configure.reboot.inputs import RebootInputs
from rackproof.configure.reboot.operations import Reasons
from rackproof.configure.reboot.reasons import RebootState
from rackproof.configure.settings import read_inputs
from rackproof.core.rack import Node, Rack
from rackproof.core.reboot_mode import Mode
from rackproof.errors import DeclarationError, InventoryError
from tests.unit.configure.rack import architecture, node, rack, site
from tests.unit.configure.stub import StubHost, at
from tests.unit.refusals import error_of

WAITS = RebootState("a-boot-id", "6.8", marks=("kernel arguments", "huge pages"))


def commands(host: StubHost, **more: Any) -> list[Any]:
    with at(host):
        host.current_op_global_arguments = {"_sudo": True, "_timeout": 900, "name": "x"}  # type: ignore[attr-defined]
        arguments = {"mode": Mode.REFUSED, "inputs": RebootInputs(), **more}
        return list(operations.reboot._inner(**arguments))  # type: ignore[attr-defined]


def test_by_default_one_line_is_printed_and_nothing_done() -> None:
    host = StubHost({Reasons: WAITS})
    assert commands(host) == []
    assert host.logged == ["reboot required: kernel arguments; huge pages"]


def test_a_dry_run_says_it_before_anything_runs() -> None:
    for mode, notes in ((Mode.REFUSED, []), (Mode.PLANNED, ["reboot required: kernel arguments; huge pages"])):
        host = StubHost({Reasons: WAITS}, executing=False)
        assert commands(host, mode=mode) == []
        assert host.logged == notes


def test_what_the_distribution_does_not_tell_is_an_error_with_its_cause() -> None:
    (command,) = commands(StubHost({Reasons: RebootState("x", "6.8", unknown=True)}))
    assert "needs-restarting gives no answer" in command.get_raw_value()


SHOWN = "NodeName=gpu-01 State=IDLE+DRAIN Reason={} [root@2026-11-21T18:00:00]"


@pytest.mark.parametrize(
    ("reason", "slurm", "executing", "back"),
    [
        ("rackproof: reboot (kernel)", True, True, True),
        ("bad DIMM", True, True, False),
        ("rackproof: reboot (kernel)", False, True, False),
        ("rackproof: reboot (kernel)", True, False, False),
    ],
)
def test_the_second_pass_gives_back_what_the_first_left_drained(
    monkeypatch: pytest.MonkeyPatch, reason: str, slurm: bool, executing: bool, back: bool
) -> None:
    monkeypatch.setattr(operations.PyinfraLine, "ask", lambda *rest: (True, SHOWN.format(reason)))
    host = StubHost({Reasons: RebootState("x", "6.8")}, executing=executing)
    assert bool(commands(host, mode=Mode.FINISH, slurm=slurm)) is back


def test_a_second_pass_without_slurms_controller_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations.PyinfraLine, "ask", lambda *rest: (False, "no controller"))
    (command,) = commands(StubHost({Reasons: RebootState("x", "6.8")}), mode=Mode.FINISH, slurm=True)
    assert "is it still drained?" in command.get_raw_value()


@pytest.mark.parametrize(
    ("marked", "reason", "driver_swaps", "back"),
    [
        (True, "rackproof: reboot (driver or network stack is exchanged)", True, True),
        (True, "bad DIMM", True, False),
        (False, "rackproof: reboot (x)", True, False),
        (True, "rackproof: reboot (x)", False, False),
    ],
)
@pytest.mark.parametrize("mode", [Mode.REFUSED, Mode.ALLOWED, Mode.ALLOWED_TWO_PASSES])
def test_a_node_that_left_slurm_for_an_exchange_comes_back_when_nothing_waits(
    monkeypatch: pytest.MonkeyPatch, mode: Mode, marked: bool, reason: str, driver_swaps: bool, back: bool
) -> None:
    def answer(line: object, command: str, limit_s: float) -> tuple[bool, str]:
        return (marked, "") if command.startswith("[ -e ") else (True, SHOWN.format(reason))

    monkeypatch.setattr(operations.PyinfraLine, "ask", answer)
    host = StubHost({Reasons: RebootState("x", "6.8")})
    assert bool(commands(host, mode=mode, slurm=True, driver_swaps=driver_swaps)) is back
    host = StubHost({Reasons: WAITS})
    assert commands(host, mode=Mode.REFUSED, slurm=True, driver_swaps=driver_swaps) == []  # it stays out


def test_a_connection_that_the_reboot_ends_is_an_answer_and_not_reported() -> None:
    sent: list[object] = []

    def run(command: object, **_: object) -> None:
        sent.append(command)
        raise SSHException("the connection was lost")

    host: Any = SimpleNamespace(name="gpu-01", connected=True, run_shell_command=run)
    assert operations.PyinfraLine(host).ask("reboot", 30) == (False, "SSHException: the connection was lost")
    assert isinstance(sent[0], MayDisconnect)


def test_nothing_to_say() -> None:
    host = StubHost({Reasons: RebootState("x", "6.8")})
    assert commands(host, mode=Mode.ALLOWED) == []
    assert (host.logged, host.noops) == ([], ["no reboot is needed"])


def test_a_node_that_cannot_be_read_is_not_rebooted() -> None:
    (command,) = commands(StubHost({Reasons: None}), mode=Mode.ALLOWED)
    assert "could not be read, so nothing was changed" in command.get_raw_value()


def test_what_is_allowed_is_done_with_the_operations_rights() -> None:
    (command,) = commands(StubHost({Reasons: WAITS, DriverUse: Use()}), mode=Mode.ALLOWED)
    assert isinstance(command, FunctionCommand)
    work, before = command.args
    assert before == WAITS
    assert work.why == ("kernel arguments", "huge pages")
    assert work.line.arguments == {"_sudo": True}


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (Use(programs=("python3 (4711)",)), "actual programs on the GPUs: python3 (4711)"),
        (parse_use(["--", "slurmstepd: [4711.batch]", "--", "--"]), "jobs 4711"),
        (Use(jobs_known=False), "jobs unknown: slurmd runs"),
        (Use(node=DrainState(frozenset({"IDLE"}))), "not drained in Slurm"),
        (None, "programs and jobs of the node could not be read"),
    ],
)
def test_a_node_of_a_slurm_that_the_kit_does_not_manage_is_not_rebooted_under_its_jobs(
    use: Use | None, message: str
) -> None:
    answers = {Reasons: WAITS, DriverUse: use}
    (command,) = commands(StubHost(answers), mode=Mode.ALLOWED)
    assert message in command.get_raw_value()
    for more in ({"slurm": True}, {"accepted": True}):  # drained first, with a wait for the jobs; accepted
        (command,) = commands(StubHost(answers), mode=Mode.ALLOWED, **more)
        assert isinstance(command, FunctionCommand)


def test_the_machine_that_the_deploy_runs_on_is_never_rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "own_boot_id", lambda: WAITS.boot_id)
    (command,) = commands(StubHost({Reasons: WAITS}), mode=Mode.ALLOWED)
    assert "this is the machine that the deploy runs on" in command.get_raw_value()


def test_after_a_failure_the_next_batch_is_left_alone() -> None:
    host = StubHost({Reasons: WAITS, DriverUse: Use()}, name="gpu-02")
    operations._failed[host.state] = ["gpu-01"]  # type: ignore[index]
    (command,) = commands(host, mode=Mode.ALLOWED)
    assert "not rebooted: the reboot of gpu-01 failed" in command.get_raw_value()
    (command,) = commands(host, mode=Mode.ALLOWED, inputs=RebootInputs(max_failures=1))
    assert isinstance(command, FunctionCommand)


@pytest.mark.parametrize("mode", ["yes", True, ""])
def test_an_unknown_mode_is_refused(mode: object) -> None:
    with pytest.raises(DeclarationError, match="reboot_mode: expected allowed or refused"):
        deploy.mode_of(RebootInputs(allowed=True), mode)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_command_lines_mode_overrides_the_inventory(allowed: bool) -> None:
    inputs = RebootInputs(allowed=allowed)
    assert deploy.mode_of(inputs) is (Mode.ALLOWED if allowed else Mode.REFUSED)
    for mode in Mode:
        assert deploy.mode_of(inputs, mode.value) is mode


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, RebootInputs()),
        ({"reboot": {"serial": 2}}, RebootInputs(serial=2)),
        ({"reboot": {"allowed": True, "max_failures": 1}}, RebootInputs(allowed=True, max_failures=1)),
        ({"reboot": "allowed"}, RebootInputs(allowed=True)),
        ({"reboot": "refused"}, RebootInputs()),
        ({"rebooting": {"serial": 2}}, RebootInputs(serial=2)),
        ({"rebooting": {"serial": 2}, "reboot": "allowed"}, RebootInputs(serial=2, allowed=True)),
        ({"rebooting": {"serial": 2}, "reboot": "refused"}, RebootInputs(serial=2)),
        ({"rebooting": {}, "reboot": "allowed"}, RebootInputs(allowed=True)),
    ],
)
def test_inventories_with_the_former_keys_mean_the_same(data: dict[str, Any], expected: RebootInputs) -> None:
    assert read_inputs(Node("gpu-01", ("gpu",), data), RebootInputs) == expected
    assert misspelled(data) == {}


BOTH = "gpu-01: rebooting: the former name of reboot, which is given, too: move its entries there"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rebooting": {"serial": 2}, "reboot": {"allowed": True}}, BOTH),
        ({"rebooting": {}, "reboot": {}}, BOTH),
        ({"rebooting": {"allowed": False}, "reboot": "allowed"}, BOTH),
        ({"reboot": "yes"}, "gpu-01: reboot: expected a mapping, allowed or refused, actual 'yes'"),
        ({"reboot": True}, "gpu-01: reboot: expected a mapping, actual bool"),
        ({"rebooting": "allowed"}, "gpu-01: rebooting: expected a mapping, actual str"),
        (
            {"rebooting": {"serial": 0}},
            "gpu-01: rebooting.serial: input should be greater than or equal to 1, actual 0",
        ),
        ({"reboot": {"seriel": 2}}, "gpu-01: reboot.seriel: no such input; did you mean 'serial'?"),
    ],
)
def test_contradictions_are_refused_in_one_line(data: dict[str, Any], message: str) -> None:
    assert error_of(InventoryError, read_inputs, Node("gpu-01", ("gpu",), data), RebootInputs) == message


def test_batches_are_the_whole_racks() -> None:
    assert deploy.reboot_inputs(site(), "4").serial == 4
    with pytest.raises(InventoryError, match="reboot_serial: expected a number of nodes, actual 'many'"):
        deploy.reboot_inputs(site(), "many")
    odd = node("gpu-02", "gpu", 22, reboot={"serial": 2})
    whole = Rack("test", tuple(odd if node.name == "gpu-02" else node for node in rack().nodes))
    with pytest.raises(InventoryError, match=r"reboot\.serial: must be the same for every node"):
        deploy.reboot_inputs(site(whole=whole))


def test_who_serves_the_others_is_known() -> None:
    assert [name for name in ("gpu-01", "gpu-02", "storage-01") if site(name).others_wait] == ["storage-01"]
    alone = architecture()
    assert alone.slurm is not None
    head = alone.model_copy(update={"storage": {}, "slurm": alone.slurm.model_copy(update={"controller_role": "gpu"})})
    assert [name for name in ("gpu-01", "gpu-02", "storage-01") if site(name, head).others_wait] == ["gpu-01"]
