"""Facts of a rollback."""

from __future__ import annotations

from rackproof.configure.facts import answer
from rackproof.configure.rollback import restore

Kept = answer("Kept", restore.kept_command, restore.parse_kept)
"""Journals of all runs, oldest first."""
