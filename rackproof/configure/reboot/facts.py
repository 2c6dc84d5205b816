"""Facts of nodes that reboot, or whose driver is to be replaced."""

from __future__ import annotations

from rackproof.configure.facts import answer
from rackproof.configure.reboot import gpu_users

DriverUse = answer("DriverUse", gpu_users.use_command, gpu_users.parse_use, timely=True)
"""Programs and jobs that currently use driver and network stack."""
