"""Inputs, files and units of the declared container runtime."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from pyinfra.context import host

from rackproof.configure import facts
from rackproof.configure.containers import bridge, daemon
from rackproof.configure.containers.inputs import FOLDER, ContainerInputs
from rackproof.configure.files import Entry, RemoteDirectory, RemoteFile
from rackproof.configure.gpu import runtimes
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.settings import read_inputs
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site
from rackproof.configure.units import Unit
from rackproof.core.architecture import Containers
from rackproof.core.versions import LockedPackage
from rackproof.errors import DeclarationError


def applies(site: Site) -> bool:
    declared = site.architecture.containers
    return declared is not None and bool(set(declared.roles) & set(site.node.groups))


def why_nothing(site: Site) -> str | None:
    return None if applies(site) or hands_out_gpus(site) else "the architecture gives this node no containers"


def hands_out_gpus(site: Site) -> bool:
    """Whether the node has real GPUs and hands them out to containers. Raises DeclarationError."""
    if not site.has_role("gpu"):
        return False
    stack = read_inputs(site.node, GpuInputs)
    runtimes_with_gpus = runtimes.handing_out(site.architecture.containers, site.node.groups, stack)
    return site.real_gpus is not None and bool(runtimes_with_gpus or stack.container_toolkit is not None)


def inputs_here(site: Site) -> ContainerInputs:
    """Raises DeclarationError."""
    declared = site.architecture.containers
    chosen = read_inputs(site.node, ContainerInputs)
    if declared and declared.runtime == "enroot" and not chosen.packages:
        raise DeclarationError("containers.packages: no distribution has enroot; give URL and sha256 of its packages")
    return chosen


def sources(names: Sequence[str], locked: Iterable[LockedPackage]) -> tuple[tuple[str, ...], list[str]]:
    """Components of the version set that have some of the packages, and the packages of other repositories."""
    components = {package.name: package.component for package in locked}
    stages = dict.fromkeys(components[name] for name in names if name in components)
    return tuple(stages), [name for name in names if name not in components]


def check_sources(names: list[str], family: str, inputs: ContainerInputs) -> None:
    """Raises DeclarationError for packages that are not installed and that no known repository has."""
    missing = daemon.without_source(names, family, inputs)
    if not missing:
        return
    installed = host.get_fact(facts.InstalledPackages, packages=names, family=family)
    # Packages of the node's image need no repository.
    if installed is not None and not set(missing) <= installed:
        raise DeclarationError(
            f"containers.repository: RHEL's family has no {' and no '.join(missing)}; give source"
            " and key (url and sha256) of a repository that has, or name it in the version set"
        )


def mountpoints(site: Site) -> tuple[str, ...]:
    """Mount points of the shared storage in containers. Raises DeclarationError for storage not mounted here."""
    declared = site.architecture.containers
    paths: list[str] = []
    mounted = site.client_storage()
    for name in declared.bridge if declared else ():
        if name not in mounted:
            raise DeclarationError(f"containers.bridge: {name} is not mounted on {', '.join(site.node.groups)}")
        paths += mounted[name].mountpoints
    return tuple(dict.fromkeys(paths))


def folders(site: Site, declared: Containers) -> tuple[str, ...]:
    """Folders of the container user, one in every storage; several mounts of a storage show the same folder."""
    mounted = site.client_storage()
    return tuple(f"{mounted[name].mountpoint}/{FOLDER}" for name in declared.bridge if name in mounted)


def files(
    site: Site, declared: Containers, chosen: ContainerInputs, family: str = "debian", arch: str = "x86_64"
) -> tuple[Entry, ...]:
    """``arch``: architecture of the processor, as ``uname -m`` prints it."""
    entries: list[Entry] = []
    if declared.runtime == "docker":
        entries += [
            RemoteDirectory("/etc/docker"),
            RemoteFile("/etc/docker/daemon.json", daemon.docker_json(declared, chosen), restart=("docker.service",)),
            *_order(site, declared, "docker"),
        ]
    elif declared.runtime == "containerd":
        entries += [
            RemoteDirectory("/etc/containerd"),
            RemoteFile(
                "/etc/containerd/config.toml",
                daemon.containerd_toml(declared, chosen),
                restart=("containerd.service",),
            ),
            *_order(site, declared, "containerd"),
        ]
        if chosen.registry_mirrors:
            entries.append(
                RemoteFile("/etc/containerd/certs.d/docker.io/hosts.toml", daemon.mirrors_toml(chosen))
            )  # fmt: skip
    elif declared.runtime == "podman":
        entries += [
            RemoteDirectory("/etc/containers"),
            RemoteFile("/etc/containers/containers.conf.d/60-rackproof.conf", daemon.podman_conf(chosen)),
        ]
        if declared.data_root or declared.storage_driver:
            entries.append(RemoteFile("/etc/containers/storage.conf", daemon.podman_storage(declared)))
        if chosen.registry_mirrors:
            entries.append(
                RemoteFile("/etc/containers/registries.conf.d/60-rackproof.conf", daemon.podman_registries(chosen))
            )
    else:
        entries += [
            RemoteFile("/etc/enroot/enroot.conf", daemon.enroot_conf(chosen)),
            RemoteFile("/etc/enroot/mounts.d/60-rackproof.fstab", daemon.enroot_mounts(mountpoints(site))),
            RemoteDirectory(chosen.enroot_data, mode="1777"),
            RemoteFile("/etc/tmpfiles.d/rackproof-enroot.conf", daemon.enroot_tmpfiles()),
            RemoteDirectory(daemon.ENROOT_RUNTIME, mode="1777"),
        ]
        slurm = site.architecture.slurm
        if slurm and slurm.pyxis:
            entries += [
                RemoteFile(
                    "/etc/slurm/plugstack.conf", "# Written by rackproof.\ninclude /etc/slurm/plugstack.conf.d/*.conf\n"
                ),
                RemoteFile(
                    "/etc/slurm/plugstack.conf.d/pyxis.conf",
                    daemon.pyxis_conf(chosen, family, arch),
                    restart=("slurmd.service",),
                ),
            ]
    if declared.bridge:
        entries += [RemoteDirectory("/var/lib/rackproof"), program(site, declared, family)]
    return tuple(entries)


def program(site: Site, declared: Containers, family: str = "debian") -> RemoteFile:
    return rendered(
        bridge.PROGRAM,
        mode="755",
        runtime=declared.runtime,
        host_root=bridge.ROOT,
        shared=bridge.SHARED,
        mountpoints=[shlex.quote(path) for path in mountpoints(site)],
        selinux=family == "rhel",
    )


def units(declared: Containers) -> tuple[Unit, ...]:
    """podman and enroot have no daemon."""
    if declared.runtime not in ("docker", "containerd"):
        return ()
    return (Unit(f"{declared.runtime}.service"),)


def _order(site: Site, declared: Containers, name: str) -> list[Entry]:
    """Started before the mounts, a daemon would give containers the empty mount points, and fill the root disk.

    systemd gives a daemon up whose mount fails once, as when clients boot before their server (systemd.unit(5),
    ``Requires=``). The service that retries the mounts starts it then.
    """
    mounted = site.client_storage()
    shared = [path for key in declared.mounts if key in mounted for path in mounted[key].mountpoints]
    paths = [*([declared.data_root] if declared.data_root else []), *shared]
    needs = f"RequiresMountsFor={' '.join(paths)}\n" if paths else ""
    text = (
        "# Written by rackproof. RDMA pins memory; containers see the mounts that are there when the daemon starts.\n"
        f"[Unit]\nAfter=remote-fs.target rackproof-mounts.service\n{needs}"
        "[Service]\nLimitMEMLOCK=infinity\nPrivateMounts=no\n"
    )
    unit, folder = f"{name}.service", "/etc/systemd/system"
    entries: list[Entry] = [RemoteFile(f"{folder}/{unit}.d/rackproof.conf", text, restart=(unit,))]
    if shared:
        again = f"# Written by rackproof. Starts the daemon that waits for these mounts.\n[Unit]\nWants={unit}\n"
        entries.append(RemoteFile(f"{folder}/rackproof-mounts.service.d/{name}.conf", again))
    return entries
