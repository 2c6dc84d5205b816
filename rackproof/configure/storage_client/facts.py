"""Facts of storage clients."""

from __future__ import annotations

from rackproof.configure.facts import answer
from rackproof.configure.storage_client.steps import holding_command, parse_holding

Holding = answer("Holding", holding_command, parse_holding)
"""Whether the tests of steps succeed, in their order."""
