"""Memory: size, modules, their speed, and ECC errors."""

from __future__ import annotations

from collections.abc import Callable

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node
from rackproof.parse.answer import STATUS
from rackproof.parse.dmidecode import MemoryModule, parse_memory_modules
from rackproof.parse.edac import EDAC, Controller, parse_edac
from rackproof.parse.lscpu import LSCPU, parse_lscpu
from rackproof.parse.meminfo import MEMINFO, parse_meminfo
from rackproof.validation import Unmeasured, announce, answered, check, read
from rackproof.validation.expected import memory_of

MODULES = "dmidecode -t 17" + STATUS
MIB_PER_GIB = 1024


def slots(host: Host) -> tuple[MemoryModule, ...]:
    """All slots, empty ones included. Raises Unmeasured when the firmware describes no module."""
    modules = parse_memory_modules(answered(host, MODULES, "dmidecode").body)
    if not any(module.size_mib for module in modules):
        raise Unmeasured("the firmware describes no memory module")
    return modules


def installed(host: Host) -> list[MemoryModule]:
    return [module for module in slots(host) if module.size_mib]


@check(
    "memory.size",
    reads="roles.{role}.expect.memory.installed_gb",
    protects="A node with less memory kills jobs that fit elsewhere, and caches less of the data set.",
    hint="dmidecode -t 17 lists the active modules; the firmware disables those that fail at power-on.",
)
def test_size(host: Host, arch: Architecture, node: Node) -> None:
    memory = memory_of(arch, node)
    size_gb = parse_meminfo(read(host, MEMINFO))["MemTotal"] * 1024 / 1e9
    allowed = memory.installed_gb * memory.tolerance_pct / 100
    if not abs(size_gb - memory.installed_gb) <= allowed:
        raise AssertionError(
            f"expected {memory.installed_gb:g} GB within {memory.tolerance_pct:g} %, actual {size_gb:.1f} GB"
        )


@check(
    "memory.dimms",
    reads="roles.{role}.expect.memory.dimms",
    protects="A missing module costs the bandwidth of its channel, not only capacity.",
    hint="See the BMC's event log; reseat or exchange the module of the slot reported empty.",
)
def test_dimms(host: Host, arch: Architecture, node: Node) -> None:
    expected, modules = memory_of(arch, node).dimms, installed(host)
    if len(modules) != expected:
        empty = [module.locator for module in slots(host) if not module.size_mib]
        listed = f"; empty: {', '.join(empty)}" if empty else ""
        raise AssertionError(f"modules: expected {expected}, actual {len(modules)}{listed}")


@check(
    "memory.dimm_size",
    reads="roles.{role}.expect.memory.dimm_gib",
    protects="Modules of different sizes interleave only partly: the rest of the memory uses fewer channels.",
    hint="dmidecode -t 17; exchange the module for one of the right size.",
)
def test_dimm_size(host: Host, arch: Architecture, node: Node) -> None:
    expected = memory_of(arch, node).dimm_gib or 0
    wrong = [
        f"{module.size_mib / MIB_PER_GIB:g} GiB in {module.locator}"
        for module in installed(host)
        if module.size_mib != expected * MIB_PER_GIB
    ]
    if wrong:
        raise AssertionError(f"expected {expected:g} GiB in every slot, actual {', '.join(wrong)}")


@check(
    "memory.dimm_speed",
    reads="roles.{role}.expect.memory.dimm_speed_mts",
    protects="One slow module slows down all of them, and every copy to a GPU.",
    hint="dmidecode -t 17: compare Speed with Configured Memory Speed; firmware setup: memory frequency.",
)
def test_dimm_speed(host: Host, arch: Architecture, node: Node) -> None:
    expected = memory_of(arch, node).dimm_speed_mts
    modules = installed(host)
    wrong = [
        f"{module.speed_mts} MT/s in {module.locator}"
        for module in modules
        if module.speed_mts is not None and module.speed_mts != expected
    ]
    if wrong:
        raise AssertionError(f"expected {expected} MT/s in every slot, actual {', '.join(wrong)}")
    silent = [module.locator for module in modules if module.speed_mts is None]
    if silent:
        raise Unmeasured(f"the firmware reports no speed for {', '.join(silent)}")


def _expect_at_most(host: Host, limit: int | None, count: Callable[[Controller], int], what: str) -> None:
    announce(host, EDAC, LSCPU)
    controllers = parse_edac(read(host, EDAC))
    if not controllers:
        raise Unmeasured("no EDAC driver reports memory errors")
    over = [
        f"{count(controller)} on {controller.name}" for controller in controllers if count(controller) > (limit or 0)
    ]
    if over:
        raise AssertionError(f"{what} errors: expected at most {limit}, actual {', '.join(over)}")
    sockets = parse_lscpu(read(host, LSCPU)).sockets
    if len(controllers) % sockets:  # all sockets have the same number
        raise Unmeasured(f"{len(controllers)} memory controllers for {sockets} sockets: one has no EDAC driver")


@check(
    "memory.corrected_errors",
    reads="roles.{role}.expect.memory.corrected_errors_max",
    protects="Each corrected error interrupts a processor; many stall ranks and often precede an uncorrected one.",
    hint="ras-mc-ctl --error-count, or edac-util -v, names the module; exchange it.",
)
def test_corrected_errors(host: Host, arch: Architecture, node: Node) -> None:
    limit = memory_of(arch, node).corrected_errors_max
    _expect_at_most(host, limit, lambda controller: controller.corrected, "corrected")


@check(
    "memory.uncorrected_errors",
    reads="roles.{role}.expect.memory.uncorrected_errors_max",
    protects="An uncorrected error kills the process that reads it, or the whole node.",
    hint="ras-mc-ctl --error-count, or edac-util -v, names the module; exchange it before the node takes jobs.",
)
def test_uncorrected_errors(host: Host, arch: Architecture, node: Node) -> None:
    limit = memory_of(arch, node).uncorrected_errors_max
    _expect_at_most(host, limit, lambda controller: controller.uncorrected, "uncorrected")
