"""Clocks of nodes against each other: who is off, and what a slow answer proves."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.clocks import COMMAND, HEAD, Clock, compare, controller_is_off, rendered
from rackproof.core.evidence import CheckOutcome
from rackproof.parse.clocks import parse_clocks
from rackproof.remote import clocks as remote_clocks
from rackproof.remote.clocks import READ, measured
from rackproof.remote.collect import RecordingReader, fetch
from rackproof.remote.command import CommandResult
from tests.unit.refusals import refuses
from tests.unit.test_recording_collect import Shell, Shells

PASSED, FAILED, UNMEASURED = CheckOutcome.PASSED, CheckOutcome.FAILED, CheckOutcome.UNMEASURED
LIMIT_S = 0.1


def at(offset_s: float, half_s: float = 0.005) -> Clock:
    return Clock(offset_s - half_s, offset_s + half_s)


def outcomes(**offsets: float) -> str:
    """First letters of the outcomes of all nodes."""
    clocks = {name: at(offset) for name, offset in offsets.items()}
    return "".join(compare(clocks, name, LIMIT_S)[0].value[0] for name in clocks)


def test_the_majority_tells_which_clock_is_off() -> None:
    assert outcomes(a=0.0, b=0.01, c=-0.02) == "ppp"
    assert outcomes(a=0.6, b=0.01, c=-0.02) == "fpp"
    assert outcomes(a=0.6, b=0.0) == "fp"  # the controller decides
    assert outcomes(a=0.6, b=0.6) == "pp"  # the controller is off
    assert outcomes(a=0.0) == "p"
    assert outcomes(a=0.6) == "u"  # the node or the controller
    assert outcomes(a=0.6, b=0.6, c=0.0) == "uuu"  # with the controller two against two
    assert outcomes(a=0.6, b=-0.6) == "ff"
    assert outcomes(a=0.6, b=0.6, c=0.0, d=0.0) == "ffpp"


def test_a_slow_answer_proves_only_what_its_whole_interval_proves() -> None:
    others = {"b": at(0.0), "c": at(0.0)}
    assert compare({"a": at(0.3, 0.2), **others}, "a", LIMIT_S)[0] is UNMEASURED
    assert compare({"a": at(0.6, 0.3), **others}, "a", LIMIT_S)[0] is FAILED
    outcome, why = compare({"a": at(0.0, 0.5), **others}, "a", LIMIT_S)
    assert (outcome, why) == (
        UNMEASURED, "clocks were read too slowly: to within 0.500 s; expected at most 0.2 s between two clocks",
    )  # fmt: skip
    assert compare({"a": "connection lost", **others}, "a", LIMIT_S) == (
        UNMEASURED, "its clock was not read: connection lost",
    )  # fmt: skip


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-0.1, 0.1), min_size=3, max_size=8),
    st.floats(0.0, 2.0),
    st.floats(-3, 3),
    st.data(),
)
def test_right_clocks_never_fail_and_a_wrong_one_never_passes(
    right: Mapping[str, float], wide_s: float, controller_s: float, data: st.DataObject
) -> None:
    """The controller may be off by anything, any reading may be slow, and one clock is off by a second."""
    clocks = {}
    for name, offset in {**right, "wrong": 1.0}.items():
        before, after = data.draw(st.floats(0.0, wide_s)), data.draw(st.floats(0.0, wide_s))
        clocks[name] = Clock(offset - controller_s - before, offset - controller_s + after)
    read = parse_clocks(rendered(clocks))
    assert list(read) == list(clocks)
    assert all(compare(clocks, name, LIMIT_S)[0] is not FAILED for name in right)
    assert compare(clocks, "wrong", LIMIT_S)[0] is not PASSED


def test_the_controller_is_named_when_the_nodes_agree_against_it() -> None:
    nodes = {"gpu-01": at(0.6), "gpu-02": at(0.61)}
    assert controller_is_off(nodes, LIMIT_S) == (
        "this machine's clock is off: 0.600 ± 0.005 s behind gpu-[01-02], whose clocks agree"
    )
    assert controller_is_off({**nodes, "gpu-03": at(0.0)}, LIMIT_S) is None
    assert controller_is_off({"gpu-01": at(0.6)}, LIMIT_S) is None
    assert controller_is_off({"gpu-01": at(0.6), "gpu-02": at(-0.6)}, LIMIT_S) is None


test_a_comparison_that_is_not_whole_is_refused = refuses(
    parse_clocks,
    "1795251193.705044462\n",  # the command itself, run on a node
    f"{HEAD}\na 0.0 0.1\n2 clocks\n",
    f"{HEAD}\na 0.0 0.1\n",
    f"{HEAD}\na 0.2 0.1\n1 clocks\n",
    f"{HEAD}\na 0.2\n1 clocks\n",
    says="",
)


class Ticking(Shell):
    """A node whose clock is a program of this machine."""

    def clock(self, base_s: float) -> Clock | str:
        with subprocess.Popen(["sh", "-c", READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as shell:
            assert shell.stdin is not None
            assert shell.stdout is not None
            out = shell.stdout
            result = measured(shell.stdin.write, lambda: out.read(4096), lambda: False, base_s)
            shell.stdin.close()
        return result


def test_a_real_shell_tells_its_time_line_by_line() -> None:
    fleet = Shells(Ticking("gpu-01"), Ticking("gpu-02"))
    readers = {name: RecordingReader(name) for name in ("gpu-01", "gpu-02")}
    assert fetch(fleet, readers, {"gpu-01": [COMMAND, "echo one"], "gpu-02": [COMMAND]}) == set(readers)  # type: ignore[arg-type]
    assert readers["gpu-01"].read("echo one").text == "one\n"
    clocks = parse_clocks(readers["gpu-02"].read(COMMAND).text)
    assert readers["gpu-01"].read(COMMAND).text == readers["gpu-02"].read(COMMAND).text
    for clock in clocks.values():
        assert isinstance(clock, Clock)
        assert clock.least_s < 1e-4
        assert clock.most_s > -1e-4


def test_a_clock_that_cannot_be_read_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_clocks, "LIMIT_S", 0.2)

    def silent() -> bytes:
        raise TimeoutError

    def slow() -> bytes:
        time.sleep(0.3)
        return b"Welcome\n1795251193.7\n"

    def reading(read: object) -> Clock | str:
        return measured(lambda data: None, read, lambda: False, 0.0)  # type: ignore[arg-type]

    assert reading(silent) == "no answer within 0.2 s"
    assert reading(lambda: b"") == "its shell shows no time"
    assert isinstance(reading(slow), Clock)  # one reading, a wide interval
    assert measured(lambda data: None, slow, lambda: True, 0.0) == "no answer within 0.2 s"  # interrupted


def test_a_lost_node_has_no_clock() -> None:
    class Lost(Ticking):
        def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
            return CommandResult(self.node.name, command, None, timeout_s=timeout_s, error="connection lost")

    reader = RecordingReader("gpu-01")
    fetch(Shells(Lost("gpu-01")), {"gpu-01": reader}, {"gpu-01": [COMMAND, "true"]})  # type: ignore[arg-type]
    assert reader.read(COMMAND).error == "connection lost"
