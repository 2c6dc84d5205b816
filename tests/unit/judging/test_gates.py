"""Gates: proofs that a measurement must bring itself."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rackproof.core.architecture import Gate
from rackproof.core.judging.gates import fault_of
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from tests.unit.judging import architecture, criterion, judged, measurement, verdicts

LITTLE = {"iops": (1000.0, 2000.0), "latency_s": (0.064, 0.032), "outstanding": (64.0, 64.0)}
COUNTED = {"application_bytes": (100.0, 100.0), "counter_bytes": (102.0, 99.0)}
LARGE = {"dataset_bytes": (500.0, 500.0), "client_ram_bytes": (100.0, 100.0)}
ONCE = {"dataset_bytes": (500.0, 500.0), "bytes_read": (490.0, 10.0)}
COLD = {"dataset_bytes": (500.0, 500.0), "cached_bytes_start": (0.0, 4.9)}
FROM_DRIVES = {"clients_read_bytes": (500.0, 500.0), "server_drives_bytes": (485.0, 900.0)}
GOOD = {
    Gate.LITTLES_LAW: (LITTLE,),
    Gate.BYTE_COUNTERS: (COUNTED,),
    Gate.DATASET_SIZE: (LARGE, ONCE, LARGE | {"bytes_read": (9999.0, 9999.0)}, ONCE | {"client_ram_bytes": (1e9, 1e9)}),
    Gate.COLD_CACHE: (COLD,),
    Gate.SERVER_DRIVES: (FROM_DRIVES,),
}
CASES = [(gate, numbers) for gate, several in GOOD.items() for numbers in several]


@pytest.mark.parametrize(("gate", "numbers"), CASES)
def test_a_sound_measurement_passes(gate: Gate, numbers: dict[str, tuple[float, ...]]) -> None:
    assert fault_of([gate], numbers, 2) is None


@pytest.mark.parametrize(
    ("gate", "numbers", "fault"),
    [
        (
            Gate.LITTLES_LAW,
            LITTLE | {"latency_s": (0.064, 0.04)},
            "expected iops × latency / outstanding = 1 within 5 %, actual 1.25 (sample 2, 1 of 2)",
        ),
        (
            Gate.LITTLES_LAW,
            LITTLE | {"iops": (940.0, 1880.0)},
            "expected iops × latency / outstanding = 1 within 5 %, actual 0.94 (sample 1, 2 of 2)",
        ),
        (Gate.LITTLES_LAW, LITTLE | {"outstanding": (0.0, 64.0)}, "no request was ever in flight (sample 1, 1 of 2)"),
        (
            Gate.BYTE_COUNTERS,
            COUNTED | {"counter_bytes": (100.0, 3.0)},
            "expected counter / application bytes = 1 within 3 %, actual 0.03 (sample 2, 1 of 2)",
        ),
        (
            Gate.BYTE_COUNTERS,
            COUNTED | {"counter_bytes": (103.1, 100.0)},
            "expected counter / application bytes = 1 within 3 %, actual 1.031 (sample 1, 1 of 2)",
        ),
        (
            Gate.BYTE_COUNTERS,
            {"application_bytes": (0.0, 0.0), "counter_bytes": (0.0, 0.0)},
            "the application moved no byte (sample 1, 2 of 2)",
        ),
        (
            Gate.DATASET_SIZE,
            LARGE | {"client_ram_bytes": (101.0, 100.0)},
            "expected a data set of ≥ 5 times the clients' memory, actual 4.95 times (sample 1, 1 of 2)",
        ),
        (
            Gate.DATASET_SIZE,
            ONCE | {"bytes_read": (1000.0, 500.0)},
            "expected every byte of the data set read at most once in all repetitions together, actual 3 times its size"
            " was read (sample 1, 2 of 2)",
        ),
        (
            Gate.DATASET_SIZE,
            ONCE | {"bytes_read": (490.0, 11.0)},
            "expected every byte of the data set read at most once in all repetitions together, actual 1.002 times its"
            " size was read (sample 1, 2 of 2)",
        ),
        (
            Gate.DATASET_SIZE,
            ONCE | {"bytes_read": (490.0, 0.0)},
            "expected every byte of the data set read at most once in all repetitions together, actual unknown"
            " (sample 2, 1 of 2)",
        ),
        (Gate.DATASET_SIZE, LARGE | {"client_ram_bytes": (0.0, 0.0)}, None),
        (Gate.DATASET_SIZE, LARGE | {"dataset_bytes": (0.0, 0.0)}, "the data set is empty (sample 1, 2 of 2)"),
        (
            Gate.COLD_CACHE,
            COLD | {"cached_bytes_start": (0.0, 5.0)},
            "expected < 1 % of the data set cached at the start, actual 1 % (sample 2, 1 of 2)",
        ),
        (
            Gate.SERVER_DRIVES,
            FROM_DRIVES | {"server_drives_bytes": (484.9, 500.0)},
            "expected ≥ 97 % of what the clients read from the servers' drives, actual 96.98 %: the servers' memory"
            " answered the rest (sample 1, 1 of 2)",
        ),
        (
            Gate.SERVER_DRIVES,
            FROM_DRIVES | {"clients_read_bytes": (0.0, 0.0)},
            "the clients read no byte (sample 1, 2 of 2)",
        ),
    ],
)
def test_what_is_refused(gate: Gate, numbers: dict[str, tuple[float, ...]], fault: str | None) -> None:
    actual = fault_of([gate], numbers, 2)
    assert actual is not None
    if fault is not None:
        assert actual == f"{gate}: {fault}"


@pytest.mark.parametrize(("ratio", "passes"), [(1.05, True), (0.95, True), (1.0501, False), (0.9499, False)])
def test_the_bounds_of_littles_law_are_included(ratio: float, passes: bool) -> None:
    numbers = {"iops": (ratio * 1000,), "latency_s": (0.001,), "outstanding": (1.0,)}
    assert (fault_of([Gate.LITTLES_LAW], numbers, 1) is None) is passes


@pytest.mark.parametrize(("ratio", "passes"), [(1.03, True), (0.97, True), (1.0301, False), (0.9699, False)])
def test_the_bounds_of_the_byte_counters_are_included(ratio: float, passes: bool) -> None:
    numbers = {"application_bytes": (1e12,), "counter_bytes": (ratio * 1e12,)}
    assert (fault_of([Gate.BYTE_COUNTERS], numbers, 1) is None) is passes


@pytest.mark.parametrize(("gate", "numbers"), CASES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_impossible_numbers_pass_no_gate(gate: Gate, numbers: dict[str, tuple[float, ...]], bad: float) -> None:
    for name in numbers:
        actual = fault_of([gate], numbers | {name: (numbers[name][0], bad)}, 2)
        assert actual is not None
        assert "is impossible" in actual


@pytest.mark.parametrize("gate", list(Gate))
def test_a_gate_without_its_numbers_is_not_passed(gate: Gate) -> None:
    numbers = GOOD[gate][0]
    for name in numbers:
        less = {other: values for other, values in numbers.items() if other != name}
        assert f"{name} not recorded" in str(fault_of([gate], less, 2))
        short = str(fault_of([gate], numbers | {name: (1.0,)}, 2))
        assert short == f"{gate} cannot be checked: 1 number of {name} for 2 samples"
    assert "cannot be checked" in str(fault_of([gate], {}, 2))


def test_what_the_warm_up_read_was_read_once_already() -> None:
    numbers = {"dataset_bytes": (500.0,) * 3, "bytes_read": (500.0, 250.0, 250.0), "client_ram_bytes": (400.0,) * 3}
    assert "times the clients' memory" in str(fault_of([Gate.DATASET_SIZE], numbers, 3, warmup=1))
    small = numbers | {"bytes_read": (0.0, 250.0, 250.0)}
    assert fault_of([Gate.DATASET_SIZE], small, 3, warmup=1) is None
    unknown = numbers | {"bytes_read": (math.nan, 1.0, 1.0)}
    assert fault_of([Gate.DATASET_SIZE], unknown, 3, warmup=1) is not None
    large = numbers | {"client_ram_bytes": (100.0,) * 3}
    assert fault_of([Gate.DATASET_SIZE], large, 3, warmup=1) is None


def read(companions: dict[str, tuple[float, ...]], *samples: float, **fields: Any) -> Verdict:
    made = architecture(criterion(gates=["byte_counters"], **fields))
    return verdicts(judged(made, measurement("gpu-01", *samples, companions=companions)))["gpu-01"]


def test_a_failed_gate_is_invalid_and_shows_the_number_that_must_not_be_used() -> None:
    verdict = read({"application_bytes": (100.0,), "counter_bytes": (2.0,)}, 90.0)
    assert (verdict.status, verdict.value, verdict.samples) == (Status.INVALID, 90.0, (90.0,))
    assert verdict.message == "byte_counters: expected counter / application bytes = 1 within 3 %, actual 0.02"
    assert read(COUNTED, 90.0, 91.0).status is Status.PASS
    assert read({}, 90.0, 91.0).status is Status.INVALID


def test_the_warm_up_may_be_what_it_likes() -> None:
    companions = {"application_bytes": (100.0, 100.0, 100.0), "counter_bytes": (500.0, 100.0, 100.0)}
    assert read(companions, 1.0, 90.0, 90.0, warmup=1).status is Status.PASS
    assert read(companions, 1.0, 90.0, 90.0).status is Status.INVALID


def test_numbers_of_the_repetitions_after_the_warm_up_only_do_not_line_up() -> None:
    verdict = read(COUNTED, 1.0, 90.0, 90.0, warmup=1)
    assert verdict.status is Status.INVALID
    assert verdict.message == "byte_counters cannot be checked: 2 numbers of application_bytes for 3 samples"
