"""Container runtimes: ``docker info``, ``podman info``, ``crictl info``, ``nvidia-ctk cdi list``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rackproof.core.texts import SHA256
from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import find_object
from rackproof.parse.mounts import Mount, parse_mountinfo
from rackproof.parse.sections import sections_of
from rackproof.parse.text import excerpt, integer, whole_lines


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that responds. None: not reported."""

    version: str | None
    storage_driver: str | None
    data_root: str | None
    rootless: bool | None
    default_runtime: str | None
    runtimes: tuple[str, ...]
    """Names of the OCI runtimes that it is configured with."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The client cannot reach its daemon."""

    reason: str


def parse_docker_info(output: str | bytes) -> Runtime | Refusal:
    """``docker info`` as JSON, whole or with only the keys that are read here."""
    document = find_object("docker", output, "ServerVersion", "ServerErrors")
    errors = document.values.get("ServerErrors")
    if errors:
        if not isinstance(errors, list) or not all(isinstance(error, str) for error in errors):
            document.refuse("ServerErrors", "is not a list of strings")
        return Refusal("; ".join(errors))
    options = document.strings("SecurityOptions")
    return Runtime(
        version=document.string("ServerVersion"),
        storage_driver=document.string("Driver"),
        data_root=document.string("DockerRootDir"),
        rootless=any("name=rootless" in option.split(",") for option in options),
        default_runtime=document.string("DefaultRuntime"),
        runtimes=tuple(sorted(document.child("Runtimes").values)),
    )


def parse_image_id(output: str) -> str | None:
    """``docker`` or ``podman image inspect --format '{{.Id}}'``: sha256 of the configuration, in hexadecimal digits."""
    match = re.fullmatch(f"(?:sha256:)?({SHA256})", output.strip())
    return match and match[1]


def parse_docker_runtimes(output: str | bytes) -> frozenset[str]:
    """``docker info -f '{{json .Runtimes}}'``: names of the OCI runtimes."""
    return frozenset(find_object("docker", output).values)


def parse_containerd_runtime(dump: Iterable[str], runtime: str) -> tuple[bool, bool]:
    """``containerd config dump``: whether the runtime is configured, and whether it uses systemd cgroups."""
    section = re.compile(rf"""\[.*\.runtimes\.["']?{re.escape(runtime)}["']?(\.options)?\]""")
    inside = there = by_systemd = False
    for line in map(str.strip, dump):
        if line.startswith("["):
            inside = section.fullmatch(line) is not None
            there |= inside
        elif inside and line.replace(" ", "") == "SystemdCgroup=true":
            by_systemd = True
    return there, by_systemd


def parse_podman_info(output: str | bytes) -> Runtime:
    """``podman info`` as JSON, whole or only the keys that are read here. It lists one OCI runtime, the default."""
    document = find_object("podman", output, "host", "store")
    host, store = document.child("host"), document.child("store")
    rootless = host.child("security").values.get("rootless")
    if not isinstance(rootless, bool):
        host.refuse("security.rootless", "is neither true nor false")
    runtime = host.child("ociRuntime").string("name")
    return Runtime(
        version=document.child("version").string("Version"),
        storage_driver=store.string("graphDriverName"),
        data_root=store.string("graphRoot"),
        rootless=rootless,
        default_runtime=runtime,
        runtimes=(runtime,),
    )


def parse_crictl_info(output: str | bytes) -> Runtime | Refusal:
    """``crictl info`` of containerd."""
    document = find_object("crictl", output, "status", "config")
    conditions = {c.string("type"): c.values.get("status") for c in document.child("status").children("conditions")}
    if conditions.get("RuntimeReady") is not True:
        if not isinstance(conditions.get("RuntimeReady"), bool):
            raise ParseError("crictl", "the status has no condition RuntimeReady")
        return Refusal("RuntimeReady is false")
    config = document.child("config")
    containerd = config.child("containerd")
    return Runtime(
        version=None,
        storage_driver=containerd.string("snapshotter") if containerd.has("snapshotter") else None,
        data_root=config.string("containerdRootDir") if config.has("containerdRootDir") else None,
        rootless=None,
        default_runtime=containerd.string("defaultRuntimeName"),
        runtimes=tuple(sorted(containerd.child("runtimes").values)),
    )


def parse_ctr_version(output: str | bytes) -> str:
    """``ctr version``: version of containerd, not of the client."""
    tool = "ctr"
    server = False
    for line in whole_lines(tool, output):
        if re.fullmatch(r"[A-Z]\w+:", line):
            server = line == "Server:"
        elif server and (match := re.fullmatch(r"\s+Version:\s+v?(\d\S*)", line)):
            return match[1]
    raise ParseError(tool, "the output has no version of the server")


def parse_enroot_version(output: str | bytes) -> str:
    """``enroot version``."""
    lines = [line.strip() for line in whole_lines("enroot", output) if line.strip()]
    if len(lines) != 1 or not re.fullmatch(r"\d+(\.\d+)+\S*", lines[0]):
        raise ParseError("enroot", f"expected a version, got {excerpt(lines[-1] if lines else '')}")
    return lines[0]


def parse_cdi_list(output: str | bytes) -> frozenset[str]:
    """Device names of ``nvidia-ctk cdi list``, stderr with stdout. Their number must equal the announced one."""
    tool = "nvidia-ctk"
    announced: int | None = None
    names = set()
    for line in whole_lines(tool, output):
        if match := re.search(r"Found (\d+) CDI devices", line):
            announced = int(match[1])
        elif re.fullmatch(r"[a-z0-9.-]+/[A-Za-z0-9_.-]+=[A-Za-z0-9_.:-]+", line.strip()):
            names.add(line.strip())
    if announced is None:
        raise ParseError(tool, f"expected the number of devices, got {excerpt(str(output))}")
    if len(names) != announced:
        raise ParseError(tool, f"{announced} devices found, {len(names)} listed")
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Inside:
    """Report of a process in a container about itself and its devices."""

    mounts: tuple[Mount, ...]
    capabilities: dict[str, int]
    """``CapEff``, ``CapPrm``, ``CapBnd`` …: one bit per capability."""
    no_new_privileges: bool
    uid: int
    devices: frozenset[str]
    """Names in /dev/infiniband."""
    memlock_kib: int | None
    """None: unlimited."""
    folders: dict[str, tuple[int, bool]]
    """By path: uid of the owner, and whether the process has read and write access."""


def parse_device_names(output: str | bytes) -> frozenset[str]:
    """``ls /dev/infiniband``; other lines are warnings of the login."""
    return frozenset(line for line in whole_lines("ls", output) if re.fullmatch(r"[a-z_]+\d*", line))


_WARNING: Final = re.compile(r'time="[^"]*" level=(?:warning|info|debug) ')
INSIDE = (
    'cat /proc/self/mountinfo; echo --; grep -E "^(Cap|NoNewPrivs)" /proc/self/status; echo --; id -u; echo --; '
    "ls /dev/infiniband 2>/dev/null; echo --; ulimit -l; echo --; "
    "for d in {folders}; do if [ -r $d ] && [ -w $d ]; then a=rw; else a=no; fi; "
    'echo "$(stat -c %u $d 2>/dev/null || echo -1) $a $d"; done; echo --'
)
"""Script to run inside a container; ``folders`` are plain paths. It contains no single quote."""


def parse_inside(output: str | bytes) -> Inside:
    """Output of ``INSIDE``; warnings of the runtime may surround it. Raises ParseError."""
    tool = "container"
    lines = [line for line in whole_lines(tool, output) if not _WARNING.match(line)]
    start = next((i for i, line in enumerate(lines) if re.match(r"\d+ \d+ \d+:\d+ ", line)), 0)
    if lines[-1:] == ["--"]:
        lines.pop()
    mountinfo, status, uid, devices, memlock, folders = sections_of(lines[start:], 6)
    values = dict(line.split(":", 1) for line in status if ":" in line)
    capabilities = {key: int(value, 16) for key, value in values.items() if key.startswith("Cap")}
    if not {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} <= set(capabilities) or "NoNewPrivs" not in values:
        raise ParseError(tool, "/proc/self/status has no capabilities")
    if len(uid) != 1 or len(memlock) != 1:
        raise ParseError(tool, "expected a user id and a limit of locked memory")
    access: dict[str, tuple[int, bool]] = {}
    for line in folders:
        words = line.split(" ", 2)
        if len(words) != 3 or words[1] not in ("rw", "no"):
            raise ParseError(tool, f"expected a folder, got {excerpt(line)}")
        access[words[2]] = (integer(tool, "owner", words[0], minimum=-1), words[1] == "rw")
    return Inside(
        mounts=parse_mountinfo("".join(f"{line}\n" for line in mountinfo)),
        capabilities=capabilities,
        no_new_privileges=values["NoNewPrivs"].strip() == "1",
        uid=integer(tool, "user", uid[0]),
        devices=frozenset(devices),
        memlock_kib=None if memlock[0] == "unlimited" else integer(tool, "limit", memlock[0]),
        folders=access,
    )
