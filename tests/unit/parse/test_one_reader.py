"""Output of tools and of the kernel is read in rackproof/parse, and every parser there is used.

Elsewhere a function ``parse`` or ``parse_…`` splits an answer of the kit's own into its parts: it holds no pattern and
reads no document. Benchmarks read recorded commands themselves, and ask parsers about what these printed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.sources import nodes_of, tree_of

ROOT = Path(__file__).parents[3]
PARSERS = ROOT / "rackproof/parse"
ELSEWHERE = ("configure", "validation", "bench", "lab", "run", "cli", "remote", "core")
OWN_LANGUAGE = {"core/sizing/inputs.py"}
"""Readers of what a person types."""
READERS = ("re", "json", "ET", "ElementTree")
METHODS = {"match", "fullmatch", "search", "findall", "finditer"}
FORMATS = re.compile(
    r"</?(?:gpu|process_info|product_name)\b|Slurmctld|xprt:\\|\\\\040|packets transmitted|NVRM version"
)
"""Tell-tale words of outputs that a pattern outside of the parsers must not have."""


VALIDATORS = ("validators", "rackproof/validation")
OWN_TEXT = {
    "rackproof/validation/plugin.py": "pytest's report of an assertion",
    "rackproof/validation/evaluate.py": "messages of programs that root alone may run",
    "rackproof/validation/reread.py": "the inventory's data, as the run stored it",
}
"""Files of validators that split lines or hold a pattern, and what of."""


def modules(*parts: str) -> Iterator[tuple[str, tuple[ast.AST, ...]]]:
    for part in parts:
        for path in sorted((ROOT / "rackproof" / part).rglob("*.py")):
            yield str(path.relative_to(ROOT / "rackproof")), nodes_of(path)


def reads_text(function: ast.FunctionDef) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            base = node.func.value
            if (isinstance(base, ast.Name) and base.id in READERS) or (
                node.func.attr in METHODS and not (isinstance(base, ast.Name) and base.id == "SLOT")
            ):
                return True
    return False


def test_answers_are_only_split_outside_of_the_parsers() -> None:
    readers = {
        f"{name}: {node.name}"
        for name, nodes in modules(*ELSEWHERE)
        if name not in OWN_LANGUAGE
        for node in nodes
        if isinstance(node, ast.FunctionDef) and re.match("parse(_|$)", node.name) and reads_text(node)
    }
    assert readers == set(), "move what reads a tool's output to rackproof/parse"


def test_patterns_of_known_outputs_are_in_the_parsers_alone() -> None:
    readers = {
        f"{name}:{node.lineno}"
        for name, nodes in modules(*ELSEWHERE)
        for call in nodes
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if isinstance(call.func.value, ast.Name) and call.func.value.id in READERS
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and FORMATS.search(node.value)
    }
    assert readers == set()


def reads_output(node: ast.AST) -> bool:
    """A pattern written there, or output split into lines; patterns of an architecture are variables."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    base = node.func.value
    if isinstance(base, ast.Name) and base.id in READERS:
        return not node.args or not isinstance(node.args[0], ast.Name | ast.Attribute)
    return node.func.attr == "splitlines"


def test_validators_ask_parsers() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for part in VALIDATORS
        for path in sorted((ROOT / part).glob("*.py"))
        if any(reads_output(node) for node in nodes_of(path))
    }
    assert readers == set(OWN_TEXT), "move what reads a tool's output to rackproof/parse"


def is_output(node: ast.expr) -> bool:
    """Whether it is the output of a command, also decoded and stripped."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("decode", "strip"):
        node = node.func.value
    return isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr", "text")


def test_benchmarks_ask_parsers() -> None:
    split = METHODS | {"split", "splitlines", "partition", "rpartition"}
    readers = {
        f"{name}:{node.lineno}"
        for name, nodes in modules("bench")
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if (node.func.attr in split and any(map(is_output, [node.func.value, *node.args])))
        or (isinstance(node.func.value, ast.Name) and node.func.value.id in READERS and any(map(is_output, node.args)))
    }
    assert {place for place in readers if "_node.py" not in place} == set(), "move it to rackproof/parse"


def test_every_parser_is_used_by_the_kit() -> None:
    sources = {
        path: path.read_text()
        for part in ("rackproof", "validators", "deploys")
        for path in (ROOT / part).rglob("*.py")
    }
    words = {path: set(re.findall(r"\w+", text)) for path, text in sources.items()}
    unused = set()
    for path in PARSERS.glob("*.py"):
        for node in tree_of(path).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                elsewhere = any(node.name in known for other, known in words.items() if other != path)
                if not elsewhere and len(re.findall(rf"\b{node.name}\b", sources[path])) < 2:
                    unused.add(node.name)
    assert unused == set()
