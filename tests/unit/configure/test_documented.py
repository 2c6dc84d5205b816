"""Operations document their arguments, with an example."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from rackproof import configure
from tests.unit.sources import nodes_of

FOLDER = Path(str(configure.__file__)).parent


def operations() -> Iterator[tuple[str, ast.FunctionDef]]:
    for path in sorted(FOLDER.rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef) and "operation()" in map(ast.unparse, node.decorator_list):
                yield f"{path.relative_to(FOLDER)}:{node.name}", node


def undocumented(function: ast.FunctionDef) -> list[str]:
    text = ast.get_docstring(function) or ""
    names = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
    missing = [name for name in names if not re.search(rf"(?m)^\+ (?:\w+, )*{name}\b", text)]
    return missing + ["an example"] * (f"{function.name}(" not in text.partition("**Example:**")[2])


def test_every_operation_documents_its_arguments_and_has_an_example() -> None:
    every = dict(operations())
    assert len(every) > 40
    assert {name: missing for name, function in every.items() if (missing := undocumented(function))} == {}


def test_the_rule_sees_what_is_missing() -> None:
    (bare,) = ast.parse("def f(a, b):\n    'Text.\\n+ a: it'\n").body
    assert isinstance(bare, ast.FunctionDef)
    assert undocumented(bare) == ["b", "an example"]
