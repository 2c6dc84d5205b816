"""Answers about limits, accounts, interrupts and arrays: read, refused when cut off, and asked for in real shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof.parse import ParseError
from rackproof.parse.accounts import Accounts, accounts_command, parse_accounts
from rackproof.parse.interrupts import INTERRUPTS, parse_interrupts
from rackproof.parse.limits import LOGIN_LIMITS, daemon_limits_command, parse_daemon_limits, parse_login_limits
from rackproof.parse.md_array import md_array_command, parse_md_array
from tests.unit.shell import executable, is_shell, sh
from tests.unit.validation.checking import ROOT

WRITTEN = {
    entry["match"]: entry["stdout"]
    for entry in yaml.safe_load((ROOT / "tests/data/written/hgx-h200-roce/gpu-01/a-node.yaml").read_text())
}
NAMES = ("ops", "scientist")
PARSERS: dict[str, Callable[[str], Any]] = {
    "echo end of login": parse_login_limits,
    "for u in slurmd.service": lambda text: parse_daemon_limits(text, ("slurmd.service",)),
    "echo end of accounts": lambda text: parse_accounts(text, NAMES),
    "echo end of interrupts": parse_interrupts,
    "readlink -f -- /dev/md/raid": parse_md_array,
}


@pytest.mark.parametrize("match", PARSERS)
def test_no_truncated_answer_is_taken_for_a_whole_one(match: str) -> None:
    text, parse = WRITTEN[match], PARSERS[match]
    assert parse(text)
    for end in range(len(text)):
        with pytest.raises(ParseError):
            parse(text[:end])


@pytest.mark.parametrize("match", PARSERS)
def test_foreign_answers_are_refused(match: str) -> None:
    for foreign in ("Permission denied\n", "status 1\n", f"what is this\n{WRITTEN[match]}"):
        if match == "echo end of login" and foreign.startswith("what"):
            continue  # a login may greet
        with pytest.raises(ParseError):
            PARSERS[match](foreign)


def test_a_login_that_greets_is_understood() -> None:
    assert parse_login_limits(f"Welcome to gpu-01\n{WRITTEN['echo end of login']}")["stack"] == (
        "unlimited",
        "unlimited",
    )


def test_no_array_is_an_answer() -> None:
    assert parse_md_array("no array\nstatus 0\n") is None


def test_a_set_of_processors_is_near_or_far() -> None:
    card, far, nowhere = parse_interrupts(WRITTEN["echo end of interrupts"].replace("irq 312 56", "irq 312 55-56"))
    assert card.far == ()
    assert far.far == (312,)
    assert nowhere.numa_node == -1


@pytest.mark.parametrize(
    "command",
    [LOGIN_LIMITS, INTERRUPTS, md_array_command("x"), accounts_command(NAMES), daemon_limits_command(["a.service"])],
)
def test_commands_are_shell(command: str) -> None:
    assert is_shell(command)


def test_an_account_of_this_machine_is_read(tmp_path: Path) -> None:
    for name, body in {
        "sudo": "echo 'User root may run the following commands on here:'; echo '    (ALL : ALL) ALL'",
        "visudo": "exit 1",
    }.items():
        executable(tmp_path / name, body)
    names = ("root", "rp-absent")
    accounts: Accounts = parse_accounts(sh(accounts_command(names), programs=tmp_path).stdout, names)
    root = accounts.by_name["root"]
    assert root is not None
    assert (root.uid, root.may_sudo, "root" in root.groups) == (0, True, True)
    assert accounts.by_name["rp-absent"] is None
    assert accounts.sudoers_good is False


def test_interrupts_and_arrays_of_this_machine_are_read() -> None:
    path = "/usr/bin:/bin:/usr/sbin:/sbin"
    parse_interrupts(sh(INTERRUPTS, PATH=path).stdout)
    assert parse_md_array(sh(md_array_command("rp-not-there"), PATH=path).stdout) is None


def test_limits_of_a_process_are_read(tmp_path: Path) -> None:
    executable(tmp_path / "systemctl", 'case "$*" in *MainPID*) echo 1 ;; *) echo active ;; esac')
    text = sh(daemon_limits_command(["x.service"]), programs=tmp_path).stdout
    assert set(parse_daemon_limits(text, ("x.service",))["x.service"].limits) == {"memlock", "nofile", "nproc", "stack"}
