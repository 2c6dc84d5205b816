"""DLIO's summary: a recorded one, and damaged ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rackproof.parse import ParseError
from rackproof.parse.dlio import DlioSummary, parse_dlio
from rackproof.parse.errors import Unreliable
from tests.unit.refusals import refuses, refuses_parts

TEXT = (Path(__file__).parents[2] / "data/tools/dlio-2.0-summary.json").read_text()
Change = Callable[[dict[str, Any]], object]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
AU, RATE = "train_au_percentage", "train_throughput_samples_per_second"


def changed(change: Change) -> str:
    document = json.loads(TEXT)
    change(document)
    return json.dumps(document, indent=4)


def of_metric(**values: Any) -> Change:
    return lambda document: document["metric"].update(values)


def without(*keys: str) -> Change:
    return lambda document: [part.pop(key, None) for part in (document, document["metric"]) for key in keys]


def test_every_figure_of_a_recorded_summary() -> None:
    assert parse_dlio(TEXT) == DlioSummary(
        2, 1, "client-1", 24, (95.76008656385564, 96.63010656701812), (31.057702107279077, 38.04250812959873), True
    )


def test_a_run_that_misses_its_own_target_says_so() -> None:
    assert not parse_dlio(changed(of_metric(train_au_meet_expectation="fail"))).meets


test_every_truncation_is_refused = refuses_parts((parse_dlio, f"{TEXT.rstrip()}\n"))


test_what_has_no_figure_for_each_epoch_is_refused = refuses(
    parse_dlio,
    ("", "no output"),
    (TEXT + TEXT, "more than one"),
    ("[1, 2]\n", "no JSON document"),
    (changed(without("metric")), "metric is missing"),
    (changed(lambda d: d.update(metric=[])), "metric is not an object"),
    (changed(without("epochs")), "epochs is missing"),
    (changed(lambda d: d.update(epochs=0)), "epochs is below 1"),
    (changed(lambda d: d.update(epochs=3)), f"{AU} is no list of 3 epochs"),
    (changed(lambda d: d.update(epochs=2.0)), "epochs is not an integer"),
    (changed(lambda d: d.update(num_accelerators="2")), "num_accelerators is not an integer"),
    (changed(lambda d: d.update(num_hosts=0)), "num_hosts is below 1"),
    (changed(lambda d: d.update(hostname="")), "hostname is not a string"),
    (changed(lambda d: d.update(num_files_train=0)), "num_files_train is below 1"),
    (changed(without("num_samples_per_file")), "num_samples_per_file is missing"),
    (changed(of_metric(**{AU: [95.7]})), f"{AU} is no list of 2 epochs"),
    (changed(of_metric(**{AU: []})), f"{AU} is no list of 2 epochs"),
    (changed(of_metric(**{AU: 95.7})), f"{AU} is no list of 2 epochs"),
    (changed(of_metric(**{AU: [95.7, "96"]})), r"\[1\] is not a number"),
    (changed(of_metric(**{AU: [95.7, True]})), r"\[1\] is not a number"),
    (changed(of_metric(**{AU: [95.7, None]})), r"\[1\] is not a number"),
    (changed(of_metric(**{AU: [95.7, float("nan")]})), "NaN is not a number"),
    (changed(of_metric(train_au_mean_percentage=float("inf"))), "Infinity is not a number"),
    (changed(of_metric(**{AU: [-1.0, 96.0]})), "below 0"),
    (changed(of_metric(**{RATE: [31.1]})), f"{RATE} is no list of 2 epochs"),
    (changed(of_metric(**{RATE: [0, 0], "train_throughput_mean_samples_per_second": 0})), "no step was counted"),
    (changed(without("train_throughput_mean_samples_per_second")), "is missing"),
    (changed(without("train_au_meet_expectation")), "train_au_meet_expectation is missing"),
    (changed(of_metric(train_au_meet_expectation="yes")), "is 'yes', expected success or fail"),
    (changed(of_metric(train_au_meet_expectation=True)), "is not a string"),
)


test_figures_that_contradict_each_other_are_unreliable = refuses(
    lambda change: parse_dlio(changed(change)),
    of_metric(train_au_mean_percentage=99.0),
    of_metric(train_throughput_mean_samples_per_second=3455.0),
    of_metric(**{AU: [120.0, 100.0], "train_au_mean_percentage": 110.0}),
    error=Unreliable,
    says="",
)


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(1e-3, 1e9)), min_size=1, max_size=5
    ),
    st.integers(1, 512), st.booleans(),
)  # fmt: skip
def test_whatever_it_reached_is_read_back(epochs: list[tuple[float, float]], count: int, meets: bool) -> None:
    busy, rates = ([pair[place] for pair in epochs] for place in (0, 1))
    figures = {AU: busy, "train_au_mean_percentage": mean(busy), RATE: rates}
    figures |= {"train_throughput_mean_samples_per_second": mean(rates)}
    text = changed(
        lambda d: (
            d.update(num_accelerators=count, epochs=len(epochs)),
            d["metric"].update(figures, train_au_meet_expectation="success" if meets else "fail"),
        )
    )
    summary = parse_dlio(text)
    assert (summary.accelerators, summary.meets) == (count, meets)
    assert (list(summary.utilisation_pct), list(summary.samples_per_s)) == (busy, rates)


@given(st.sampled_from(("num_accelerators", "epochs", "metric", AU, RATE, "hostname")), JSON)
def test_no_value_of_another_kind_passes_or_escapes(key: str, value: object) -> None:
    text = changed(lambda d: (d if key in d else d["metric"]).update({key: value}))
    with suppress(ParseError):
        assert parse_dlio(text).samples_per_s
