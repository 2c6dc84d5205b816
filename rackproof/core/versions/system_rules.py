"""Contradictions of kernel, network stack, file-system clients and repositories. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rackproof.core.version_numbers import numbers
from rackproof.core.versions import tables
from rackproof.core.versions.finding import Contradiction, is_rhel
from rackproof.core.versions.models import DISTRIBUTION, Components, Platform


def kernel_headers(name: str, platform: Platform) -> Iterator[Contradiction]:
    kernel = platform.components.kernel
    if kernel is None or not kernel.packages:
        return
    release = kernel.version
    if is_rhel(name):
        base = release.removesuffix(".x86_64").removesuffix(".aarch64")
        images = [p for p, v in kernel.packages.items() if p in ("kernel", "kernel-core") and v.endswith(base)]
        headers = [p for p, v in kernel.packages.items() if p == "kernel-devel" and v.endswith(base)]
        packages = f"kernel-core and kernel-devel at {base}"
    else:
        images = [p for p in kernel.packages if re.match(r"linux-image-(unsigned-)?", p) and p.endswith(release)]
        headers = [p for p in kernel.packages if p == f"linux-headers-{release}"]
        packages = f"linux-image-{release} and linux-headers-{release}"
    builds = any(component.dkms for _, component in platform.components.named())
    if not images or (builds and not headers):
        yield Contradiction(
            "components.kernel.packages",
            f"expected {packages}, actual {', '.join(kernel.packages)}",
            "list kernel and headers of the locked release, otherwise DKMS builds for another one",
            "DeepOps nvidia-driver role, install-redhat.yml; slurm-appliance PR 428, 465",
        )


def kernel_for_dkms(name: str, platform: Platform) -> Iterator[Contradiction]:
    built = [key for key, component in platform.components.named() if component.dkms]
    if built and platform.components.kernel is None:
        yield Contradiction(
            "components.kernel",
            f"{', '.join(built)} build modules with DKMS, and the set has no kernel to build them for",
            "lock kernel and headers as well",
            "slurm-appliance PR 428, 465, 489, 496",
        )
    precompiled = platform.components.driver is not None and platform.components.driver.precompiled
    if precompiled and platform.components.kernel is None:
        yield Contradiction(
            "components.kernel",
            "precompiled modules are for one kernel, and the set has none",
            "lock their kernel",
            "NVIDIA driver installation guide, precompiled streams",
        )


def ofed_end(name: str, platform: Platform) -> Iterator[Contradiction]:
    network = platform.components.network
    if network is None:
        return
    if network.stack == "mlnx_ofed" and numbers(network.version)[:2] > tables.OFED_LAST:
        yield Contradiction(
            "components.network.version",
            f"there is no MLNX_OFED {network.version}: 24.10 is the last",
            "take DOCA-OFED (stack: doca)",
            tables.OFED_LAST_SOURCE,
        )
    if network.stack == "inbox" and network.packages and any("ofed" in package for package in network.packages):
        yield Contradiction(
            "components.network.packages",
            "the stack is inbox, and packages of OFED are listed",
            "set stack: doca or mlnx_ofed, or leave the packages out",
            "the set itself",
        )
    inside = tables.DOCA_OFED.get(numbers(network.version)[:2]) if network.stack == "doca" else None
    if inside and network.ofed and numbers(network.ofed)[:2] != inside:
        yield Contradiction(
            "components.network.ofed",
            f"DOCA {network.version} has OFED {inside[0]}.{inside[1]:02d} inside, actual {network.ofed}",
            "read the release notes of DOCA-Host",
            tables.DOCA_OFED_SOURCE,
        )


def ofed_of(components: Components) -> tuple[int, ...] | None:
    """Version of the OFED that clients are built against; None for the kernel's own."""
    network = components.network
    if network is None or network.stack == "inbox":
        return None
    if network.stack == "mlnx_ofed":
        return numbers(network.version)[:2]
    return numbers(network.ofed)[:2] if network.ofed else tables.DOCA_OFED.get(numbers(network.version)[:2])


def client_builds(name: str, platform: Platform) -> Iterator[Contradiction]:
    """A client was built against another OFED, or for another kernel, than the set's."""
    components = platform.components
    ofed = ofed_of(components)
    shown = "inbox" if ofed is None else ".".join(f"{part:02d}" for part in ofed)
    for kind, client in components.clients.items():
        if client.ofed is not None:
            built = None if client.ofed == "inbox" else numbers(client.ofed)[:2]
            if built != ofed:
                yield Contradiction(
                    f"components.clients.{kind}.ofed",
                    f"built against OFED {client.ofed}, the set has {shown}",
                    "build the client again (/usr/src/ofa_kernel/default), or lock the network stack of this build",
                    "slurm-appliance ansible/roles/lustre; BeeGFS client autobuild (OFED_INCLUDE_PATH)",
                )
        if client.kernel is not None and components.kernel and client.kernel != components.kernel.version:
            yield Contradiction(
                f"components.clients.{kind}.kernel",
                f"its modules are for kernel {client.kernel}, the set has {components.kernel.version}",
                "lock the client's build for this kernel, or the kernel of this build",
                "Lustre, Storage Scale and vastnfs packages are tied to one kernel",
            )


def repository_kind(name: str, platform: Platform) -> Iterator[Contradiction]:
    kind = "dnf" if is_rhel(name) else "apt"
    for repository, declared in platform.repositories.items():
        if declared.kind != kind:
            yield Contradiction(
                f"repositories.{repository}.kind",
                f"expected {kind} on {name}, actual {declared.kind}",
                "list the platform's own repositories",
                "the set itself",
            )


def mft_follows_doca(name: str, platform: Platform) -> Iterator[Contradiction]:
    network, cuda = platform.components.network, platform.components.cuda or platform.components.driver
    if network is None or network.stack != "doca" or cuda is None or cuda.repository == DISTRIBUTION:
        return
    if cuda.repository == network.repository:
        return
    exclude = platform.repositories[cuda.repository].exclude
    if not any(pattern.startswith("mft") for pattern in exclude):
        yield Contradiction(
            f"repositories.{cuda.repository}.exclude",
            "CUDA's repository has firmware tools too, but they must match DOCA",
            "exclude [mft*, kernel-mft*] there",
            "azhpc-images components/install_doca.sh",
        )
