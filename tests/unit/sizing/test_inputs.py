from __future__ import annotations

import dataclasses

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.sizing.inputs import inputs_of, parse_choice
from rackproof.core.sizing.values import SYSTEM, WORKLOAD, Ceilings, System, Tenant, Unit
from rackproof.errors import ArchitectureError, SizingError
from tests.unit.refusals import error_of
from tests.unit.sizing.cases import F800_DGX1, UNET3D_H100, architecture, case


def refusal(*workloads: str, settings: tuple[str, ...] = ()) -> str:
    message = error_of(SizingError, case, *workloads, settings=settings)
    assert "\n" not in message
    return message


def test_every_field_is_an_input_and_every_input_a_field() -> None:
    def names(kind: type) -> set[str]:
        return {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]

    system = (names(System) - {"unit", "ceilings"}) | {f"unit.{n}" for n in names(Unit)}
    assert system | {f"ceilings.{n}" for n in names(Ceilings)} == set(SYSTEM)
    assert names(Tenant) - {"name", "title", "kind"} == set(WORKLOAD)


def test_figures_arrive_in_si_units_with_their_source() -> None:
    inputs = case("resnet50")
    assert inputs.value("port_rate") == pytest.approx(12.5e9)
    assert inputs.value("read_size") == 524288
    assert inputs.value("cpu_time_per_sample") == pytest.approx(0.00323)
    assert inputs.value("unit.read_iops") == pytest.approx(1e6)
    assert inputs.origins["unit.read"].source == "published"
    assert inputs.origins["ceilings.storage"].source == "default"
    assert inputs.origins["nodes"].source == "file"


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("nodes=18", "nodes", 18),
        ("port_rate=25Gb/s", "port_rate", 25e9 / 8),
        ("port_rate = 25 Gb/s", "port_rate", 25e9 / 8),
        ("unit.count=3", "unit.count", 3),
        ("rate_per_gpu=1786", "rate_per_gpu", 1786),
        ("rate_per_gpu=1786/s", "rate_per_gpu", 1786),
        ("ceilings.storage=50%", "ceilings.storage", 0.5),
        ("dataset=148GB", "dataset", 148e9),
        ("unit.unloaded_latency=200us", "unit.unloaded_latency", 2e-4),
        ("unit.read_iops=2e6", "unit.read_iops", 2e6),
        ("unit.read_iops=unknown", "unit.read_iops", None),
    ],
)
def test_a_setting_changes_one_input(setting: str, name: str, value: float | None) -> None:
    inputs = case("resnet50", settings=(setting,))
    assert inputs.value(name) == (None if value is None else pytest.approx(value))
    assert inputs.origins[name].source == "--set"
    changed = {n for n in inputs.names if inputs.value(n) != case("resnet50").value(n)}
    assert changed == {name}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("nodse=18", "no input 'nodse'; did you mean 'nodes'?"),
        ("unit.raed=1GB/s", "did you mean 'unit.read'?"),
        ("nodes", "expected NAME=VALUE"),
        ("nodes=", "expected a number"),
        ("nodes=nine", "expected a number"),
        ("nodes=2.5", "expected a whole number"),
        ("nodes=0", "expected more than 0"),
        ("nodes=-3", "expected more than 0"),
        ("nodes=1e999", "nodes is too large"),
        ("nodes=unknown", "cannot be unknown"),
        ("port_rate=100", "100 has no unit"),
        ("port_rate=100GB", "cannot be converted"),
        ("port_rate=100gb/s", "did you mean"),
        ("ceilings.storage=1.2", "at most 1"),
        ("share=0.5", "give the share with the workload"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_one_line(setting: str, message: str) -> None:
    assert message in refusal("resnet50", settings=(setting,))


def test_a_mistyped_workload_is_suggested() -> None:
    assert "did you mean 'resnet50'?" in refusal("resnet5")


def test_several_workloads_and_no_choice_is_a_question() -> None:
    assert refusal() == (
        "case has several workloads, choose with --workload: resnet50, inception4-large, googlenet-serving"
    )


def test_the_only_workload_needs_no_choice() -> None:
    assert [t.name for t in case(text=UNET3D_H100).tenants] == ["unet3d"]


def test_an_architecture_without_sizing_says_so() -> None:
    bare: Architecture = architecture().model_copy(update={"sizing": None})
    with pytest.raises(SizingError, match="case has no sizing block"):
        inputs_of(bare, [parse_choice("resnet50")])


@pytest.mark.parametrize(
    ("parts", "nodes"),
    [
        (("resnet50:6", "inception4-large:3"), [6, 3]),
        (("resnet50:2", "inception4-large:3"), [2, 3]),
        (("resnet50", "inception4-large"), [4.5, 4.5]),
        (("resnet50:6", "inception4-large"), [6, 3]),
        (("resnet50:75%", "inception4-large:25%"), [6.75, 2.25]),
    ],
)
def test_workloads_share_the_nodes(parts: tuple[str, ...], nodes: list[float]) -> None:
    inputs = case(*parts)
    assert [t.share * inputs.system.nodes for t in inputs.tenants] == pytest.approx(nodes)


def test_an_input_of_one_workload_is_set_by_its_name_and_of_all_without() -> None:
    both = case("resnet50", "inception4-large", settings=("rate_per_gpu=100",))
    assert [t.rate_per_gpu for t in both.tenants] == [100, 100]
    one = case("resnet50", "inception4-large", settings=("resnet50.rate_per_gpu=100",))
    assert [t.rate_per_gpu for t in one.tenants] == [100, pytest.approx(204.54)]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            ("resnet50:7", "inception4-large:4"),
            "need 11 nodes, the system has 9; reduce their parts, or --set nodes=11",
        ),
        (("resnet50:9", "inception4-large"), "no nodes remain"),
        (("resnet50", "resnet50"), "selected twice"),
        (("resnet50:0", "inception4-large"), "more than 0"),
        (("resnet50:few",), "expected NAME, NAME:NODES or NAME:SHARE%"),
        (("resnet50:1.2.3",), "expected NAME, NAME:NODES or NAME:SHARE%"),
    ],
)
def test_parts_that_do_not_add_up_are_refused(parts: tuple[str, ...], message: str) -> None:
    assert message in refusal(*parts)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value: 115154, unit: B", "value: 115154, unit: MB/s", "expected a unit of size, B to TiB, actual MB/s"),
        ("value: 115154, unit: B", "value: -1, unit: B", "expected more than 0"),
        ("value: 15, unit: GB/s", "value: 15, unit: GB", "expected a unit of bandwidth"),
        ("kind: inference", "kind: serving", "'training' or 'inference'"),
    ],
)
def test_a_figure_that_measures_something_else_is_refused_with_the_file(old: str, new: str, message: str) -> None:
    assert old in F800_DGX1
    with pytest.raises(ArchitectureError, match=message):
        architecture(F800_DGX1.replace(old, new, 1))


def test_an_unpublished_figure_and_an_absent_key_are_told_apart() -> None:
    inputs = case("resnet50")
    assert inputs.lacking("unit.unloaded_latency") == "sizing.unit.unloaded_latency is not published"
    assert inputs.lacking("connection_slots") == "sizing.connection_slots is not given"
    assert inputs.lacking("files_per_sample") == "workloads.resnet50.files_per_sample is not given"
