"""Drain and resume a node in Slurm: commands and their answers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from rackproof.parse import ParseError
from rackproof.parse.slurm import node_reason, node_states, parse_scontrol_records
from rackproof.parse.text import text_from

DEPLOY = "rackproof-deploy:"
"""Prefix of the reason of a deploy's drains, which only a deploy ends. It differs from the health check's prefix
(``rackproof: …``), because the health check resumes a node that it finds healthy, even before the reboot."""
OWN = ("rackproof:", DEPLOY)
"""Prefixes of the reasons of the kit's drains. The kit does not end other drains."""
COMMAND_S = 60
WITHDRAWN = "/var/lib/rackproof/out-of-slurm"
"""Exists while a node is drained for a driver replacement."""


@dataclass(frozen=True, slots=True)
class DrainState:
    """State of one node in slurmctld. Flags without ``*``, in capitals: IDLE, ALLOCATED, DRAIN, DOWN …"""

    states: frozenset[str]
    reason: str = ""

    @property
    def withdrawn(self) -> bool:
        """Whether it takes no new jobs, for whatever reason."""
        return bool(self.states & {"DRAIN", "DOWN", "FAIL", "MAINT", "RESERVED"})

    @property
    def ours(self) -> bool:
        """Whether a deploy or the kit's health check drained it."""
        return "DRAIN" in self.states and self.reason.startswith(OWN)

    @property
    def by_deploy(self) -> bool:
        return "DRAIN" in self.states and self.reason.startswith(DEPLOY)


def show_command(node: str) -> str:
    return f"timeout {COMMAND_S} scontrol --oneliner show node {shlex.quote(node)}"


def parse_node(text: str) -> DrainState | None:
    """Answer of ``show_command``; None for anything else (unknown node, no controller)."""
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
    """Drain, and leave a mark that survives a manual reboot: a run that finds no reason for one resumes the node."""
    failed = "Slurm failed to drain the node, so nothing was replaced"
    return (
        f"set -eu; mkdir -p {WITHDRAWN.rpartition('/')[0]}; : >{WITHDRAWN}; "
        f'out=$({drain_command(node, why)} 2>&1) || {{ rm -f -- {WITHDRAWN}; echo "{failed}: $out" >&2; exit 1; }}'
    )


def undo_script(node: str, before: DrainState) -> str:
    """Restore the state in Slurm ``before`` the drain: in service, or drained with its former reason."""
    back = resume_command(node)
    if "DRAIN" in before.states:
        back = f"timeout {COMMAND_S} scontrol update NodeName={shlex.quote(node)} State=DRAIN"
        back = f"{back} Reason={shlex.quote(before.reason)}"
    return f"{back} && rm -f -- {WITHDRAWN}"


def jobs_command(node: str) -> str:
    """Numbers of the jobs that use the node, one a line; fails when the controller does not answer."""
    return f"timeout {COMMAND_S} squeue --noheader --nodelist={shlex.quote(node)} --format=%i"
