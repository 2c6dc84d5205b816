"""Facts of containers."""

from __future__ import annotations

from rackproof.configure.containers import bridge, downloads, user
from rackproof.configure.facts import answer

ContainerUser = answer("ContainerUser", user.state_command, user.parse_state)
"""The user, its subordinate ids and its folders."""

Installed = answer("Installed", downloads.state_command, frozenset[str])
"""sha256 of the downloads that were installed."""

HostRoot = answer("HostRoot", bridge.state_command, lambda lines: {"yes": True, "no": False}[lines[0]])
"""Whether the root of containers without an image is complete."""
