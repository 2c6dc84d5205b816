"""A node leaves Slurm before it is rebooted and comes back after: the commands, and what the answers mean."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from rackproof.parse import ParseError
from rackproof.parse.slurm import node_reason, node_states, parse_scontrol_records
from rackproof.parse.text import text_from

DEPLOY = "rackproof-deploy:"
"""How the reason of a drain begins that a deploy ends. The health check gives back by itself what it drained
(``rackproof: …``) and finds well, be it before the reboot: it must not know these."""
OWN = ("rackproof:", DEPLOY)
"""How the reason begins by which the kit knows its own drains: those of others are theirs to end."""
COMMAND_S = 60
WITHDRAWN = "/var/lib/rackproof/out-of-slurm"
"""The kit took the node out of Slurm before it exchanged a driver, and has not given it back."""


@dataclass(frozen=True, slots=True)
class DrainState:
    """One node as slurmctld sees it. Flags without ``*``, in capitals: IDLE, ALLOCATED, DRAIN, DOWN …"""

    states: frozenset[str]
    reason: str = ""

    @property
    def withdrawn(self) -> bool:
        """It takes no new jobs, whoever said so."""
        return bool(self.states & {"DRAIN", "DOWN", "FAIL", "MAINT", "RESERVED"})

    @property
    def ours(self) -> bool:
        """By a deploy, or by the health check."""
        return "DRAIN" in self.states and self.reason.startswith(OWN)

    @property
    def by_deploy(self) -> bool:
        return "DRAIN" in self.states and self.reason.startswith(DEPLOY)


def show_command(node: str) -> str:
    return f"timeout {COMMAND_S} scontrol --oneliner show node {shlex.quote(node)}"


def parse_node(text: str) -> DrainState | None:
    """Answer of ``show_command``; None when it is not one (no such node, no controller)."""
    try:
        record = parse_scontrol_records(text_from(text.splitlines()), "NodeName")[0]
        return DrainState(frozenset(node_states(record)), node_reason(record) or "")
    except ParseError:
        return None


def drain_command(node: str, why: str) -> str:
    reason = shlex.quote(f"{DEPLOY} reboot ({why})"[:200])
    return f"timeout {COMMAND_S} scontrol update NodeName={shlex.quote(node)} State=DRAIN Reason={reason}"


def resume_command(node: str) -> str:
    return f"timeout {COMMAND_S} scontrol update NodeName={shlex.quote(node)} State=RESUME"


def withdraw_script(node: str, why: str) -> str:
    """Drain, and leave a mark that outlives a reboot by hand: whoever finds nothing waiting gives the node back."""
    failed = "Slurm does not drain the node, so nothing was exchanged"
    return (
        f"set -eu; mkdir -p {WITHDRAWN.rpartition('/')[0]}; : >{WITHDRAWN}; "
        f'said=$({drain_command(node, why)} 2>&1) || {{ rm -f -- {WITHDRAWN}; echo "{failed}: $said" >&2; exit 1; }}'
    )


def undo_script(node: str, before: DrainState) -> str:
    """Slurm as it was ``before``: in service, or drained for the reason that it had."""
    back = resume_command(node)
    if "DRAIN" in before.states:
        back = f"timeout {COMMAND_S} scontrol update NodeName={shlex.quote(node)} State=DRAIN"
        back = f"{back} Reason={shlex.quote(before.reason)}"
    return f"{back} && rm -f -- {WITHDRAWN}"


def jobs_command(node: str) -> str:
    """Numbers of the jobs that use the node, one a line; fails when the controller does not answer."""
    return f"timeout {COMMAND_S} squeue --noheader --nodelist={shlex.quote(node)} --format=%i"
