"""Declarations of checks, messages of their results, and testinfra's view of a reader's answers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import testinfra

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.expectations import ABSENT, expected_checks, items_of, value_at
from rackproof.core.architecture.node_checks import EVERY_NODE
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.rack import Node, Rack
from rackproof.parse.kernel import release_order
from rackproof.remote.collect import COMMAND_TIMEOUT_S, RecordingReader
from rackproof.remote.command import CommandResult
from rackproof.remote.fleet import Fleet
from rackproof.remote.testinfra_backend import host_of
from rackproof.validation import Unmeasured, check, expect, expect_all, read
from rackproof.validation.checks import Check
from rackproof.validation.context import Context, live_context
from rackproof.validation.evaluate import Case, key_read, outcome_of
from rackproof.validation.terminal import summary
from tests.unit.refusals import refuses
from tests.unit.validation.checking import healthy, outcome, subject, subjects, validators


def test_a_declaration_is_complete() -> None:
    for name, (declared, function) in validators().items():
        assert re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", name)
        assert function.__name__.startswith("test_"), name
        for sentence in (declared.protects, declared.hint):
            assert re.fullmatch(r"[A-Z'a-z].{20,160}[.?]", sentence), (name, sentence)
        assert declared.protects != declared.hint, name


def items_on_racks(declared: Check) -> Iterator[tuple[Context, Node, Sequence[str]]]:
    """Items of a check on each node of every rack."""
    for context in (one.context for one in subjects()):
        for node in context.rack.nodes:
            if items := declared.items(context.arch, node, context.rack):
                yield context, node, items


def test_a_check_names_a_key_of_the_architecture() -> None:
    """On every rack on which it runs, and it runs on one."""
    for name, (declared, _) in validators().items():
        cases = [(context, Case(declared, node, item)) for context, node, of in items_on_racks(declared) for item in of]
        assert cases, name
        assert all(value_at(context.arch, key_read(case, context.arch)) is not ABSENT for context, case in cases), name


def test_the_architecture_names_checks_that_exist() -> None:
    arch: Architecture = healthy().arch
    named = {*arch.checks, *(check for checks in arch.required_checks.values() for check in checks)}
    others = {"deploy.converged", "node.reachable"}  # of other stages
    assert named <= validators().keys() | others


def test_a_check_that_asks_for_something_unknown_is_refused() -> None:
    with pytest.raises(TypeError, match=r"check a\.b: unknown argument tmp_path"):

        @check("a.b", protects="x", hint="y", reads="system")
        def test_it(host: object, tmp_path: Path) -> None: ...


def test_words_of_a_failure() -> None:
    with pytest.raises(AssertionError, match=r"^MTU: expected 9000, actual 1500$"):
        expect(1500, 9000, "MTU")
    with pytest.raises(AssertionError, match=r"^expected rdma, actual none$"):
        expect([], ["rdma"])
    with pytest.raises(AssertionError, match=r"^one; two$"):
        expect_all(problem for problem in ("one", "two"))
    expect(1, 1)
    expect_all([])


@pytest.mark.parametrize(
    ("error", "outcome", "message"),
    [
        (None, CheckOutcome.PASSED, ""),
        (AssertionError("expected 1, actual 2\nassert 1 == 2\n +  where"), CheckOutcome.FAILED, "expected 1, actual 2"),
        (AssertionError(), CheckOutcome.FAILED, "the assertion does not hold"),
        (Unmeasured("no such file"), CheckOutcome.UNMEASURED, "no such file"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), CheckOutcome.UNMEASURED, "UnicodeDecodeError: "),
        (RuntimeError("two\nlines"), CheckOutcome.UNMEASURED, "RuntimeError: two lines"),
        (RuntimeError("x" * 1000), CheckOutcome.UNMEASURED, "RuntimeError: xxx"),
    ],
)
def test_the_end_of_a_check_has_one_meaning(error: Exception | None, outcome: CheckOutcome, message: str) -> None:
    actual, words = outcome_of(error, [CommandResult("gpu-01", "uptime", 0)])
    assert actual is outcome
    assert words.startswith(message)
    assert len(words) <= 500
    assert "\n" not in words


# testinfra


def host_that_says(**results: tuple[int | None, bytes, bytes]) -> Any:
    known = [
        CommandResult("gpu-01", command, rc, out, err, error=None if rc is not None else "not finished within 20 s")
        for command, (rc, out, err) in results.items()
    ]
    return host_of("gpu-01", RecordingReader("gpu-01", known=known))


def test_testinfra_asks_the_reader() -> None:
    host = host_that_says(**{"echo 'a b'": (3, b"out\n", b"err\n")})
    result = host.run("echo %s", "a b")
    assert (result.rc, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert host.backend.get_pytest_id() == "rackproof://gpu-01"


def test_testinfra_finds_the_backend_by_its_name() -> None:
    reader = RecordingReader("gpu-02", known=[CommandResult("gpu-02", "uname -r", 0, b"6.12\n")])
    assert testinfra.get_host("rackproof://gpu-02", reader=reader).check_output("uname -r") == "6.12"


test_a_command_without_an_answer_is_no_test_failure = refuses(
    lambda result: host_that_says(x=result).run_test("x"),
    ((None, b"", b""), "not finished within 20 s"),
    ((127, b"", b"sh: 1: x: not found\n"), r"x is not installed \(exit status 127\)"),
    error=Unmeasured,
)


def test_asking_whether_a_program_exists_is_an_answer() -> None:
    host = host_that_says(**{"command -v command": (0, b"command\n", b""), "command -v fio": (127, b"", b"")})
    assert not host.exists("fio")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ((1, b"partly\n", b"first\nlast words\n"), r"df: last words \(exit status 1\)"),
        ((2, b"", b""), r"df failed \(exit status 2\)"),
        ((0, b" \n", b""), "df: no output"),
    ],
)
def test_reading_wants_a_success_with_words(result: tuple[int, bytes, bytes], reason: str) -> None:
    with pytest.raises(Unmeasured, match=f"^{reason}$"):
        read(host_that_says(**{"timeout -k 2 5 df": result}), "timeout -k 2 5 df")


def test_output_that_is_not_text_does_not_end_in_an_exception() -> None:
    assert read(host_that_says(x=(0, b"a\xff\n", b"")), "x") == "a\ufffd\n"


# Words


def result(node: str, name: str, outcome: CheckOutcome, message: str, required: bool = True) -> CheckResult:
    return CheckResult(
        check=name, node=node, outcome=outcome, message=message, protects="P.", hint="H.", required=required
    )


def test_nodes_that_say_the_same_are_folded() -> None:
    failed, unmeasured = CheckOutcome.FAILED, CheckOutcome.UNMEASURED
    lines = [
        line
        for line, _ in summary(
            [
                *(result(f"gpu-{k:02d}", "fabric.mtu", failed, "expected 9000, actual 1500") for k in (1, 2, 3)),
                result("gpu-04", "fabric.mtu", failed, "expected 9000, actual 4200"),
                *(result("gpu-05", f"a.{k}", unmeasured, "no connection within 20 s") for k in range(9)),
                result("storage-01", "a.b", CheckOutcome.PASSED, ""),
                result("storage-01", "a.c", unmeasured, "garbled"),
            ]
        )
    ]
    assert lines == [
        "FAIL gpu-[01-03]: fabric.mtu: expected 9000, actual 1500", "  P.", "  H.",
        "FAIL gpu-04: fabric.mtu: expected 9000, actual 4200", "  P.", "  H.",
        "UNMEASURED gpu-05: 9 checks: no connection within 20 s",
        "UNMEASURED storage-01: a.c: garbled",
        "6 nodes: 1 passed, 4 failed, 10 unmeasured",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (">=580.95.05", "passed"),
        (">=580.95", "passed"),
        (">=525.105.17", "passed"),
        (">= 580.95.06", "failed"),
        (">=1000.1", "failed"),
        ("580.95.05", "passed"),
        ("580.95", "failed"),
        (">=latest", "unmeasured"),
    ],
)
def test_a_driver_may_be_asked_for_by_its_oldest_version(wanted: str, expected: str) -> None:
    context = healthy()
    assert context.arch.gpu is not None
    arch = context.arch.model_copy(update={"gpu": context.arch.gpu.model_copy(update={"driver": wanted})})
    result = outcome("gpu.driver", "gpu-01", "", dataclasses.replace(context, arch=arch))
    assert result.outcome.value == expected, result.message


def test_the_judge_asks_for_the_items_that_the_validator_has() -> None:
    """Judge and validator enumerate the items independently: the judge must not require only what has answered."""
    for name, (declared, _) in validators().items():
        for context, node, items in items_on_racks(declared):
            leads = [group for group in node.groups if context.rack.group(group)[:1] == (node,)]
            assert set(items_of(context.arch, name, (*node.groups, "all"), leads)) == set(items), name


def test_the_virtual_rack_asks_for_every_validator_that_runs_on_it() -> None:
    """Every validator is required by a key or by name; otherwise its loss would go unnoticed."""
    arch = healthy().arch
    run = {seen.case.check.id for several in subject().healthy.values() for seen in several}
    asked = {name for names in arch.required_checks.values() for name in names}
    asked |= {entry.check for entry in expected_checks(arch)} | set(EVERY_NODE)
    assert run
    assert run <= asked


@pytest.mark.parametrize(("value", "expected"), [(None, COMMAND_TIMEOUT_S), (60, 60.0), (2.5, 2.5)])
def test_a_node_may_have_a_limit_of_its_own_for_commands(value: object, expected: float) -> None:
    data = {} if value is None else {"command_timeout_s": value}
    rack = Rack("r", (Node("n1", ("gpu",), data),))
    assert live_context(rack, healthy().arch, Fleet(rack)).readers["n1"].timeout_s == expected


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("5.14.0-427.13.1.el9_4.x86_64", "5.14.0-427.el9.x86_64"),
        ("5.14.0-503.el9.aarch64", "5.14.0-427.el9.aarch64+64k"),
        ("6.1.0-21-amd64", "6.1.0-9-amd64"),
        ("6.12.43+deb13-cloud-amd64", "6.12.41+deb13-amd64"),
        ("6.8.0-1015-nvidia-64k", "6.8.0-79-generic"),
    ],
)
def test_the_newest_kernel_is_the_package_managers(newer: str, older: str) -> None:
    assert release_order(newer) > release_order(older)


@pytest.mark.parametrize("flavour", ["6.8.0-51-lowlatency", "6.8.0-51-generic-64k", "6.8.0-51+debug"])
def test_flavours_of_a_kernel_are_equally_new(flavour: str) -> None:
    assert release_order(flavour) == release_order("6.8.0-51-generic")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [("quiet mitigations=off", "passed"), ("mitigations=off quiet mitigations=auto", "failed"), ("quiet", "failed")],
)
def test_the_last_argument_about_mitigations_counts(arguments: str, expected: str) -> None:
    context = healthy()
    system = context.arch.system.model_copy(update={"mitigations": "off"})
    arch = context.arch.model_copy(update={"system": system})
    completed = CommandResult(
        "gpu-01", "cat /proc/cmdline; echo status $?", 0, f"{arguments}\nstatus 0\n".encode(), b"", 0.1, 5.0
    )
    readers = {**context.readers, "gpu-01": RecordingReader("gpu-01", known=[completed])}
    result = outcome("os.mitigations", "gpu-01", "", dataclasses.replace(context, arch=arch, readers=readers))
    assert result.outcome.value == expected, result.message
