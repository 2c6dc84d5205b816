from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.configure.trust import (
    RUNS_NOTHING,
    Identity,
    authorized_keys,
    identity_command,
    keygen_script,
    known_hosts,
    parse_identity,
)
from tests.unit.shell import sh

A = Identity(("ssh-ed25519 AAAA",), "ssh-ed25519 aaaa")
B = Identity(("ssh-ed25519 BBBB",), "ssh-ed25519 bbbb")
NAMES = {"gpu-01": ["gpu-01-fabric0", "10.77.0.21"], "gpu-02": ["gpu-02-fabric0", "10.77.0.22"]}


def test_the_newest_kind_of_host_key_is_preferred_and_comments_are_dropped() -> None:
    lines = ["host ssh-rsa RRRR root@x", "host ssh-ed25519 AAAA root@x", "user ssh-ed25519 aaaa root@gpu-01"]
    assert parse_identity(lines) == A
    assert parse_identity(["host ssh-rsa RRRR"]) == Identity(("ssh-rsa RRRR",), None)


def test_command_and_parser_agree_on_a_real_machine(tmp_path: Path) -> None:
    command = identity_command().replace("/etc/ssh", str(tmp_path)).replace("/root/.ssh", str(tmp_path))

    def ask() -> Identity:
        done = sh(command, check=True)
        return parse_identity(done.stdout.splitlines())

    assert ask() == Identity((), None)
    (tmp_path / "ssh_host_ed25519_key.pub").write_text("ssh-ed25519 AAAA root@x\n")
    assert ask() == Identity(("ssh-ed25519 AAAA",), None)
    (tmp_path / "id_ed25519").write_text("private\n")
    (tmp_path / "id_ed25519.pub").write_text("ssh-ed25519 aaaa root@x\n")
    assert ask() == A


@pytest.mark.parametrize("line", ["host", "user Enter passphrase", "other ssh-ed25519 AAAA"])
def test_what_is_no_key_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a public key"):
        parse_identity([line])


def test_every_node_is_known_under_all_its_names() -> None:
    lines, missing = known_hosts(NAMES, {"gpu-01": A, "gpu-02": B}, "")
    assert lines == (
        "gpu-01,gpu-01-fabric0,10.77.0.21 ssh-ed25519 AAAA\ngpu-02,gpu-02-fabric0,10.77.0.22 ssh-ed25519 BBBB\n"
    )
    assert missing == ()


def test_a_node_that_does_not_answer_keeps_its_lines() -> None:
    lines, _ = known_hosts(NAMES, {"gpu-01": A, "gpu-02": B}, "")
    assert known_hosts(NAMES, {"gpu-01": A}, lines) == (lines, ())
    keys, _ = authorized_keys(["gpu-01", "gpu-02"], {"gpu-01": A, "gpu-02": B}, "")
    assert authorized_keys(["gpu-01", "gpu-02"], {"gpu-02": B}, keys) == (keys, ())


def test_an_unknown_node_is_reported() -> None:
    assert known_hosts(NAMES, {"gpu-01": A}, "")[1] == ("gpu-02",)
    assert authorized_keys(["gpu-01", "gpu-02"], {"gpu-01": A, "gpu-02": Identity((), None)}, "")[1] == ("gpu-02",)


def test_a_node_that_left_the_rack_loses_its_access() -> None:
    keys, _ = authorized_keys(["gpu-01", "gpu-02"], {"gpu-01": A, "gpu-02": B}, "")
    assert authorized_keys(["gpu-01"], {"gpu-01": A}, keys)[0] == f"{RUNS_NOTHING} ssh-ed25519 aaaa root@gpu-01\n"


def test_no_key_runs_a_command_whether_its_node_answers_or_not() -> None:
    before = "ssh-ed25519 aaaa root@gpu-01\nssh-ed25519 bbbb root@gpu-02\n"
    for identities in ({"gpu-01": A, "gpu-02": B}, {"gpu-02": B}, {}):
        keys, _ = authorized_keys(["gpu-01", "gpu-02"], identities, before)
        assert [line.split(" ", 1) for line in keys.splitlines()] == [
            ['restrict,command="/bin/true"', line] for line in before.splitlines()
        ]
        assert authorized_keys(["gpu-01", "gpu-02"], {}, keys)[0] == keys


def test_an_existing_key_is_never_replaced() -> None:
    assert "[ -e /root/.ssh/id_ed25519 ] ||" in keygen_script("gpu-01")
