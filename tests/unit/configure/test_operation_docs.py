"""Operations document their arguments as pyinfra's own do."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.sources import tree_of

CONFIGURE = Path(__file__).parents[3] / "rackproof" / "configure"
FILES = sorted(CONFIGURE.rglob("*operations.py"))


def operations(path: Path) -> list[ast.FunctionDef]:
    return [
        node
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(by, ast.Call) and ast.unparse(by.func) == "operation" for by in node.decorator_list)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONFIGURE)))
def test_every_argument_is_described_and_an_example_calls_the_operation(path: Path) -> None:
    modules = {path.stem, path.parent.name}
    assert operations(path)
    for operation in operations(path):
        text = ast.get_docstring(operation) or ""
        arguments = [argument.arg for argument in operation.args.args]
        assert [line.split(":")[0][2:] for line in text.splitlines() if line.startswith("+ ")] == arguments
        if arguments:
            example = ast.parse("\n".join(line[4:] for line in text.partition(".. code:: python\n")[2].splitlines()))
            (statement,) = example.body
            assert isinstance(statement, ast.Expr)
            call = statement.value
            assert isinstance(call, ast.Call)
            assert ast.unparse(call.func) in {f"{module}.{operation.name}" for module in modules}
            assert {keyword.arg for keyword in call.keywords} <= {"name", *arguments}
