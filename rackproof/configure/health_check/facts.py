"""Facts of the health check."""

from __future__ import annotations

from rackproof.configure.facts import answer
from rackproof.configure.health_check import kit

InstalledKit = answer("InstalledKit", kit.state_command, lambda lines: lines[0].strip() if lines else "")
"""Stamp of the installed kit; empty when none is installed or it does not start."""
