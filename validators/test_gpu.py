"""GPUs as their driver reports them: all there, the right ones, and none that asks for help."""

from __future__ import annotations

from collections.abc import Callable

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.architecture import Gpu as Promised
from rackproof.core.rack import Node, Rack
from rackproof.core.topology import NoTopology, links_between, same_topology
from rackproof.parse.nvidia_smi import Gpu, NvidiaSmi, driver_numbers, parse_nvidia_smi
from rackproof.parse.nvidia_topology import parse_topology
from rackproof.validation import Unmeasured, check, expect, read

QUERY = "nvidia-smi -q -x"
MATRIX = "nvidia-smi topo -m"
FULL_SPEED = "P0"
"""In lower performance states a GPU may slow its link down."""


def has_gpus(arch: Architecture, node: Node, rack: Rack) -> bool:
    return arch.gpu is not None and arch.gpu.count > 0


def says(key: str) -> Callable[[Architecture, Node, Rack], bool]:
    """The architecture says something about this key."""
    return lambda arch, node, rack: has_gpus(arch, node, rack) and getattr(arch.gpu, key) is not None


def promised(arch: Architecture) -> Promised:
    if arch.gpu is None:
        raise Unmeasured("the architecture has no GPUs")
    return arch.gpu


def report(host: Host) -> NvidiaSmi:
    found = parse_nvidia_smi(read(host, QUERY))
    if not found.gpus:
        raise Unmeasured("nvidia-smi describes no GPU; see gpu.count")
    return found


def expect_each(host: Host, expected: object, value: Callable[[Gpu], object]) -> None:
    """Every GPU has the expected value. Raises Unmeasured when one reports none and no other one is wrong."""
    values = {gpu.bus_id: value(gpu) for gpu in report(host).gpus}
    wrong = {bus: found for bus, found in values.items() if found is not None and found != expected}
    if wrong:
        listed = ", ".join(f"{found} on {bus}" for bus, found in wrong.items())
        raise AssertionError(f"expected {expected} on {len(values)} GPUs, actual {listed}")
    silent = [bus for bus, found in values.items() if found is None]
    if silent:
        raise Unmeasured(f"nvidia-smi reports nothing for {', '.join(silent)}")


@check(
    "gpu.count",
    reads="gpu.count",
    roles=("gpu",),
    when=has_gpus,
    protects="A job that asks for eight GPUs does not start, or starts on seven and is wrong about its batch size.",
    hint="lspci -d 10de: and dmesg for Xid 79 (fallen off the bus); power-cycle the node once, then exchange the GPU.",
)
def test_count(host: Host, arch: Architecture) -> None:
    found = parse_nvidia_smi(read(host, QUERY))
    expect(len(found.gpus), promised(arch).count, "GPUs")
    if found.missing:
        raise AssertionError(f"expected all attached GPUs described, actual {found.missing} missing")


@check(
    "gpu.model",
    reads="gpu.model",
    roles=("gpu",),
    when=has_gpus,
    protects="One GPU of another model makes every collective wait for it.",
    hint="Compare nvidia-smi -L with the delivery note.",
)
def test_model(host: Host, arch: Architecture) -> None:
    expect_each(host, promised(arch).model, lambda gpu: gpu.name)


@check(
    "gpu.memory",
    reads="gpu.memory_mib",
    roles=("gpu",),
    when=has_gpus,
    protects="A model that fits on the other GPUs runs out of memory on this one.",
    hint="nvidia-smi -q -d MEMORY; a partition (MIG) or a smaller model shows here.",
)
def test_memory(host: Host, arch: Architecture) -> None:
    gpu = promised(arch)
    slack = gpu.memory_mib * gpu.memory_tolerance_pct / 100

    def within(found: Gpu) -> int | None:
        size = found.memory_total_mib
        return gpu.memory_mib if size is not None and abs(size - gpu.memory_mib) <= slack else size

    expect_each(host, gpu.memory_mib, within)


@check(
    "gpu.driver",
    reads="gpu.driver",
    roles=("gpu",),
    when=says("driver"),
    protects="Nodes with different drivers give different numbers, and libraries built for one fail on the other.",
    hint="Pin the driver's packages; after an upgrade the old module stays loaded until a reboot.",
)
def test_driver(host: Host, arch: Architecture) -> None:
    driver = report(host).driver
    if driver is None:
        raise Unmeasured("nvidia-smi reports no driver version")
    wanted = promised(arch).driver or ""
    if wanted.startswith(">="):
        oldest = wanted.removeprefix(">=").strip()
        if driver_numbers(driver) < driver_numbers(oldest):
            raise AssertionError(f"expected driver {oldest} or newer, actual {driver}")
        return
    expect(driver, wanted, "driver")


@check(
    "gpu.ecc_mode",
    reads="gpu.ecc",
    roles=("gpu",),
    when=says("ecc"),
    protects="Without ECC a flipped bit becomes a wrong result instead of an error.",
    hint="nvidia-smi -e 1, then reset the GPU or reboot.",
)
def test_ecc_mode(host: Host, arch: Architecture) -> None:
    expect_each(host, promised(arch).ecc, lambda gpu: gpu.ecc)


@check(
    "gpu.ecc_errors",
    reads="gpu.ecc",
    roles=("gpu",),
    when=lambda arch, node, rack: arch.gpu is not None and arch.gpu.count > 0 and arch.gpu.ecc == "Enabled",
    protects="A GPU with uncorrectable errors ends jobs at random.",
    hint="nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU; errors that come back are a case for an exchange.",
)
def test_ecc_errors(host: Host) -> None:
    expect_each(host, 0, lambda gpu: gpu.ecc_volatile.uncorrected)


@check(
    "gpu.row_remapping",
    reads="gpu.ecc",
    roles=("gpu",),
    when=lambda arch, node, rack: arch.gpu is not None and arch.gpu.count > 0 and arch.gpu.ecc == "Enabled",
    protects="A row that waits to be replaced is still in use; a replacement that failed means that no spare is left.",
    hint="Pending: reset the GPU. Failed: have it exchanged.",
)
def test_row_remapping(host: Host) -> None:
    def state(gpu: Gpu) -> str | None:
        rows = gpu.remapped_rows
        if rows is None or rows.pending is None or rows.failed is None:
            return None
        return "failed" if rows.failed else "pending" if rows.pending else "nothing pending, nothing failed"

    expect_each(host, "nothing pending, nothing failed", state)


@check(
    "gpu.persistence",
    reads="gpu.persistence",
    roles=("gpu",),
    when=says("persistence"),
    protects="Without it the driver unloads with the last job, and the next one waits seconds for its first kernel.",
    hint="systemctl enable --now nvidia-persistenced.",
)
def test_persistence(host: Host, arch: Architecture) -> None:
    expect_each(host, promised(arch).persistence, lambda gpu: gpu.persistence)


@check(
    "gpu.pcie_generation",
    reads="gpu.pcie_generation",
    roles=("gpu",),
    when=says("pcie_generation"),
    protects="A link of an older generation halves the way to host memory, storage and network.",
    hint="lspci -vv: LnkSta against LnkCap; reseat the card or its riser, look at the BIOS setting of the slot.",
)
def test_pcie_generation(host: Host, arch: Architecture) -> None:
    def speed(gpu: Gpu) -> int | None:
        # Idle, a GPU slows its link down to save power; what counts then is what the link can do.
        idle = gpu.performance_state is not None and gpu.performance_state != FULL_SPEED
        return gpu.pcie_generation_max if idle else gpu.pcie_generation

    expect_each(host, promised(arch).pcie_generation, speed)


@check(
    "gpu.pcie_width",
    reads="gpu.pcie_width",
    roles=("gpu",),
    when=says("pcie_width"),
    protects="Eight lanes instead of sixteen halve the way to host memory, storage and network.",
    hint="lspci -vv: LnkSta against LnkCap; reseat the card or its riser.",
)
def test_pcie_width(host: Host, arch: Architecture) -> None:
    expect_each(host, promised(arch).pcie_width, lambda gpu: gpu.pcie_width)


@check(
    "gpu.topology",
    reads="gpu.topology",
    roles=("gpu",),
    when=says("topology"),
    protects="A pair of GPUs whose NVLink is missing goes over PCIe, and every collective of the node waits for it.",
    hint="nvidia-smi nvlink -s on the GPUs named; behind NVSwitch also nvidia-fabricmanager's log; reseat or exchange.",
)
def test_topology(host: Host, arch: Architecture) -> None:
    found = parse_topology(read(host, MATRIX))
    try:
        mismatch = same_topology(links_between(found.gpus, found.paths), promised(arch).topology or "", found.gpus)
    except NoTopology as error:
        raise Unmeasured(str(error)) from None
    if mismatch is not None:
        raise AssertionError(str(mismatch))


@check(
    "gpu.healthy",
    reads="gpu",
    roles=("gpu",),
    when=has_gpus,
    protects="A GPU for which the driver prints an error, or asks for a reset, ends the next job that gets it.",
    hint="nvidia-smi -q and dmesg for Xid messages; do what the driver asks for.",
)
def test_healthy(host: Host) -> None:
    found = report(host)
    problems = [f"{gpu.bus_id}: {problem}" for gpu in found.gpus for problem in gpu.problems]
    problems += [
        f"{gpu.bus_id}: driver asks for {gpu.recovery_action}"
        for gpu in found.gpus
        if gpu.recovery_action not in (None, "None")
    ]
    problems += [message for message in found.messages if message.upper().startswith(("WARNING", "ERROR"))]
    if problems:
        raise AssertionError(f"expected no complaint of the driver, actual {'; '.join(problems)}")
