"""No text of an architecture or an inventory reaches a shell unquoted, even past its pattern.

A sample of all texts; ``RACKPROOF_EXPLORE=1`` tries every one.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter

import pytest

from tests.unit.plan.golden import ROOT, racks
from tests.unit.plan.taint import MARK, unquoted

pytestmark = pytest.mark.few(4)

SAMPLE = 1 if os.environ.get("RACKPROOF_EXPLORE") else 20
QUOTED = shlex.quote(MARK)


@pytest.mark.parametrize(
    "script",
    [
        f"echo {MARK}",
        f'echo "{MARK}"',
        f"echo '{MARK}'",
        f"sh -c {shlex.quote(f'echo {MARK}')}",
        f"x=$(cat {MARK})",
        f"cat <<END\n{MARK}\nEND\n",
        f"eval {shlex.quote(f'echo {MARK}')}",
        f"runuser -u x -- sh -ec {shlex.quote(f'a; echo {MARK}')}",
    ],
)
def test_a_text_without_quotes_is_noticed(script: str) -> None:
    assert unquoted(script) is not None


@pytest.mark.parametrize(
    "script",
    [
        f"echo {QUOTED}; true",
        f"sh -c {shlex.quote(f'echo {QUOTED} a')}",
        f'f="$(cat a{QUOTED})"/x; echo {QUOTED}',
        f"cat <<'END'\n{MARK}\nEND\necho {QUOTED}",
        f"# {MARK}\necho {QUOTED}",
        "echo raidRPT\\x27\\x24.mount",
    ],
)
def test_a_quoted_text_is_no_fault(script: str) -> None:
    assert unquoted(script) is None


def test_no_text_reaches_a_shell_unquoted() -> None:
    names = [path.name for path in racks()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.plan.taint", str(SAMPLE), *names],
        cwd=ROOT, env={**os.environ, "RACKPROOF_PLAN_SECRET": "not a secret"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    of_rack = Counter(name for name, *_ in cases)
    assert all(of_rack[name] >= 3 for name in names)
    assert [case for case in cases if case[2].startswith("unquoted")] == []
