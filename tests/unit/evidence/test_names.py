"""Names of runs: they become folders, on nodes as well, and are read by shells."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from rackproof.evidence.folder import new_run

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
    folder = new_run(tmp_path, inventory, NOW)
    assert (folder.name, folder.parent) == (name, tmp_path)
