"""Packages of the distribution's own RDMA stack. NVIDIA's come with the version set, or with the image."""

from __future__ import annotations

from rackproof.configure.nic.declared import Declared
from rackproof.configure.nic.stack import INBOX
from rackproof.configure.packages import names_for

SUBNET_MANAGER = ("opensm",)


def inbox_packages(declared: Declared) -> tuple[str, ...]:
    """By the names of the node's family; empty where the drivers are NVIDIA's."""
    if declared.nvidia:
        return ()
    return names_for((*INBOX, *(SUBNET_MANAGER if declared.stack.subnet_manager else ())), declared.family)
