"""Facts of nodes."""

from __future__ import annotations

from rackproof.configure.facts import answer
from rackproof.configure.node import cmdline, scratch, settings, users

BootLoader = answer("BootLoader", cmdline.state_command, cmdline.parse_state)
"""The running command line, and the boot loader's for the next start."""

NodeSettings = answer("NodeSettings", settings.state_command, settings.parse_state)
"""Swap, time zone, tuned, modules, huge pages and interrupts, as far as they are declared."""

ScratchArray = answer("ScratchArray", scratch.state_command, scratch.parse_state)
"""The drives of the scratch array, and the array."""

Accounts = answer("Accounts", users.state_command, users.parse_state)
"""Accounts by name."""
