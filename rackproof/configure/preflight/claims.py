"""Checks of the drives and ports that a deploy would change.

The facts are those of the operations, which reuse the answers as long as nothing was changed in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyinfra.context import host

from rackproof.configure import facts
from rackproof.configure.ceph.cluster import CephPlan, check_drive, is_set_up
from rackproof.configure.drives import Drive, needs_mkfs
from rackproof.configure.network import words_of
from rackproof.configure.nic.declared_ports import DeclaredPort
from rackproof.configure.nic.facts import Foreign
from rackproof.configure.node.facts import ScratchArray
from rackproof.configure.node.scratch import Scratch
from rackproof.configure.node.scratch import plan as plan_scratch
from rackproof.configure.preflight import node as checks
from rackproof.configure.preflight.node import refusal
from rackproof.configure.preflight.problem import FOREIGN_DRIVE, unread
from rackproof.core.machine import Machine
from rackproof.core.plan import Problem


@dataclass(frozen=True, slots=True)
class Claims:
    """Drives of the current node that its deploys would write to."""

    drives: tuple[Drive, ...] = ()
    scratch: Scratch | None = None
    ceph: CephPlan | None = None


DriveAhead = facts.kept(facts.DriveState)
ScratchAhead = facts.kept(ScratchArray)
CephAhead = facts.kept(facts.CephState)
LinksAhead = facts.kept(facts.Links)
ForeignAhead = facts.kept(Foreign)


def claimed(claims: Claims) -> list[Problem]:
    """Drives that must not be written to."""
    problems: list[Problem] = []
    for drive in claims.drives:
        state = host.get_fact(DriveAhead, device=drive.device)
        problems += (
            [unread(f"drive {drive.device}")] if state is None else refusal(FOREIGN_DRIVE, needs_mkfs, drive, state)
        )
    if array := claims.scratch:
        members = host.get_fact(ScratchAhead, scratch=array)
        problems += (
            [unread("scratch drives")] if members is None else refusal(FOREIGN_DRIVE, plan_scratch, array, members)
        )
    if plan := claims.ceph:
        problems += _of_ceph(plan)
    return problems


def _of_ceph(plan: CephPlan) -> list[Problem]:
    cluster = host.get_fact(CephAhead)
    if cluster is None:
        return [unread("state of Ceph")]
    if cluster.fingerprint is not None:  # its drive is in use and need not be read
        return list(refusal(FOREIGN_DRIVE, is_set_up, plan, cluster))
    drive = host.get_fact(DriveAhead, device=plan.drive)
    return (
        [unread(f"drive {plan.drive}")]
        if drive is None
        else list(refusal(FOREIGN_DRIVE, check_drive, plan, cluster, drive))
    )


def of_ports(declared: Sequence[DeclaredPort], machine: Machine, named: Mapping[str, str]) -> list[Problem]:
    """Ports that another tool also manages, and ports other than rails that are in use or lack an adapter.

    ``named``: the inventory's own kinds of adapters.
    """
    ports = [declared_port.port for declared_port in declared]
    if not ports:
        return []
    links = host.get_fact(LinksAhead, with_paths=any(port.path for port in ports))
    if links is None:
        return [unread("network interfaces")]
    others = checks.other_port_problems(declared, machine, named, links)
    foreign_files = host.get_fact(ForeignAhead, names=words_of(ports, links))
    foreign = (
        [unread("files of other network services")] if foreign_files is None else checks.port_problems(foreign_files)
    )
    return [*others, *foreign]
