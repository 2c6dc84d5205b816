"""Errors of ``ssh``."""

from __future__ import annotations

import re
from typing import Final

_REFUSED: Final = re.compile(r"permission denied|host key|REMOTE HOST IDENTIFICATION|resolve hostname", re.IGNORECASE)


def login_refused(output: str) -> bool:
    """Whether the other node, or ssh itself, refuses the login; False where the node may just be down."""
    return _REFUSED.search(output) is not None
