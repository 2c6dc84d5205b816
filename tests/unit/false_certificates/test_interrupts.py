"""Signals, a second run on the rack, and one cause that is named once."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.forecast import FIO, Space
from rackproof.cli import unrecorded
from rackproof.core.evidence import CheckOutcome, CheckResult, Kind
from rackproof.core.rack import Rack
from rackproof.evidence.session import Session
from rackproof.remote.command import CommandResult
from rackproof.run import stages
from rackproof.run.converge import Converged
from rackproof.run.deploy_outcome import INTERRUPTED, outcome_of
from tests.unit.fakes import FakeFleet, part_by_part, reply
from tests.unit.false_certificates.racks import World

SPACE = Space("local", ("gpu-01", "gpu-02"), {FIO: 1}, shared=False)
LEFTOVERS = "rackproof-bench"
"""In the command that removes files."""
HELD = "run r1 of ann on desk works on this node since 2026-11-22T10:00:00Z, so nothing was changed; wait"


def test_an_interrupt_of_the_dry_pass_starts_no_deploy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.deploys.append(("gpu-01",))
    passes: list[bool] = []

    def converge(rack: Rack, *, dry: bool = False, **more: Any) -> Converged:
        passes.append(dry)
        outcome = world.converge(rack, dry=dry, **more)
        record = outcome.record.model_copy(update={"ok": False, "reason": INTERRUPTED})
        return replace(outcome, record=record)

    monkeypatch.setattr(stages, "converge", converge)
    result = world.run("certify", "a.py", "--quiet")
    assert passes == [True]
    assert result.exit_code == 130
    assert result.output.splitlines()[-1].startswith(
        "rackproof: interrupted; continue with: rackproof certify a.py --resume "
    )
    assert world.steps == []
    assert not any(record.kind is Kind.CHECK and record.body["check"] == "gpu.xid" for record in world.records)


def test_the_last_line_names_what_an_interrupted_deploy_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.deploys.append(("gpu-01",))

    def converge(rack: Rack, *, dry: bool = False, **more: Any) -> Converged:
        outcome = world.converge(rack, dry=dry, **more)
        if dry:
            return outcome
        lines = b"[gpu-01] Connected\n[gpu-02] Connected\n--> Starting operation: Base | Packages\n"
        printed = replace(outcome.printed, dry=False, stopped=INTERRUPTED, stdout=b"", stderr=lines, reports=b"")
        return Converged(outcome_of(printed, [node.name for node in rack.nodes]), printed)

    monkeypatch.setattr(stages, "converge", converge)
    result = world.run("certify", "a.py", "--quiet")
    assert result.exit_code == 130
    assert result.output.splitlines()[-1].startswith(
        "rackproof: interrupted; the next run waits for what goes on: Base | Packages on gpu-[01-02];"
        " continue with: rackproof certify a.py --resume "
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("bench", "start again with: rackproof bench a.py --quiet"),
        ("certify", "continue with: rackproof certify a.py --resume "),
    ],
)
def test_the_last_line_says_how_to_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, command: str, words: str
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["rackproof", command, "a.py", "--quiet"])
    world.hooks["storage/local/read"] = interrupt
    result = world.run(command, "a.py", "--quiet")
    assert result.exit_code == 130
    assert words in result.output.splitlines()[-1]


def test_the_last_line_says_which_files_stay_and_how_to_remove_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "spaces", lambda *_: iter([SPACE]))
    world.hooks["storage/local/read"] = interrupt
    line = world.run("bench", "a.py", "--quiet").output.splitlines()[-1]
    remove = "remove them with: rackproof bench a.py --clean --profile "
    assert f"; test files stay on local for the next run, or {remove}" in line
    world.hooks.clear()
    assert "test files" not in world.run("bench", "a.py", "--quiet").output


@pytest.mark.parametrize(
    ("answer", "dead", "status", "words"),
    [
        (lambda node, command: None, set(), 0, ""),
        (lambda node, command: None, {"gpu-02"}, 1, "gpu-02: its files may stay: connection lost"),
        (
            lambda node, command: reply(node, command, rc=1, err="not mounted") if LEFTOVERS in command else None,
            set(),
            1,
            "gpu-01: files of the benchmarks stay below /mnt/local: ",
        ),
    ],
)
def test_files_are_removed_without_a_run(
    world: World, monkeypatch: pytest.MonkeyPatch, answer: Any, dead: set[str], status: int, words: str
) -> None:
    asked: list[str] = []

    def removal(node: str, command: str) -> CommandResult | None:
        asked.append(command)
        return answer(node, command) or world.answer(node, command) or reply(node, command)

    monkeypatch.setattr(unrecorded, "Fleet", lambda rack: FakeFleet(rack, part_by_part(removal), dead))
    monkeypatch.setattr(unrecorded, "spaces", lambda *_: iter([SPACE]))
    result = world.run("bench", "a.py", "--clean")
    assert result.exit_code == status, result.output
    assert words in result.output
    assert any(LEFTOVERS in command for command in asked)
    assert world.steps == []
    assert not list(Path("reports").glob("*"))
    assert world.run("bench", "a.py", "--clean", "--dry-run").exit_code == 2


@pytest.mark.parametrize("command", ["validate", "bench", "certify"])
def test_a_second_run_beside_the_first_is_refused_by_the_name_of_the_first(
    world: World, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    answer = world.answer

    def locked(node: str, command: str) -> CommandResult | None:
        if "rp_lock" in command and node == "gpu-02" and " r1 " not in command:
            return reply(node, command, rc=1, err=HELD)
        return answer(node, command)

    monkeypatch.setattr(world, "answer", locked)
    result = world.run(command, "a.py", "--quiet")
    assert result.exit_code != 0
    assert "gpu-02: run r1 of ann on desk works on this node since" in str(result.exception)
    assert world.steps == []
    assert world.validations == 0


def test_one_cause_for_many_checks_of_a_node_is_printed_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.before_validation = lambda: world.dead.add("gpu-01")

    def validate(session: Session, on_check: Callable[[CheckResult], object], *more: Any, **options: Any) -> Any:
        def lost(result: CheckResult) -> object:
            late = result.outcome is CheckOutcome.UNMEASURED
            return on_check(result.model_copy(update={"message": "host key has changed"}) if late else result)

        return world.validate(session, lost, *more, **options)

    monkeypatch.setattr(stages, "run_validators", validate)
    output = world.run("validate", "a.py").output.partition("judge")[0]
    assert output.count("host key has changed") == 2
    assert re.search(r"gpu-01: \d+ further checks: host key has changed", output)
