"""Configuration of the runtimes: docker's JSON, containerd's TOML, podman's and enroot's files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.packages import DOWNLOADS, names_for
from rackproof.core.architecture import Containers

PACKAGES = {
    "docker": ("docker.io",),
    "containerd": ("containerd",),
    "podman": ("crun", "fuse-overlayfs", "podman", "uidmap"),
    "enroot": (*DOWNLOADS, "fuse-overlayfs", "jq", "parallel", "squashfs-tools", "uidmap", "zstd"),
}
"""By runtime, with Debian's names. enroot's own packages are downloads; here is what they need."""
FOREIGN = {"rhel": ("docker-ce", "containerd.io")}
"""By family: packages that its own repositories do not have."""
ENROOT_RUNTIME = "/run/enroot"
"""Users make their own folders below it, so it has the mode of /tmp; /run is empty at every boot."""
NVIDIA_RUNTIME = "/usr/bin/nvidia-container-runtime"


def packages(runtime: str, family: str) -> tuple[str, ...]:
    """By the family's names. RHEL always has what downloads need."""
    return names_for((name for name in PACKAGES[runtime] if family == "debian" or name not in DOWNLOADS), family)


def without_source(names: Iterable[str], family: str, inputs: ContainerInputs) -> tuple[str, ...]:
    """Packages that no known repository has."""
    return () if inputs.repository else tuple(name for name in names if name in FOREIGN.get(family, ()))


def docker_json(declared: Containers, inputs: ContainerInputs) -> str:
    """``/etc/docker/daemon.json``. The GPU's runtime is named here and not by ``nvidia-ctk``: one writer for a file."""
    values: dict[str, Any] = {
        "exec-opts": ["native.cgroupdriver=systemd"],
        "live-restore": inputs.live_restore,
        "log-driver": "json-file",
        "log-opts": {"max-file": str(inputs.log_files), "max-size": f"{inputs.log_max_mib}m"},
        # RDMA pins what it registers; without this a container has 64 KiB to pin.
        "default-ulimits": {
            "memlock": {"Name": "memlock", "Hard": -1, "Soft": -1},
            "nofile": {"Name": "nofile", "Hard": 1048576, "Soft": 1048576},
        },
    }
    if declared.data_root:
        values["data-root"] = declared.data_root
    if declared.storage_driver:
        values["storage-driver"] = declared.storage_driver
    if inputs.registry_mirrors:
        values["registry-mirrors"] = list(inputs.registry_mirrors)
    if declared.nvidia_runtime:
        values["runtimes"] = {"nvidia": {"path": NVIDIA_RUNTIME, "args": []}}
    if declared.default_runtime:
        values["default-runtime"] = declared.default_runtime
    if declared.cdi:
        values["features"] = {"cdi": True}
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


def containerd_toml(declared: Containers, inputs: ContainerInputs) -> str:
    """``/etc/containerd/config.toml`` in version 2, which containerd 1.7 and 2.x read."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    lines = ["# Written by rackproof.", "version = 2"]
    if declared.data_root:
        lines.append(f"root = {json.dumps(declared.data_root)}")
    lines += ["", f"[{cri}]", f"  enable_cdi = {'true' if declared.cdi else 'false'}"]
    lines += ["", f"[{cri}.containerd]"]
    if declared.storage_driver:
        lines.append(f"  snapshotter = {json.dumps(declared.storage_driver)}")
    lines.append(f"  default_runtime_name = {json.dumps(declared.default_runtime or 'runc')}")
    for name, binary in (("runc", None), *((("nvidia", NVIDIA_RUNTIME),) if declared.nvidia_runtime else ())):
        lines += ["", f"[{cri}.containerd.runtimes.{name}]", '  runtime_type = "io.containerd.runc.v2"']
        lines += [f"[{cri}.containerd.runtimes.{name}.options]", "  SystemdCgroup = true"]
        if binary:
            lines.append(f"  BinaryName = {json.dumps(binary)}")
    if inputs.registry_mirrors:
        lines += ["", f"[{cri}.registry]", '  config_path = "/etc/containerd/certs.d"']
    return "\n".join(lines) + "\n"


def mirrors_toml(inputs: ContainerInputs) -> str:
    """``hosts.toml`` of docker.io for containerd."""
    lines = ["# Written by rackproof.", 'server = "https://registry-1.docker.io"']
    for url in inputs.registry_mirrors:
        lines += [f"[host.{json.dumps(url)}]", '  capabilities = ["pull", "resolve"]']
    return "\n".join(lines) + "\n"


def podman_conf(inputs: ContainerInputs) -> str:
    """``containers.conf``: values that need no systemd session, which jobs do not have."""
    size = inputs.log_max_mib * 1024 * 1024
    return (
        "# Written by rackproof.\n[containers]\n"
        f"log_size_max = {size}\n"
        "[engine]\n"
        "# A job has no systemd of its own: events in a file, control groups by the kernel's file system.\n"
        'events_logger = "file"\n'
        'cgroup_manager = "cgroupfs"\n'
    )


def podman_storage(declared: Containers) -> str:
    """``storage.conf``; users' images stay apart from each other below the same root."""
    root = declared.data_root or "/var/lib/containers/storage"
    users = f'rootless_storage_path = "{root}/users/$UID"\n' if declared.data_root else ""
    return (
        "# Written by rackproof.\n[storage]\n"
        f'driver = "{declared.storage_driver or "overlay"}"\n'
        f'runroot = "/run/containers/storage"\ngraphroot = "{root}"\n{users}'
    )


def podman_registries(inputs: ContainerInputs) -> str:
    lines = ["# Written by rackproof.", "[[registry]]", 'location = "docker.io"']
    for mirror in inputs.registry_mirrors:
        lines += ["[[registry.mirror]]", f"location = {json.dumps(mirror.partition('://')[2] or mirror)}"]
    return "\n".join(lines) + "\n"


def enroot_conf(inputs: ContainerInputs) -> str:
    """``enroot.conf``: users' images apart from each other, on a local drive; RDMA and shared mounts by mounts.d."""
    base = inputs.enroot_data
    return (
        "# Written by rackproof.\n"
        f"ENROOT_RUNTIME_PATH {ENROOT_RUNTIME}/user-$(id -u)\n"
        f"ENROOT_CACHE_PATH {base}/cache-$(id -u)\n"
        f"ENROOT_DATA_PATH {base}/data-$(id -u)\n"
        "ENROOT_MOUNT_HOME no\nENROOT_RESTRICT_DEV no\nENROOT_ROOTFS_WRITABLE yes\nENROOT_REMAP_ROOT no\n"
    )


def enroot_tmpfiles() -> str:
    """tmpfiles.d(5): without a login session, as in a job, no XDG_RUNTIME_DIR is there for enroot's default."""
    return f"# Written by rackproof.\nd {ENROOT_RUNTIME} 1777 root root -\n"


def enroot_mounts(mountpoints: tuple[str, ...]) -> str:
    """``mounts.d``: in every container, at the same place. rslave: a file system that is mounted again shows."""
    lines = ["# Written by rackproof."]
    lines += [f"{path} {path} none x-create=dir,bind,rslave,nofail 0 0" for path in mountpoints]
    lines.append("/dev/infiniband /dev/infiniband none x-create=dir,rbind,rslave,nofail 0 0")
    return "\n".join(lines) + "\n"


def pyxis_conf(inputs: ContainerInputs, family: str, arch: str) -> str:
    """``plugstack.conf.d``. A required plugin that is missing fails every job, so its folder is that of the family."""
    folder = "/usr/lib64" if family == "rhel" else f"/usr/lib/{arch}-linux-gnu"  # rpm's %{_libdir}, Debian's triplet
    library = inputs.pyxis_library or f"{folder}/slurm/spank_pyxis.so"
    return f"# Written by rackproof.\nrequired {library} runtime_path=/run/pyxis execute_entrypoint=0\n"
