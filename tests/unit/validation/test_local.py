"""Validation of the local machine: its node, its commands, and the line for a health check."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rackproof.cli.validate import validate
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.rack import Node, Rack
from rackproof.errors import InventoryError
from rackproof.remote.command import OUTPUT_LIMIT
from rackproof.remote.local import LocalFleet
from rackproof.validation import local

NODE = Node("gpu-01", ("gpu",))
RACK = Rack("rack.yaml", (NODE, Node("gpu-02", ("gpu",))))


def test_commands_run_on_this_machine() -> None:
    answer = LocalFleet(RACK, "gpu-01")["gpu-01"].run("echo out; echo err >&2; exit 3", 10)
    assert (answer.rc, answer.stdout, answer.stderr, answer.error) == (3, b"out\n", b"err\n", None)


def test_standard_input_reaches_a_command() -> None:
    assert LocalFleet(RACK, "gpu-01")["gpu-01"].run("cat", 10, b"given").stdout == b"given"


def test_other_nodes_are_not_asked() -> None:
    answer = LocalFleet(RACK, "gpu-01")["gpu-02"].run("echo out", 10)
    assert answer.rc is None
    assert answer.error == "another node: commands run on the local node only"


@pytest.mark.parametrize("command", ["yes", "yes >&2", "yes & wait"])
def test_an_output_without_end_is_ended_at_the_limit(command: str) -> None:
    answer = LocalFleet(RACK, "gpu-01")["gpu-01"].run(command, 600)
    assert answer.error == f"printed more than {OUTPUT_LIMIT} bytes"
    assert answer.elapsed_s < 600, "it did not end by its time limit"


def test_a_command_has_an_end() -> None:
    began = time.monotonic()
    answer = LocalFleet(RACK, "gpu-01")["gpu-01"].run("sleep 600", 0.3)
    assert answer.error == "not finished within 0.3 s"
    assert time.monotonic() - began < 300


def test_all_commands_together_have_an_end() -> None:
    connection = LocalFleet(RACK, "gpu-01", limit_s=0.3)["gpu-01"]
    assert connection.run("sleep 600", 300).error == "the time limit of 0.3 s is over"
    assert connection.run("true", 300).error == "the time limit of 0.3 s is over"


def test_what_a_command_leaves_behind_does_not_hold_it_up() -> None:
    began = time.monotonic()
    answer = LocalFleet(RACK, "gpu-01")["gpu-01"].run("sleep 60 & echo done", 50)
    assert answer.stdout == b"done\n"
    assert time.monotonic() - began < 50


@pytest.mark.parametrize("name", ["gpu-01", "gpu-01.rack.example"])
def test_a_machine_finds_itself(name: str) -> None:
    assert local.own_node(RACK, name) is NODE


def test_a_machine_that_is_not_in_the_rack() -> None:
    with pytest.raises(InventoryError, match="no node named 'laptop' like this machine; give --role"):
        local.own_node(RACK, "laptop")


def result(check: str, outcome: CheckOutcome, message: str = "", required: bool = True) -> CheckResult:
    return CheckResult(
        check=check, node="gpu-01", item="", outcome=outcome, message=message, required=required,
        protects="p", hint="h",
    )  # fmt: skip


PASSED = result("a.a", CheckOutcome.PASSED)
FAILED = result("gpu.count", CheckOutcome.FAILED, "expected 8,\n actual 7")
OPEN = result("gpu.ecc", CheckOutcome.UNMEASURED, "nvidia-smi: not found")


@pytest.mark.parametrize(
    ("results", "line"),
    [
        ([PASSED], ""),
        ([], "nothing was checked"),
        ([PASSED, OPEN], "not measured: gpu.ecc: nvidia-smi: not found"),
        ([OPEN, FAILED, PASSED], "gpu.count: expected 8, actual 7 (+1 more)"),
        ([PASSED, result("x", CheckOutcome.FAILED, required=False)], ""),
    ],
)
def test_one_line(results: list[CheckResult], line: str) -> None:
    assert local.brief(results) == line


def test_one_line_is_short() -> None:
    long = result("x.y", CheckOutcome.FAILED, "word " * 200)
    assert len(local.brief([long, long])) <= local.BRIEF
    assert local.brief([long, long]).endswith("… (+1 more)")


def test_declared_checks_may_stay_unmeasured_and_not_fail() -> None:
    assert local.excused([PASSED, OPEN], frozenset(["gpu.ecc"])) == [PASSED]
    assert local.excused([FAILED], frozenset(["gpu.count"])) == [FAILED]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(validate, ["--local", *arguments])


def test_a_role_without_an_inventory_says_what_is_wrong_and_fails() -> None:
    ended = call("--role", "gpu", "--architecture", "virtual-rack", "-k", "packages", "--brief")
    assert ended.exit_code in (1, 2)
    assert len(ended.output.strip().splitlines()) == 1
    assert "base.packages" in ended.output


def test_a_rack_file_names_node_and_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "host_name", lambda: "gpu-02.rack.example")
    file = tmp_path / "rack.yaml"
    file.write_text(json.dumps({"architecture": "virtual-rack", "nodes": {"gpu-02": {"groups": ["gpu"]}}}))
    ended = call("--rack", str(file), "-k", "base.kernel")
    assert ended.output.startswith("gpu-02 (gpu) against virtual-rack ")
    assert "limited to -k 'base.kernel': the rest of the rack was not checked" in ended.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--role", "gup", "--architecture", "virtual-rack"), "--role gup: virtual-rack has gpu, storage"),
        (("--role", "gpu"), "--role needs --architecture"),
        (("--rack", "/nowhere/rack.yaml"), "/nowhere/rack.yaml: no such rack file; run the deploy of the health check"),
        (("--role", "gpu", "--architecture", "virtual-rack", "--unmeasured-ok", "gpu.cuont"), "no check 'gpu.cuont'"),
    ],
)
def test_usage(arguments: tuple[str, ...], complaint: str) -> None:
    ended = call(*arguments)
    assert complaint in f"{ended.output}{ended.stderr if ended.stderr_bytes else ''}{ended.exception or ''}"
    assert ended.exit_code != 0


def test_options_of_a_health_check_need_local() -> None:
    ended = CliRunner().invoke(validate, ["inventories/lab.py", "--brief"])
    assert "go with --local" in ended.output
