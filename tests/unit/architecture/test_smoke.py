"""The profile ``smoke``: there for every architecture, minutes instead of hours, and never a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackproof import architectures
from rackproof.bench.forecast import total_s
from rackproof.bench.plan import plan_steps
from rackproof.core.architecture.base import Model
from rackproof.core.architecture.profiles import LinkProfile, Profile
from rackproof.core.architecture.smoke import SMOKE, shortened, with_smoke
from rackproof.core.rack import Node, Rack
from rackproof.errors import ArchitectureError
from tests.unit.fakes import lab_rack, virtual_rack
from tests.unit.published import EVERY, SYSTEMS

pytestmark = pytest.mark.few(11)


def numbers(part: Model) -> Iterator[tuple[str, int]]:
    """Keys of a profile's parts, at any depth, with their whole numbers."""
    for name, value in part:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        for item in inner:
            if isinstance(item, Model):
                yield from numbers(item)
            elif isinstance(item, int):
                yield name, item


@pytest.mark.parametrize("name", EVERY)
def test_every_architecture_with_a_short_benchmark_has_it(name: str) -> None:
    model = architectures.load(name).model
    bases = [model.profiles[profile] for profile in ("lab", "full") if profile in model.profiles]
    base = next((b for b in bases if any(value is not None for _, value in shortened(b))), None)
    if base is None:  # its benchmarks all take long
        assert SMOKE not in model.profiles
        return
    smoke = model.profiles[SMOKE]
    assert Profile.model_validate(smoke.model_dump(by_alias=True)) == smoke
    assert smoke == shortened(base)
    assert any(value is not None for _, value in smoke)
    assert all(value == 1 for key, value in numbers(smoke) if key in ("runs", "copy_runs"))
    assert all(value <= 10 for key, value in numbers(smoke) if key.endswith("_s") and key != "start_s")
    assert all(value <= 256 << 20 for key, value in numbers(smoke) if key == "file_bytes")
    for part in ("storage", "links", "collectives", "gpu", "drives", "containers"):
        assert (getattr(smoke, part) is None) == (getattr(base, part) is None), part
    if base.storage is not None and smoke.storage is not None:
        assert set(smoke.storage.jobs) == set(base.storage.jobs)
        assert smoke.storage.knee is None
    assert smoke.ingest is None


@pytest.mark.parametrize("name", SYSTEMS)
def test_it_takes_minutes_where_the_whole_takes_hours(name: str) -> None:
    model = architectures.load(name).model
    rails = range(model.fabric.rails if model.fabric else 1)
    nodes = tuple(
        Node(f"n{k}", tuple(model.roles), {"fabric_addresses": [f"10.{rail}.0.{k}/24" for rail in rails]})
        for k in range(1, 9)
    )
    seconds = {profile: total_s(plan_steps(model, profile, Rack("x", nodes)), ()) for profile in (SMOKE, "full")}
    assert seconds[SMOKE] < 45 * 60
    assert seconds[SMOKE] < 0.25 * seconds["full"]


def test_every_node_is_measured_with_one_other() -> None:
    model = with_smoke(virtual_rack())
    pairs = {
        place.members
        for step in plan_steps(model, SMOKE, lab_rack(gpu=6))
        for place in step.expects
        if place.metric == "link.tcp_bandwidth"
    }
    assert len(pairs) == 3
    assert {name for pair in pairs for name in pair} == {f"gpu-{k:02}" for k in range(1, 7)}
    assert LinkProfile(rdma_duration_s=1, latency_iterations=5, tcp_duration_s=1).all_pairs(2)


def test_a_site_may_have_its_own() -> None:
    rack = virtual_rack()
    own = rack.model_copy(update={"profiles": {**rack.profiles, SMOKE: rack.profiles["full"]}})
    assert with_smoke(own) is own
    bare = rack.model_copy(update={"profiles": {}})
    assert with_smoke(bare) is bare


def test_fewer_pairs_than_published_are_a_weakening(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        "apiVersion: refarch/v1\nextends: nvidia-dgx-h100\nmetadata: {id: ours, version: 1.0.0, title: Ours}\n"
        "profiles: {full: {links: {every_pair: false}}}\n"
    )
    with pytest.raises(ArchitectureError, match=r"profiles\.full\.links\.every_pair: weakens nvidia-dgx-h100"):
        architectures.load(tmp_path / "ours.yaml")
