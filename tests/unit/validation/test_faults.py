"""Every check notices its fault, and no check takes a bad answer for a good one.

The recordings of a healthy virtual rack are changed the way that machines are: a mount gone, a port at MTU 1500, a
GPU that fell off the bus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from rackproof.core.evidence import CheckOutcome
from rackproof.remote.command import CommandResult
from tests.unit.validation.checking import (
    Change,
    Replace,
    Says,
    case_of,
    cases,
    changed,
    commands_of,
    healthy,
    outcome,
    validators,
)  # fmt: skip
from tests.unit.validation.faults import FAULTS, GPU, MANAGER, NO_REPLY


def test_a_healthy_rack_passes_every_check() -> None:
    results = [healthy().evaluate(function, case) for function, case in cases(healthy())]
    assert {f"{r.node} {r.check}[{r.item}]": r.message for r in results if r.outcome is not CheckOutcome.PASSED} == {}
    assert {r.check for r in results} == set(validators())


@pytest.mark.parametrize(
    ("check", "item", "node", "command", "change", "words"),
    FAULTS,
    ids=[f"{check}-{item}-{words[:30]}" for check, item, _, _, _, words in FAULTS],
)
def test_a_fault_is_noticed(check: str, item: str, node: str, command: str, change: Change, words: str) -> None:
    reads = [c for c in commands_of(*case_of(check, node, item)) if command in c]
    result = outcome(check, node, item, changed(node, lambda c: c in reads, change))
    assert (result.outcome, words in result.message) == (CheckOutcome.FAILED, True), result.message
    assert "expected " in result.message
    assert "actual " in result.message


def jumbo(large: Mapping[str, Change], again: str) -> tuple[CheckOutcome, str]:
    """Answers to the first large packets by address, then to packets of both sizes."""
    reads = commands_of(*case_of("fabric.jumbo", GPU, "fabric0"))
    pings = {c: a for c in reads for a in ("10.77.0.11", "10.77.0.22") if f" {a} " in c}

    def change(result: CommandResult) -> CommandResult:
        answer = large.get(pings[result.command])
        return answer(result) if answer else result

    context = changed(GPU, lambda c: c in pings, change)
    for address in large:
        ping = f"ping -n -q -M do -c 2 -i 0.2 -W 2 -I fabric0 {address}"
        both = f"{ping} -s 56 >/dev/null 2>&1; echo small $?; {ping} -s 8972 >/dev/null 2>&1; echo large $?"
        context.readers[GPU].add([CommandResult(GPU, both, 0, again.encode())])
    result = outcome("fabric.jumbo", GPU, "fabric0", context)
    return result.outcome, result.message


TOO_LONG = Says("ping: local error: message too long, mtu=1500\nstatus 1\n")
STORAGE_SILENT: Mapping[str, Change] = {"10.77.0.11": NO_REPLY}
BOTH_SILENT: Mapping[str, Change] = {"10.77.0.11": NO_REPLY, "10.77.0.22": NO_REPLY}
SMALL_ONLY = "expected packets of 9000 B to pass, actual only small ones do, to storage-01"
NOBODY = "expected an answer from storage-01 or gpu-02, actual none, not even to small packets"


@pytest.mark.parametrize(
    ("large", "again", "expected"),
    [
        (STORAGE_SILENT, "small 0\nlarge 1\n", (CheckOutcome.FAILED, SMALL_ONLY)),
        ({"10.77.0.11": TOO_LONG}, "small 0\nlarge 1\n", (CheckOutcome.FAILED, SMALL_ONLY)),
        (BOTH_SILENT, "small 1\nlarge 1\n", (CheckOutcome.FAILED, NOBODY)),
        (STORAGE_SILENT, "small 1\nlarge 1\n", (CheckOutcome.PASSED, "")),  # it is down: its own affair
        (STORAGE_SILENT, "small 0\nlarge 0\n", (CheckOutcome.PASSED, "")),  # it was booting
        (STORAGE_SILENT, "small 2\nlarge 2\n", (CheckOutcome.UNMEASURED, "ping: unexpected answer 'small 2 large 2 '")),
        (STORAGE_SILENT, "small 0\n", (CheckOutcome.UNMEASURED, "ping: unexpected answer 'small 0 '")),
    ],
)
def test_frames_that_do_not_pass_are_told_from_a_peer_that_is_down(
    large: Mapping[str, Change], again: str, expected: tuple[CheckOutcome, str]
) -> None:
    actual, message = jumbo(large, again)
    assert (actual, message.replace("\\n", " ")) == expected


def test_failed_units_are_named() -> None:
    def degraded(result: CommandResult) -> CommandResult:
        return Replace("NFailedUnits=0", "NFailedUnits=1")(result)

    context = changed(GPU, lambda c: MANAGER in c, degraded)
    listed = "systemctl list-units --failed --plain --no-legend --no-pager"
    line = b"chrony.service loaded failed failed chrony, an NTP client/server\n"
    context.readers[GPU].add([CommandResult(GPU, listed, 0, line)])
    result = outcome("base.failed_units", GPU, "", context)
    assert (result.outcome, result.message) == (CheckOutcome.FAILED, "expected no failed unit, actual chrony.service")


def test_a_name_that_does_not_resolve_is_named() -> None:
    context = changed(GPU, lambda c: "getent" in c, Says("10.77.0.21 STREAM gpu-01\nstatus 2\n"))
    names = [f"{node}{rail}" for node in ("gpu-01", "gpu-02", "storage-01") for rail in ("", "-fabric0")]
    loop = f'for n in {" ".join(names)}; do echo "$n $(getent ahostsv4 "$n" | head -n 1)"; done'
    addresses = {"gpu-01": "10.77.0.21", "storage-01": "10.77.0.11"}
    lines = [
        f"{n} {a + '      STREAM x' if (a := addresses.get(n[:-8] if 'fabric' in n else n)) else ''}\n" for n in names
    ]
    context.readers[GPU].add([CommandResult(GPU, loop, 0, "".join(lines).encode())])
    result = outcome("fabric.names", GPU, "", context)
    assert result.outcome is CheckOutcome.FAILED
    assert result.message == (
        "gpu-02: expected 10.77.0.22, actual nothing; gpu-02-fabric0: expected 10.77.0.22, actual nothing"
    )


def test_every_check_has_a_fault() -> None:
    tried = {check for check, *_ in FAULTS} | {"fabric.jumbo", "base.failed_units", "fabric.names"}
    assert set(validators()) - tried == set()


# Answers that are none

DAMAGES: dict[str, Change] = {
    "missing tool": lambda r: replace(r, rc=127, stdout=b"", stderr=b"sh: 1: tool: not found\n"),
    "no output": lambda r: replace(r, stdout=b""),
    "hung": lambda r: replace(r, rc=None, stdout=b"", error="not finished within 20 s"),
    "connection lost": lambda r: replace(r, rc=None, error="connection lost"),
    "binary": lambda r: replace(r, stdout=b"\x00\xfe\xff\x1b[0m" * 20),
    "blanks": lambda r: replace(r, stdout=b" \n\n \n"),
    "foreign text": lambda r: replace(r, stdout=b"Segmentation fault (core dumped)\n"),
    "banner": lambda r: replace(r, stdout=b"Authorised use only!\nAll activity is logged.\n"),
}
NOT_SAYING_NO = {"foreign text", "banner"}
"""A text that stands where a value belongs may count as a wrong value; it must not count as the right one."""


def one_case_each() -> list[str]:
    return sorted({case.check.id for _, case in cases(healthy())})


@pytest.mark.parametrize("check", one_case_each())
def test_no_answer_is_never_a_good_one(check: str) -> None:
    for function, case in cases(healthy()):
        if case.check.id != check or case.node.name == "gpu-02":
            continue
        for command in commands_of(function, case):
            for name, damage in DAMAGES.items():
                context = changed(case.node.name, lambda c, command=command: c == command, damage)  # type: ignore[misc]
                result = context.evaluate(function, case)
                allowed = {CheckOutcome.UNMEASURED} | ({CheckOutcome.FAILED} if name in NOT_SAYING_NO else set())
                assert result.outcome in allowed, f"{name}: {command}: {result.outcome} {result.message}"
                assert result.message
                assert "\n" not in result.message


@pytest.mark.parametrize("check", one_case_each())
def test_an_answer_that_is_cut_off_is_never_a_good_one(check: str) -> None:
    for function, case in cases(healthy()):
        if case.check.id != check or case.node.name == "gpu-02":
            continue
        for command in commands_of(function, case):
            for share in (0.1, 0.5, 0.9):

                def cut(result: CommandResult, share: float = share) -> CommandResult:
                    at = int(len(result.stdout) * share)
                    # Not at the end of a line: there the rest may be missing without being missed.
                    while at and result.stdout[at - 1 : at] == b"\n":
                        at -= 1
                    return replace(result, stdout=result.stdout[:at])

                context = changed(case.node.name, lambda c, command=command: c == command, cut)  # type: ignore[misc]
                result = context.evaluate(function, case)
                assert result.outcome is not CheckOutcome.PASSED, f"{share}: {command}"
