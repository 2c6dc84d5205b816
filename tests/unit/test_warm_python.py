"""A forked child answers as a new interpreter does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.warm_python import cold_run, run

CODE = """\
import os, sys
print(sys.argv, os.getcwd(), os.environ.get("WORD"), repr(sys.path[0]), sys.stdin.read())
print("aside", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", ["0", "3"])
def test_a_child_is_like_a_new_process(tmp_path: Path, status: str) -> None:
    answers = [
        start(
            [sys.executable, "-c", CODE, status], cwd=tmp_path, env={"WORD": "x"}, input="given",
            capture_output=True, text=True, check=False,
        )
        for start in (cold_run, run)
    ]  # fmt: skip
    assert [(done.returncode, done.stderr) for done in answers] == [(int(status), "aside\n")] * 2
    assert answers[0].stdout == answers[1].stdout


def test_an_exception_and_a_time_limit() -> None:
    done = run([sys.executable, "-c", "1/0"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run([sys.executable, "-c", "import time; time.sleep(60)"], capture_output=True, timeout=0.1)
    assert run([sys.executable, "-c", "print(1)"], capture_output=True).stdout == b"1\n"
