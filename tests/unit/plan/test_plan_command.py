"""``rackproof plan`` on a written rack and a small deploy; pyinfra plans in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rackproof.cli.main import cli

pytestmark = pytest.mark.usefixtures("warm_python")

RACK = """\
architecture: a.yaml
nodes:
  gpu-01: {groups: [gpu], data: {fabric_addresses: [10.0.0.1/24]}}
  gpu-02: {groups: [gpu], like: gpu-01, data: {fabric_addresses: [10.0.0.2/24]}}
  gpu-03: {groups: [gpu], like: gpu-01, data: {fabric_addresses: [10.0.0.3/24], old: true}}
"""
DEPLOY = """\
from pyinfra.api import FactBase
from pyinfra.api.command import StringCommand
from pyinfra.context import host
from rackproof.configure import operations
from rackproof.configure.files import RemoteFile
from rackproof.configure.operation import operation
from rackproof.errors import Refused

class Colour(FactBase):
    def command(self):
        return "echo colour"
    def process(self, lines):
        return lines[0]

@operation()
def paint():
    if host.data.get("old"):
        raise Refused("the wall is too old: take another one")
    colour = host.get_fact(Colour)
    if colour == "blue":
        host.noop("blue")
        return
    yield StringCommand("paint", host.data.fabric_addresses[0])
    yield StringCommand("dry --password=hunter2")

operations.files(name="Files", entries=(
    RemoteFile("/etc/wall", f"address {host.data.fabric_addresses[0]}\\n", reboot="walls are read at boot"),
    RemoteFile("/etc/secret", "hunter2\\n", mode="600", secret=True),
))
paint(name="Paint")
"""
FILES = '- {match: "%n|%F|%a|%U|%G", stdout: "--\\n--\\nrackproof-end\\n"}\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rack" / "gpu-01").mkdir(parents=True)
    (tmp_path / "rack" / "rack.yaml").write_text(RACK)
    answers(tmp_path, "green")
    (tmp_path / "deploy.py").write_text(DEPLOY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(folder: Path, colour: str) -> None:
    path = folder / "rack" / "gpu-01" / "a.yaml"
    path.write_text(FILES + f'- {{match: echo colour, stdout: "{colour}\\n"}}\n')


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *arguments], standalone_mode=False)


def test_plans_are_folded_and_a_refusal_stands_out(here: Path) -> None:
    done = plan("--from", "rack", "deploy.py")
    assert done.return_value == 2
    lines = done.stdout.splitlines()
    assert lines[0] == "gpu-[01-02]: 2 changes"
    assert "      /etc/wall: new" in lines
    assert "gpu-03: 1 change, then refused; differs from gpu-[01-02]:" in lines
    assert "  refused: Paint: the wall is too old: take another one" in lines
    assert "  gpu-[01-03]: walls are read at boot" in lines
    assert done.stderr == "rackproof: plan is incomplete on gpu-03\n"


def test_commands_and_differences_without_secrets(here: Path) -> None:
    done = plan("@recording/rack", "deploy.py", "--limit", "gpu-01", "--limit", "gpu-02", "--diff", "--commands")
    assert done.return_value == 0
    assert "$ paint 10.0.0.1/24" in done.stdout
    assert "| +address 10.0.0.1/24" in done.stdout
    assert "/etc/secret: changed (secret, not shown)" in done.stdout
    assert "hunter2" not in done.stdout


def test_json_has_every_node(here: Path) -> None:
    done = plan("@recording/rack", "deploy.py", "--json", "--limit", "gpu-[01-02]")
    document = json.loads(done.stdout)
    assert [node["node"] for node in document["nodes"]] == ["gpu-01", "gpu-02"]
    assert [operation["name"] for operation in document["nodes"][0]["operations"]] == ["Files", "Paint"]
    assert document["nodes"][0]["operations"][1]["commands"][0] == "paint 10.0.0.1/24"
    assert document["nodes"][0]["operations"][0]["reboots"] == ["walls are read at boot"]
    assert "hunter2" not in done.stdout


def test_changes_decide_about_the_status_when_asked(here: Path) -> None:
    assert plan("@recording/rack", "deploy.py", "--limit", "gpu-01", "--exit-code").return_value == 1
    (here / "deploy.py").write_text(DEPLOY.split("operations.files(")[0] + 'paint(name="Paint")\n')
    answers(here, "blue")
    done = plan("@recording/rack", "deploy.py", "--limit", "gpu-01", "--exit-code")
    assert (done.return_value, done.stdout) == (0, "gpu-01: no changes\n1 node: no changes\n")


def test_a_node_without_an_answer_is_not_planned(here: Path) -> None:
    (here / "rack" / "gpu-01" / "a.yaml").write_text(FILES)
    done = plan("@recording/rack", "deploy.py", "--limit", "gpu-01")
    assert done.return_value == 2
    assert "gpu-01: 1 change, then refused" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("@recording/rack", "deplo.py"), "deplo.py: no such deploy file"),
        (("inv.py", "deploy.py"), "inv.py: no such inventory file"),
        (
            ("@recording/rack", "deploy.py", "--limit", "cpu-*"),
            "@recording/rack: 'cpu-*' matches no node; the rack has",
        ),
        (("@recording/none", "deploy.py"), "none: the folder has no recordings"),
        (("@recording/rack", "deploy.py", "--data", "secret"), "--data secret: expected KEY=VALUE"),
        ((), "give an inventory, @recording/DIR or --from DIR"),
    ],
)
def test_what_cannot_be_planned_is_named(here: Path, arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in str(plan(*arguments).exception)


def test_a_deploy_that_raises_plans_nothing(here: Path) -> None:
    (here / "deploy.py").write_text("from pyinfra.api.exceptions import DeployError\nraise DeployError('no rails')\n")
    done = plan("@recording/rack", "deploy.py")
    assert str(done.exception) == "@recording/rack: no rails"
