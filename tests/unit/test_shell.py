"""Shell files beside modules: how they are read, and what every one of them must be."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from rackproof import shell

PACKAGE = Path(shell.__file__).parent
FILES = sorted(PACKAGE.rglob("*.sh"))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module beside ``x.sh``."""
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_which_shell_it_is_for(path: Path) -> None:
    """Programs have an interpreter line, everything else is for ``sh``; both say what they do."""
    first, second, *_ = path.read_text().splitlines()
    assert first in ("#!/bin/sh", "# shellcheck shell=sh")
    assert second.startswith("# ")


def test_every_file_is_used() -> None:
    modules = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "deploys").glob("*.py")]
    names = {
        node.value
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant)
    }
    assert [str(path) for path in FILES if path.stem not in names] == []
