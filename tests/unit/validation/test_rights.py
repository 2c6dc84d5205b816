"""A login without root: what needs root is UNMEASURED with that cause, and nothing fails or passes for lack of it."""

from __future__ import annotations

import os
import subprocess

import pytest

from rackproof.core.evidence import CheckOutcome
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult, bounded
from rackproof.validation.evaluate import Case, ending
from tests.unit.validation.checking import case_of

FAILED, UNMEASURED, PASSED = CheckOutcome.FAILED, CheckOutcome.UNMEASURED, CheckOutcome.PASSED
CASE: Case = case_of("os.kernel_log", "gpu-01", "")[1]
RUNUSER = "runuser: may not be used by non-root users"
CEPH = "[errno 13] RADOS permission denied (error connecting to the cluster)"
DMESG = "dmesg: read kernel buffer failed: Operation not permitted"


@pytest.mark.parametrize(
    ("error", "stdout", "stderr", "expected"),
    [
        (AssertionError("expected a container"), f"{RUNUSER}\nstatus 1\n", "",
         (UNMEASURED, f"it needs root: {RUNUSER}")),
        (AssertionError("expected x"), "", "Password: su: Authentication failure\n",
         (UNMEASURED, "it needs root: Password: su: Authentication failure")),
        (ParseError("dmesg", "no output"), "", f"{DMESG}\n",
         (UNMEASURED, f"the login may not do this: {DMESG}; dmesg: no output")),
        (ParseError("a", f"the login may not do this: {DMESG} (exit status 1)"), "", f"{DMESG}\n",
         (UNMEASURED, f"the login may not do this: {DMESG} (exit status 1)")),
        (ParseError("ceph", "no output"), "", f"{CEPH}\n",
         (UNMEASURED, f"Ceph refuses the node's key, or the login cannot read it: {CEPH}; ceph: no output")),
        (AssertionError("not mounted"), "", "ls: /mnt/nfs: Permission denied\n", (FAILED, "not mounted")),
        (None, "fine\n", f"{DMESG}\n", (PASSED, "")),
    ],
)  # fmt: skip
def test_a_refusal_for_lack_of_root_is_the_cause(
    error: BaseException | None, stdout: str, stderr: str, expected: tuple[CheckOutcome, str]
) -> None:
    result = CommandResult("gpu-01", "x", 1, stdout.encode(), stderr.encode())
    assert ending(CASE, error, [result], "") == expected


def test_a_long_answer_that_only_has_such_words_says_nothing_about_the_login() -> None:
    text = "x" * 2000 + f"\n{RUNUSER}\n"
    assert ending(CASE, AssertionError("bad"), [CommandResult("n", "x", 0, text.encode())], "") == (FAILED, "bad")


def test_a_program_outside_of_the_logins_path_is_found() -> None:
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    command = ["sh", "-c", bounded("command -v useradd", 10)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("/sbin/useradd")
