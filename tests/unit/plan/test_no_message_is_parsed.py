"""What one module reports to another is data: no module takes messages or shell of another apart."""

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
    "cli/plan.py",
    "cli/preflight.py",
    "report/plan.py",
    "run/plan.py",
]
CUTTING = {"split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix"}
OWN = re.compile(r"\bpending\b|rp_|echo|not begun|preflight: |reboot: | \| |; ")
"""Pieces of the kit's own messages and scripts."""


def cut(path: Path) -> list[str]:
    """Literals at which a module cuts texts, and patterns that it searches for."""
    patterns = []
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            if node.func.attr in CUTTING or module == "re":
                patterns += [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return patterns


@pytest.mark.parametrize("name", READERS)
def test_readers_of_plans_take_no_message_apart(name: str) -> None:
    assert [text for text in cut(PACKAGE / name) if OWN.search(text)] == []


def test_the_test_sees_what_takes_messages_apart(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('import re\nre.compile(r"^rp_file (.*)")\n"".split(" | ")\n"".partition("=")\n')
    assert [text for text in cut(module) if OWN.search(text)] == ["^rp_file (.*)", " | "]


def test_messages_of_several_problems_are_one_line() -> None:
    line = sentence([Problem("disk.free", "/: full", "make room"), Problem("host.name", "name: node-7")])
    assert line == "/: full; make room [disk.free] | name: node-7 [host.name]"
