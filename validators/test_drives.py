"""Local drives by use: number, size, model, PCIe link and SMART health."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.parse.block import DRIVES, LocalDrive, parse_drives
from rackproof.parse.drive_uses import SIZE_TOLERANCE, drives_by_use, is_model, strays
from rackproof.parse.nvme import SMART_LOGS, SmartLog, parse_smart_logs
from rackproof.validation import Unmeasured, announce, check, expect_all, read
from rackproof.validation.expected import drives_of, hardware


def uses_of_nvme(arch: Architecture, node: Node, rack: Rack) -> Iterable[str]:
    expected = hardware(arch, node, "drives")
    return [drives.use for drives in (expected.drives if expected else ()) if drives.kind == "nvme"]


def all_drives(host: Host) -> tuple[LocalDrive, ...]:
    return parse_drives(read(host, DRIVES))


def of_use(host: Host, arch: Architecture, node: Node, use: str) -> tuple[LocalDrive, ...]:
    """Drives of a use. Raises Unmeasured when there are none."""
    expected = hardware(arch, node, "drives")
    drives = drives_by_use(expected.drives if expected else (), all_drives(host))[use]
    if not drives:
        raise Unmeasured(f"there is no drive for {use}; see drives.count")
    return drives


def expect_each(drives: Iterable[LocalDrive], expected: object, value: Callable[[LocalDrive], object]) -> None:
    """Every drive has the expected value. Raises Unmeasured when the only deviation is a missing value."""
    values = {drive.name: value(drive) for drive in drives}
    wrong = {name: actual for name, actual in values.items() if actual is not None and actual != expected}
    if wrong:
        listed = ", ".join(f"{actual} on {name}" for name, actual in wrong.items())
        raise AssertionError(f"expected {expected} on {len(values)} drives, actual {listed}")
    silent = [name for name, actual in values.items() if actual is None]
    if silent:
        raise Unmeasured(f"the kernel reports no value for {', '.join(silent)}")


@check(
    "drives.count",
    reads="roles.{role}.expect.drives.*.count",
    protects="With a missing drive a stripe set does not assemble, or the boot mirror has no redundancy.",
    hint="Compare lsblk and nvme list with the bays; dmesg for 'Removing after probe failure'; reseat the drive.",
)
def test_count(host: Host, arch: Architecture, node: Node, item: str) -> None:
    expected = hardware(arch, node, "drives")
    declared = drives_of(arch, node, item)
    drives = all_drives(host)
    of_this_use = drives_by_use(expected.drives if expected else (), drives)[item]
    if len(of_this_use) != declared.count:
        there = ", ".join(drive.described for drive in drives if drive.kind == declared.kind) or "none"
        raise AssertionError(
            f"{item} drives: expected {declared.count}, actual {len(of_this_use)} (drives of this kind: {there})"
        )
    dead = [f"{drive.name} {drive.state}" for drive in of_this_use if drive.state != "live"]
    if dead:
        raise AssertionError(f"{item} drives: expected {declared.count} live, actual {', '.join(dead)}")


@check(
    "drives.size",
    reads="roles.{role}.expect.drives.*.size_tb",
    protects="The smallest drive limits the size of a stripe set and of the cache on it.",
    hint="nvme list; a namespace can be smaller than its drive: nvme id-ctrl -H shows tnvmcap.",
)
def test_size(host: Host, arch: Architecture, node: Node, item: str) -> None:
    expected = hardware(arch, node, "drives")
    declared, uses = drives_of(arch, node, item), expected.drives if expected else ()
    drives = all_drives(host)
    of_this_use = drives_by_use(uses, drives)[item]
    if declared.count is None or len(of_this_use) < declared.count:
        other = strays(uses, drives, declared.kind)
        if other:
            listed = ", ".join(drive.described for drive in other)
            raise AssertionError(f"{item} drives: expected {declared.size_tb:g} TB each, actual {listed}")
    if not of_this_use:
        raise Unmeasured(f"there is no drive for {item}; see drives.count")


@check(
    "drives.total",
    reads="roles.{role}.expect.drives.*.total_tb",
    protects="A data set planned for the local drives does not fit and is read over the network.",
    hint="Compare lsblk and nvme list with the bays; reseat or exchange missing drives.",
)
def test_total(host: Host, arch: Architecture, node: Node, item: str) -> None:
    declared = drives_of(arch, node, item).total_tb or 0
    total = sum(drive.size_tb for drive in of_use(host, arch, node, item))
    if not abs(total - declared) <= SIZE_TOLERANCE * declared:
        raise AssertionError(f"{item} drives: expected {declared:g} TB together, actual {total:.2f} TB")


@check(
    "drives.model",
    reads="roles.{role}.expect.drives.*.model",
    protects="One drive of a slower model limits its whole stripe set.",
    hint="nvme list; compare with the delivery note.",
)
def test_model(host: Host, arch: Architecture, node: Node, item: str) -> None:
    declared = drives_of(arch, node, item)
    wrong = [
        f"{drive.model} in {drive.name}" for drive in of_use(host, arch, node, item) if not is_model(declared, drive)
    ]
    if wrong:
        raise AssertionError(f"{item} drives: expected models like {declared.model}, actual {', '.join(wrong)}")


@check(
    "drives.firmware",
    reads="roles.{role}.expect.drives.*.firmware",
    protects="Known firmware bugs lose data after a certain number of power-on hours.",
    hint="nvme fw-log; nvme fw-download and fw-commit with the vendor's image, one drive at a time.",
)
def test_firmware(host: Host, arch: Architecture, node: Node, item: str) -> None:
    allowed = drives_of(arch, node, item).firmware
    wrong = [
        f"{drive.firmware} in {drive.name}" for drive in of_use(host, arch, node, item) if drive.firmware not in allowed
    ]
    if wrong:
        raise AssertionError(f"{item} drives: expected {' or '.join(allowed)}, actual {', '.join(wrong)}")


@check(
    "drives.pcie_generation",
    reads="roles.{role}.expect.drives.*.pcie_generation",
    protects="A link one PCIe generation lower halves the drive's bandwidth.",
    hint="lspci -vv -s SLOT: compare LnkSta with LnkCap; reseat the drive, check the backplane's cable.",
)
def test_pcie_generation(host: Host, arch: Architecture, node: Node, item: str) -> None:
    declared = drives_of(arch, node, item).pcie_generation
    expect_each(of_use(host, arch, node, item), declared, lambda drive: drive.pcie_generation)


@check(
    "drives.pcie_width",
    reads="roles.{role}.expect.drives.*.pcie_width",
    protects="Two lanes instead of four halve the drive's bandwidth.",
    hint="lspci -vv -s SLOT: compare LnkSta with LnkCap; reseat the drive, check the backplane's cable.",
)
def test_pcie_width(host: Host, arch: Architecture, node: Node, item: str) -> None:
    declared = drives_of(arch, node, item).pcie_width
    expect_each(of_use(host, arch, node, item), declared, lambda drive: drive.pcie_width)


def smart_logs(host: Host, arch: Architecture, node: Node, use: str) -> tuple[list[SmartLog], list[str]]:
    """SMART logs of the NVMe drives of a use, and the names of drives without one."""
    announce(host, DRIVES, SMART_LOGS)
    names = [drive.name for drive in of_use(host, arch, node, use)]
    logs = parse_smart_logs(read(host, SMART_LOGS))
    answers = {name: logs.get(name) for name in names}
    return [log for log in answers.values() if log is not None], [name for name in names if answers[name] is None]


def expect_healthy(host: Host, arch: Architecture, node: Node, use: str, problem: Callable[[SmartLog], str]) -> None:
    """No drive of the use has a problem. Raises Unmeasured when one has no SMART log and no other has a problem."""
    logs, silent = smart_logs(host, arch, node, use)
    expect_all(message for log in logs if (message := problem(log)))
    if silent:
        raise Unmeasured(f"nvme smart-log reports nothing for {', '.join(silent)}")


@check(
    "drives.warning",
    reads="roles.{role}.expect.drives.*",
    each=uses_of_nvme,
    protects="A drive with a critical SMART warning turns read-only or fails within days.",
    hint="nvme smart-log -H; exchange the drive.",
)
def test_warning(host: Host, arch: Architecture, node: Node, item: str) -> None:
    expect_healthy(
        host, arch, node, item,
        lambda log: f"{log.name}: expected no warning, actual {', '.join(log.warnings)}" if log.warnings else "",
    )  # fmt: skip


@check(
    "drives.wear",
    reads="roles.{role}.expect.drives.*.wear_max_pct",
    protects="Worn drives in a new rack are used ones; a drive past its endurance has no warranty.",
    hint="nvme smart-log: percentage_used; exchange the drive, and find what writes so much.",
)
def test_wear(host: Host, arch: Architecture, node: Node, item: str) -> None:
    limit = drives_of(arch, node, item).wear_max_pct or 0

    def problem(log: SmartLog) -> str:
        return f"{log.name}: expected at most {limit:g} % worn, actual {log.used_pct} %" if log.used_pct > limit else ""

    expect_healthy(host, arch, node, item, problem)


@check(
    "drives.media_errors",
    reads="roles.{role}.expect.drives.*.media_errors_max",
    protects="An unreadable block aborts the restore of a checkpoint; further blocks usually follow.",
    hint="nvme smart-log and nvme error-log; exchange the drive.",
)
def test_media_errors(host: Host, arch: Architecture, node: Node, item: str) -> None:
    limit = drives_of(arch, node, item).media_errors_max or 0

    def problem(log: SmartLog) -> str:
        wrong = log.media_errors > limit
        return f"{log.name}: media errors: expected at most {limit}, actual {log.media_errors}" if wrong else ""

    expect_healthy(host, arch, node, item, problem)
