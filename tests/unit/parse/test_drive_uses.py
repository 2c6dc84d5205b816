"""Which drive serves which use: each is counted once, and none stands in for another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.architecture import Drives
from rackproof.parse.block import LocalDrive
from rackproof.parse.drive_uses import drives_by_use, strays


def drive(name: str, size_tb: float, model: str = "M", kind: Any = "nvme") -> LocalDrive:
    return LocalDrive(name, kind, round(size_tb * 1e12), model, "1")


def use(name: str, count: int | None, size_tb: float | None, **more: Any) -> Drives:
    return Drives(use=name, count=count, size_tb=size_tb, source="x", **more)


def counts(uses: list[Drives], drives: list[LocalDrive]) -> dict[str, int]:
    return {name: len(placed) for name, placed in drives_by_use(uses, drives).items()}


BOOT, DATA = use("boot", 2, 1.92), use("data", 4, 3.84)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([1.92, 1.92, 3.84, 3.84, 3.84, 3.84], {"boot": 2, "data": 4}),
        ([1.92, 3.84, 3.84, 3.84, 3.84, 3.84], {"boot": 1, "data": 5}),
        ([1.92, 1.92, 3.84, 3.84, 3.84, 1.92], {"boot": 3, "data": 3}),
        ([1.92, 1.92, 3.84, 3.84, 3.84, 7.68], {"boot": 2, "data": 3}),
        ([1.9, 1.94, 3.8, 3.84, 3.84, 3.9], {"boot": 2, "data": 4}),
        ([0.0, 1.92], {"boot": 1, "data": 0}),
        ([], {"boot": 0, "data": 0}),
    ],
)
def test_by_size(sizes: list[float], expected: dict[str, int]) -> None:
    assert counts([BOOT, DATA], [drive(f"nvme{k}", size) for k, size in enumerate(sizes)]) == expected


def test_uses_of_the_same_size_are_filled_in_their_order() -> None:
    uses = [use("boot", 2, 3.84), use("data", 4, 3.84)]
    assert counts(uses, [drive(f"nvme{k}", 3.84) for k in range(6)]) == {"boot": 2, "data": 4}
    assert counts(uses, [drive(f"nvme{k}", 3.84) for k in range(5)]) == {"boot": 2, "data": 3}
    assert counts(uses, [drive(f"nvme{k}", 3.84) for k in range(7)]) == {"boot": 3, "data": 4}


def test_the_model_tells_uses_of_the_same_size_apart() -> None:
    uses = [use("boot", 1, 3.84, model="^Micron"), use("data", 2, 3.84, model="^SAMSUNG")]
    drives = [drive("nvme0", 3.84, "SAMSUNG X"), drive("nvme1", 3.84, "Micron Y"), drive("nvme2", 3.84, "SAMSUNG X")]
    assert {name: [d.name for d in placed] for name, placed in drives_by_use(uses, drives).items()} == {
        "boot": ["nvme1"],
        "data": ["nvme0", "nvme2"],
    }


def test_the_nearest_size_wins() -> None:
    uses = [use("a", 1, 7.68), use("b", 1, 7.8)]
    assert counts(uses, [drive("nvme0", 7.8), drive("nvme1", 7.78)]) == {"a": 0, "b": 2}


def test_kinds_are_kept_apart() -> None:
    uses = [use("os", 1, 0.48, kind="sata_ssd"), use("data", 1, 0.48)]
    assert counts(uses, [drive("nvme0", 0.48), drive("nvme1", 0.48)]) == {"os": 0, "data": 2}


def test_what_is_left_goes_to_a_use_without_a_size() -> None:
    uses = [use("data", None, None), use("os", 2, 1.92)]
    assert counts(uses, [drive("nvme0", 1.92), drive("nvme1", 3.2), drive("nvme2", 6.4)]) == {"os": 1, "data": 2}


def test_drives_that_no_use_has_a_place_for() -> None:
    drives = [drive("nvme0", 1.92), drive("nvme1", 7.68), drive("sda", 7.68, kind="sata_ssd")]
    assert [drive.name for drive in strays([BOOT, DATA], drives, "nvme")] == ["nvme1"]


@given(
    sizes=st.lists(st.sampled_from([0.96, 1.92, 1.95, 3.84, 7.68]), max_size=12),
    wanted=st.lists(
        st.tuples(st.none() | st.integers(0, 4), st.none() | st.sampled_from([0.96, 1.92, 3.84])),
        min_size=1,
        max_size=4,
    ),
)
def test_every_drive_is_counted_at_most_once(sizes: list[float], wanted: list[tuple[int | None, float | None]]) -> None:
    uses = [use(f"use{k}", count, size) for k, (count, size) in enumerate(wanted)]
    drives = [drive(f"nvme{k}", size) for k, size in enumerate(sizes)]
    taken = [drive.name for several in drives_by_use(uses, drives).values() for drive in several]
    assert len(set(taken)) == len(taken)
    assert len(taken) + len(strays(uses, drives, "nvme")) == len(drives)
