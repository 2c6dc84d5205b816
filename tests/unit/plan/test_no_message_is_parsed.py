"""Reports between modules are data: no module takes messages or shell of another apart."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rackproof.configure.preflight.problem import sentence
from rackproof.core.plan import Problem
from tests.unit.sources import nodes_of

PACKAGE = Path(__file__).parents[3] / "rackproof"
READERS = [
    "core/plan.py",
    "configure/plan_reader.py",
    "configure/preflight/node.py",
    "configure/preflight/operations.py",
    "configure/rollback/run.py",
    "cli/deploy.py",
    "cli/plan.py",
    "cli/preflight.py",
    "remote/testinfra_backend.py",
    "report/plan.py",
    "run/converge.py",
    "run/plan.py",
    "run/rack_lock.py",
]
CUTTING = {"split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix", "startswith", "endswith"}
OWN = re.compile(r"\bpending\b|rp_|echo|not begun|preflight: |reboot: | \| |[;,] |^[A-Z_]{2,}$")
"""Pieces of the kit's own messages and scripts, and names of constants that may be such."""


def cut(path: Path) -> list[str]:
    """Literals and names at which a module cuts texts, and patterns that it searches for."""
    patterns = []
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            if node.func.attr in CUTTING or module == "re":
                patterns += [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                patterns += [a.id for a in node.args if isinstance(a, ast.Name)]
    return patterns


@pytest.mark.parametrize("name", READERS)
def test_readers_of_plans_take_no_message_apart(name: str) -> None:
    assert [text for text in cut(PACKAGE / name) if OWN.search(text)] == []


def test_the_test_sees_what_takes_messages_apart(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        'import re\nre.compile(r"^rp_file (.*)")\n"".split(" | ")\n"".partition("=")\n"".endswith(GOES_ON)\n'
    )
    assert [text for text in cut(module) if OWN.search(text)] == ["^rp_file (.*)", " | ", "GOES_ON"]


def test_messages_of_several_problems_are_one_line() -> None:
    line = sentence([Problem("disk.free", "/: full", "make room"), Problem("host.name", "name: node-7")])
    assert line == "/: full; make room [disk.free] | name: node-7 [host.name]"
