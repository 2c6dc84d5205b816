"""Operations document their arguments as pyinfra's own do."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.sources import tree_of

CONFIGURE = Path(__file__).parents[3] / "rackproof" / "configure"
PACKAGES = (
    *(".", "containers", "driver_swap", "gpu", "health_check", "nic", "node", "preflight", "reboot", "rollback"),
    *("slurm", "storage_client", "versions"),
)


def operations(package: str) -> list[ast.FunctionDef]:
    tree = tree_of(CONFIGURE / package / "operations.py")
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(by, ast.Call) and ast.unparse(by.func) == "operation" for by in node.decorator_list)
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_argument_is_described_and_an_example_calls_the_operation(package: str) -> None:
    assert operations(package)
    for operation in operations(package):
        text = ast.get_docstring(operation) or ""
        arguments = [argument.arg for argument in operation.args.args]
        assert [line.split(":")[0][2:] for line in text.splitlines() if line.startswith("+ ")] == arguments
        if arguments:
            example = ast.parse("\n".join(line[4:] for line in text.partition(".. code:: python\n")[2].splitlines()))
            (statement,) = example.body
            assert isinstance(statement, ast.Expr)
            call = statement.value
            assert isinstance(call, ast.Call)
            assert ast.unparse(call.func) in (f"{package}.{operation.name}", f"operations.{operation.name}")
            assert {keyword.arg for keyword in call.keywords} <= {"name", *arguments}
