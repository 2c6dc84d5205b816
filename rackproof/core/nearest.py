"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from rackproof.core.wording import some

_LISTED = 12
"""Maximum number of known names listed."""


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known names closest to ``word``: those that differ in case only, else the most similar one, if any."""
    names = list(dict.fromkeys(known))
    same = [name for name in names if name.lower() == word.lower()]
    return same or difflib.get_close_matches(word, names, n=1)


def suggestion(word: str, known: Iterable[str]) -> str:
    """``did you mean 'mountpoint'?`` or, where nothing is near, the known names."""
    names = list(dict.fromkeys(known))
    if near := nearest(word, names):
        return f"did you mean {' or '.join(repr(name) for name in near)}?"
    if not names:
        return "none is known"
    return f"known: {some(names, _LISTED)}"
