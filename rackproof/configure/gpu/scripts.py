"""Scripts that install and load the declared driver, and the files and holds that they change. Pure.

A script decides on the node, after its packages are installed, whether the module can be loaded at once or another
driver holds the GPUs until a reboot.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from typing import Final

from rackproof import shell
from rackproof.configure.files import PENDING, REBOOT
from rackproof.configure.gpu.install import NOUVEAU, OTHERS, DriverPlan, WantedDriver, followers
from rackproof.configure.gpu.state import FABRIC_UNIT, STAMP
from rackproof.configure.package_transaction.transaction import (
    ROOM_MIB,
    STRICT,
    Package,
    Policy,
    Transaction,
    transaction_script,
)
from rackproof.configure.rollback.journal import INITRAMFS, Later, file_line, hold_line, later, mark_lines
from rackproof.configure.versions.kernels import reboot_reason
from rackproof.core.machine import Machine
from rackproof.shell import Script

BUILD_TIMEOUT_S: Final = 1200
"""Modules of all DKMS packages for one kernel."""
INITRAMFS_TIMEOUT_S: Final = 1200
"""Seconds to rebuild the initramfs images of all kernels; one image takes a minute or two."""
NON_FREE: Final = "/etc/apt/sources.list.d/rackproof-non-free"
FABRIC_COPY: Final = f"/etc/systemd/system/{FABRIC_UNIT}"


REPLACED: Final = (
    "cuda-drivers*",
    "datacenter-gpu-manager*",
    "dkms-nvidia*",
    "kmod-nvidia*",
    "libcuda1",
    "libnvidia-*",
    "libxnvctrl*",
    "linux-modules-nvidia-*",
    "linux-objects-nvidia-*",
    "linux-signatures-nvidia-*",
    "nvidia-*",
    "xserver-xorg-video-nvidia*",
)
"""NVIDIA's own packages: those of another branch or flavour conflict with the declared ones."""


def transaction(
    packages: Sequence[Package], hold: Sequence[str], family: str, policy: Policy, prepare: Sequence[str] = (),
    downgrades: Sequence[str] = (),
) -> str:  # fmt: skip
    """Script that installs packages, holds some, and verifies both."""
    room = policy.free_mib
    return transaction_script(
        Transaction(
            family,
            tuple(_repository_version(package) for package in packages),
            hold=tuple(hold),
            removals=REPLACED,
            downgrades=tuple(downgrades),
            room_mib={path: max(room, least) for path, least in ROOM_MIB.items()},
            refresh=bool(packages),
            prepare=tuple(prepare),
            policy=policy,
        )
    )


def _repository_version(package: Package) -> Package:
    """With the revision behind the version left to the repository where only a version is declared."""
    if package.version is None or "-" in package.version or package.version.endswith("*"):
        return package
    return Package(package.name, f"{package.version}-*")


def held_by(install: Sequence[Package], hold: Sequence[str], family: str, wanted_: bool) -> tuple[str, ...]:
    """Packages to hold after an installation."""
    if family == "debian" or not wanted_:
        return tuple(hold)
    # Locks on replaced packages were removed before.
    return tuple(dict.fromkeys((*hold, *(package.name for package in install if package.version))))


def kept_packages(install: Sequence[Package], hold: Sequence[str], family: str) -> tuple[str, ...]:
    """Journal lines of the holds that ``transaction`` and ``script`` set or remove."""
    return tuple(hold_line(name, family) for name in held_by(install, hold, family, wanted_=True))


def kept(plan: DriverPlan, target: WantedDriver, machine: Machine) -> tuple[tuple[str, ...], tuple[Later, ...]]:
    """Journal lines to write before ``script``, and files whose new content only the script knows."""
    lines = list(kept_packages(plan.install, plan.hold, machine.family))
    unknown: list[Later] = []
    if plan.install and _needs_non_free(target, machine):
        unknown += [later(f"{NON_FREE}.{kind}") for kind in ("sources", "list")]
    if plan.initramfs or plan.install:
        lines += [*mark_lines((INITRAMFS,)), file_line(STAMP, hashlib.sha256(f"{target.stamp}\n".encode()).hexdigest())]
    if _copies_fabric_unit(plan, target):
        unknown.append(later(FABRIC_COPY))
    return tuple(lines), tuple(unknown)


def _needs_non_free(target: WantedDriver, machine: Machine) -> bool:
    return target.choice.source == "distribution" and machine.os_id == "debian"


def _copies_fabric_unit(plan: DriverPlan, target: WantedDriver) -> bool:
    return plan.fabric_unit or bool(plan.install and target.choice.fabric_manager)


def script(plan: DriverPlan, target: WantedDriver, machine: Machine, policy: Policy = STRICT) -> str:
    """Install, hold, rebuild, load, verify. Fails with one line on stderr where the result is not as declared."""
    lines = ["set -eu", "export LC_ALL=C.UTF-8 PATH=$PATH:/usr/sbin:/sbin", 'fail() { echo "$1" >&2; exit 1; }']
    prepare = _stream_lines(plan.stream) if plan.stream else []
    if plan.install and _needs_non_free(target, machine):
        package = plan.install[0].name
        prepare = [shell.script(__name__, "non_free", package=package, codename=machine.codename, file=NON_FREE)]
    hold = held_by(plan.install, plan.hold, machine.family, target.hold)
    if plan.install or prepare or hold:
        # Where only a branch is declared, a follower that was upgraded alone is downgraded to the driver's version.
        downgrades = [] if target.choice.version else [package.name for package in followers(target)]
        lines.append(transaction(plan.install, hold, machine.family, policy, prepare, downgrades))
    if plan.initramfs or plan.install:
        lines += _initramfs_lines(target.stamp, machine)
    if _copies_fabric_unit(plan, target):
        lines += _fabric_unit_lines()
    lines.append(_load(plan, target, machine))
    return Script.of(*lines)


def _stream_lines(stream: str) -> list[str]:
    name = shlex.quote(f"nvidia-driver:{stream}")
    missing = shlex.quote(
        f"the repositories of this node have no stream {stream} of the module nvidia-driver; mirror them with their"
        " modules, or declare a branch that they have"
    )
    return [
        "dnf -y -q module reset nvidia-driver >/dev/null",
        f"dnf -y -q module enable {name} || rp_fail {missing}",
    ]


def _initramfs_lines(stamp_: str, machine: Machine) -> list[str]:
    # For all kernels: the next boot may start another one.
    build = "update-initramfs -u -k all" if machine.family == "debian" else "dracut --force --regenerate-all"
    return [
        f"timeout {INITRAMFS_TIMEOUT_S} {build} >/dev/null || fail 'the initial file system could not be rebuilt:"
        " nouveau may come back at the next start'",
        f"mkdir -p {STAMP.rpartition('/')[0]}",
        f"printf '%s\\n' {stamp_} > {STAMP}.new && mv -f {STAMP}.new {STAMP}",
    ]


def _fabric_unit_lines() -> list[str]:
    """A drop-in cannot remove dependencies: a copy of the unit without them overrides the packaged one."""
    return [
        f"u=$(systemctl show -P FragmentPath {FABRIC_UNIT} 2>/dev/null) || u=",
        'if [ -n "$u" ] && grep -q -E "^After=.*multi-user.target" "$u"; then',
        f'  sed -E "/^After=/s/ ?multi-user\\.target//" "$u" > /etc/systemd/system/.{FABRIC_UNIT}.new',
        f"  mv -f /etc/systemd/system/.{FABRIC_UNIT}.new {FABRIC_COPY}",
        "  systemctl daemon-reload",
        "fi",
    ]


def _load(plan: DriverPlan, target: WantedDriver, machine: Machine) -> str:
    """Verify what is installed for the running kernel, and load it or name what prevents that."""
    choice, release = target.choice, target.release
    kernel_reason = reboot_reason(release) if release else ""
    ask = "dpkg-query -W -f=${source:Upstream-Version}" if machine.family == "debian" else "rpm -q --qf %{VERSION}"
    # The script finds these itself: the packages may have installed another version.
    own = {NOUVEAU, kernel_reason}
    marks = [mark for mark in plan.marks if mark not in own and not mark.startswith("driver ")]
    return shell.script(
        __name__, "load", *marks, release=release or "", kernel_reason=kernel_reason,
        build_s=BUILD_TIMEOUT_S if release and choice.dkms else "", version=choice.version or "", branch=choice.branch,
        flavour=choice.flavour, ask=ask, followers=" ".join(p.name for p in followers(target)),
        modules=" ".join(target.modules), others=" ".join(OTHERS), other_reason=NOUVEAU, marks=f"{PENDING}/{REBOOT}",
    )  # fmt: skip
