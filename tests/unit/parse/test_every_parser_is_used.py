"""A parser that nothing uses is tested and trusted without being needed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
USERS = ("benchmarks", "deploys", "inventories", "rackproof", "validators")


def test_every_public_function_of_the_parsers_is_used() -> None:
    texts = {path: path.read_text() for folder in USERS for path in (ROOT / folder).rglob("*.py")}
    unused = []
    for path in sorted((ROOT / "rackproof/parse").glob("*.py")):
        names = [node.name for node in ast.parse(texts[path]).body if isinstance(node, ast.FunctionDef)]
        for name in (name for name in names if not name.startswith("_")):
            word = re.compile(rf"\b{name}\b")
            elsewhere = any(word.search(text) for other, text in texts.items() if other != path)
            if not elsewhere and len(word.findall(texts[path])) < 2:
                unused.append(f"{path.stem}.{name}")
    assert unused == []
