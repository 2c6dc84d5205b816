"""Storage checks on an architecture that mounts one export many times, and their small answers."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof import architectures
from rackproof.core.architecture import Architecture
from rackproof.core.architecture.consistency import problems
from rackproof.core.architecture.expectations import expected_checks, items_of
from rackproof.core.evidence import CheckResult
from rackproof.core.rack import Node, Rack
from rackproof.parse import ParseError
from rackproof.parse.block import parse_read_ahead, read_ahead_command
from rackproof.parse.fscache import parse_fscache
from rackproof.parse.statfs import parse_inodes, parse_latency_ms
from rackproof.remote.collect import RecordingReader
from rackproof.remote.command import CommandResult
from rackproof.validation.context import Context
from rackproof.validation.evaluate import Case
from tests.unit.refusals import refuses
from tests.unit.validation.checking import ROOT, validators

CHECKS = ("mount.mounted", "mount.source", "mount.options", "mount.transport", "mount.answers", "mount.count",
          "mount.balance")  # fmt: skip
OPTIONS = "rw,vers=3,rsize=524288,wsize=524288,namlen=255,hard,nolock,proto=tcp,timeo=600,retrans=2,sec=sys"

STATISTICS = (
    f"\topts:\t{OPTIONS}\n\tage:\t9\n\txprt:\ttcp 0 1 1 0 2 30 30 0 12 0 2 2 1\n"
    "\tper-op statistics\n\t        NULL: 1 1 0 44 24 0 0 0 0\n\n"
)


class Dgx1:
    """A DGX-1 with 16 mounts of eight Isilon F800 nodes, two addresses each; written to the kernel's formats."""

    def __init__(self, addresses: list[str] | None = None) -> None:
        self.arch = architectures.load(ROOT / "architectures" / "dell-isilon-f800-dgx1.yaml").model
        servers = tuple(
            Node(f"f800-{k}", ("storage",), {"fabric_addresses": [f"10.60.64.{k}/24", f"10.60.64.{k + 8}/24"]})
            for k in range(1, 9)
        )
        self.node = Node("dgx-1", ("gpu",))
        self.rack = Rack("written", (self.node, *servers))
        self.addresses = addresses or [f"10.60.64.{k}" for k in range(1, 17)]

    def answer(self, command: str) -> str:
        mounts = [(f"/mnt/isilon{k + 1}", address) for k, address in enumerate(self.addresses)]
        if command == "cat /proc/self/mountinfo":
            return "24 1 259:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n" + "".join(
                f"{100 + k} 24 0:{50 + k} / {point} rw,relatime - nfs {address}:/ifs {OPTIONS},addr={address}\n"
                for k, (point, address) in enumerate(mounts)
            )
        if command == "cat /proc/self/mountstats":
            return "".join(
                f"device {address}:/ifs mounted on {point} with fstype nfs statvers=1.1\n{STATISTICS}"
                for point, address in mounts
            )
        asked = re.match(r"for m in ((?:/mnt/isilon\d+ ?)+); do", command)
        if asked:
            return "".join(f"{m} status 0 8192 90000000 61000000\n" for m in asked[1].split()) + "end of mounts\n"
        return ""

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
        return CommandResult("dgx-1", command, 0, self.answer(command).encode(), timeout_s=timeout_s)

    def result(self, check: str) -> CheckResult:
        declared, function = validators()[check]
        context = Context(self.rack, self.arch, {"dgx-1": RecordingReader("dgx-1", self)})  # type: ignore[arg-type]
        assert declared.items(self.arch, self.node, self.rack) == ("isilon",)
        return context.evaluate(function, Case(declared, self.node, "isilon"))


@pytest.mark.parametrize("check", CHECKS)
def test_the_published_mounts_pass(check: str) -> None:
    result = Dgx1().result(check)
    assert result.outcome.value == "passed", result.message
    assert items_of(Dgx1().arch, check, ("gpu",)) == ("isilon",)
    assert check in {entry.check for entry in expected_checks(Dgx1().arch)}


@pytest.mark.parametrize(
    ("mounted", "check", "message"),
    [
        (15, "mount.count", "expected 16 mounts, actual 15; not mounted: /mnt/isilon16"),
        (15, "mount.mounted", "/mnt/isilon16: expected nfs, actual not mounted"),
    ],
)
def test_a_mount_that_is_missing(mounted: int, check: str, message: str) -> None:
    result = Dgx1([f"10.60.64.{k}" for k in range(1, mounted + 1)]).result(check)
    assert (result.outcome.value, result.message) == ("failed", message)


def test_balance_is_not_judged_before_all_mounts_are_there() -> None:
    result = Dgx1([f"10.60.64.{k}" for k in range(1, 16)]).result("mount.balance")
    assert (result.outcome.value, result.message) == ("unmeasured", "/mnt/isilon16 is not mounted; see mount.mounted")


def test_five_mounts_of_one_address_are_not_balanced() -> None:
    addresses = ["10.60.64.1"] * 5 + [f"10.60.64.{k}" for k in range(2, 13)]
    result = Dgx1(addresses).result("mount.balance")
    assert result.outcome.value == "failed"
    assert result.message.startswith("expected at most 1 apart, actual 5: 5 from 10.60.64.1, 1 from 10.60.64.9")
    assert "0 from 10.60.64.16" in result.message


def test_one_more_from_one_address_is_allowed_here() -> None:
    addresses = ["10.60.64.1", *(f"10.60.64.{k}" for k in range(1, 16))]
    assert Dgx1(addresses).result("mount.balance").outcome.value == "failed"  # the sixteenth address has none
    dgx = Dgx1(addresses)
    dgx.rack = Rack("written", tuple(node for node in dgx.rack.nodes if node.name != "f800-8"))
    dgx.addresses = [
        *(f"10.60.64.{k}" for k in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15)),
        "10.60.64.1",
        "10.60.64.2",
    ]
    assert dgx.result("mount.balance").outcome.value == "passed"
    strict(dgx)
    assert dgx.result("mount.balance").outcome.value == "passed"  # 16 mounts of 14 addresses cannot be closer


def test_no_difference_is_allowed_where_there_can_be_none() -> None:
    dgx = Dgx1(["10.60.64.1", *(f"10.60.64.{k}" for k in range(1, 16))])
    strict(dgx)
    assert dgx.result("mount.balance").message.startswith("expected at most 0 apart, actual 2")


def strict(dgx: Dgx1) -> None:
    storage = dgx.arch.storage["isilon"].model_copy(update={"mounts_balance": 0})
    dgx.arch = dgx.arch.model_copy(update={"storage": {"isilon": storage}})


def test_balance_without_addresses_is_not_measured() -> None:
    dgx = Dgx1()
    dgx.rack = Rack("written", (dgx.node,))
    for check in ("mount.balance", "mount.source"):
        assert dgx.result(check).outcome.value == "unmeasured"


def test_balance_over_names_is_not_measured() -> None:
    """Which addresses they stand for is not known."""
    dgx = Dgx1()
    dgx.arch = changed(servers=("isilon.site",))
    result = dgx.result("mount.balance")
    assert (result.outcome.value, result.message) == (
        "unmeasured", "storage.servers has names, whose addresses are unknown: isilon.site",
    )  # fmt: skip


@pytest.mark.parametrize(("second", "outcome"), [("fd00::2", "passed"), ("fd00::1", "failed")])
def test_balance_over_ipv6_in_any_spelling(second: str, outcome: str) -> None:
    dgx = Dgx1(["fd00::1", second] * 8)
    dgx.arch = changed(servers=("fd00:0::1", "FD00::2"))
    assert dgx.result("mount.balance").outcome.value == outcome


def test_an_address_that_the_server_lacks() -> None:
    addresses = [*(f"10.60.64.{k}" for k in range(1, 16)), "10.60.99.1"]
    assert "actual /ifs of 10.60.99.1" in Dgx1(addresses).result("mount.source").message
    assert "2 from 10.60.99.1" in Dgx1(["10.60.99.1", "10.60.99.1", *addresses[:14]]).result("mount.balance").message


def changed(**keys: Any) -> Architecture:
    arch = Dgx1().arch
    storage = arch.storage["isilon"].model_copy(update=keys)
    return arch.model_copy(update={"storage": {"isilon": storage}})


def test_what_a_file_may_not_ask_for() -> None:
    def messages(arch: Architecture) -> list[str]:
        return [problem.message for problem in problems(arch) if "isilon" in problem.path]

    assert messages(changed()) == []
    assert any("needs mounts_per_client of 2 or more" in text for text in messages(changed(mounts_per_client=None)))
    assert any("no command lists the targets of nfs nfs" in text for text in messages(changed(targets=4)))
    assert any("is for class nfs, actual local" in text for text in messages(changed(class_="local", max_timeouts=0)))


# Small answers


def rounds(*takes_ms: int, starts_ms: int = 2) -> str:
    lines = [
        f"{k}000000000 {k}00{starts_ms}000000 {k}{starts_ms + ms:03d}000000 0\n" for k, ms in enumerate(takes_ms, 1)
    ]
    return "".join(lines) + "end of rounds\n"


def test_latency_is_the_median_less_what_starting_costs() -> None:
    assert parse_latency_ms(rounds(3, 3, 3, 3, 3, 3, 3)) == 1.0
    assert parse_latency_ms(rounds(3, 3, 3, 12, 100, 100, 100)) == 10.0
    assert parse_latency_ms(rounds(1, 1, 1, 1, 1, 1, 1)) == 0.0


def test_latency_of_a_mount_that_stops_answering() -> None:
    assert parse_latency_ms("1 2 3 0\n4 5 6 124\nend of rounds\n") is None


test_bad_times_raise_with_the_reason = refuses(
    parse_latency_ms,
    (rounds(3, 3, 3, 3, 3, 3), "expected 7 rounds, got 6"),
    ("end of rounds\n", "expected 7 rounds, got 0"),
    (rounds(3, 3, 3, 3, 3, 3, 3).replace("end of rounds\n", ""), "cut off"),
    ("3 2 4 0\nend of rounds\n", "the clock ran backwards"),
    ("%s000N 1 2 0\nend of rounds\n", "not an integer"),
    ("1 2 3\nend of rounds\n", "expected times"),
)


def test_read_ahead() -> None:
    assert parse_read_ahead("15360\n") == 15360
    assert parse_read_ahead("no read-ahead\n") is None
    for output in ("128", "128\n128\n", "none\n"):
        with pytest.raises(ParseError):
            parse_read_ahead(output)
    with pytest.raises(ParseError, match="expected MAJOR:MINOR"):
        read_ahead_command("0:52; reboot")


def test_caches() -> None:
    head = "CACHE    REF   VOLS  OBJS  ACCES S NAME\n======== ===== ===== ===== ===== = ===============\n"
    assert parse_fscache(head) == ()
    assert parse_fscache(head + "00000001     2     1  2123     1 A default\n00000002 1 0 0 0 W old\n") == (
        "active",
        "withdrawn",
    )
    for output in ("no\n", head.splitlines()[0] + "\n", head + "00000001 2 1 2123 1 ? default\n"):
        with pytest.raises(ParseError):
            parse_fscache(output)


def test_inodes() -> None:
    assert parse_inodes("100 7\n") == (100, 7)
    for output in ("100\n", "100 7\n1 1\n", "- -\n"):
        with pytest.raises(ParseError):
            parse_inodes(output)


@given(st.text(max_size=200))
def test_small_answers_raise_nothing_else(text: str) -> None:
    for parse in (parse_latency_ms, parse_read_ahead, parse_fscache, parse_inodes):
        with suppress(ParseError):
            parse(text)
            assert text.endswith("\n")


def test_a_storage_that_is_mounted_once_has_one_mount_point() -> None:
    storage = Dgx1().arch.storage["isilon"]
    assert storage.mountpoints[:2] == ("/mnt/isilon1", "/mnt/isilon2")
    assert storage.model_copy(update={"mounts_per_client": 1}).mountpoints == ("/mnt/isilon",)
