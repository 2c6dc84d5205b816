"""Every reader of a PCIe link's width knows the kernel's numbers for "unknown"."""

from __future__ import annotations

import pytest

from rackproof.parse.pci_links import generation, link_speed, link_width


@pytest.mark.parametrize(
    ("text", "lanes"), [("16", 16), ("1", 1), ("0", None), ("63", None), ("255", None), ("x16", None), (None, None)]
)
def test_widths(text: str | None, lanes: int | None) -> None:
    assert link_width(text) == lanes


@pytest.mark.parametrize(
    ("text", "speed", "number"), [("32.0 GT/s PCIe", 32.0, 5), ("8 GT/s", 8.0, 3), ("Unknown", None, None)]
)
def test_speeds(text: str, speed: float | None, number: int | None) -> None:
    assert (link_speed(text), generation(text)) == (speed, number)
