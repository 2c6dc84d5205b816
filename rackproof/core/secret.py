"""Text that must not be shown."""

from __future__ import annotations


class Secret(str):
    """Text that is a secret: it is used as it is, and printed as ``‹secret›``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "‹secret›"
