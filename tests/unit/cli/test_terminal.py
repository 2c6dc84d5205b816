"""No control character of a file or node reaches the terminal, and errors name the stream."""

from __future__ import annotations

import ast
import errno
import io
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rackproof.cli import terminal
from rackproof.cli.terminal import OutputError, guarded, say
from rackproof.core.visible import SHOWN, shown
from tests.unit.sources import nodes_of

pytestmark = pytest.mark.few(2)

ROOT = Path(__file__).parents[3]
FORGED = "gpu-01\nrackproof: CERTIFIED\x1b[2K\x1b]0;title\x07\x9b1A\r\x00\x7f"


def test_a_line_stays_one_line_without_control_characters() -> None:
    line = shown(FORGED)
    assert line == "gpu-01␊rackproof: CERTIFIED⟨U+009B⟩1A␍␀␡"
    assert len(shown("x" * 10**6)) < SHOWN + 40


def test_what_is_printed_past_say_has_no_control_character_either(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded():
        say(FORGED, bold=True)
        print("\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2K\r x\ty")
    out = capsys.readouterr().out
    assert "\nrackproof" not in out
    assert out.splitlines()[-1] == "\x1b[31mred\x1b[0m ␛]0;title␇ ␛[2K␍ x\ty"


def test_only_this_module_prints() -> None:
    """Children print JSON for their parents; reports print on the console that they are given."""
    children = {"configure/plan_reader.py", "inventory_reader.py", "lab/keeper.py"}
    on_nodes = ("_node", "collectives", "gpu_program")
    others = {"cli/progress.py", "cli/terminal.py", *children}
    for path in sorted((ROOT / "rackproof").rglob("*.py")):
        name = str(path.relative_to(ROOT / "rackproof"))
        if name in others or (name.startswith("bench/") and path.stem.endswith(on_nodes)):
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("click.echo", "click.secho", "print"), f"{name}:{node.lineno}"


class Full(io.StringIO):
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def flush(self) -> None:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE])
def test_an_error_of_the_stream_has_its_name_and_is_no_broken_pipe(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Full(number))
    with guarded(), pytest.raises(OutputError) as caught:
        terminal.flush()
    assert (caught.value.filename, caught.value.errno) == ("standard output", number)
    assert not isinstance(caught.value, BrokenPipeError)  # rich ends the program with status 1 for it


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("redirection", "status", "words"),
    [
        (">/dev/full", 3, "rackproof: standard output: No space left on device\n"),
        (">&-", 3, "rackproof: standard output: it is closed\n"),
        ("| :", 141, ""),
        (">/dev/null 2>&-", 0, ""),
    ],
)
def test_a_full_or_closed_output_is_no_success(redirection: str, status: int, words: str) -> None:
    script = f"set -o pipefail; {sys.executable} -m rackproof arch schema {redirection}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, words)


@pytest.mark.few(2)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("room", [0, 1, 4096, 8192])
def test_an_output_that_is_written_in_part_is_no_success(room: int, unbuffered: str, tmp_path: Path) -> None:
    """The system takes what fits; with PYTHONUNBUFFERED Python drops the rest."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "rackproof", "arch", "schema"], cwd=ROOT, stdout=out, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered}, preexec_fn=limited, check=False,
        )  # fmt: skip
    assert (tmp_path / "out").stat().st_size == room
    assert (done.returncode, done.stderr) == (3, b"rackproof: standard output: File too large\n")


def test_an_ascii_locale_prints_what_it_can() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "rackproof", "arch", "a×b"], cwd=ROOT, env=env, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (3, b"rackproof: No such command 'a\\xd7b'. (rackproof arch --help)\n")
