from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rackproof.parse.containers import (
    Refusal,
    Runtime,
    parse_cdi_list,
    parse_crictl_info,
    parse_ctr_version,
    parse_docker_info,
    parse_enroot_version,
    parse_image_id,
    parse_podman_info,
)
from tests.unit.refusals import refuses, refuses_parts, survives_damage

DOCKER: dict[str, Any] = {
    "ServerErrors": None,
    "ServerVersion": "27.3.1",
    "Driver": "overlay2",
    "DockerRootDir": "/raid/docker",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
    "DefaultRuntime": "runc",
    "Runtimes": {"runc": {"path": "runc"}, "nvidia": {"path": "nvidia-container-runtime"}},
}
PODMAN: dict[str, Any] = {
    "host": {"security": {"rootless": True}, "ociRuntime": {"name": "crun"}},
    "store": {"graphDriverName": "overlay", "graphRoot": "/home/user/.local/share/containers/storage"},
    "version": {"Version": "5.2.2"},
}
CRICTL: dict[str, Any] = {
    "status": {"conditions": [{"type": "RuntimeReady", "status": True}, {"type": "NetworkReady", "status": False}]},
    "config": {
        "containerdRootDir": "/var/lib/containerd",
        "containerd": {
            "snapshotter": "overlayfs",
            "defaultRuntimeName": "nvidia",
            "runtimes": {"runc": {"runtimeType": "io.containerd.runc.v2"}, "nvidia": {}},
        },
    },
}
CTR = """\
Client:
  Version:  2.0.0
  Revision: 207ad711eabd375a01713109a8a197d197ff6542
  Go version: go1.22.8

Server:
  Version:  1.7.22
  Revision: 7f7fdf5fed64eb6a7caf99b3e12efcf9d60e311c
  UUID: 4c2f0d4e-1f4f-4d42-9b0c-6cc1b3a9cbb7
"""
CDI = """\
time="2026-11-21T12:00:00Z" level=info msg="Found 3 CDI devices"
nvidia.com/gpu=0
nvidia.com/gpu=GPU-0b1e4a5c-0000-4d11-8a01-5e1c6f7a0001
nvidia.com/gpu=all
"""


def docker(**changes: Any) -> str:
    return json.dumps(DOCKER | changes) + "\n"


def test_docker() -> None:
    assert parse_docker_info("WARNING: bridge-nf-call-iptables is disabled\n" + docker()) == Runtime(
        "27.3.1", "overlay2", "/raid/docker", False, "runc", ("nvidia", "runc")
    )


def test_rootless_docker() -> None:
    info = parse_docker_info(docker(SecurityOptions=["name=seccomp,profile=builtin", "name=rootless"]))
    assert isinstance(info, Runtime)
    assert info.rootless is True


def test_an_image_has_one_id() -> None:
    digest = "0" * 63 + "a"
    assert parse_image_id(f"sha256:{digest}\n") == parse_image_id(f"{digest}\n") == digest
    assert parse_image_id(digest[:-1]) is parse_image_id(f"{digest}\n{digest}\n") is parse_image_id("") is None


def test_docker_without_a_daemon() -> None:
    answer = docker(ServerErrors=["Cannot connect", "to anything"], ServerVersion="", Runtimes=None)
    assert parse_docker_info(answer) == Refusal("Cannot connect; to anything")


def test_podman() -> None:
    assert parse_podman_info(json.dumps(PODMAN, indent=2) + "\n") == Runtime(
        "5.2.2", "overlay", "/home/user/.local/share/containers/storage", True, "crun", ("crun",)
    )


def test_containerd() -> None:
    assert parse_crictl_info(json.dumps(CRICTL) + "\n") == Runtime(
        None, "overlayfs", "/var/lib/containerd", None, "nvidia", ("nvidia", "runc")
    )
    assert parse_ctr_version(CTR) == "1.7.22"


def test_containerd_that_is_not_ready() -> None:
    status = {"conditions": [{"type": "RuntimeReady", "status": False}]}
    assert parse_crictl_info(json.dumps(CRICTL | {"status": status}) + "\n") == Refusal("RuntimeReady is false")


def test_enroot() -> None:
    assert parse_enroot_version("3.5.0\n") == "3.5.0"


@pytest.mark.parametrize("first", [CDI.splitlines()[0], "INFO[0000] Found 3 CDI devices"])
def test_devices(first: str) -> None:
    assert parse_cdi_list(CDI.replace(CDI.splitlines()[0], first)) == {
        "nvidia.com/gpu=0", "nvidia.com/gpu=GPU-0b1e4a5c-0000-4d11-8a01-5e1c6f7a0001", "nvidia.com/gpu=all",
    }  # fmt: skip


test_bad_output_raises_with_the_reason = refuses(
    lambda case: case[0](case[1]),
    ((parse_docker_info, docker(ServerVersion="")), "ServerVersion is not a string"),
    ((parse_docker_info, docker(SecurityOptions=None)), "SecurityOptions is not a list of strings"),
    ((parse_docker_info, docker(ServerErrors="down")), "ServerErrors is not a list of strings"),
    ((parse_docker_info, docker() + docker()), "more than one JSON document"),
    ((parse_docker_info, "{}\n"), "no JSON document"),
    ((parse_podman_info, json.dumps(PODMAN | {"host": {"security": {}}})), "rootless is neither true nor false"),
    ((parse_crictl_info, json.dumps(CRICTL | {"status": {"conditions": []}})), "no condition RuntimeReady"),
    ((parse_ctr_version, CTR.partition("Server:")[0]), "has no version of the server"),
    ((parse_enroot_version, "enroot: no such command\n"), "expected a version"),
    ((parse_cdi_list, CDI.replace("nvidia.com/gpu=all\n", "")), "3 devices found, 2 listed"),
    ((parse_cdi_list, "nvidia.com/gpu=all\n"), "expected the number of devices"),
)


PARSERS: list[tuple[Callable[[str], Any], str]] = [
    (parse_docker_info, docker()),
    (parse_podman_info, json.dumps(PODMAN) + "\n"),
    (parse_crictl_info, json.dumps(CRICTL) + "\n"),
    (parse_ctr_version, CTR),
    (parse_cdi_list, CDI),
]


test_nothing_but_parse_errors = survives_damage(*PARSERS)
test_a_document_that_is_cut_off_is_refused = refuses_parts(*PARSERS[:3])
