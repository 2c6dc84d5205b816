"""Text that must not be printed."""

from __future__ import annotations


class Secret(str):
    """A secret; its ``repr`` is ``‹secret›``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "‹secret›"
