"""Changes that wait for a reboot."""

from __future__ import annotations

import pytest

from rackproof.configure.reboot.reasons import RebootState, parse_state, reasons, state_command
from tests.unit.shell import sh

BARE = ["boot 1f", "kernel 6.8.0-51-generic", "installed 6.8.0-51-generic"]


@pytest.mark.parametrize(
    ("lines", "kernel", "expected"),
    [
        ([], None, ()),
        (["current"], "6.8.0-51-*", ()),
        (["mark reboot:kernel arguments", "mark restart:chrony.service"], None, ("kernel arguments",)),
        (["mark reboot:b", "mark reboot:a"], None, ("a", "b")),
        (["required", "package linux-base", "package libc6"], None,
         ("the distribution requires it (linux-base, libc6)",)),
        (["required"], None, ("the distribution requires it",)),
        (["replaced kernel glibc"], None, ("replaced since the boot (kernel, glibc)",)),
        (["replaced "], None, ("replaced since the boot (packages)",)),
        (["installed 6.8.0-60-generic"], "6.8.0-60-*",
         ("kernel 6.8.0-60-generic is installed, 6.8.0-51-generic runs",)),
        (["installed 6.8.0-10-generic", "installed 6.8.0-9-generic"], "6.8.0-*[09]-generic",
         ("kernel 6.8.0-10-generic is installed, 6.8.0-51-generic runs",)),  # in the order of a shell's wildcard
        ([], "6.8.0-60-*", ()),  # not there: a reboot would not bring it
    ],
)  # fmt: skip
def test_reasons(lines: list[str], kernel: str | None, expected: tuple[str, ...]) -> None:
    assert reasons(parse_state([*BARE, *lines]), kernel) == expected


def test_a_long_list_of_packages_is_cut() -> None:
    state = RebootState("1", "6", required=True, packages=tuple("abcdefghi"))
    assert reasons(state) == ("the distribution requires it (a, b, c, d, e, f and 3 more)",)


@pytest.mark.parametrize("lines", [[], ["boot 1f"], ["kernel 6"], ["boot ", "kernel 6"], [*BARE, "x"]])
def test_an_invalid_answer_is_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="boot"):
        parse_state(lines)


def test_the_question_is_asked_for_real() -> None:
    done = sh(state_command(), check=True)
    assert len(parse_state(done.stdout.splitlines()).boot_id) == 36
