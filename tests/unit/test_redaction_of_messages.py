"""The kit's own texts pass the redaction of secrets unchanged: a message that loses words helps no reader."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from rackproof.remote.redaction import redact
from tests.unit.sources import nodes_of

ROOT = Path(__file__).parents[2]
PATTERNS = {"redaction.py", "secret_rules.py", "failure.py"}
"""Files of regular expressions."""


def _texts(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Strings of more than one word with a name in place of each value, without docstrings."""
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "storage-01" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        if " " in text and not {id(node)} & (parts | statements):
            yield node.lineno, text


def test_no_text_of_the_kit_loses_words() -> None:
    files = [file for folder in ("rackproof", "deploys", "validators") for file in (ROOT / folder).rglob("*.py")]
    texts = [
        (f"{file.relative_to(ROOT)}:{line}", text)
        for file in files
        if file.name not in PATTERNS
        for line, text in _texts(nodes_of(file))
    ]
    assert len(texts) > 5000
    assert [(place, text) for place, text in texts if redact(text) != text] == []
