"""Every shape of storage is measured of every storage in the profile ``depth``, or the architecture says why not."""

from __future__ import annotations

from itertools import product

import pytest

from rackproof import architectures
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.plan import plan_steps
from rackproof.core.architecture import Architecture, StorageProfile
from rackproof.core.architecture.consistency import problems
from rackproof.core.metrics import METRICS, NOT_YET
from tests.unit.fakes import lab_rack

DEPTH = architectures.load("virtual-rack-storage").model
OF_STORAGE = [
    metric.name
    for metric in METRICS.values()
    if metric.benchmark in ("storage", "links") and "storage" in metric.labels
]


def sizes(architecture: Architecture = DEPTH) -> StorageProfile:
    own = architecture.profiles["depth"].storage
    assert own is not None
    return own


def without(**changes: object) -> Architecture:
    """The architecture whose profile lacks something."""
    depth = DEPTH.profiles["depth"].model_copy(update={"storage": sizes().model_copy(update=changes)})
    return DEPTH.model_copy(update={"profiles": {"depth": depth}})


def silent(architecture: Architecture) -> set[str]:
    """Metrics and storages that neither a step measures nor the architecture gives a reason for, or both."""
    places = [place for step in plan_steps(architecture, "depth", lab_rack(2)) for place in step.expects]
    measured = {(place.metric, place.labels["storage"]) for place in places if "storage" in place.labels}
    own = sizes(architecture)
    left_out = {(metric, name) for metric, reasons in own.left_out.items() for name in reasons}
    every = set(product(OF_STORAGE, own.storages or ()))
    return {f"{metric} of {name}" for metric, name in (every - measured - left_out) | (measured & left_out)}


def test_the_storages_are_of_every_class_and_transport() -> None:
    kinds = {(storage.class_, storage.transport) for storage in DEPTH.storage.values()}
    assert {(DEPTH.storage[name].class_, DEPTH.storage[name].transport) for name in sizes().storages or ()} == kinds


def test_no_metric_of_storage_waits_for_a_runner() -> None:
    names = {m.name: m for m in METRICS.values() if m.name.startswith(("storage.", "join.", "checkpoint."))}
    assert [name for name, metric in names.items() if metric.benchmark == NOT_YET] == []
    assert set(names) <= set(OF_STORAGE)
    assert "link.tcp_bandwidth_to_storage" in OF_STORAGE


def test_every_metric_is_measured_of_every_storage_or_has_a_reason() -> None:
    assert silent(DEPTH) == set()


@pytest.mark.parametrize("profile", ["depth", "full"])
def test_no_entry_stays_without_a_step(profile: str) -> None:
    assert plan_gaps(DEPTH, profile, lab_rack(2), plan_steps(DEPTH, profile, lab_rack(2))) == []


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"knee": None}, "storage.knee_outstanding of cephfs"),
        ({"mounts": None}, "storage.mounts_speedup of nfs-rdma"),
        ({"gds": None}, "storage.gds_read_bandwidth of local"),
        ({"left_out": {}}, "link.tcp_bandwidth_to_storage of nfs-rdma"),
        ({"left_out": {"storage.read_bandwidth": {"local": "no"}}}, "storage.read_bandwidth of local"),
    ],
)
def test_a_shape_that_is_left_out_silently_is_found(changes: dict[str, object], missing: str) -> None:
    assert missing in silent(without(**changes))


@pytest.mark.parametrize(
    ("left_out", "words"),
    [({"storage.speed": {"local": "no"}}, "storage.speed"), ({"join.bytes_copied": {"tape": "no"}}, "tape")],
)
def test_a_reason_of_something_unknown_is_a_problem(left_out: dict[str, dict[str, str]], words: str) -> None:
    assert any(words in problem.message for problem in problems(without(left_out=left_out)))
