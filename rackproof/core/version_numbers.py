"""Versions as numbers, to compare them."""

from __future__ import annotations

import re


def numbers(version: str) -> tuple[int, ...]:
    """``(580, 126, 16, 1, 1)`` of ``580.126.16-1ubuntu1``: all numbers, without a package's epoch (``1:``)."""
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", without_epoch(version)))


def without_epoch(version: str) -> str:
    """``580.126.16-1`` of ``1:580.126.16-1``."""
    return re.sub(r"^[0-9]+:", "", version)
