"""Container runtime as it reports itself, and what containers get: GPUs, storage and RDMA."""

from __future__ import annotations

import shlex

from testinfra.host import Host

from rackproof.configure.containers.inputs import FOLDER, user_and_image
from rackproof.core.architecture import Architecture, Containers, Storage
from rackproof.core.rack import Node
from rackproof.parse.answer import STATUS, Answer
from rackproof.parse.containers import (
    INSIDE,
    Inside,
    Refusal,
    Runtime,
    parse_cdi_list,
    parse_crictl_info,
    parse_ctr_version,
    parse_device_names,
    parse_docker_info,
    parse_enroot_version,
    parse_inside,
    parse_podman_info,
)
from rackproof.parse.mounts import Mount, find_mount, parse_mountinfo
from rackproof.parse.text import version_begins
from rackproof.validation import Unmeasured, announce, answered, check, expect, expect_all, read
from rackproof.validation.mounts import MOUNTINFO

LIMIT = "timeout -k 2 60"
# Podman has no daemon: the first command starts everything, which is slow on an emulated node.
PODMAN_LIMIT = "timeout -k 2 100"
# Only the keys that checks read: others (running containers, warnings) change from hour to hour.
DOCKER_KEYS = ("ServerVersion", "Driver", "DockerRootDir", "SecurityOptions", "DefaultRuntime", "Runtimes")
# Without a daemon docker fills in ServerErrors only; a template with other keys fails.
DOCKER = (
    '{{if .ServerErrors}}{"ServerErrors":{{json .ServerErrors}}}{{else}}{'
    + ",".join(f'"{key}":{{{{json .{key}}}}}' for key in DOCKER_KEYS)
    + "}{{end}}"
)
PODMAN = (
    '{"version":{"Version":{{json .Version.Version}}},'
    '"host":{"security":{"rootless":{{json .Host.Security.Rootless}}},'
    '"ociRuntime":{"name":{{json .Host.OCIRuntime.Name}}}},'
    '"store":{"graphDriverName":{{json .Store.GraphDriverName}},"graphRoot":{{json .Store.GraphRoot}}}}'
)
INFO = {
    "docker": f"{LIMIT} docker info --format '{DOCKER}' 2>&1{STATUS}",
    "podman": f"{PODMAN_LIMIT} podman info --format '{PODMAN}' 2>&1{STATUS}",
    "containerd": f"{LIMIT} crictl info 2>&1{STATUS}",
    "enroot": f"{LIMIT} enroot version 2>&1{STATUS}",
}
CTR_VERSION = f"{LIMIT} ctr version 2>&1{STATUS}"
CDI = f"{LIMIT} nvidia-ctk cdi list 2>&1{STATUS}"
ENROOT_HOOK = f"test -x /etc/enroot/hooks.d/98-nvidia.sh && command -v nvidia-container-cli{STATUS}"


# Runs as the unprivileged user of the inventory. A container takes seconds to start on an emulated node.
CONTAINER = (
    "timeout -k 5 100 runuser -u {user} -- /usr/local/bin/rackproof-container {image} -- sh -c '{inside}' 2>&1{status}"
)
NO_STORAGE = 69
"""Exit status of rackproof-container for storage that is not mounted or does not answer."""
DEVICES = "ls /dev/infiniband 2>/dev/null; true"


def containers_of(arch: Architecture) -> Containers:
    """Raises Unmeasured where the architecture has none."""
    if arch.containers is None:
        raise Unmeasured("the architecture says nothing about containers")
    return arch.containers


def answer(host: Host, tool: str, command: str) -> Answer:
    """Raises Unmeasured when the program is missing or refuses permission."""
    reply = answered(host, command, tool, good=None)
    if "permission denied" in reply.body.lower() and tool != "rackproof-container":
        raise Unmeasured(reply.failure)
    return reply


def state(host: Host, arch: Architecture) -> Runtime | Refusal:
    """The runtime's description of itself, or why it gives none."""
    runtime = containers_of(arch).runtime
    reply = answer(host, runtime, INFO[runtime])
    if reply.timed_out:
        return Refusal("none in time")
    if reply.status != 0 and "{" not in reply.body:
        return Refusal(reply.reason)
    if runtime == "enroot":
        return Runtime(parse_enroot_version(reply.body), None, None, None, None, ())
    if runtime == "docker":
        info: Runtime | Refusal = parse_docker_info(reply.body)
    elif runtime == "podman":
        info = parse_podman_info(reply.body)
    else:
        info = parse_crictl_info(reply.body)
    if reply.status != 0 and isinstance(info, Runtime):
        raise Unmeasured(f"{runtime} answers and fails: {reply.failure}")
    return info


def running(host: Host, arch: Architecture) -> Runtime:
    """The runtime's description. Raises Unmeasured when it does not answer."""
    info = state(host, arch)
    if isinstance(info, Refusal):
        raise Unmeasured(f"{containers_of(arch).runtime} does not answer; see container.answers")
    return info


def known(value: str | bool | None, arch: Architecture, what: str) -> str | bool:
    if value is None:
        raise Unmeasured(f"{containers_of(arch).runtime} does not say its {what}")
    return value


@check(
    "container.answers",
    reads="containers.runtime",
    protects="Without its daemon no containerised job starts.",
    hint="systemctl status docker (or containerd), then journalctl -u; a full /var stops both.",
)
def test_answers(host: Host, arch: Architecture) -> None:
    info = state(host, arch)
    if isinstance(info, Refusal):
        raise AssertionError(f"expected an answer of {containers_of(arch).runtime}, actual {info.reason}")


@check(
    "container.version",
    reads="containers.version",
    protects="Older runtimes lack features that newer images and the GPU toolkit need.",
    hint="apt policy (or dnf info) of the runtime's package; restart the daemon after an upgrade.",
)
def test_version(host: Host, arch: Architecture) -> None:
    expected = containers_of(arch).version or ""
    if containers_of(arch).runtime == "containerd":
        reply = answer(host, "ctr", CTR_VERSION)
        if reply.status != 0:
            raise Unmeasured("ctr: containerd does not answer; see container.answers")
        version: str | None = parse_ctr_version(reply.body)
    else:
        version = running(host, arch).version
    if not version_begins(str(known(version, arch, "version")), expected):
        raise AssertionError(f"expected {expected}, actual {version}")


@check(
    "container.storage_driver",
    reads="containers.storage_driver",
    protects="The vfs driver copies every layer: one large image takes an hour to pull and fills the drive.",
    hint="docker info; the driver falls back where the file system below lacks what overlay needs (xfs: ftype=1).",
)
def test_storage_driver(host: Host, arch: Architecture) -> None:
    driver = running(host, arch).storage_driver
    expect(known(driver, arch, "storage driver"), containers_of(arch).storage_driver, "storage driver")


@check(
    "container.data_root",
    reads="containers.data_root",
    protects="Images of tens of gigabytes fill the root disk and stop the node.",
    hint="data-root in /etc/docker/daemon.json, root in containerd's config.toml, graphroot in storage.conf.",
)
def test_data_root(host: Host, arch: Architecture) -> None:
    path = running(host, arch).data_root
    expect(known(path, arch, "data root"), containers_of(arch).data_root, "data root")


@check(
    "container.rootless",
    reads="containers.rootless",
    protects="Everyone with access to a daemon that runs as root is root on the node.",
    hint="docker info shows rootless under Security Options; podman info under host.security.",
)
def test_rootless(host: Host, arch: Architecture) -> None:
    rootless = known(running(host, arch).rootless, arch, "rootlessness")
    expect("rootless" if rootless else "as root", "rootless" if containers_of(arch).rootless else "as root", "runs")


@check(
    "container.default_runtime",
    reads="containers.default_runtime",
    protects="With another default runtime containers start without GPUs, or with GPUs they did not request.",
    hint="nvidia-ctk runtime configure --set-as-default; then restart the daemon.",
)
def test_default_runtime(host: Host, arch: Architecture) -> None:
    runtime = running(host, arch).default_runtime
    expect(known(runtime, arch, "default runtime"), containers_of(arch).default_runtime, "default runtime")


@check(
    "container.nvidia_runtime",
    reads="containers.nvidia_runtime",
    protects="Without it containers see no GPU, and frameworks silently fall back to CPUs.",
    hint="nvidia-ctk runtime configure --runtime=docker (or containerd), then restart the daemon.",
)
def test_nvidia_runtime(host: Host, arch: Architecture) -> None:
    info = running(host, arch)
    if containers_of(arch).runtime == "enroot":
        hook = answer(host, "enroot", ENROOT_HOOK)
        if hook.status != 0:
            raise AssertionError("expected enroot's hook 98-nvidia.sh and nvidia-container-cli, actual missing")
    elif not any(name == "nvidia" or name.startswith("nvidia-") for name in info.runtimes):
        raise AssertionError(f"expected a runtime nvidia, actual {', '.join(info.runtimes) or 'none'}")


@check(
    "container.cdi",
    reads="containers.cdi",
    protects="A GPU missing from the CDI specification is unavailable to containers; driver updates outdate the file.",
    hint="nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; repeat after every change of driver or GPUs.",
)
def test_cdi(host: Host, arch: Architecture) -> None:
    if arch.gpu is None or not arch.gpu.count:
        raise Unmeasured("the architecture says nothing about GPUs")
    reply = answered(host, CDI, "nvidia-ctk")
    devices = parse_cdi_list(reply.body)
    expected = [f"nvidia.com/gpu={name}" for name in (*range(arch.gpu.count), "all")]
    missing = [name for name in expected if name not in devices]
    if missing:
        raise AssertionError(f"expected {len(expected)} devices, actual missing: {', '.join(missing)}")


@check(
    "container.mount",
    reads="containers.mounts",
    protects="A daemon started before the mount gives containers the empty folder below it.",
    hint="Restart the daemon; let its unit require the mount (RequiresMountsFor=), and not hide it (PrivateMounts=).",
)
def test_mount(host: Host, arch: Architecture, item: str) -> None:
    runtime = containers_of(arch).runtime
    seen = parse_mountinfo(
        read(host, f'cat "/proc/$(systemctl show --property=MainPID --value -- {runtime}.service)/mountinfo"')
    )
    storage = arch.storage[item]
    for mountpoint in storage.mountpoints:
        mount = find_mount(seen, mountpoint)
        actual = mount.fstype if mount else "not mounted"
        expect(actual, storage.fstype, f"{mountpoint} in the mount namespace of {runtime}")


def inside(host: Host, arch: Architecture, node: Node) -> tuple[Inside, int]:
    """View from inside a container of the unprivileged user, and the uid of that user on the node."""
    user, image = user_and_image(node)
    paths = [path for name in containers_of(arch).bridge for path in arch.storage[name].mountpoints]
    script = INSIDE.format(folders=" ".join(shlex.quote(f"{path}/{FOLDER}") for path in paths))
    command = CONTAINER.format(
        user=shlex.quote(user),
        image=f"--image {shlex.quote(image)}" if image else "--host-root",
        inside=script,
        status=STATUS,
    )
    number = f"id -u {shlex.quote(user)} 2>&1{STATUS}"
    announce(host, command, number)
    reply = answer(host, "rackproof-container", command)
    if reply.timed_out:
        raise Unmeasured("rackproof-container: it did not run within 100 s")
    if reply.status == 64:
        raise Unmeasured(reply.failure)
    if reply.status == NO_STORAGE:
        raise Unmeasured(f"{reply.reason}; see mount.mounted and mount.answers")
    if reply.status != 0:
        raise AssertionError(f"expected a container, actual {reply.reason}")
    uid = answer(host, "id", number)
    if uid.status != 0 or not uid.body.strip().isdecimal():
        raise Unmeasured(f"no user {user}: {uid.failure}")
    return parse_inside(reply.body), int(uid.body)


@check(
    "container.bridge",
    reads="containers.bridge",
    protects="If storage needs a privileged container, every user of it becomes root on the node.",
    hint="Reproduce by hand: runuser -u rackproof -- rackproof-container --host-root -- sh; then mount, id, ls.",
)
def test_bridge(host: Host, arch: Architecture, node: Node, item: str) -> None:
    announce(host, MOUNTINFO)
    seen, uid = inside(host, arch, node)
    outside = parse_mountinfo(read(host, MOUNTINFO))
    problems = [
        f"{name}: expected no capability, actual {bits:#x}" for name, bits in sorted(seen.capabilities.items()) if bits
    ]
    if not seen.no_new_privileges:
        problems.append("no_new_privs: expected on, actual off")
    if seen.uid != uid or uid == 0:
        problems.append(f"user: expected {uid or 'not root'} inside as outside, actual {seen.uid}")
    storage = arch.storage[item]
    for path in storage.mountpoints:
        problems += bridge_problems(path, storage, find_mount(outside, path), find_mount(seen.mounts, path))
        owner, usable = seen.folders.get(f"{path}/{FOLDER}", (-1, False))
        if owner != uid:
            problems.append(f"{path}/{FOLDER}: expected owner {uid} inside, actual {owner}")
        if not usable:
            problems.append(f"{path}/{FOLDER}: expected readable and writable inside, actual not")
    expect_all(problems)


def bridge_problems(path: str, storage: Storage, outside: Mount | None, within: Mount | None) -> list[str]:
    if outside is None:
        raise Unmeasured(f"{path}: not mounted on the node; see mount.mounted")
    if within is None:
        return [f"{path}: expected a mount inside, actual none"]
    if (within.fstype, within.device) != (outside.fstype, outside.device):
        return [f"{path}: expected {outside.fstype} {outside.device} inside, actual {within.fstype} {within.device}"]
    in_force = {*within.options, *within.super_options} - {"rw", "ro"} | {"ro" if within.read_only else "rw"}
    return [
        *(f"{path}: {o}: expected inside, actual not" for o in storage.options_required if o not in in_force),
        *(f"{path}: {o}: expected not inside, actual in force" for o in storage.options_forbidden if o in in_force),
    ]


@check(
    "container.rdma",
    reads="containers.rdma",
    protects="Without RDMA devices a containerised job falls back to TCP; without pinned memory it fails.",
    hint="ls -l /dev/infiniband (0666 by udev rules) and ulimit -H -l of the user: containers inherit both.",
)
def test_rdma(host: Host, arch: Architecture, node: Node) -> None:
    announce(host, DEVICES)
    seen, _ = inside(host, arch, node)
    outside = parse_device_names(read(host, DEVICES))
    if not any(name.startswith("uverbs") for name in outside):
        raise Unmeasured("no RDMA device on the node; see fabric.rdma")
    missing = sorted(outside - seen.devices)
    memlock = arch.system.limits_memlock
    problems = [f"/dev/infiniband: expected inside, actual missing: {', '.join(missing)}"] if missing else []
    if seen.memlock_kib is not None and (memlock == "unlimited" or seen.memlock_kib < memlock):
        problems.append(f"pinned memory: expected {memlock}, actual {seen.memlock_kib} KiB")
    expect_all(problems)
