"""Operations on the firmware of adapters: ask, plan, write what may be written, and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyinfra.api.command import StringCommand
from pyinfra.context import host, state

from rackproof.configure import facts as common
from rackproof.configure import network
from rackproof.configure.machine import machine_here
from rackproof.configure.nic import devices, facts, firmware, locked_firmware
from rackproof.configure.nic.declared import FirmwareWanted
from rackproof.configure.nic.locked_firmware import Locked
from rackproof.configure.nic.operations import reboots
from rackproof.configure.operation import Commands, ask, operation, record, required
from rackproof.errors import Refused
from rackproof.parse import udev
from rackproof.parse.pci_links import SLOT


@operation()
def adapter_firmware(wanted: Sequence[FirmwareWanted], rails: Sequence[network.Port], locked: Locked) -> Commands:
    """Compare firmware and its settings with what is declared, write what may be written, and read it back.

    + wanted: purpose, names or PCI addresses of its ports, version, settings
    + rails: ports by whose names adapters are found
    + locked: firmware of the version set

    Adapters that the version set has no image for are compared by ``locked_firmware_in_force``, at the end of a run.

    **Example:**

    .. code:: python

        nic.adapter_firmware(
            name="Firmware",
            wanted=[("fabric", ("0000:1a:00.0",), "28.45.1200", None)],
            rails=site.ports,
            locked=Locked(),
        )
    """
    slots = ask(facts.Slots, "the adapters' PCI addresses")
    present = ask(common.Links, "the network interfaces", with_paths=any(port.path for port in rails))
    chosen, unknown = _slots_of(wanted, rails, slots, present)
    adapters_here = _adapters(locked) if locked else ()
    if unknown and state.is_executing and not reboots():
        raise Refused(
            f"firmware is declared for ports that are not there: {', '.join(unknown)}; give their PCI addresses"
            " (nics.*.slots), or correct the names"
        )
    chosen = locked_firmware.asked(chosen, adapters_here, locked)
    if not chosen:
        host.noop("no adapter has declared firmware")
        return
    states = ask(facts.FirmwareStates, "the adapters' firmware", wanted=chosen)
    declared = locked_firmware.with_locked(chosen, states, adapters_here, locked)
    try:
        plan = firmware.plan_firmware(declared, states, locked.images, locked.proxy)
    except firmware.SharedAdapter:
        raise
    except firmware.FirmwareProblem as error:
        if state.is_executing:
            raise
        host.noop(f"after the packages: {error}")  # before the run the tools may be missing still
        return
    if not plan:
        compared = [adapter for adapter in declared if adapter.version or adapter.settings]
        host.noop(f"firmware of {len(compared)} adapters is as declared")
        return
    record(plan.changes)
    yield StringCommand(plan.script)
    wrong = firmware.not_taken(chosen, host.get_fact(facts.FirmwareStates, wanted=chosen))
    if wrong:
        raise Refused("; ".join(wrong))


def _slots_of(
    wanted: Sequence[FirmwareWanted],
    rails: Sequence[network.Port],
    slots: Mapping[str, str],
    present: Sequence[network.Link],
) -> tuple[list[firmware.WantedFirmware], list[str]]:
    """One entry an adapter, with what all its ports declare, and names without an adapter. Raises SharedAdapter."""
    known = dict(slots)
    for rail in rails:
        try:
            slot = slots.get(network.find_link(rail, present).name)
        except network.PortProblem:
            slot = None
        slot = slot or (udev.slot_of_id_path(rail.path) if rail.path else None)
        if slot:
            known |= {name: slot for name in (rail.name, rail.rdma) if name}
        else:
            # Its name may be another port's until it has its own.
            known.pop(rail.name, None)
            known.pop(rail.rdma, None)
    chosen: dict[str, firmware.WantedFirmware] = {}
    unknown = []
    for purpose, names, version, settings in wanted:
        for k, name in enumerate(names):
            slot = name if SLOT.fullmatch(name) else known.get(name)
            if slot is None:
                unknown.append(f"{name} ({purpose})")
                continue
            label = name if name != slot else f"{purpose} port {k}"
            device, wanted_here = slot.rpartition(".")[0], firmware.WantedFirmware(slot, label, version, settings)
            chosen[device] = firmware.merged(chosen[device], wanted_here) if device in chosen else wanted_here
    return list(chosen.values()), unknown


def _adapters(locked: Locked) -> tuple[devices.Adapter, ...]:
    """Adapters of the current node."""
    return devices.adapters(required(machine_here(), "the machine"), locked.kinds)


@operation()
def locked_firmware_in_force(locked: Locked) -> None:
    """Refuse a node where an adapter that the version set means runs other firmware. Changes nothing.

    + locked: firmware of the version set

    **Example:**

    .. code:: python

        nic.locked_firmware_in_force(name="Firmware of adapters", locked=declared.firmware(site, components))
    """
    meant = [adapter for adapter in _adapters(locked) if locked_firmware.may_be_meant(adapter.kind, locked)]
    wanted = locked_firmware.asked((), meant, locked)
    if not wanted:
        host.noop("no adapter here has firmware in the version set")
        return
    actual = ask(facts.FirmwareStates, "the adapters' firmware", wanted=wanted)
    compared = locked_firmware.compare(meant, actual, locked)
    wrong = "; ".join(compared.wrong)
    # Before the run the tools may be missing still.
    if wrong and state.is_executing:
        raise Refused(f"{host.name}: not as the version set says: {wrong}")
    elif wrong:
        host.noop(f"after the run: {wrong}")
    elif compared.waiting:
        host.noop(f"comes with the reboot: {'; '.join(compared.waiting)}")
    else:
        host.noop(f"firmware of {len(compared.right)} adapters is as the version set says")
