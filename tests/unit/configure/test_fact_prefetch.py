"""Which facts are prefetched, and that no answer is used after it expires. The "nodes" are shells of this machine."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paramiko import SSHException
from pyinfra.api.command import StringCommand
from pyinfra.api.config import Config
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State, StateOperationMeta, StateStage
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_host, ctx_state

from rackproof.configure import fact_prefetch
from rackproof.configure.facts import Answer, complete
from rackproof.core.plan import REPORTS, NodeReport
from rackproof.core.rack import FORMER_KEYS
from rackproof.lab.state import COMMAND_TIMEOUT_S
from tests.unit.shell import sh

pytestmark = pytest.mark.few(9)


class Content(Answer[tuple[str, ...]]):
    """Lines of a file."""

    def command(self, path: str) -> str:
        return complete(f"cat {path} || exit 1")

    def parse(self, lines: list[str]) -> tuple[str, ...]:
        return tuple(lines)


class Ahead(Content):
    """The same question, with the prefetch's command."""

    def command(self, path: str) -> str:
        return fact_prefetch.Kept(super().command(path))


class Shell(SSHConnector):
    """Runs on this machine what it is given."""

    def __init__(self, state: State, host: Host) -> None:
        super().__init__(state, host)
        self.ran: list[tuple[str, dict[str, Any]]] = []
        self.during = lambda: None
        self.broken = False

    def connect(self) -> None:
        pass

    def disconnect(self) -> None:
        pass

    def put_file(self, *_: Any, **__: Any) -> bool:
        return True

    def run_shell_command(
        self, command: StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        self.ran.append((str(command), arguments))
        if self.broken:
            raise TimeoutError
        done = sh(str(command), stdin=arguments.get("_stdin") or "")
        self.during()
        lines = [OutputLine("stdout", line) for line in done.stdout.splitlines()]
        return done.returncode == 0, CommandOutput(lines + [OutputLine("stderr", x) for x in done.stderr.splitlines()])


@dataclass
class Rack:
    state: State
    nodes: dict[str, Shell]

    def ask(self, path: Path, node: str = "gpu-01", fact: type[Content] = Content, **more: Any) -> Any:
        host = self.state.inventory.get_host(node)
        assert host is not None
        with ctx_state.use(self.state), ctx_host.use(host):
            return host.get_fact(fact, path=str(path), **more)

    def run(self, command: str, node: str = "gpu-01") -> None:
        host = self.state.inventory.get_host(node)
        assert host is not None
        host.run_shell_command(StringCommand(command))

    def trips(self, node: str = "gpu-01") -> int:
        return len(self.nodes[node].ran)

    def finish(self) -> None:
        for host in self.state.inventory:
            host.disconnect()


def rack(data: dict[str, Any] | None = None) -> Rack:
    inventory = Inventory((["gpu-01", "gpu-02"], data or {}), gpu=(["gpu-01", "gpu-02"], {}))
    state = State(inventory, Config())
    state.check_for_changes = False
    nodes = {}
    for host in inventory:
        nodes[host.name] = host.connector = Shell(state, host)  # type: ignore[assignment]
        host.connected = True
        state.activate_host(host)
    state.set_stage(StateStage.Execute)
    return Rack(state, nodes)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("a", "b", "c", "d", "e", "f")]
    for path in paths:
        path.write_text(f"{path.name}\n")
    return paths


@pytest.fixture
def known(files: list[Path]) -> Rack:
    """A rack whose nodes have been asked for all files in an earlier run."""
    first = rack()
    for node in first.nodes:
        for path in files:
            first.ask(path, node)
    assert first.trips() == len(files)  # nothing was known yet: one by one
    first.finish()
    return rack()


def test_everything_is_asked_with_the_first_question(known: Rack, files: list[Path]) -> None:
    assert [known.ask(path) for path in files] == [(path.name,) for path in files]
    assert known.trips() == 1
    assert [known.ask(path, "gpu-02") for path in files] == [(path.name,) for path in files]
    assert known.trips("gpu-02") == 1


def test_an_answer_does_not_outlive_a_change_on_its_node(known: Rack, files: list[Path]) -> None:
    known.ask(files[0])
    known.run(f"echo new >{files[1]}")
    assert known.ask(files[1]) == ("new",)


def test_an_answer_does_not_outlive_a_change_on_another_node(known: Rack, files: list[Path]) -> None:
    known.ask(files[0])
    known.run(f"echo new >{files[1]}", "gpu-02")
    assert known.ask(files[1]) == ("new",)


def test_an_upload_is_a_change(known: Rack, files: list[Path]) -> None:
    known.ask(files[0])
    files[1].write_text("uploaded\n")
    host = known.state.inventory.get_host("gpu-02")
    assert host is not None
    host.put_file("x", "y")
    assert known.ask(files[1]) == ("uploaded",)


def test_a_new_connection_is_a_change(known: Rack, files: list[Path]) -> None:
    known.ask(files[0])
    files[1].write_text("booted\n")
    host = known.state.inventory.get_host("gpu-01")
    assert host is not None
    host.connected = False
    host.connect()
    assert known.ask(files[1]) == ("booted",)


def test_an_answer_that_came_while_something_changed_is_not_kept(known: Rack, files: list[Path]) -> None:
    known.nodes["gpu-01"].during = lambda: known.run("true", "gpu-02")
    known.ask(files[0])
    known.nodes["gpu-01"].during = lambda: None
    files[1].write_text("new\n")
    assert known.ask(files[1]) == ("new",)


def test_who_asks_again_asks_the_node(known: Rack, files: list[Path]) -> None:
    """A fact that is polled must not come from the cache."""
    known.ask(files[0])
    assert known.ask(files[1]) == ("b",)
    files[1].write_text("came\n")
    assert known.ask(files[1]) == ("came",)


def test_who_looks_ahead_leaves_the_answer_to_who_is_due(known: Rack, files: list[Path]) -> None:
    assert known.ask(files[0], fact=Ahead) == known.ask(files[0]) == ("a",)
    assert known.trips() == 1
    assert known.ask(files[1], fact=Ahead) == known.ask(files[1]) == ("b",)
    assert known.trips() == 1
    known.ask(files[0])
    assert known.trips() == 2


def test_an_answer_that_was_kept_does_not_outlive_a_change(known: Rack, files: list[Path]) -> None:
    known.ask(files[0], fact=Ahead)
    files[0].write_text("changed\n")
    known.run("true", node="gpu-02")
    assert known.ask(files[0]) == ("changed",)


def test_answers_grow_old(known: Rack, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    known.ask(files[0])
    files[1].write_text("new\n")
    monkeypatch.setattr(fact_prefetch, "AGE_S", 0.0)
    assert known.ask(files[1]) == ("new",)


def test_who_asks_and_how_is_part_of_the_question(known: Rack, files: list[Path]) -> None:
    known.ask(files[0])
    files[1].write_text("new\n")
    assert known.ask(files[1], _env={"A": "b"}) == ("new",)
    assert known.nodes["gpu-01"].ran[-1][1]["_env"] == {"A": "b"}


def test_everything_that_is_asked_together_is_asked_by_the_same_user(known: Rack, files: list[Path]) -> None:
    known.ask(files[0], _env={"A": "b"})
    ((command, arguments),) = known.nodes["gpu-01"].ran
    assert command.startswith("sh -s")
    assert arguments["_env"] == {"A": "b"}


@pytest.mark.parametrize("argument", [{"_chdir": "/"}, {"_shell_executable": "bash"}, {"_get_pty": True}])
def test_unusual_questions_are_asked_on_their_own(known: Rack, files: list[Path], argument: dict[str, Any]) -> None:
    assert known.ask(files[0], **argument) == ("a",)
    assert known.nodes["gpu-01"].ran[0][0].startswith("cat ")


def test_a_short_limit_is_not_spent_on_other_questions(known: Rack, files: list[Path]) -> None:
    assert known.ask(files[0], _timeout=10) == ("a",)
    ((command, arguments),) = known.nodes["gpu-01"].ran
    assert command.startswith("cat ")
    assert arguments["_timeout"] == 10


@pytest.mark.parametrize("limit", [1, fact_prefetch.LIMIT_S, COMMAND_TIMEOUT_S, 3600])
def test_everything_is_asked_at_once_whatever_the_limit_of_a_command(files: list[Path], limit: float) -> None:
    def ask_all() -> Rack:
        one = rack({"command_timeout_s": limit})
        for path in files:
            assert one.ask(path) == (path.name,)
        one.finish()
        return one

    ask_all()
    assert ask_all().trips() == 1


def test_an_answer_serves_operations_with_other_limits(known: Rack, files: list[Path]) -> None:
    known.ask(files[0], _timeout=1800)
    assert known.ask(files[1]) == ("b",)
    assert known.ask(files[2], _timeout=10) == ("c",)
    assert known.trips() == 1


def test_answers_that_are_there_are_not_fetched_again(known: Rack, files: list[Path]) -> None:
    known.ask(files[0])
    assert known.ask(files[0]) == ("a",)
    assert known.trips() == 2
    assert known.nodes["gpu-01"].ran[1][0].startswith("cat ")
    assert [known.ask(path) for path in files[1:]] == [(path.name,) for path in files[1:]]
    assert known.trips() == 2


def test_a_question_that_fails_is_asked_on_its_own_when_it_is_due(known: Rack, files: list[Path]) -> None:
    files[1].unlink()
    assert known.ask(files[0]) == ("a",)
    assert not known.state.failed_hosts  # not asked for yet
    files[1].write_text("back\n")
    assert known.ask(files[1]) == ("back",)


def test_a_cut_off_answer_is_not_believed(known: Rack, files: list[Path]) -> None:
    files[1].write_bytes(b"one\n\xff\n")
    known.ask(files[0])
    files[1].write_text("text\n")
    assert known.ask(files[1]) == ("text",)


def test_questions_that_hang_cost_their_limit_once(
    known: Rack, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fact_prefetch, "LIMIT_S", 3.0)
    files[3].unlink()
    subprocess.run(["mkfifo", str(files[3])], check=True)
    assert [known.ask(path) for path in (*files[:3], files[4])] == [("a",), ("b",), ("c",), ("e",)]
    assert known.trips() == 1
    files[3].unlink()
    files[3].write_text("d\n")
    assert known.ask(files[3]) == ("d",)
    known.finish()
    again = rack()
    assert [again.ask(path) for path in files[:5]] == [(path.name,) for path in files[:5]]
    assert again.trips() >= 2  # slow commands are no longer prefetched


def test_a_node_that_is_gone_fails_alone(known: Rack, files: list[Path]) -> None:
    known.nodes["gpu-01"].broken = True
    assert known.ask(files[0]) is None
    assert {host.name for host in known.state.failed_hosts} == {"gpu-01"}
    assert known.trips() == 1  # one time limit, not one more for the question on its own
    assert known.ask(files[0], "gpu-02") == ("a",)


def test_after_a_change_it_begins_with_few_again(known: Rack, files: list[Path]) -> None:
    known.ask(files[0])
    known.run("true")
    assert [known.ask(path) for path in files[1:]] == [(path.name,) for path in files[1:]]
    assert known.trips() == 1 + 1 + 3  # all; the change; then b, c d, e f


def planned_change(files: list[Path]) -> None:
    """An earlier plan of which the operation after the third file has a change."""
    plan = rack()
    plan.state.current_stage, plan.state.check_for_changes = StateStage.Prepare, True
    for node in plan.nodes:
        for number, path in enumerate(files):
            if number == 3:
                plan.state.get_meta_for_host(plan.state.inventory.get_host(node)).ops_change += 1  # type: ignore[arg-type]
            plan.ask(path, node)
    plan.finish()


def test_nothing_is_fetched_beyond_a_planned_change(known: Rack, files: list[Path]) -> None:
    planned_change(files)
    run = rack()
    run.state.current_stage = StateStage.Prepare
    assert [run.ask(path) for path in files[:2]] == [("a",), ("b",)]
    assert run.ask(files[4]) == ("e",)  # of a deploy that looks ahead: what follows is not there yet
    assert run.trips() == 2
    run.state.set_stage(StateStage.Execute)
    run.state.is_executing = True
    assert run.ask(files[2]) == ("c",)
    run.run("true")
    assert [run.ask(path) for path in files[3:]] == [("d",), ("e",), ("f",)]
    assert run.trips() == 2 + 1 + 1
    assert all(f"cat {path}" not in run.nodes["gpu-01"].ran[0][1]["_stdin"] for path in files[3:])
    run.finish()
    assert after_all(files) == 1  # the change is done


def test_a_change_that_no_plan_has_begins_with_few_again(known: Rack, files: list[Path]) -> None:
    planned_change(files)
    run = rack()
    run.state.is_executing = True
    assert run.ask(files[0]) == ("a",)
    run.run("true")
    assert [run.ask(path) for path in files[1:3]] == [("b",), ("c",)]
    assert run.trips() == 1 + 1 + 2


def test_a_plan_looks_beyond_the_changes_of_the_last_one(known: Rack, files: list[Path]) -> None:
    planned_change(files)
    plan = rack()
    plan.state.current_stage, plan.state.check_for_changes = StateStage.Prepare, True
    assert [plan.ask(path) for path in files] == [(path.name,) for path in files]
    assert plan.trips() == 1


def after_all(files: list[Path]) -> int:
    """Round trips of a run after the last one."""
    run = rack()
    run.state.is_executing = True
    assert [run.ask(path) for path in files] == [(path.name,) for path in files]
    return run.trips()


def test_a_plan_that_a_person_looked_at_is_read_anew(files: list[Path], known: Rack) -> None:
    planned = rack()
    planned.state.current_stage = StateStage.Prepare
    planned.state.check_for_changes = True
    assert [planned.ask(path) for path in files] == [(path.name,) for path in files]
    files[2].write_text("changed while the plan was read\n")
    planned.state.set_stage(StateStage.Execute)
    assert [planned.ask(path) for path in files][2] == ("changed while the plan was read",)
    assert planned.trips() == 2


@pytest.mark.parametrize("key", ["fact_prefetch", *(key for key in FORMER_KEYS if FORMER_KEYS[key] == "fact_prefetch")])
def test_it_can_be_turned_off(known: Rack, files: list[Path], key: str) -> None:
    off = rack({key: False})
    for path in files:
        off.ask(path)
    assert off.trips() == len(files)
    assert {arguments["_timeout"] for _, arguments in off.nodes["gpu-01"].ran} == {fact_prefetch.TIMEOUT_S}


@pytest.mark.parametrize("together", [True, False])
def test_a_connection_without_a_word_is_given_up(files: list[Path], together: bool) -> None:
    quiet = rack({"fact_prefetch": together})
    answers: list[int] = []
    with socket.socket() as wire:
        transport = SimpleNamespace(set_keepalive=answers.append, sock=wire, is_active=lambda: True)
        for node in quiet.nodes.values():
            node.client = SimpleNamespace(get_transport=lambda: transport)  # type: ignore[assignment]
        quiet.ask(files[0])
        assert answers == [fact_prefetch.KEEPALIVE_S] * len(quiet.nodes)
        assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == fact_prefetch.LOSS_S * 1000
        quiet.state.inventory.get_host("gpu-01").connector.connect()  # type: ignore[union-attr]
        assert len(answers) == len(quiet.nodes) + 1


@pytest.mark.parametrize("raises", [True, False])
def test_a_lost_connection_is_reported_unless_its_caller_handles_it(
    files: list[Path], raises: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = tmp_path / "reports.jsonl"
    monkeypatch.setenv(REPORTS, str(reports))
    broken = rack()
    node, host = broken.nodes["gpu-01"], broken.state.inventory.get_host("gpu-01")
    transport = SimpleNamespace(set_keepalive=lambda _: None, sock=None, is_active=lambda: True)
    node.client = SimpleNamespace(get_transport=lambda: transport)  # type: ignore[assignment]
    assert broken.ask(files[0]) == ("a",)
    assert host is not None
    assert host.run_shell_command(StringCommand("false"))[0] is False  # it only failed
    transport.is_active = lambda: False
    node.broken = raises
    with pytest.raises(SSHException, match=r"^the connection was lost: the node restarted"):
        host.run_shell_command(fact_prefetch.MayDisconnect("false"))
    assert not reports.exists()
    broken.state.op_meta["hash"] = StateOperationMeta((1,))
    broken.state.op_meta["hash"].names.add("Base | Packages")
    for stage, executing, operation in (
        (StateStage.Prepare, None, ""),
        (StateStage.Execute, None, ""),
        (StateStage.Execute, "hash", "Base | Packages"),
    ):
        broken.state.current_stage, host.executing_op_hash = stage, executing
        broken.state.is_executing = stage is StateStage.Execute
        with pytest.raises(SSHException, match=r"^the connection was lost: the node restarted"):
            host.run_shell_command(StringCommand("false"))
        report = NodeReport.model_validate_json(reports.read_text().splitlines()[-1])
        executed = broken.state.is_executing
        assert report == NodeReport(node="gpu-01", operation=operation, executed=executed, lost=True)


def test_other_connectors_are_left_alone() -> None:
    inventory = Inventory((["@local"], {}))
    state = State(inventory, Config())
    (host,) = inventory
    before = host.connector
    fact_prefetch.prefetch_facts(state, host)
    assert host.connector is before


def test_questions_of_a_run_that_failed_are_not_kept(known: Rack, files: list[Path]) -> None:
    known.ask(files[0])
    known.state.failed_hosts.add(known.state.inventory.get_host("gpu-01"))
    known.finish()
    again = rack()
    for path in files:
        again.ask(path)
    assert again.trips() == 1


def test_a_question_about_a_moment_is_always_asked_then(known: Rack, files: list[Path]) -> None:
    known.ask(files[0])  # and all others with it
    host = known.state.inventory.get_host("gpu-01")
    assert host is not None
    clock = fact_prefetch.Timely(f"date +%s%N; echo {fact_prefetch.END}")
    with ctx_state.use(known.state), ctx_host.use(host):
        answers = [host.run_shell_command(clock)[1].stdout_lines[0] for _ in range(2)]
    assert answers[0] != answers[1]
    assert known.trips() == 3
    assert known.ask(files[1]) == ("b",)
    assert known.trips() == 3  # no answer is older for it
