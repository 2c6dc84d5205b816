"""Version set of the inventory: every package installed at its locked version and held, the locked kernel running."""

from __future__ import annotations

import shlex
from pathlib import Path

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.machine import Machine
from rackproof.core.rack import Node, Rack
from rackproof.core.versions import LockedPackage, VersionSet, platform_of, stage_packages
from rackproof.errors import InventoryError, VersionSetError
from rackproof.parse import ParseError
from rackproof.parse.answer import STATUS
from rackproof.parse.machine import MACHINE_COMMAND, parse_machine
from rackproof.parse.packages import HOLDS, NOT_INSTALLED, parse_holds, parse_package_versions
from rackproof.parse.text import whole_lines
from rackproof.remote.recording import Unmeasured
from rackproof.validation import answered, check, expect_all, read
from rackproof.version_sets import LOCK_KEY
from rackproof.version_sets import versions_of as set_of

END = "; echo end of machine"


def has_version_set(arch: Architecture, node: Node, rack: Rack) -> bool:
    """Whether the architecture requires a version set, or the inventory names one."""
    return bool(arch.system.version_set) or LOCK_KEY in node.data


@check(
    "os.version_set",
    reads="system.version_set",
    when=has_version_set,
    protects="A node with another version of a driver, library or client fails in the middle of a job.",
    hint="Run `rackproof deploy` again; find what upgraded the package (apt-mark showhold, dnf versionlock list).",
)
def test_version_set(host: Host, node: Node, rack: Rack) -> None:
    versions = locked_set(node, rack)
    machine = machine_of(read(host, MACHINE_COMMAND + END))
    try:
        packages = stage_packages(versions, machine, "all", node.groups)
        kernel = platform_of(versions, machine).components.kernel
    except VersionSetError as error:
        raise AssertionError(f"expected an operating system of the version set, actual {error}") from None
    if not packages:
        raise Unmeasured(f"the version set {versions.name} has no package for this node")
    problems = []
    if kernel and kernel.version != machine.kernel:
        problems.append(f"kernel: expected {kernel.version}, actual {machine.kernel}")
    expect_all([*problems, *wrong_versions(host, packages, machine), *not_held(host, packages)])


def locked_set(node: Node, rack: Rack) -> VersionSet:
    """The node's version set. Raises Unmeasured when there is none or it is invalid."""
    try:
        versions = set_of(node, str(Path(rack.source)))
    except (InventoryError, VersionSetError) as error:
        raise Unmeasured(str(error)) from None
    if versions is None:
        raise Unmeasured(f"the inventory names no {LOCK_KEY} for this node")
    return versions


def machine_of(output: str) -> Machine:
    *lines, last = whole_lines("os-release", output)
    if last != "end of machine":
        raise ParseError("os-release", "the answer is cut off")
    return parse_machine(lines)


def wrong_versions(host: Host, packages: tuple[LockedPackage, ...], machine: Machine) -> list[str]:
    names = " ".join(shlex.quote(package.name) for package in packages)
    # The answer has a line for each package, which proves it complete.
    if machine.family == "rhel":
        ask = f"rpm -q --qf 'package %{{NAME}} installed %{{EPOCHNUM}}:%{{VERSION}}-%{{RELEASE}}\\n' -- {names} 2>&1"
        command = f"{ask} || [ $? -lt 100 ]"
    else:
        ask = f"dpkg-query -W -f='package ${{Package}} ${{db:Status-Status}} ${{Version}}\\n' -- {names} 2>&1"
        command = f"{ask} || [ $? = 1 ]"
    installed = parse_package_versions(read(host, command), tuple(package.name for package in packages))
    problems = []
    for package in packages:
        actual = [_epoch_as(version, package.version) for version in installed[package.name]]
        # RHEL keeps several kernels; other packages have one version.
        several = machine.family == "rhel" and package.name.startswith("kernel")
        if not actual or not (any if several else all)(version == package.version for version in actual):
            problems.append(f"{package.name}: expected {package.version}, actual {', '.join(actual) or NOT_INSTALLED}")
    return problems


def not_held(host: Host, packages: tuple[LockedPackage, ...]) -> list[str]:
    lines = answered(host, HOLDS + STATUS, "apt-mark").lines
    held = parse_holds(lines, {package.name: package.version for package in packages})
    loose = [package.name for package in packages if package.name not in held]
    return [f"expected on hold, actual not held: {', '.join(loose)}"] if loose else []


def _epoch_as(version: str, locked: str) -> str:
    """rpm always prints an epoch; a lock may omit it."""
    return version if ":" in locked else version.removeprefix("0:")
