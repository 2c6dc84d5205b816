"""Secrets of an inventory are never printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rackproof.inventories import Secret, SourceError, secret
from rackproof.inventory import load_rack
from rackproof.run.plan import plan_deploys
from tests.unit.refusals import error_of

pytestmark = pytest.mark.usefixtures("warm_python")

VALUE = "correct-horse-battery"


def test_a_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEKA_TOKEN", VALUE)
    token = secret("WEKA_TOKEN")
    assert token == VALUE
    assert repr({"token": token}) == "{'token': ‹secret›}"


def test_a_secret_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{VALUE}\n")
    path.chmod(0o600)
    assert secret(file=path) == Secret(VALUE)


@pytest.mark.parametrize(
    ("content", "mode", "complaint"),
    [
        (VALUE, 0o644, "group or others have access (mode 644); chmod 600"),
        ("\n", 0o600, "empty"),
        (None, 0o600, "cannot be read"),
    ],
)
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, content: str | None, mode: int, complaint: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    message = error_of(SourceError, secret, file=path)
    assert complaint in message
    assert VALUE not in message


def test_a_secret_comes_from_a_small_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert "it is no regular file" in error_of(SourceError, secret, file=tmp_path / "fifo")
    (tmp_path / "large").touch(0o600)
    os.truncate(tmp_path / "large", 10**9)
    assert "larger than 1 MiB" in error_of(SourceError, secret, file=tmp_path / "large")
    assert "cannot be read" in error_of(SourceError, secret, file="~stranger/file")


def test_an_absent_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEKA_TOKEN", raising=False)
    with pytest.raises(SourceError, match="the variable is not set; export it"):
        secret("WEKA_TOKEN")
    with pytest.raises(SourceError, match="pass either the name"):
        secret()


INVENTORY = """\
from rackproof.inventories import secret as _secret
gpu = [("@local", {"weka": {"token": _secret("WEKA_TOKEN")}, "ssh_password": _secret("WEKA_TOKEN"), "rack": 7})]
"""
DEPLOY = """\
from pyinfra.api import operation
from pyinfra.context import host

@operation()
def join():
    yield f"join --with {host.data.weka['token']}"

join(name="Join")
"""


def test_an_inventory_with_a_secret_shows_it_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEKA_TOKEN", VALUE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inv.py").write_text(INVENTORY)
    (tmp_path / "deploy.py").write_text(DEPLOY)
    node = load_rack("inv.py").nodes[0]
    assert "weka" not in node.data
    assert node.data["rack"] == 7
    assert node.data["ssh_password"] == VALUE  # by which it is reached
    plan = plan_deploys(["inv.py"], "deploy.py")[0]
    assert plan.nodes[0].operations[0].commands == ("join --with ‹secret›",)
    assert VALUE not in plan.model_dump_json()
