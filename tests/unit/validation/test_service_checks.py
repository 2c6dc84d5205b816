"""Container runtimes other than the written rack's, and settings of Slurm that differ between sites."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from rackproof.core.architecture import Architecture, Containers, Slurm
from rackproof.core.architecture.expectations import expected_checks, items_of
from rackproof.core.evidence import CheckResult
from rackproof.remote.command import CommandResult
from rackproof.selftest.trial import Subject
from rackproof.validation.context import Context
from rackproof.validation.evaluate import Case
from tests.unit.validation.checking import subjects, validators

PODMAN = {
    "version": {"Version": "5.2.2"},
    "host": {"security": {"rootless": True}, "ociRuntime": {"name": "crun"}},
    "store": {"graphDriverName": "overlay", "graphRoot": "/raid/containers"},
}
CRICTL = {
    "status": {"conditions": [{"type": "RuntimeReady", "status": True}]},
    "config": {
        "containerdRootDir": "/raid/containerd",
        "containerd": {
            "snapshotter": "overlayfs",
            "defaultRuntimeName": "nvidia",
            "runtimes": {"runc": {}, "nvidia": {}},
        },
    },
}
CTR = "Client:\n  Version:  2.0.0\n\nServer:\n  Version:  1.7.22\n  Revision: 7f7fdf5\n"
MOUNTINFO = "98 28 9:0 / /raid rw,noatime shared:47 - xfs /dev/md0 rw\n"
ANSWERS = {
    "podman info": json.dumps(PODMAN) + "\nstatus 0\n",
    "crictl info": json.dumps(CRICTL) + "\nstatus 0\n",
    "ctr version": CTR + "status 0\n",
    "enroot version": "3.5.0\nstatus 0\n",
    "test -x /etc/enroot/hooks.d/98-nvidia.sh": "/usr/bin/nvidia-container-cli\nstatus 0\n",
    "-- containerd.service)/mountinfo": MOUNTINFO,
}


SHOW_NODE = "scontrol -o show node"


def rack() -> Subject:
    return next(subject for subject in subjects() if subject.name == "hgx-h200-roce")


def result(
    arch: Architecture, check: str, item: str = "", answers: Mapping[str, str] = MappingProxyType({})
) -> CheckResult:
    """Results of gpu-01 of the written rack, with other answers to commands that contain a key."""

    def edit(answer: CommandResult) -> CommandResult:
        for part, text in {**ANSWERS, **answers}.items():
            if part in answer.command:
                return CommandResult(answer.node, answer.command, 0, text.encode(), timeout_s=answer.timeout_s)
        return answer

    context = rack().altered("gpu-01", edit)
    context = Context(context.rack, arch, context.readers)
    declared, function = validators()[check]
    return context.evaluate(function, Case(declared, context.rack.node("gpu-01"), item))


def with_containers(**keys: Any) -> Architecture:
    return rack().context.arch.model_copy(update={"containers": Containers.model_validate(keys)})


def with_slurm(**keys: Any) -> Architecture:
    return rack().context.arch.model_copy(update={"slurm": Slurm.model_validate(keys)})


@pytest.mark.parametrize(
    ("keys", "check", "item"),
    [
        ({"runtime": "podman"}, "container.answers", ""),
        ({"runtime": "podman", "version": "5.2"}, "container.version", ""),
        ({"runtime": "podman", "storage_driver": "overlay"}, "container.storage_driver", ""),
        ({"runtime": "podman", "data_root": "/raid/containers"}, "container.data_root", ""),
        ({"runtime": "podman", "rootless": True}, "container.rootless", ""),
        ({"runtime": "podman", "default_runtime": "crun"}, "container.default_runtime", ""),
        ({"runtime": "containerd"}, "container.answers", ""),
        ({"runtime": "containerd", "version": "1.7"}, "container.version", ""),
        ({"runtime": "containerd", "storage_driver": "overlayfs"}, "container.storage_driver", ""),
        ({"runtime": "containerd", "data_root": "/raid/containerd"}, "container.data_root", ""),
        ({"runtime": "containerd", "default_runtime": "nvidia"}, "container.default_runtime", ""),
        ({"runtime": "containerd", "nvidia_runtime": True}, "container.nvidia_runtime", ""),
        ({"runtime": "containerd", "mounts": ["raid"]}, "container.mount", "raid"),
        ({"runtime": "enroot"}, "container.answers", ""),
        ({"runtime": "enroot", "version": "3.5"}, "container.version", ""),
        ({"runtime": "enroot", "nvidia_runtime": True}, "container.nvidia_runtime", ""),
    ],
)
def test_other_runtimes(keys: dict[str, Any], check: str, item: str) -> None:
    arch = with_containers(**keys)
    check_result = result(arch, check, item)
    assert check_result.outcome.value == "passed", check_result.message
    assert check in {entry.check for entry in expected_checks(arch)}
    assert items_of(arch, check, ("gpu",)) == (item,)


DOWN = 'time=now level=fatal msg="validate service connection: connection refused"\nstatus 1\n'
NOT_READY = json.dumps(CRICTL | {"status": {"conditions": [{"type": "RuntimeReady", "status": False}]}})


@pytest.mark.parametrize(
    ("keys", "check", "answers", "message"),
    [
        ({"runtime": "containerd"}, "container.answers", {"crictl info": DOWN}, "connection refused"),
        ({"runtime": "containerd"}, "container.answers", {"crictl info": NOT_READY + "\nstatus 0\n"},
         "RuntimeReady is false"),
        ({"runtime": "podman", "rootless": False}, "container.rootless", {}, "runs: expected as root, actual rootless"),
        ({"runtime": "podman", "nvidia_runtime": True}, "container.nvidia_runtime", {},
         "expected a runtime nvidia, actual crun"),
        ({"runtime": "enroot", "nvidia_runtime": True}, "container.nvidia_runtime",
         {"test -x /etc/enroot/hooks.d/98-nvidia.sh": "status 1\n"}, "expected enroot's hook"),
        ({"runtime": "containerd", "version": "2.0"}, "container.version", {}, "expected 2.0, actual 1.7.22"),
    ],
)  # fmt: skip
def test_other_runtimes_that_fail(keys: dict[str, Any], check: str, answers: dict[str, str], message: str) -> None:
    check_result = result(with_containers(**keys), check, "", answers)
    assert check_result.outcome.value == "failed"
    assert message in check_result.message


@pytest.mark.parametrize(
    ("keys", "check", "answers", "message"),
    [
        ({"runtime": "docker"}, "container.answers",
         {"docker info": "permission denied while trying to connect to the Docker daemon socket\nstatus 1\n"},
         "the login may not do this: docker: permission denied while trying"),
        ({"runtime": "podman"}, "container.answers", {"podman info": "timeout: failed to run command\nstatus 127\n"},
         "podman: timeout: failed to run command"),
        ({"runtime": "podman"}, "container.answers", {"podman info": json.dumps(PODMAN) + "\nstatus 125\n"},
         "podman answers and fails: podman"),
        ({"runtime": "containerd", "version": "1.7"}, "container.version", {"ctr version": DOWN},
         "containerd does not answer; see container.answers"),
        ({"runtime": "docker", "storage_driver": "overlay2"}, "container.storage_driver",
         {"docker info": "status 124\n"}, "docker does not answer; see container.answers"),
    ],
)  # fmt: skip
def test_a_runtime_that_does_not_answer_is_unmeasured(
    keys: dict[str, Any], check: str, answers: dict[str, str], message: str
) -> None:
    check_result = result(with_containers(**keys), check, "", answers)
    assert check_result.outcome.value == "unmeasured"
    assert message in check_result.message


@pytest.mark.parametrize(
    ("runtime", "key", "value"),
    [("enroot", "storage_driver", "overlay"), ("podman", "mounts", ["raid"]), ("containerd", "rootless", True)],
)
def test_a_key_without_a_check_for_the_runtime_is_refused(runtime: str, key: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{runtime} has no check for {key}"):
        Containers.model_validate({"runtime": runtime, key: value})


def test_slurm_may_count_cores_instead_of_threads() -> None:
    healthy = rack().answers("gpu-01").read("timeout -k 2 15 scontrol -o show node gpu-01 2>&1; echo status $?")
    text = healthy.stdout.decode()
    for cpus, message in ((112, ""), (223, "CPUs: expected 224 as on the node, actual 223")):
        answers = {SHOW_NODE: text.replace("CPUTot=224", f"CPUTot={cpus}")}
        check_result = result(with_slurm(), "slurm.registered", "", answers)
        assert (check_result.outcome.value, check_result.message) == ("failed" if message else "passed", message)


@pytest.mark.parametrize(
    ("check", "item"),
    [
        ("slurm.node_state", ""),
        ("slurm.gres", "gpu"),
        ("slurm.registered", ""),
        ("slurm.version", ""),
        ("slurm.partition", "gpu"),
    ],
)
def test_without_a_controller_nothing_is_known_of_the_node(check: str, item: str) -> None:
    error = "slurm_load_node error: Unable to contact slurm controller (connect failure)\nstatus 1\n"
    arch = with_slurm(version="24.11", gres={"gpu": 8}, partitions=["gpu"])
    check_result = result(arch, check, item, {SHOW_NODE: error})
    assert (check_result.outcome.value, "Unable to contact slurm controller" in check_result.message) == (
        "unmeasured",
        True,
    )


def test_munge_is_not_asked_where_something_else_authenticates() -> None:
    arch, node = with_slurm(munge=False), rack().context.rack.node("gpu-01")
    assert validators()["slurm.munge"][0].items(arch, node, rack().context.rack) == ()
    assert "slurm.munge" not in {entry.check for entry in expected_checks(arch)}


def test_an_architecture_without_services_asks_for_none() -> None:
    arch = rack().context.arch.model_copy(update={"slurm": None, "containers": None})
    node = rack().context.rack.node("gpu-01")
    for name, (declared, _) in validators().items():
        if name.startswith(("slurm.", "container.")):
            assert declared.items(arch, node, rack().context.rack) == ()
    assert not [e for e in expected_checks(arch) if e.check.startswith(("slurm.", "container."))]


def test_the_written_rack_has_a_validator_for_everything_it_asks_for() -> None:
    context = rack().context
    for entry in expected_checks(context.arch):
        if entry.check.startswith(("mount.", "slurm.", "container.")):
            node = context.rack.node("gpu-01")
            assert entry.item in validators()[entry.check][0].items(context.arch, node, context.rack)
