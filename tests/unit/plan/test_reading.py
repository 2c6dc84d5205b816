"""PLANS.md: what was looked up about the plans is still in the plans."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.unit.plan.golden import PLANS, ROOT

TEXT = (ROOT / "PLANS.md").read_text("utf-8")
RESULTS = ("as documented", "mended", "open")


def rows() -> Iterator[tuple[str, ...]]:
    """Cells of all tables, without their heads."""
    for line in TEXT.splitlines():
        cells = tuple(cell.strip() for cell in line.strip("|").split(" | "))
        if line.startswith("| ") and cells[0] != "in the plan":
            yield cells


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def plans() -> str:
    """All plans; a secret is quoted twice where a step runs in a shell of its own."""
    texts = [path.read_text("utf-8") for path in (ROOT / PLANS).glob("*/golden/gpu-01.txt")]
    assert len(texts) == 6
    return "\n".join(texts)


def test_every_entry_has_a_result_and_a_source() -> None:
    assert len(list(rows())) > 40
    assert [row for row in rows() if len(row) != 4 or not all(row)] == []
    assert [row[2] for row in rows() if not row[2].startswith(RESULTS)] == []


def test_what_was_looked_up_is_in_a_plan() -> None:
    text = plans()
    assert [word for row in rows() for word in words(row[0]) if word not in text] == []
    assert [row[0] for row in rows() if not words(row[0])] == []


@pytest.mark.parametrize("word", ["x-systemd.device-timeout", "/usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so"])
def test_what_was_mended_does_not_come_back(word: str) -> None:
    assert word not in plans()
