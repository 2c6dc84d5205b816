"""The same job on the node and inside a container: what is asked, and what is expected of it."""

from __future__ import annotations

import pytest

from rackproof.bench.containers import steps as containers
from rackproof.bench.containers.reader import result_of
from rackproof.core.architecture import ContainerProfile, FioJob
from rackproof.core.fiojob import layout_of
from rackproof.core.rack import Node
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult
from tests.unit.configure.rack import architecture, rack

JOB = FioJob(rw="read", block_bytes=1048576, iodepth=4, file_bytes=16777216, runtime_s=3)


def test_one_step_a_storage_with_three_numbers_a_node() -> None:
    (step,) = containers.plan(architecture(), ContainerProfile(job=JOB, storages=("nfs-tcp",)), rack())
    assert step.id == "container/nfs-tcp/read"
    assert {(m.metric, m.members) for m in step.expects} == {
        (metric, (node,))
        for metric in (containers.HOST, containers.INSIDE, containers.RATIO)
        for node in ("gpu-01", "gpu-02")
    }


def test_both_sides_run_the_same_words_as_the_same_user() -> None:
    storage = architecture().storage["nfs-tcp"]
    host, inside = containers.commands(storage, JOB, Node("gpu-01", ("gpu",)))
    assert "--ioengine=posixaio" in host  # containers may not use what libaio needs
    assert "--ioengine=posixaio" in inside
    fio = host[host.index("fio ") :]
    assert inside.endswith(f"rackproof-container --host-root -- {fio}")
    assert host.count("runuser -u rackproof") == 1
    layout = containers.layout_command(storage, layout_of([JOB]), Node("gpu-01", ("gpu",)))
    assert layout.count("runuser -u rackproof") == 3
    assert "--fallocate=none" in layout
    assert "--directory=/mnt/nfs-tcp/rackproof-user/gpu-01" in fio


def test_an_image_and_another_user() -> None:
    node = Node("gpu-01", ("gpu",), {"containers": {"image": "tools:1", "user": "probe"}})
    _, inside = containers.commands(architecture().storage["nfs-tcp"], JOB, node)
    assert "runuser -u probe -- /usr/local/bin/rackproof-container --image tools:1 -- fio" in inside


def test_a_container_is_planned_from_an_inventory_without_its_secrets() -> None:
    node = Node("gpu-01", ("gpu",), {"containers": {"registry_mirrors": ["[redacted]"], "user": "probe"}})
    assert containers.user_of(node) == "probe"


def test_only_reads_are_compared() -> None:
    with pytest.raises(ValueError, match="rw must be read"):
        ContainerProfile(job=JOB.model_copy(update={"rw": "write"}).model_dump())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rc", "stdout"), [(1, b""), (0, b""), (0, b'{"fio version": "fio-3.39", "jobs": []}'), (None, b"")]
)
def test_no_number_is_no_measurement(rc: int | None, stdout: bytes) -> None:
    with pytest.raises(ParseError):
        result_of(CommandResult("gpu-01", "fio", rc, stdout, error=None if rc is not None else "lost"))
