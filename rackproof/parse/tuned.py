"""``tuned-adm active``."""

from __future__ import annotations

import re

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, whole_lines


def parse_tuned_profile(output: str) -> str:
    """``tuned-adm active``; empty without an active profile."""
    for line in whole_lines("tuned-adm", output):
        if match := re.fullmatch(r"Current active profile: (\S(?:.*\S)?)", line.strip()):
            return match[1]
        if line.startswith("No current active profile"):
            return ""
    raise ParseError("tuned-adm", f"expected a profile, got {excerpt(output)}")
