"""Colours that tired eyes can read: WCAG 2 asks for a contrast of 4.5 between text and ground."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = (files("rackproof.report") / "templates" / "page.css").read_text(encoding="utf-8")
LIGHT, DARK = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in CSS.split("@media")[:2])
TEXT = ("ink", "ink-2", "ink-3", "link", "pass", "warn", "fail", "invalid", "unmeasured")


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "shade"])
@pytest.mark.parametrize("text", TEXT)
def test_text_stands_out_from_its_ground(scheme: dict[str, str], ground: str, text: str) -> None:
    assert contrast(scheme[text], scheme[ground]) >= 4.5


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_banner_of_a_virtual_rack_can_be_read(scheme: dict[str, str]) -> None:
    assert contrast(scheme["ink"], scheme["warn-tint"]) >= 7
    assert contrast(scheme["warn"], scheme["warn-tint"]) >= 4.5


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_and_bars_of_plots_stand_out(scheme: dict[str, str]) -> None:
    for colour in ("s0", "s1", "s2", "s3", "data"):
        assert contrast(scheme[colour], scheme["paper"]) >= 3


def test_both_schemes_name_the_same_colours() -> None:
    assert set(LIGHT) == set(DARK)
