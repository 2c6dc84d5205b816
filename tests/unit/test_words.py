"""Words that name nothing are kept out of the repository: the actor and the thing have a name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.unit.sources import nodes_of

ROOT = Path(__file__).parents[2]
FOLDERS = ("architectures", "benchmarks", "deploys", "inventories", "rackproof", "templates", "tests", "validators")
OTHERS = ("tests/data/", "tests/unit/test_words.py")
"""Answers of machines, and this list."""
TEXT = {".j2", ".md", ".py", ".sh", ".yaml"}
ACCOUNT = re.compile(r'user nobody|"\^?nobody"|^  nobody:', re.MULTILINE)
"""The account of that name."""

DIALECT = {
    r"(?<![a-z])(?:[Aa]ny|[Ee]very|[Nn]o|[Ss]ome)body": "name the actor",
    r"\b(?:is|are|was|were) (?:not )?said\b|_(?:is|are|was|were)_said(?![a-z])": "printed, named, reported, declared",
    r"\bshall\b|_shall_": "present tense; “desired state”",
    r"\bfor ever\b|_for_ever(?![a-z])": "forever, or the limit",
    r"\bha(?:s|ve) a word for\b": "an unknown state",
    r"does?[ _]no[ _]harm": "is ignored",
    r"(?:\bthat (?:is|are) none\b(?! of)|_that_(?:is|are)_none(?![a-z]))": "invalid",
    r"\bto be had\b": "available",
    r"\"\"\"Of ": "name the thing before what it belongs to",
    r"\"\"\"What ": "name the thing",
    r"[Ww]hat an? \w+ is that\b": "the name of the thing",
    r"\b[Aa]rchitecture(?:'s)? promise": "declares",
}
NAMES = {"Around", "Look", "Named", "Seen", "Wanted", "found", "said"}
"""Names of variables, fields, parameters, functions and classes."""
VARIABLES = {*NAMES, "each"}
"""``each`` may be a field or a parameter: the rate of each link, an item for each port."""
CANDIDATE = re.compile(rf"\b(?:{'|'.join(sorted(NAMES))})\b|\beach (?:in|=) ")
"""In the text of every module with such a name; parsing all modules would take seconds."""

SHELL_VARIABLE = re.compile(r"(?m)^\s*(?:\w+=\S* )*?((?:rp_)?(?:found|said)|each)=|^[^#\n]*\bfor (each)(?: in|;)")
RECORDED = {"rackproof/configure/drives.sh"} | {
    f"templates/usr/local/sbin/rackproof-{name}.j2" for name in ("irq-affinity", "read-ahead")
}
"""Questions to nodes, and files on them, that recordings hold word by word."""


@cache
def files() -> tuple[tuple[str, str], ...]:
    """Path and content of every text."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in TEXT]
    named = ((str(path.relative_to(ROOT)), path) for path in sorted([*paths, *ROOT.glob("*.md")]))
    return tuple((name, path.read_text()) for name, path in named if not name.startswith(OTHERS))


@cache
def prose() -> tuple[tuple[str, str], ...]:
    """Path and content of every text, without the account's name."""
    return tuple((name, ACCOUNT.sub("", text)) for name, text in files())


@pytest.mark.parametrize("pattern", DIALECT)
def test_no_text_has_a_word_that_names_nothing(pattern: str) -> None:
    expression = re.compile(pattern)
    places = {f"{name}: {match[0]}" for name, text in prose() for match in expression.finditer(text)}
    assert places == set(), DIALECT[pattern]


def names_of(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and name of everything with one of these names."""
    fields = {node.target for node in nodes if isinstance(node, ast.AnnAssign)}
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name in (NAMES if node in fields else VARIABLES):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()) if name in NAMES:
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name) if name in NAMES:
                yield node.lineno, name


def test_names_name_the_thing() -> None:
    paths = [ROOT / path for path, text in files() if path.endswith(".py") and CANDIDATE.search(text)]
    assert "\n".join(f"{path}:{line}: {name}" for path in paths for line, name in names_of(nodes_of(path))) == ""


def test_variables_of_shell_scripts_name_the_thing() -> None:
    scripts = [(path, text) for path, text in files() if path.endswith((".sh", ".j2")) and path not in RECORDED]
    assert [path for path, text in scripts if SHELL_VARIABLE.search(text)] == []
    for line in ("  found=$(left)", "rp_wait_s=$1 rp_said='' x=1", "for each in a b; do"):
        assert SHELL_VARIABLE.search(line), line


def test_the_rules_see_what_they_are_for() -> None:
    source = (
        "def found(said, each=0):\n    for each in said:\n        Seen = x.Named = 1\n"
        "class Link:\n    each: int\n    Look: int\n"
    )
    names = [name for _, name in names_of(list(ast.walk(ast.parse(source))))]
    assert set(names) == {"found", "said", "each", "Seen", "Named", "Look"}
    assert len(names) == 6
    examples = (
        *("test_nobody_asks", "It is said.", "as it shall be", "hangs for ever", "has a word for it", "does_no_harm"),
        *("an_address_that_is_none", "not to be had", '"""Of a GPU."""', '"""What it does."""'),
        "What an adapter is that has no name",
        "the architecture promises it",
    )
    for text, pattern in zip(examples, DIALECT, strict=True):
        assert re.search(pattern, text), pattern
