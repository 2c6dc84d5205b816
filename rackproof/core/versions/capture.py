"""Make a version set from the installed versions of nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rackproof.core.machine import Machine
from rackproof.core.version_numbers import without_epoch
from rackproof.core.versions.models import Platform, VersionSet
from rackproof.core.versions.tables import KERNEL_PACKAGES, OPEN_MODULES

_NAMES: Final[tuple[tuple[str, str], ...]] = (
    # component: pattern of its packages, for all repositories; the first match counts
    ("container_toolkit", r"(lib)?nvidia-container.*"),
    ("fabric_manager", r"nvidia-fabric-?manager.*"),
    ("nvlsm", r"nvlsm|nvlink5.*"),
    ("imex", r"nvidia-imex.*"),
    ("gds", r"nvidia-gds.*|nvidia-fs.*|gds-tools.*|libcufile.*"),
    ("dcgm", r"datacenter-gpu-manager.*"),
    ("nccl", r"libnccl.*"),
    (
        "driver",
        r"nvidia-(driver|open|headless|kernel|dkms|utils|compute|firmware|settings|persistenced|modprobe|legacy).*",
    ),
    ("driver", r"(libnvidia-|libcuda1|cuda-drivers|kmod-nvidia|linux-modules-nvidia|xserver-xorg-video-nvidia).*"),
    ("cuda", r"cuda(-.*)?|libcu(blas|dnn|fft|rand|solver|sparse)\d*.*|libnvjitlink.*|libnpp.*"),
    ("network", r"(doca|mlnx|ofed|kernel-mft|mft|openibd|knem|xpmem|iser|isert|srp)(-.*)?"),
    ("clients.lustre", r"(kmod-)?lustre-client.*|lustre-client.*"),
    ("clients.beegfs", r"(lib)?beegfs.*"),
    ("clients.gpfs", r"gpfs\..*"),
    ("clients.daos", r"daos(-.*)?"),
    ("clients.vastnfs", r"vastnfs.*"),
    ("clients.ceph", r"ceph-common"),
)
_MAIN: Final = {
    "driver": r"nvidia-open|cuda-drivers|nvidia-driver(-\d+.*)?|nvidia-headless-.*|nvidia-driver-cuda",
    "cuda": r"cuda-toolkit-\d+-\d+|cuda-toolkit|cuda-runtime-.*|cuda",
    "network": r"doca-ofed|doca-all|mlnx-ofed-all|mlnx-ofed-kernel-.*",
    "dcgm": r"datacenter-gpu-manager(-4-core)?",
    "gds": r"nvidia-gds|nvidia-fs.*",
    "nccl": r"libnccl2?",
}
"""Component: pattern of the package that has the component's version."""


@dataclass(frozen=True, slots=True)
class Captured:
    """Installed versions of one node."""

    machine: Machine
    packages: Mapping[str, frozenset[str]]
    dkms: tuple[str, ...]
    """Modules that DKMS has installed for the running kernel."""
    firmware: Mapping[str, str]
    """PSID: version; several versions of one PSID are joined, ``a, b``."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A value of a node that differs from most nodes of its platform."""

    node: str
    key: str
    """``kernel``, a package, or ``firmware PSID``."""
    actual: str
    others: str

    @property
    def sentence(self) -> str:
        return f"{self.node}: {self.key}: {self.actual}, most others: {self.others}"


def locked_packages(captured: Captured) -> dict[str, dict[str, str]]:
    """``{component: {package: version}}`` of a node. Raises ValueError for a package with two versions."""
    machine = captured.machine
    locked: dict[str, dict[str, str]] = {}
    release = machine.kernel
    base = release.removesuffix(f".{machine.arch}")
    for name, versions in sorted(captured.packages.items()):
        if machine.family == "rhel" and (KERNEL_PACKAGES.fullmatch(name) or name == "kernel-headers"):
            own = [version for version in versions if version.endswith(base)]
            if own:
                locked.setdefault("kernel", {})[name] = own[0]
            continue
        if re.fullmatch(rf"linux-(image|image-unsigned|headers|modules|modules-extra)-{re.escape(release)}", name):
            key: str | None = "kernel"
        else:
            key = next((key for key, pattern in _NAMES if re.fullmatch(pattern, name)), None)
        if key is not None:
            if len(versions) > 1:
                raise ValueError(f"{name} is installed in several versions: {', '.join(sorted(versions))}")
            locked.setdefault(key, {})[name] = next(iter(versions))
    return locked


def platform_key(machine: Machine) -> str:
    """``ubuntu-24.04``; in RHEL's family with the major version only, ``rocky-9``."""
    return f"{machine.os_id}-{machine.major if machine.family == 'rhel' else machine.os_version}"


def differences_of(captures: Mapping[str, Captured]) -> tuple[Difference, ...]:
    """Values of nodes that differ from most nodes of their platform: kernel, locked packages, firmware."""
    differences = []
    for platform in sorted({platform_key(capture.machine) for capture in captures.values()}):
        nodes = {name: capture for name, capture in captures.items() if platform_key(capture.machine) == platform}
        facts = {name: _facts(capture) for name, capture in nodes.items()}
        for key in sorted({key for values in facts.values() for key in values}):
            # A package that only some roles have (a driver on GPU nodes) is no difference; two versions of it are.
            present = {name: values[key] for name, values in facts.items() if key in values}
            usual = Counter(present.values()).most_common(1)[0][0]
            differences += [Difference(name, key, value, usual) for name, value in present.items() if value != usual]
    return tuple(differences)


def _facts(captured: Captured) -> dict[str, str]:
    facts = {"kernel": captured.machine.kernel}
    for packages in locked_packages(captured).values():
        facts |= packages
    return facts | {f"firmware {psid}": version for psid, version in captured.firmware.items()}


def assemble(name: str, captures: Mapping[str, Captured], draft: VersionSet | None = None) -> VersionSet:
    """One set of all nodes. Repositories and further keys of components come from ``draft``.

    Raises ValueError; pydantic's ValidationError, a subclass, for an invalid set.
    """
    platforms: dict[str, Any] = {}
    for captured in captures.values():
        key = platform_key(captured.machine)
        base = draft.platforms.get(key) if draft else None
        merged = platforms.setdefault(key, {"repositories": {}, "components": {"clients": {}}})
        if base is not None:
            merged["repositories"] = base.model_dump(mode="json", exclude_defaults=True).get("repositories", {})
        for component, packages in locked_packages(captured).items():
            entry = _component(component, packages, captured, base)
            kind, _, client = component.partition(".")
            if client:
                merged["components"][kind].setdefault(client, entry)
            else:
                known = merged["components"].setdefault(component, entry)
                known["packages"] |= entry["packages"]
        mixed = [psid for psid, version in captured.firmware.items() if ", " in version]
        if mixed:
            raise ValueError(f"adapters {mixed[0]} of one node have firmware {captured.firmware[mixed[0]]}")
        if captured.firmware:
            merged["components"]["nic_firmware"] = [
                {"psid": psid, "version": version} for psid, version in sorted(captured.firmware.items())
            ]
    return VersionSet.model_validate({"apiVersion": "versions/v1", "name": name, "platforms": platforms})


def _component(key: str, packages: Mapping[str, str], captured: Captured, base: Platform | None) -> dict[str, Any]:
    known = dict(base.components.named()).get(key) if base else None
    entry: dict[str, Any] = known.model_dump(mode="json", exclude_defaults=True) if known else {}
    entry |= {"packages": dict(packages), "version": _version(key, packages, captured)}
    entry.pop("source", None)
    if key == "driver":
        opened = any(OPEN_MODULES.search(package) for package in packages)
        entry["flavour"] = "open" if opened else "proprietary"
        entry["precompiled"] = "nvidia" not in captured.dkms
        entry["dkms"] = [] if entry["precompiled"] else ["nvidia"]
    elif key == "network":
        entry.setdefault("stack", "doca" if any(package.startswith("doca") for package in packages) else "mlnx_ofed")
        ours = re.compile(r"mlnx|iser|isert|srp|knem|xpmem|kernel-mft")
        entry["dkms"] = [module for module in captured.dkms if ours.match(module)]
    elif key == "gds":
        entry["dkms"] = [module for module in captured.dkms if module == "nvidia-fs"]
    elif key.startswith("clients."):
        entry["dkms"] = [module for module in captured.dkms if key.partition(".")[2] in module]
    return {name: value for name, value in entry.items() if value not in ([], None, False)}


def _version(key: str, packages: Mapping[str, str], captured: Captured) -> str:
    if key == "kernel":
        return captured.machine.kernel
    pattern = _MAIN.get(key)
    main = next((name for name in packages if pattern and re.fullmatch(pattern, name)), next(iter(packages)))
    upstream = without_epoch(packages[main])
    return re.split(r"-(?=[^-]*$)|\+|~", upstream)[0] or upstream
