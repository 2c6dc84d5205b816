"""Names of runs: they become folders, on nodes as well, and are read by shells."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rackproof.errors import EvidenceWriteError
from rackproof.evidence.folder import new_folder, run_folder

NOW = dt.datetime(2026, 11, 21, 7, 45, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("inventory", "name"),
    [
        ("inventories/lab.py", "20261121-074500-lab"),
        ("my rack.py", "20261121-074500-my-rack"),
        ("a /home.py", "20261121-074500-home"),
        ("$(touch x); `id`.py", "20261121-074500-touch-x-id-"),
        ("räck\n.py", "20261121-074500-r-ck-"),
        (".py", "20261121-074500-py"),
        ("...", "20261121-074500-unnamed"),
    ],
)
def test_a_run_is_named_in_safe_characters(tmp_path: Path, inventory: str, name: str) -> None:
    folder = run_folder(tmp_path, inventory, NOW)
    assert (folder.name, folder.parent) == (name, tmp_path)


def test_runs_that_begin_in_one_second_have_a_folder_each(tmp_path: Path) -> None:
    asked = run_folder(tmp_path / "reports", "lab.py", NOW)
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_folder(asked), range(20)))
    names = [asked.name, *(f"{asked.name}-{number}" for number in range(2, 21))]
    assert sorted(folder.name for folder in folders) == sorted(names)
    assert all(folder.is_dir() for folder in folders)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("")
    with pytest.raises(EvidenceWriteError, match="reports/20261121-074500-lab: cannot be written"):
        new_folder(run_folder(tmp_path / "reports", "lab.py", NOW))
