"""``rackproof selftest`` as a user starts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.cli.selftest import selftest
from rackproof.errors import SelfTestError
from tests.unit.selftest.small import FAULT, GOOD, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path)
    (tmp_path / "validators" / "conftest.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_table_and_the_status_of_a_good_catalogue(folder: Path) -> None:
    done = CliRunner().invoke(selftest, ["--validators=validators", "--healthy", "2", "--json", "table.json"])
    assert done.exit_code == 0, done.output
    assert "1 of 1 faults caught by the expected check" in done.output
    assert "0 false alarms in 3 healthy runs of small" in done.output
    plain = json.loads((folder / "table.json").read_text())
    assert plain["faults"][0] | {"name": "port-lost", "caught": True, "noticed": ["port.count"]} == plain["faults"][0]


def test_a_missed_fault_is_status_1(folder: Path) -> None:
    write(folder, validator=GOOD.replace("expect(int(words[0]), 8", "expect(8, 8"))
    done = CliRunner().invoke(selftest, ["--validators=validators", "--healthy", "0"])
    assert done.exit_code == 1
    assert "missed: port-lost" in done.output


def test_the_list_tries_nothing(folder: Path) -> None:
    done = CliRunner().invoke(selftest, ["--validators=validators", "--list"])
    assert done.exit_code == 0
    assert "One port is gone" in done.output
    assert "caught" not in done.output


def test_a_bad_catalogue_is_an_error(folder: Path) -> None:
    write(folder, faults=FAULT.replace("title", "titel"))
    done = CliRunner().invoke(selftest, ["--validators=validators"])
    assert isinstance(done.exception, SelfTestError)
    assert "port-lost: title: Field required" in str(done.exception)
