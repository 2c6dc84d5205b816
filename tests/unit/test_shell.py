"""Shell files beside modules: how they are read, and what every one of them must be."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackproof import shell
from tests.shellcheck import COMMANDS
from tests.unit.sources import nodes_of

PACKAGE = Path(shell.__file__).parent
FILES = sorted(PACKAGE.rglob("*.sh"))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module beside which ``x.sh`` stands."""
    package = tmp_path / "of_shell"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "x.sh").write_text(
        '# shellcheck shell=sh\n# Says it.\n\n: "${what?}" "${times?}"\n'
        '# A comment of the code.\necho "$what" "$times" "$@"\n'
    )
    (package / "plain.sh").write_text("# shellcheck shell=sh\nhello() { echo hello; }\n")
    monkeypatch.syspath_prepend(tmp_path)
    shell._text.cache_clear()
    shell._parts.cache_clear()
    return "of_shell.module"


def test_values_stand_above_the_code_and_are_quoted(module: str) -> None:
    text = shell.script(module, "x", "a b", times=2, what="it's $HOME")
    assert text.splitlines() == [
        "what='it'\"'\"'s $HOME' times=2",
        "set -- 'a b'",
        "# A comment of the code.",
        'echo "$what" "$times" "$@"',
    ]
    assert subprocess.run(["sh", "-c", text], capture_output=True, text=True).stdout == "it's $HOME 2 a b\n"


def test_a_file_without_values_is_its_code(module: str) -> None:
    assert shell.script(module, "plain") == "hello() { echo hello; }"


@pytest.mark.parametrize("values", [{}, {"what": "x"}, {"what": "x", "times": 1, "more": 2}])
def test_other_values_than_declared_are_refused(module: str, values: dict[str, str | int]) -> None:
    with pytest.raises(TypeError, match=r"x\.sh declares \(what, times\)"):
        shell.script(module, "x", **values)


def test_a_file_says_which_shell_it_is_for() -> None:
    """Programs have an interpreter line, everything else is for ``sh``; both say what they do."""
    for path in FILES:
        first, second, *_ = path.read_text().splitlines()
        assert first in ("#!/bin/sh", "# shellcheck shell=sh"), path
        assert second.startswith("# "), path


def test_every_file_is_used() -> None:
    modules = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "deploys").glob("*.py")]
    names = {node.value for module in modules for node in nodes_of(module) if isinstance(node, ast.Constant)}
    assert [str(path) for path in FILES if path.stem not in names] == []


MOST_LINES = 6
_WORDS = re.compile(
    r"(?:^|[;&|(\s])(?:then|fi|do|done|esac|exit \d|set -[eu]|printf '|echo [\"']|systemctl \w|sed -|awk )"
)
MOST_COMMANDS = 9
"""In the texts of one function or constant, however they are broken into lines."""
_ENDS = re.compile(r";;? | && | \|\| | \| |\n")
_OF_SHELL = re.compile(r"\$[{(?\w]|\[ -|/dev/null|>&2|\b(?:then|done|fi)\b")


def shell_text(node: ast.AST) -> str | None:
    """Text of a constant, of an f-string with nothing for its values, or of a list or tuple of them, one a line.

    Most lines have a blank: other lists are words.
    """
    if isinstance(node, ast.List | ast.Tuple):
        lines = [shell_text(part) or "" for part in node.elts if not isinstance(part, ast.List | ast.Tuple)]
        return "\n".join(lines) if sum(" " in line for line in lines) > len(lines) / 2 else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "" for part in node.values)
    return None


def long_shell(nodes: Sequence[ast.AST]) -> list[int]:
    """Lines at which a text or list of more than MOST_LINES lines of shell begins, in the text or in the source."""
    inside = {id(value) for node in nodes if isinstance(node, ast.JoinedStr) for value in node.values}
    inside |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    unquoted = []
    for node in nodes:
        text = shell_text(node) if isinstance(node, ast.expr) and id(node) not in inside else None
        if text is None:
            continue
        of_source = 0 if isinstance(node, ast.List | ast.Tuple) else (node.end_lineno or 0) - node.lineno + 1
        lines = max(len(text.strip().splitlines()), of_source)
        if lines > MOST_LINES and len(_WORDS.findall(text)) > 2 and not is_checked(node):
            unquoted.append(node.lineno)
    return unquoted


def fixed_parts(node: ast.AST) -> list[str]:
    """Parts of a text, or of a list of texts, that are the same for all values."""
    if isinstance(node, ast.List | ast.Tuple):
        return [part for element in node.elts for part in fixed_parts(element)]
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return [part for text in texts for part in re.split(r"(?<!\$)\{\w+\}", text)]  # a text that ``format`` fills


def many_commands(nodes: Sequence[ast.AST]) -> list[ast.AST]:
    """Texts of shell with more than MOST_COMMANDS commands; those of a function ``…_command`` are one text."""
    inside = {id(value) for node in nodes if isinstance(node, ast.JoinedStr) for value in node.values}
    inside |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    long: list[ast.AST] = []
    for node in nodes:
        whole = isinstance(node, ast.FunctionDef) and node.name.endswith("command")
        if not whole and not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        texts = [part for part in ast.walk(node) if whole or part is node]
        texts = [part for part in texts if id(part) not in inside and isinstance(part, ast.Constant | ast.JoinedStr)]
        ends = {id(part): len(_ENDS.findall("".join(fixed_parts(part)))) for part in texts}
        texts = [part for part in texts if ends[id(part)] and _OF_SHELL.search(" ".join(fixed_parts(part)))]
        if sum(ends[id(part)] for part in texts) >= MOST_COMMANDS:
            long += texts
    return long


def is_checked(node: ast.AST) -> bool:
    """Whether a text, or all texts of a list, are in one of the commands that shellcheck reads."""
    if isinstance(node, ast.List | ast.Tuple):
        return all(is_checked(element) for element in node.elts)
    pattern = re.compile(".*?".join(map(re.escape, fixed_parts(node))), re.DOTALL)
    return any(pattern.search(text) for text in COMMANDS.values())


def test_shell_of_more_than_a_few_lines_is_a_file() -> None:
    modules = {str(path.relative_to(PACKAGE)): nodes_of(path) for path in PACKAGE.rglob("*.py")}
    long = {f"{name}:{line}" for name, nodes in modules.items() for line in long_shell(nodes)}
    long |= {
        f"{name}:{text.lineno}"
        for name, nodes in modules.items()
        for text in many_commands(nodes)
        if isinstance(text, ast.expr) and not is_checked(text)
    }
    assert long == set(), "a file beside the module; or COMMANDS of tests/shellcheck.py where recordings hold the text"


def test_the_rule_sees_lines_of_text_and_of_source() -> None:
    text = "if true; then\\n  echo 'x'\\nfi\\n" * 3
    sources = {
        f'def f():\n    """{text}"""\n    return "{text}"\n': [3],
        'x = (\n    "a; then "\n    "b; fi "\n' + '    f"c; done {1} "\n' * 6 + ")\n": [2],
        'x = [\n    "if a; then",\n' + '    f"echo \\"{1}\\"",\n' * 5 + '    "fi",\n]\n': [1],
        'x = "if true; then false; fi; for x in a; do b; done"\n': [],
    }
    assert [long_shell(list(ast.walk(ast.parse(source)))) for source in sources] == list(sources.values())


def test_the_rule_counts_commands_of_one_line() -> None:
    ends, last = "a $x; " * MOST_COMMANDS, "a $x; " * (MOST_COMMANDS - 1)
    sources = {
        f'x = "{ends}"\n': 1,
        f'x = "{last}"\n': 0,
        f'def f():\n    """{ends}"""\n': 0,
        f'def x_command():\n    y = f"{last}"\n    y += "b $z; "\n    y += "word"\n': 2,
        f'def x_plan():\n    y = f"{last}"\n    y += "b $z; "\n': 0,
    }
    assert [len(many_commands(list(ast.walk(ast.parse(source))))) for source in sources] == list(sources.values())


def test_a_text_is_checked_with_any_values() -> None:
    def checked(source: str) -> bool:
        return is_checked(ast.parse(source, mode="eval").body)

    assert checked("f'stat -c {x} -- {y} 2>/dev/null; echo --; '")
    assert checked("'export LC_ALL=C; stat -c '")
    assert checked("['export LC_ALL=C; stat', f'{paths} 2>/dev/null; echo']")
    assert not checked("['export LC_ALL=C; stat', 'rm -rf /']")
