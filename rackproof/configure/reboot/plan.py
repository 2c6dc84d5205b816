"""Inputs of the reboot: mode, batches, limits."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rackproof.configure.reboot.gpu_users import BUSY
from rackproof.configure.reboot.inputs import RebootInputs
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import Site
from rackproof.core.reboot_mode import Mode
from rackproof.errors import DeclarationError, InventoryError

SPARE_S = 900
"""Added to the time limit of the operation: for reading facts and resuming the node in Slurm."""


def arguments(site: Site, inputs: RebootInputs, accepted: Collection[str], mode: object = None) -> dict[str, Any]:
    """Arguments of ``operations.reboot``. Raises DeclarationError for an unknown mode.

    ``accepted``: problems that the inventory accepts; ``mode``: the command line's.
    """
    slurm, works = site.architecture.slurm, site.in_slurm
    return {
        "mode": mode_of(inputs, mode),
        "inputs": inputs,
        "kernel": site.architecture.system.kernel,
        "slurm": works,
        "health_check": slurm.health_check if slurm and works else None,
        "driver_swaps": site.real_gpus is not None,
        "accepted": BUSY in accepted,
        "_timeout": int(inputs.limit_s + (inputs.drain_limit_s if works else 0) + inputs.health_limit_s + SPARE_S),
    }


def mode_of(inputs: RebootInputs, mode: object = None) -> Mode:
    """The command line's mode; without one, what the inventory allows. Raises DeclarationError for an unknown mode."""
    if mode is None:
        return Mode.ALLOWED if inputs.allowed else Mode.REFUSED
    try:
        return Mode(mode)
    except ValueError:
        raise DeclarationError(f"reboot_mode: expected allowed or refused, actual {mode!r}") from None


def reboot_inputs(site: Site, serial: object = None) -> RebootInputs:
    """The inventory's ``reboot``, with the command line's ``serial``.

    Raises DeclarationError when the inventory cannot be used, or has different batches for different nodes.
    """
    inputs = [read_inputs(node, RebootInputs) for node in site.rack.nodes]
    own = read_inputs(site.node, RebootInputs)
    for name in ("serial", "max_failures"):
        if len({getattr(node_inputs, name) for node_inputs in inputs}) > 1:
            raise InventoryError(f"reboot.{name}: must be the same for every node: batches are of the whole rack")
    if serial is None:
        return own
    try:
        return RebootInputs.model_validate({**own.model_dump(), "serial": int(str(serial))})
    except ValueError:
        raise InventoryError(f"reboot_serial: expected a number of nodes, actual {serial!r}") from None
