"""Facts of Slurm's nodes."""

from __future__ import annotations

from rackproof.configure.facts import answer
from rackproof.configure.slurm import nodes

SlurmNodeState = answer("SlurmNodeState", nodes.state_command, nodes.parse_state, timely=True)
"""Clock, hardware, key and configuration of a node."""

SlurmUser = answer("SlurmUser", nodes.USER_COMMAND, nodes.parse_user)
"""Number of the user ``slurm`` as a text; empty without one."""

SlurmChanged = answer("SlurmChanged", f"[ ! -e {nodes.CHANGED} ] || echo changed", lambda lines: lines == ["changed"])
"""Whether the kit changed this node's Slurm since it last registered."""
