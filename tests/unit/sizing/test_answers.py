from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from rackproof.core.sizing.answer import Answer
from rackproof.core.sizing.answers import ASKS, Memo, memo
from rackproof.core.sizing.document import SCHEMA, document, to_json
from rackproof.core.sizing.model import StageName
from rackproof.core.sizing.tenancy import mix
from rackproof.core.sizing.view import View
from tests.unit.sizing.cases import F800_DGX1, UNET3D_H100, architecture, case

pytestmark = pytest.mark.few(8)

RICH = (
    "files_per_sample=1", "unit.opens=200000", "connection_slots=64", "unit.unloaded_latency=1ms",
    "unit.loaded_latency=unknown", "unit.write=5GB/s", "checkpoint=500GB", "checkpoint_interval=600s",
    "unit.capacity=200TB", "batch_per_gpu=256", "dataset=4TB",
)  # fmt: skip
"""Nothing is unknown, so every answer is complete."""

DEPENDS_ON = {
    "bottleneck": ["rate_per_gpu", "unit.read", "cpu_time_per_sample"],
    "concurrency": ["unit.unloaded_latency", "read_size"],
    "network": ["rate_per_gpu", "sample_size", "port_efficiency", "ceilings.network"],
    "units": ["unit.read", "rate_per_gpu", "ceilings.storage", "nodes"],
    "connections": ["connection_rate", "rate_per_gpu"],
    "caches": ["dataset", "client_cache", "unit.cache"],
    "first_epoch": ["dataset", "epochs"],
    "faster_gpus": ["unit.read", "cpu_time_per_sample"],
    "tenants": ["unit.read", "ceilings.storage"],
    "scale": ["dataset", "rate_per_gpu", "unit.capacity"],
    "prefetch": ["rate_per_gpu", "unit.unloaded_latency"],
    "checkpoint": ["unit.write", "checkpoint", "unit.count"],
}


@cache
def plan(*workloads: str, settings: tuple[str, ...] = (), text: str = F800_DGX1) -> Memo:
    return memo(architecture(text), case(*workloads, settings=settings, text=text))


def answer(made: Memo, key: str) -> Answer:
    return next(a for a in made.answers if a.id == key)


def asked(key: str, *workloads: str, settings: tuple[str, ...] = ()) -> Answer:
    """One answer, without its dependences."""
    return ASKS[key](View(case(*workloads, settings=settings)))


@pytest.fixture(scope="module")
def complete() -> Memo:
    return plan("inception4-large", settings=RICH)


def test_every_question_has_an_answer_in_words_and_numbers(complete: Memo) -> None:
    assert [a.id for a in complete.answers] == list(ASKS) == list(DEPENDS_ON)
    for item in complete.answers:
        assert item.says, item.id
        assert item.headline, item.id
        assert all(item.figures[key] is not None for key in item.headline if "inference" not in key), item.id
        assert all(sentence.endswith((".", "…")) for sentence in item.says), item.says
        assert item.unknown == (), item.id


@pytest.mark.parametrize("key", DEPENDS_ON)
def test_an_answer_names_the_inputs_that_it_depends_on(complete: Memo, key: str) -> None:
    assert set(DEPENDS_ON[key]) <= {d.input for d in answer(complete, key).depends_on}


@pytest.mark.parametrize("key", DEPENDS_ON)
def test_an_answer_changes_with_every_input_that_it_depends_on(complete: Memo, key: str) -> None:
    own = answer(complete, key)
    headline = [own.figures[name] for name in own.headline]
    assert own.depends_on
    for dependence in own.depends_on:
        value = complete.inputs.value(dependence.input) or 0.0
        share, whole = (getattr(complete.inputs.spec(dependence.input), kind) for kind in ("share", "whole"))
        others = []
        for factor in (0.25, 0.5, 0.8, 1.25, 2, 4):
            other = max(1.0, round(value * factor)) if whole else value * factor
            other = min(1.0, other) if share else other
            again = ASKS[key](View(complete.inputs.replaced(dependence.input, other)))
            others.append([again.figures.get(name) for name in own.headline])
        assert any(other != headline for other in others), dependence.input


def test_an_input_that_does_not_matter_is_not_named(complete: Memo) -> None:
    assert {"connection_rate", "epochs", "unit.write"}.isdisjoint(d.input for d in answer(complete, "units").depends_on)


def test_a_tipping_point_is_where_the_answer_changes() -> None:
    units = answer(plan("inception4-large"), "units")
    (read,) = [d for d in units.depends_on if d.input == "unit.read"]
    assert read.tips_at == "14.2 GB/s"
    needed = [
        asked("units", "inception4-large", settings=(f"unit.read={gbs}GB/s",)).figures["needed"] for gbs in (14.1, 14.3)
    ]
    assert needed == [3, 2]


def test_what_is_not_published_is_named_and_never_guessed() -> None:
    made = plan("resnet50", settings=("unit.read_iops=unknown", "connection_slots=unknown"))
    says = " ".join(answer(made, "bottleneck").says)
    assert "Not compared" in says
    assert "sizing.unit.read_iops is set to unknown" in says
    assert "sizing.unit.unloaded_latency is not published" in " ".join(answer(made, "concurrency").says)
    assert answer(made, "concurrency").figures["knee_in_flight"] is None
    assert "workloads.resnet50.checkpoint is not published" in " ".join(answer(made, "checkpoint").says)


def test_a_stage_sets_the_pace_only_where_all_stages_are_known(complete: Memo) -> None:
    assert "the bottleneck is GPUs: 14,700 samples/s" in answer(complete, "bottleneck").says[0]
    without = answer(plan("inception4-large", settings=(*RICH, "rate_per_gpu=unknown")), "bottleneck")
    assert "the narrowest known stage is storage bandwidth: at most" in without.says[0]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["rate_per_gpu", "sample_size", "unit.read", "port_rate", "dataset", "read_size"])
def test_no_answer_breaks_without_a_figure(name: str) -> None:
    made = plan("resnet50", settings=(f"{name}=unknown",))
    assert any("set to unknown" in sentence for a in made.answers for sentence in a.says)
    json.loads(to_json(made))


def test_without_any_figure_everything_is_unknown() -> None:
    inputs = case("resnet50")
    figures = [n for n in inputs.names if inputs.spec(n).unit != "1" or "per_sample" in n or "cores" in n]
    made = plan("resnet50", settings=tuple(f"{name}=unknown" for name in figures))
    assert made.view.first.samples_per_s is None
    assert all(stage.utilisation is None for stage in made.view.first.stages)
    assert answer(made, "bottleneck").figures["first_epoch_stage"] is None
    json.loads(to_json(made))


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    if isinstance(value, list | tuple):
        return [n for v in value for n in numbers(v)]
    return [value] if isinstance(value, float) else []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("workloads", "text"),
    [(("resnet50",), F800_DGX1), (("resnet50:6", "googlenet-serving:3"), F800_DGX1), ((), UNET3D_H100)],
)
def test_the_document_is_json_with_finite_numbers(workloads: tuple[str, ...], text: str) -> None:
    made = plan(*workloads, text=text)
    data = json.loads(to_json(made), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert data["schema"] == SCHEMA == "rackproof.sizing/v1"
    assert len(numbers(document(made))) > 50
    assert data["inputs"]["nodes"] == {"value": 9.0 if text == F800_DGX1 else 1.0, "unit": "1", "source": "file"}


def test_when_everything_is_cached_the_storage_is_unused_and_nothing_is_divided_by_zero() -> None:
    made = plan("resnet50", settings=("dataset=100GB",))
    later = made.view.later
    assert later is not None
    assert [s.unused is not None for s in later.stages if s.name in (StageName.NETWORK, StageName.BANDWIDTH)] == [
        True
    ] * 2
    assert answer(made, "network").figures["later_gbps"] == 10
    assert "Every node can cache its data" in " ".join(answer(made, "units").says)
    json.loads(to_json(made))


def test_the_network_matters_in_the_first_epoch_only_where_the_data_fit() -> None:
    network = asked("network", "inception4-large", settings=("dataset=400GB", "epochs=100"))
    assert network.figures["first_epoch_gbps"] == 40
    assert network.figures["later_gbps"] == 10
    longer = (network.figures["job_10_s"] or 0) / (network.figures["job_400_s"] or 1) - 1  # type: ignore[operator]
    assert 0 < longer < 0.02


def test_faster_gpus_gain_until_the_next_stage() -> None:
    faster = asked("faster_gpus", "resnet50")
    assert faster.figures["next_stage"] == "CPU cores"
    assert faster.figures["headroom"] == pytest.approx(0.9 / 0.46, rel=0.01)
    assert faster.figures["gain_at_twice"] == pytest.approx(0.9 / 0.46, rel=0.01)
    waiting = asked("faster_gpus", "resnet50", settings=("rate_per_gpu=3000",))
    assert waiting.says[0].startswith("None: the GPUs already wait for the CPU cores")
    assert waiting.figures["gain_at_twice"] == pytest.approx(1)


def test_a_mix_that_does_not_fit_slows_all_alike_and_names_one_that_fits() -> None:
    made = plan("resnet50:6", "googlenet-serving:3")
    figures = answer(made, "tenants").figures
    assert figures["fits"] is False
    assert figures["served"] == pytest.approx(0.917, rel=0.01)
    assert (figures["inference_nodes_least"], figures["inference_nodes_most"]) == (0, 2)
    assert [s.name for s in made.view.first.binding] == [StageName.BANDWIDTH]
    assert asked("tenants", "resnet50:7", "googlenet-serving:2").figures["fits"] is True


@pytest.mark.parametrize("read", ["9GB/s", "15GB/s", "30GB/s", "70GB/s"])
def test_the_range_of_mixes_is_what_trying_every_split_finds(read: str) -> None:
    fitting = [
        n
        for n in range(1, 9)
        if asked("tenants", f"resnet50:{9 - n}", f"googlenet-serving:{n}", settings=(f"unit.read={read}",)).figures[
            "fits"
        ]
        is True
    ]
    split = mix(case("resnet50:5", "googlenet-serving:4", settings=(f"unit.read={read}",)))
    assert split is not None
    assert split.most is not None
    assert fitting == [n for n in range(1, 9) if (split.least or 0) <= n <= split.most]


def test_questions_without_arithmetic_get_a_pointer_and_no_number() -> None:
    pointers = plan("resnet50").pointers
    assert [a.id for a in pointers] == ["poc", "containers", "alone"]
    assert all(a.figures == {} for a in pointers)
    assert "case has no criterion for it" in " ".join(pointers[1].says)


def test_one_workload_alone_is_the_mix_of_one() -> None:
    alone, whole = case("resnet50"), case("resnet50:9")
    assert View(alone).first == View(whole).first
