"""Packages, files, services and settings of the operating system, as in force."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.parse import ParseError
from rackproof.parse.answer import STATUS
from rackproof.parse.meminfo import MEMINFO, parse_meminfo
from rackproof.parse.packages import HOLDS, NOT_INSTALLED, is_version, parse_holds, parse_package_versions
from rackproof.parse.sha256sum import parse_sha256sum
from rackproof.parse.systemctl import parse_systemctl_show
from rackproof.parse.tuned import parse_tuned_profile
from rackproof.validation import Unmeasured, answered, check, expect, expect_all, read
from rackproof.validation.expected import hardware

IRQBALANCE = "systemctl show --property=Id,LoadState,ActiveState -- irqbalance.service"


@check(
    "os.holds",
    reads="system.holds",
    protects="A driver updated without its kernel, fabric manager or file system client no longer matches them.",
    hint="apt-mark hold NAME, or dnf versionlock add NAME.",
)
def test_holds(host: Host, arch: Architecture) -> None:
    names = arch.system.holds
    lines = answered(host, HOLDS + STATUS, "apt-mark").lines
    held = parse_holds(lines, dict.fromkeys(names))
    missing = [name for name in names if name not in held]
    if missing:
        raise AssertionError(f"expected on hold, actual not held: {', '.join(missing)}")


@check(
    "os.package_versions",
    reads="system.package_versions",
    protects="A node with another library version gives different results or fails jobs that include it.",
    hint="apt-get install NAME=VERSION, or dnf install NAME-VERSION; then hold it.",
)
def test_package_versions(host: Host, arch: Architecture) -> None:
    declared = arch.system.package_versions or {}
    names = " ".join(shlex.quote(name) for name in declared)
    # The answer has a line for each package, which proves it complete.
    command = (
        "if command -v dpkg-query >/dev/null; then"
        f" dpkg-query -W -f='package ${{Package}} ${{db:Status-Status}} ${{Version}}\\n' -- {names} 2>&1 || [ $? = 1 ];"
        f" else rpm -q --qf 'package %{{NAME}} installed %{{VERSION}}-%{{RELEASE}}\\n' -- {names} 2>&1 ||"
        " [ $? -lt 100 ]; fi"
    )
    installed = parse_package_versions(read(host, command), tuple(declared))
    expect_all(
        f"{name}: expected {version}, actual {', '.join(installed[name]) or NOT_INSTALLED}"
        for name, version in declared.items()
        if not installed[name] or not all(is_version(actual, version) for actual in installed[name])
    )


@check(
    "os.files",
    reads="system.files",
    protects="A manual change on one node makes it differ from the others.",
    hint="Compare the file with another node's; run `rackproof deploy` again.",
)
def test_files(host: Host, arch: Architecture) -> None:
    declared = arch.system.files or {}
    command = f"sha256sum -- {' '.join(shlex.quote(path) for path in declared)} 2>&1{STATUS}"
    answer = answered(host, command, "sha256sum", good=(0, 1))
    sums = parse_sha256sum(answer.lines, tuple(declared))
    expect_all(
        f"{path}: expected sha256 {sha256[:12]}, actual {sums[path][:12] if len(sums[path]) == 64 else sums[path]}"
        for path, sha256 in declared.items()
        if sums[path] != sha256
    )


@check(
    "os.swap",
    reads="system.swap",
    protects="One rank that waits for a swapped page stalls all ranks.",
    hint="swapoff -a, and remove the entry from /etc/fstab; zram-generator and swap files count as well.",
)
def test_swap(host: Host, arch: Architecture) -> None:
    swap_kib = parse_meminfo(read(host, MEMINFO))["SwapTotal"]
    if (swap_kib > 0) != arch.system.swap:
        expected = "swap space" if arch.system.swap else "no swap space"
        raise AssertionError(f"expected {expected}, actual {swap_kib / 1024:.0f} MiB")


@check(
    "os.irqbalance",
    reads="system.irqbalance",
    protects="irqbalance undoes the interrupt pinning of ports within minutes after boot.",
    hint="systemctl status irqbalance; disable or enable it as the architecture requires.",
)
def test_irqbalance(host: Host, arch: Architecture) -> None:
    (shown,) = _units(read(host, IRQBALANCE), 1)
    running = shown["ActiveState"] in ("active", "activating", "reloading", "refreshing")
    if not running and shown["ActiveState"] not in ("inactive", "failed", "deactivating"):
        raise Unmeasured(f"irqbalance is in an unknown state: {shown['ActiveState']} ({shown['LoadState']})")
    if running != arch.system.irqbalance:
        expected = "running" if arch.system.irqbalance else "not running"
        raise AssertionError(f"irqbalance: expected {expected}, actual {shown['ActiveState']} ({shown['LoadState']})")


@check(
    "os.tuned_profile",
    reads="system.tuned_profile",
    protects="Another profile sets other governors, idle states and sysctls at each boot.",
    hint="tuned-adm active; tuned-adm profile NAME.",
)
def test_tuned_profile(host: Host, arch: Architecture) -> None:
    expect(parse_tuned_profile(read(host, "tuned-adm active")), arch.system.tuned_profile, "tuned profile")


def services(arch: Architecture, node: Node, rack: Rack) -> Iterable[str]:
    expected = hardware(arch, node, "services")
    return expected.services if expected else ()


@check(
    "service.active",
    reads="roles.{role}.expect.services",
    each=services,
    protects="Without these daemons a node accepts jobs and fails them: no NVLink fabric, no RDMA, no local cache.",
    hint="systemctl status UNIT and journalctl -u UNIT; systemctl enable --now UNIT.",
)
def test_service(host: Host, arch: Architecture, node: Node, rack: Rack, item: str) -> None:
    units = list(services(arch, node, rack))
    names = " ".join(shlex.quote(unit) for unit in units)
    shown = _units(read(host, f"systemctl show --property=Id,LoadState,ActiveState -- {names}"), len(units))
    unit = shown[units.index(item)]
    if (unit["ActiveState"], unit["LoadState"]) != ("active", "loaded"):
        state = unit["ActiveState"] if unit["LoadState"] == "loaded" else unit["LoadState"]
        raise AssertionError(f"{item}: expected active, actual {state}")


def _units(output: str, count: int) -> tuple[dict[str, str], ...]:
    shown = parse_systemctl_show(output)
    if len(shown) != count or any({"ActiveState", "LoadState"} - set(unit) for unit in shown):
        raise ParseError("systemctl", f"answered for {len(shown)} of {count} units")
    return shown
