"""The version set that the inventory names: every package at exactly its version, and held; the locked kernel runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.machine import Machine
from rackproof.core.rack import Node, Rack
from rackproof.core.versions import LockedPackage, VersionSet, platform_of, stage_packages
from rackproof.errors import InventoryError, VersionSetError
from rackproof.parse import ParseError
from rackproof.parse.answer import STATUS, successful_answer
from rackproof.parse.machine import MACHINE_COMMAND, parse_machine
from rackproof.parse.packages import HOLDS, NOT_INSTALLED, parse_held_versions, parse_package_versions
from rackproof.remote.recording import Unmeasured
from rackproof.validation import check, expect_all, read
from rackproof.version_sets import LOCK_KEY
from rackproof.version_sets import versions_of as set_of

END = "; echo end of machine"


def asked(arch: Architecture, node: Node, rack: Rack) -> bool:
    """The architecture promises a version set, or the inventory names one."""
    return bool(arch.system.version_set) or LOCK_KEY in node.data


@check(
    "os.version_set",
    reads="system.version_set",
    when=asked,
    protects="A fabric manager, a library or a client that moved on one node fails there, in the middle of a job.",
    hint="Run the deploy again; look for what upgraded by itself (apt-mark showhold, dnf versionlock list).",
)
def test_version_set(host: Host, arch: Architecture, node: Node, rack: Rack) -> None:
    versions = locked_set(node, rack)
    machine = machine_of(read(host, MACHINE_COMMAND + END))
    try:
        wanted = stage_packages(versions, machine, "all", node.groups)
        kernel = platform_of(versions, machine).components.kernel
    except VersionSetError as error:
        raise AssertionError(f"expected an operating system of the version set, actual {error}") from None
    if not wanted:
        raise Unmeasured(f"the version set {versions.name} has no package for this node")
    problems = []
    if kernel and kernel.version != machine.kernel:
        problems.append(f"kernel: expected {kernel.version}, actual {machine.kernel}")
    expect_all([*problems, *wrong_versions(host, wanted, machine), *not_held(host, wanted, machine)])


def locked_set(node: Node, rack: Rack) -> VersionSet:
    """Raises Unmeasured without one, or when it cannot be used: nobody knows then what is expected."""
    try:
        found = set_of(node, str(Path(rack.source)))
    except (InventoryError, VersionSetError) as error:
        raise Unmeasured(str(error)) from None
    if found is None:
        raise Unmeasured(f"the inventory names no {LOCK_KEY} for this node")
    return found


def machine_of(output: str) -> Machine:
    lines = output.splitlines()
    if lines[-1:] != ["end of machine"]:
        raise ParseError("os-release", "the answer is cut off")
    try:
        machine = parse_machine(lines[:-1])
    except (ValueError, KeyError, IndexError) as error:
        raise ParseError("os-release", str(error)) from None
    if not re.fullmatch(r"[\w.~-]*", machine.os_version):
        raise ParseError("os-release", f"no version: {machine.os_version!r}")
    return machine


def wrong_versions(host: Host, wanted: tuple[LockedPackage, ...], machine: Machine) -> list[str]:
    names = " ".join(shlex.quote(each.name) for each in wanted)
    # The answer names every package, which proves it complete.
    if machine.family == "rhel":
        ask = f"rpm -q --qf 'package %{{NAME}} installed %{{EPOCHNUM}}:%{{VERSION}}-%{{RELEASE}}\\n' -- {names} 2>&1"
        command = f"{ask} || [ $? -lt 100 ]"
    else:
        ask = f"dpkg-query -W -f='package ${{Package}} ${{db:Status-Status}} ${{Version}}\\n' -- {names} 2>&1"
        command = f"{ask} || [ $? = 1 ]"
    found = parse_package_versions(read(host, command), tuple(each.name for each in wanted))
    problems = []
    for each in wanted:
        actual = [_epoch_as(version, each.version) for version in found[each.name]]
        # RHEL keeps several kernels; everything else has one version.
        several = machine.family == "rhel" and each.name.startswith("kernel")
        if not actual or not (any if several else all)(version == each.version for version in actual):
            problems.append(f"{each.name}: expected {each.version}, actual {', '.join(actual) or NOT_INSTALLED}")
    return problems


def not_held(host: Host, wanted: tuple[LockedPackage, ...], machine: Machine) -> list[str]:
    body = successful_answer("apt-mark", read(host, HOLDS + STATUS)).body.splitlines()
    held = parse_held_versions(body, {each.name: each.version for each in wanted})
    loose = [each.name for each in wanted if each.name not in held]
    return [f"expected on hold, actual not held: {', '.join(loose)}"] if loose else []


def _epoch_as(version: str, locked: str) -> str:
    """rpm's answer has an epoch always; a lock may leave it out."""
    return version if ":" in locked else version.removeprefix("0:")
