"""Syntax trees of the kit's own files, for tests that read them. Each file is parsed once, and walked once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file, in the order of ``ast.walk``."""
    return tuple(ast.walk(tree_of(path)))
