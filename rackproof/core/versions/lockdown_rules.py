"""Settings that a locked-down kernel refuses, even to root. Pure.

Distributions lock down their kernels (``integrity``) under Secure Boot. Programs then cannot write to the configuration
space of PCI devices, map their registers, or write to debugfs: setpci, mstflint's access to an adapter, and the
kernel's own switches for congestion notifications fail with "Operation not permitted".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rackproof.core.architecture.hardware import Role
from rackproof.core.versions.choices import Plan, Side

SOURCE: Final = (
    "kernel_lockdown(7); Linux drivers/pci/pci-sysfs.c and fs/debugfs/file.c; mstflint issues 416, 1371, pull 602"
)
CLOSED: Final = "a kernel in lockdown, which refuses writes to configuration space and debugfs"
REFUSED: Final = "the kernel refuses the write, and the run fails halfway"
OTHERWISE: Final = (
    "or accept this where the kernel is not locked down ([none] in /sys/kernel/security/lockdown) or has the values"
)


def secure_boot_lockdown(plan: Plan) -> Iterator[tuple[Side, Side, str, str]]:
    fabric = plan.architecture.fabric
    if not plan.secure_boot or fabric is None or fabric.kind == "soft-roce":
        return  # only real adapters are configured
    roles = {
        name: role
        for name, role in plan.architecture.roles.items()
        if role.managed and (plan.choices.roles is None or name in plan.choices.roles)
    }
    one = Side("Secure Boot", CLOSED)
    if keys := (*_pci(plan, roles), *_acs(plan, roles)):
        remedy = f"switch Secure Boot off on these nodes, leave the values to the firmware, {OTHERWISE}"
        yield one, Side(", ".join(keys), "to be set with setpci"), REFUSED, remedy
    if keys := _firmware(plan, roles):
        remedy = (
            "switch Secure Boot off on these nodes, or accept this where a signed module carries the tools"
            " (mst of MFT, mstflint_access, fwctl of Linux 6.15)"
        )
        yield one, Side(", ".join(keys), "access by flint and mlxconfig through the PCI address"), REFUSED, remedy
    if keys := _cnp(plan):
        remedy = f"lock DOCA-OFED, whose switches are in sysfs, switch Secure Boot off, {OTHERWISE}"
        yield (
            one,
            Side(", ".join(keys), "to be set in debugfs, where the kernel's own driver has it"),
            REFUSED,
            remedy,
        )


def _of_nics(roles: dict[str, Role], *keys: str) -> Iterator[str]:
    """The keys that an architecture sets."""
    for name, role in roles.items():
        for nic in role.expect.nics:
            yield from (
                f"roles.{name}.expect.nics ({nic.purpose}): {key}" for key in keys if getattr(nic, key) is not None
            )


def _pci(plan: Plan, roles: dict[str, Role]) -> tuple[str, ...]:
    declared = _of_nics(roles, "max_read_request", "relaxed_ordering")
    return (*declared, *(f"nic.{key}" for key in plan.choices.pci_settings))


def _acs(plan: Plan, roles: dict[str, Role]) -> Iterator[str]:
    """The architecture's ``acs`` values that need setpci; ``pci=disable_acs_redir`` turns off redirection at boot."""
    by_kernel = any("disable_acs_redir" in word for word in plan.cmdline)
    for name, role in roles.items():
        acs = role.expect.pcie.acs if role.expect.pcie else None
        if acs == "disabled" or (acs == "no_redirect" and not by_kernel):
            yield f"roles.{name}.expect.pcie.acs: {acs}"


def _firmware(plan: Plan, roles: dict[str, Role]) -> tuple[str, ...]:
    declared = _of_nics(roles, "firmware", "firmware_settings")
    return (*declared, *(("nic_firmware of the version set",) if plan.components.nic_firmware else ()))


def _cnp(plan: Plan) -> tuple[str, ...]:
    lossless = plan.lossless if plan.roce else None
    if lossless is None or plan.network_stack != "inbox":
        return ()
    keys = ("cnp_dscp", "cnp_priority")
    return tuple(f"fabric.lossless.{key}" for key in keys if getattr(lossless, key) is not None)
