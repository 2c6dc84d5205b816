"""Errors for bad input: one line, exit 3, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.cli import main as entry
from tests.unit.warm_python import cold_run

pytestmark = [pytest.mark.few(6), pytest.mark.usefixtures("warm_python")]

ROOT = Path(__file__).parents[3]
INVENTORY = """
gpu = [("gpu-01", {"architecture": "virtual-rack"}), ("gpu-02", {"architecture": "virtual-rack"})]
storage = [("storage-01", {"architecture": "virtual-rack"})]
"""


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["rackproof", *arguments])
    with pytest.raises(SystemExit) as caught:
        entry.main()
    return int(caught.value.code or 0)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory and the shipped architectures, in a folder of their own."""
    (tmp_path / "rack.py").write_text(INVENTORY)
    (tmp_path / "architectures").mkdir()
    for file in (ROOT / "architectures").glob("*.yaml"):
        (tmp_path / "architectures" / file.name).write_text(file.read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["certify", "absent.py"], "absent.py: no such inventory file"),
        (["deploy", "absent.py"], "absent.py: no such inventory file"),
        (["deploy", "rack.py", "--limit", "login"], "'login' matches no node"),
        (["validate", "rack.py", "--architecture", "virtual-rak"], "did you mean 'virtual-rack'?"),
        (["bench", "rack.py", "--profile", "huge"], "no profile 'huge'; it has lab, full"),
        (["certify", "rack.py", "--resume", "yesterday"], "yesterday: no such run"),
        (["judge", "latest"], "no run there yet"),
        (["lab", "ssh", "gpu-01"], "the virtual rack is down: start it with `rackproof lab up`"),
        (["lab", "status"], "start it with `rackproof lab up`"),
        (["arch", "show", "nothing-like-it"], "no reference architecture 'nothing-like-it'"),
        (["certfy"], "No such command 'certfy'"),
        (["certify"], "Missing argument 'INVENTORY'"),
        (["lab", "up", "--gpu-nodes", "none"], "Invalid value for '--gpu-nodes'"),
    ],
)
def test_bad_input_is_one_line_and_exit_3(
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    assert call(monkeypatch, *arguments) == 3
    captured = capsys.readouterr()
    assert expected in captured.err
    assert "Traceback" not in captured.err
    assert len([line for line in captured.err.splitlines() if expected in line]) == 1


def test_an_inventory_without_architecture_says_where_to_set_one(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "rack.py").write_text("gpu = ['gpu-01']\n")
    assert call(monkeypatch, "validate", "rack.py") == 3
    assert "names no architecture: set `architecture` in group_data/all.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    mountpoint:", "    mountpiont:", "did you mean 'mountpoint'?"),
        ("unit: percent", "unit: parsec", "parsec"),
    ],
)
def test_a_mistake_in_an_architecture_is_named_with_file_and_line(
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    expected: str,
) -> None:
    path = checkout / "architectures" / "virtual-rack.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    line = text[: text.index(old)].count("\n") + 1
    assert call(monkeypatch, "arch", "check", "architectures/virtual-rack.yaml") == 3
    message = capsys.readouterr().err
    assert f"architectures/virtual-rack.yaml:{line}:" in message
    assert expected in message


def test_a_folder_that_cannot_be_written_is_one_clear_error(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "validate", "rack.py", "--output", "/proc/nowhere") == 3
    message = capsys.readouterr().err
    assert "/proc/nowhere/" in message
    assert "cannot be written" in message


@pytest.mark.parametrize("command", ["validate", "deploy", "plan"])
def test_a_working_directory_that_was_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))
    folder.rmdir()
    assert call(monkeypatch, command, "rack.py") == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"rackproof: {folder}: the working directory was removed; change to one that exists"


def test_help_does_not_import_the_heavy_libraries() -> None:
    import sys

    code = "import sys; from rackproof.cli.main import cli; print(*sys.modules)"
    done = cold_run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "rich", "paramiko", "fabric", "pytest", "matplotlib", "pyinfra", "jinja2"}
    assert not heavy & set(done.stdout.split())
