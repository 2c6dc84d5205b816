"""Facts of nodes whose driver is to be replaced."""

from __future__ import annotations

from rackproof.configure.driver_swap import gpu_users
from rackproof.configure.facts import answer

DriverUse = answer("DriverUse", gpu_users.use_command, gpu_users.parse_use, timely=True)
"""Programs and jobs that currently use driver and network stack."""
