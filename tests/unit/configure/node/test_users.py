"""Accounts: what is asked of a node, what is done, and that no hash of a password is shown."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from rackproof.configure.node.inputs import NodeInputs, User
from rackproof.configure.node.users import parse_state, plan, state_command, sudo_text
from rackproof.errors import InventoryError, Refused
from tests.unit.shell import executable, is_shell, sh

HASH = "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7"
ADA = User(name="ada", uid=2001, groups=("video",), ssh_keys=("ssh-ed25519 AAAA ada",), sudo="ALL=(ALL) NOPASSWD: ALL")


def lines(uid: int = 2001, groups: str = "ada video", key: str = "ssh-ed25519 AAAA ada") -> list[str]:
    digest = hashlib.sha256(HASH.encode()).hexdigest()
    sudo = [f"rule {line}" for line in (sudo_text(ADA) or "").splitlines()]
    entry = f"user ada:x:{uid}:2001::/home/ada:/bin/bash"
    return [entry, f"groups {groups}", f"password {digest}", f"key {key}", *sudo]


def test_an_account_as_declared_is_left_alone() -> None:
    assert plan([ADA], {"ada": HASH}, parse_state(lines())).script == ""


def test_a_new_account_gets_all_at_once_and_its_hash_only_on_standard_input() -> None:
    planned = plan([ADA], {"ada": HASH}, {})
    assert "useradd -m -u 2001 -s /bin/bash -G video -- ada" in planned.script
    assert planned.stdin == f"ada:{HASH}\n"
    assert HASH not in planned.script
    assert is_shell(planned.script)


def test_a_key_with_another_comment_is_there() -> None:
    assert plan([ADA], {"ada": HASH}, parse_state(lines(key="ssh-ed25519 AAAA ada@laptop"))).script == ""
    assert "AAAA" in plan([ADA], {"ada": HASH}, parse_state(lines(key='from="10.0.0.9" ssh-ed25519 AAAA ada'))).script


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        (lines(groups="ada"), "usermod -a -G video -- ada"),
        (lines(key="ssh-rsa BBBB other"), "ssh-ed25519 AAAA ada"),
        (lines()[:-1], "visudo -cqf /etc/sudoers.d/.rackproof-ada.new"),
    ],
)
def test_one_difference(lines: list[str], part: str) -> None:
    planned = plan([ADA], {"ada": HASH}, parse_state(lines))
    assert part in planned.script
    assert "useradd" not in planned.script
    assert planned.stdin == ""


def test_rights_that_are_no_longer_declared_go() -> None:
    planned = plan([ADA.model_copy(update={"sudo": None})], {}, parse_state(lines()))
    assert planned.script.splitlines()[-1] == "rm -f -- /etc/sudoers.d/rackproof-ada"


def test_another_number_is_refused() -> None:
    with pytest.raises(Refused, match="user ada: expected uid 2001, actual 1000"):
        plan([ADA], {}, parse_state(lines(uid=1000)))


def test_a_rule_that_sudo_does_not_read_never_gets_its_name(tmp_path: Path) -> None:
    executable(tmp_path / "visudo", "exit 1")
    script = plan([ADA], {}, parse_state(lines()[:-1])).script.replace("/etc/sudoers.d", str(tmp_path))
    done = sh(script, programs=tmp_path)
    assert done.returncode == 1
    assert "visudo does not accept the rule" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["visudo"]


@pytest.mark.parametrize(
    ("value", "says"), [(None, "TEAM_HASH is not set"), ("hunter2", "holds no hash"), ("", "is not set")]
)
def test_a_password_is_a_hash_from_the_environment(
    value: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEAM_HASH", raising=False)
    if value is not None:
        monkeypatch.setenv("TEAM_HASH", value)
    with pytest.raises(InventoryError, match=says) as caught:
        User(name="ada", password_from="TEAM_HASH").password_hash()
    assert not value or value not in str(caught.value)
    monkeypatch.setenv("TEAM_HASH", HASH)
    assert User(name="ada", password_from="TEAM_HASH").password_hash() == HASH


@pytest.mark.parametrize(
    "users", [[{"name": "a"}, {"name": "a"}], [{"name": "a", "uid": 2000}, {"name": "b", "uid": 2000}]]
)
def test_two_accounts_of_one_name_or_number_are_a_mistake(users: list[dict[str, object]]) -> None:
    with pytest.raises(ValidationError, match="duplicate"):
        NodeInputs.model_validate({"users": users})


@pytest.mark.parametrize("lines", [["groups a"], ["user a:b"], ["user ada:x:1:1::/home/ada:/bin/sh", "nonsense"]])
def test_an_invalid_answer_is_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="account"):
        parse_state(lines)


def test_the_question_is_asked_for_real_and_shows_no_hash() -> None:
    done = sh(state_command(["root", "no-such-user"]), check=True)
    users = parse_state([line for line in done.stdout.splitlines() if not line.startswith("key")])
    assert users["root"].uid == 0
    assert len(users["root"].password) == 64
    assert "no-such-user" not in users
