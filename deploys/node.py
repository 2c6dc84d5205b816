"""A node's own settings: kernel command line, idle states, interrupts, limits, modules, scratch array, accounts.

The architecture's ``system`` declares the settings, the inventory's mapping ``node`` how they are made. Changes that
need a reboot leave a mark, which ``deploys/reboot.py`` collects.
"""

from __future__ import annotations

from deploys.base import base
from deploys.preflight import preflight
from deploys.reboot import reboot
from rackproof.configure import operations
from rackproof.configure.deploy import alone, deploy
from rackproof.configure.machine import required_machine
from rackproof.configure.node import operations as node_operations
from rackproof.configure.node import plan
from rackproof.configure.node.inputs import NodeInputs
from rackproof.configure.settings import read_inputs
from rackproof.configure.site import here

SETTINGS_TIMEOUT_S = 1800
"""Seconds; for the initramfs images of all kernels, emptying swap, and tuned."""


@deploy("Node")
def node() -> None:
    site = here()
    inputs = plan.accounts(site, read_inputs(site.node, NodeInputs))
    hashes = plan.password_hashes(inputs)
    array = plan.scratch_array(site, inputs)
    machine = required_machine()
    node_operations.kernel_arguments(name="Kernel arguments", wanted=plan.arguments(site, inputs, machine))
    operations.files(name="Files", entries=(*plan.files(site, inputs), *plan.scratch_files(array)))
    node_operations.settings(name="Settings", wanted=plan.settings(site, inputs), _timeout=SETTINGS_TIMEOUT_S)
    if array:
        node_operations.scratch(name="Scratch array", array=array)
        operations.mounted(name="Scratch mount", wanted=(plan.scratch_mount(array),))
    operations.units(name="Services", wanted=(*plan.units(site, inputs), *plan.scratch_units(array)))
    if inputs.users:
        node_operations.users(name="Users", wanted=inputs.users, hashes=hashes)


if alone(__name__):
    preflight()
    base()
    node()
    reboot()
