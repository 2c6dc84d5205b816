"""PCI devices: links at full speed, error counters, and access control that permits peer-to-peer traffic."""

from __future__ import annotations

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.gpu_links import IDLE
from rackproof.core.rack import Node
from rackproof.parse.aer import AER, parse_aer
from rackproof.parse.device_log import pcie_troubles
from rackproof.parse.lspci import COMMAND as LSPCI
from rackproof.parse.lspci import PciDevice, parse_lspci
from rackproof.parse.pci_links import LINKS, TREE, parse_pci_links, parse_pci_tree
from rackproof.parse.sysfs import GREP_DONE
from rackproof.validation import Unmeasured, announce, answered, check, expect_all, read
from rackproof.validation.expected import pcie_of
from rackproof.validation.kernel_messages import kernel_messages, quoted
from rackproof.validation.pci_links import degraded, idle

REDIRECTS = ("ReqRedir", "CmpltRedir", "EgressCtrl")
"""Bits that ``pci=disable_acs_redir`` clears; they redirect peer-to-peer packets to the root complex."""
ISOLATES = ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")
LISTED = 8


def listed(problems: list[str]) -> list[str]:
    return problems[:LISTED] + ([f"and {len(problems) - LISTED} more"] if len(problems) > LISTED else [])


@check(
    "pcie.acs",
    reads="roles.{role}.expect.pcie.acs",
    protects="With ACS redirection, traffic between GPU and NIC goes through the CPU at half the bandwidth.",
    hint="lspci -vv: ACSCtl; pci=disable_acs_redir on the kernel's command line, setpci at boot, or the BIOS.",
)
def test_acs(host: Host, arch: Architecture, node: Node) -> None:
    expected = pcie_of(arch, node).acs or ""
    devices = parse_lspci(read(host, LSPCI))
    able = [device for device in devices if device.acs is not None]
    expect_all(listed([problem for device in able if (problem := _acs_problem(device, expected))]))
    if hidden := sum(device.hidden is True for device in devices):
        raise Unmeasured(f"lspci may not read the capabilities of {hidden} devices")
    if not able:
        raise Unmeasured("no PCI device has access control services")


def _acs_problem(device: PciDevice, expected: str) -> str | None:
    on = [name for name, active in (device.acs or {}).items() if active]
    can = [name for name, able in (device.acs_can or {}).items() if able]
    if expected == "enabled":
        off = [name for name in ISOLATES if name in can and name not in on]
        return f"{device.slot}: expected {', '.join(off)} on, actual off" if off and "bridge" in device.kind else None
    wrong = [name for name in on if expected == "disabled" or name in REDIRECTS]
    return f"{device.slot}: expected {', '.join(wrong)} off, actual on" if wrong else None


def judged_by_driver(arch: Architecture, node: Node) -> bool:
    """Whether ``gpu.pcie_generation`` judges the speed of the GPUs' links on this node."""
    return arch.gpu is not None and arch.gpu.pcie_generation is not None and "gpu" in node.groups


@check(
    "pcie.links",
    reads="roles.{role}.expect.pcie.full_links",
    protects="A link trained with fewer lanes or a lower generation has half the bandwidth and reports no error.",
    hint="lspci -vv: compare LnkSta with LnkCap of the device and the port above it; reseat, exchange riser or cable.",
)
def test_links(host: Host, arch: Architecture, node: Node) -> None:
    announce(host, LINKS, TREE)
    links, tree = parse_pci_links(read(host, LINKS)), parse_pci_tree(answered(host, TREE, "readlink").body)
    expect_all(listed(degraded(links, tree)))
    if judged_by_driver(arch, node):
        return
    if slow := idle(links, tree):
        raise Unmeasured(f"{IDLE}: {', '.join(listed(slow))}")


def _errors(host: Host, kinds: tuple[str, ...], allowed: int) -> None:
    counters = parse_aer(answered(host, AER, "grep", good=GREP_DONE).body)
    if counters is None:
        raise Unmeasured("the kernel counts no PCIe errors: the firmware handles them")
    problems = []
    for counted in counters:
        if counted.kind in kinds and counted.total > allowed:
            types = ", ".join(f"{name} {count}" for name, count in counted.types.items())
            actual = f"{counted.total} ({types})"
            problems.append(f"{counted.device}: expected at most {allowed} {counted.kind} errors, actual {actual}")
    expect_all(listed(problems))


@check(
    "pcie.correctable_errors",
    reads="roles.{role}.expect.pcie.correctable_errors_max",
    protects="Retransmitted PCIe packets cost bandwidth and are the first sign of a bad slot or cable.",
    hint="dmesg for AER; reseat the device, exchange its riser or cable; check the BIOS's signal settings.",
)
def test_correctable_errors(host: Host, arch: Architecture, node: Node) -> None:
    _errors(host, ("correctable",), pcie_of(arch, node).correctable_errors_max or 0)


@check(
    "pcie.uncorrectable_errors",
    reads="roles.{role}.expect.pcie.uncorrectable_errors_max",
    protects="Uncorrectable errors lose data or the device: a GPU or NIC falls off the bus.",
    hint="dmesg for AER; exchange the device, its riser or its cable.",
)
def test_uncorrectable_errors(host: Host, arch: Architecture, node: Node) -> None:
    _errors(host, ("nonfatal", "fatal"), pcie_of(arch, node).uncorrectable_errors_max or 0)


@check(
    "pcie.messages",
    reads="roles.{role}.expect.pcie.messages_max",
    protects="Where the firmware handles PCIe errors, only the kernel's log shows a bad slot or cable.",
    hint="dmesg for 'PCIe Bus Error': the device and its error; reseat it, exchange its riser or cable.",
)
def test_messages(host: Host, arch: Architecture, node: Node) -> None:
    allowed = pcie_of(arch, node).messages_max or 0
    messages = pcie_troubles(kernel_messages(host))
    if len(messages) > allowed:
        raise AssertionError(f"expected at most {allowed} messages about PCIe errors, actual {quoted(messages)}")
