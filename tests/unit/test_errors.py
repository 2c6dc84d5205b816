"""The exception trees in the docstring of ``rackproof.errors`` name every exception of the package, where it is."""

from __future__ import annotations

import ast
import builtins
import re
from functools import cache
from pathlib import Path

import rackproof.errors
from tests.unit.sources import nodes_of

PACKAGE = Path(rackproof.errors.__file__).parent
ROOT = "RackproofError"
FOREIGN = {"DeployError", "ClickException", "AssertionError", "OSError", "BaseException"}
"""Roots of other trees, of Python and libraries."""
LEAF = re.compile(r"(?P<indent>[│ ]*[├└]── )?(?P<name>[A-Z]\w+)(?:  .*?(?:\((?P<module>[\w/]+\.py)\))?)?")


def drawn() -> dict[str, tuple[str, str]]:
    """Class: its parent and its module, as the docstring draws them."""
    tree: dict[str, tuple[str, str]] = {}
    ancestors: list[str] = []
    for line in (rackproof.errors.__doc__ or "").splitlines():
        leaf = LEAF.fullmatch(line.removeprefix("    ")) if line.startswith("    ") else None
        if leaf is None:
            continue
        depth = len(leaf["indent"] or "") // 4
        assert leaf["name"] not in tree, f"{leaf['name']} is drawn twice"
        if depth or leaf["name"] not in FOREIGN:
            tree[leaf["name"]] = (ancestors[depth - 1] if depth else "Exception", leaf["module"] or "errors.py")
        ancestors[depth:] = [leaf["name"]]
    return tree


@cache
def exceptions() -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """Exception classes of the package by name: their bases and their module.

    ``_Private`` ones and those of programs that run on nodes alone (``*_node.py``) are left out.
    """
    classes: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for path in sorted(path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_node.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                bases = tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases)
                classes.setdefault(node.name, []).append((bases, path.relative_to(PACKAGE).as_posix()))

    def is_exception(name: str) -> bool:
        builtin = getattr(builtins, name, None)
        if isinstance(builtin, type):
            return issubclass(builtin, BaseException)
        return name in FOREIGN or any(is_exception(base) for bases, _ in classes.get(name, ()) for base in bases)

    names = {
        name: [(bases, module) for bases, module in defined if any(map(is_exception, bases))]
        for name, defined in classes.items()
        if not name.startswith("_")
    }
    return {name: defined for name, defined in names.items() if defined}


def test_the_tree_names_every_exception_and_its_parent() -> None:
    tree, classes = drawn(), exceptions()
    actual = {name: (bases[0], module) for name, [(bases, module), *_] in classes.items()}
    assert actual == tree


def test_no_two_exceptions_share_a_name() -> None:
    assert {name: places for name, places in exceptions().items() if len(places) > 1} == {}


def test_every_exception_has_a_root() -> None:
    tree = drawn()
    for name in tree:
        ancestors = [name]
        while ancestors[-1] in tree:
            ancestors.append(tree[ancestors[-1]][0])
        assert {ROOT, *FOREIGN} & {*ancestors}
