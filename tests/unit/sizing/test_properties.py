"""Properties of the model that hold for any figures."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.model import Phase, StageName, first_epoch, later_epochs
from rackproof.core.sizing.planning import edge, networks, up
from rackproof.core.sizing.values import SYSTEM, WORKLOAD
from tests.unit.sizing.cases import case

BASE = case(
    "resnet50", settings=("unit.opens=1e5", "files_per_sample=0.5", "connection_slots=32", "unit.unloaded_latency=1ms",
                          "unit.loaded_latency=unknown"),
)  # fmt: skip
MIX = case("resnet50:6", "googlenet-serving:3")
VARIED = sorted(n for n in (set(SYSTEM) | set(WORKLOAD)) - {"share"} if BASE.value(n) is not None)


@st.composite
def racks(draw: st.DrawFn, base: Inputs = BASE) -> Inputs:
    """``base`` with some of its numbers up to a thousand times larger or smaller."""
    inputs = base
    for name in draw(st.lists(st.sampled_from(VARIED), unique=True, max_size=10)):
        spec, value = inputs.spec(name), inputs.value(name)
        if value is None:
            continue
        value *= 10 ** draw(st.floats(-3, 3))
        if spec.whole:
            value = max(1.0, float(round(value)))
        inputs = inputs.replaced(name, min(value, 1.0) if spec.share else value)
    return inputs


def rate(inputs: Inputs) -> float:
    samples = first_epoch(inputs).samples_per_s
    assert samples is not None
    return samples


def times(inputs: Inputs, name: str, factor: float) -> Inputs:
    return inputs.replaced(name, (inputs.value(name) or 0.0) * factor)


@pytest.mark.parametrize(
    "name",
    ["unit.count", "unit.read", "unit.read_iops", "unit.opens", "port_rate", "storage_ports", "cores_per_node", "nodes",
     "connection_rate", "rate_per_gpu", "connection_slots", "unit.ports"],
)  # fmt: skip
@given(inputs=racks(), factor=st.integers(2, 50))
@settings(max_examples=25, deadline=None)
def test_more_of_anything_never_lowers_the_throughput(name: str, inputs: Inputs, factor: int) -> None:
    assert rate(times(inputs, name, factor)) >= rate(inputs) * (1 - 1e-9)


@given(inputs=racks(), factor=st.floats(1, 100))
def test_faster_gpus_change_no_other_stage(inputs: Inputs, factor: float) -> None:
    before, after = (
        {s.name: s.capacity for s in first_epoch(i).stages if s.name is not StageName.GPU}
        for i in (inputs, times(inputs, "rate_per_gpu", factor))
    )
    assert after == before


@given(inputs=st.one_of(racks(), racks(MIX)))
def test_the_fullest_stage_is_at_its_ceiling_and_no_stage_above(inputs: Inputs) -> None:
    later = later_epochs(inputs)
    for phase in (first_epoch(inputs), later):
        assert isinstance(phase, Phase)
        pressures = [s.pressure for s in phase.stages if s.pressure is not None]
        assert max(pressures) == pytest.approx(1)
        assert phase.binding
        for stage in phase.stages:
            own = [f.samples_per_s for f in phase.flows if stage.tenant in (None, f.tenant)]
            if stage.capacity is not None and stage.utilisation is not None:
                assert math.isfinite(stage.utilisation)
                assert stage.utilisation * stage.capacity == pytest.approx(sum(o or 0.0 for o in own))


@given(inputs=racks())
def test_full_caches_never_slow_a_job_down(inputs: Inputs) -> None:
    later = later_epochs(inputs)
    assert isinstance(later, Phase)
    assert later.samples_per_s is not None
    assert later.samples_per_s >= rate(inputs) * (1 - 1e-9)
    assert (later.storage_read or 0) <= (later.flows[0].ingest or 0) * (1 + 1e-9)


@given(inputs=racks(MIX))
def test_tenants_together_get_no_more_than_alone_with_the_same_nodes(inputs: Inputs) -> None:
    together = first_epoch(inputs)
    for flow in together.flows:
        own = [s.planned for s in together.stages if s.tenant == flow.tenant and s.planned is not None]
        assert (flow.samples_per_s or 0) <= min(own) * (1 + 1e-9)


@given(inputs=racks())
def test_littles_law_holds_on_the_storage_edge(inputs: Inputs) -> None:
    load = edge(inputs, first_epoch(inputs))
    assert load.service_per_s is not None
    assert load.knee == pytest.approx(load.service_per_s * (inputs.system.unit.unloaded_latency or 0))
    if load.latency_s is not None:
        assert load.outstanding == pytest.approx((load.requests_per_s or 0) * load.latency_s)
        assert load.latency_s >= (inputs.system.unit.unloaded_latency or 0)


@given(inputs=racks())
@settings(max_examples=25, deadline=None)
def test_a_faster_network_never_fits_worse(inputs: Inputs) -> None:
    first = first_epoch(inputs)
    later = later_epochs(inputs)
    assert isinstance(later, Phase)
    candidates = networks(inputs, (first, later))
    for slower, faster in pairwise(candidates):
        assert (slower.first or 0) >= (faster.first or 0)
        assert bool(slower.fits_first) <= bool(faster.fits_first)
        assert (slower.job_s or 0) >= (faster.job_s or 0) * (1 - 1e-9)


@given(whole=st.integers(1, 10_000))
def test_rounding_up_keeps_whole_numbers(whole: int) -> None:
    assert up(float(whole)) == whole
    assert up(whole * (1 + 1e-12)) == whole
    assert up(whole + 0.01) == whole + 1
