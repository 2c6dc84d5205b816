"""Outputs of nvbandwidth, of the kit's program for GPUs, and the list of GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rackproof.parse import ParseError
from rackproof.parse.gpu_list import parse_gpu_list
from rackproof.parse.gpu_program import parse_gpu_run
from rackproof.parse.nvbandwidth import Device, parse_nvbandwidth
from tests.unit.gpu_nodes import BUSES, NAME, GpuNodes, uuid
from tests.unit.refusals import refuses, refuses_parts, survives_damage

from . import tool_output

OLD = tool_output("nvbandwidth-0.5-1gpu.json").rstrip()
NODES = GpuNodes()
COPIES = NODES.copies("nvbandwidth -t host_to_device_memcpy_ce device_to_device_memcpy_read_ce && date")
PRODUCT = NODES.program(f"python3 -I /run/gpu.py product bf16 2 10 256,512 - {uuid(0)} {uuid(1)}")
TRIAD = NODES.program(f"python3 -I /run/gpu.py triad fp32 2 10 536870912 - {uuid(0)} {uuid(1)}")
LISTED = "".join(f"{number}, {uuid(number)}, {bus}.0, {NAME}\n" for number, bus in enumerate(BUSES))


def edited(document: dict[str, Any], change: Callable[[Any], object]) -> str:
    value = json.loads(json.dumps(document))
    change(value)
    return json.dumps(value)


def copies(change: Callable[[Any], object]) -> str:
    return edited(COPIES, lambda value: change(value["nvbandwidth"]))


def test_a_waived_test_has_no_matrix() -> None:
    result = parse_nvbandwidth(OLD)
    assert result.driver == "550.54.15"
    assert result.matrix("host_to_device_memcpy_ce") == ((26.3071,),)
    assert list(result.statuses.values()) == ["Passed", "Waived"]
    with pytest.raises(ParseError, match="expected status Passed, actual Waived"):
        result.matrix("device_to_device_memcpy_read_ce")
    with pytest.raises(ParseError, match="no result of all_to_all"):
        result.matrix("all_to_all")


def test_the_document_may_stand_between_other_text() -> None:
    result = parse_nvbandwidth(f"NOTE: fabric is not ready\n{json.dumps(COPIES, indent=1)}\n1795385382.1\n")
    assert result.devices == (Device(NAME, BUSES[0]), Device(NAME, BUSES[1]))
    assert result.matrix("device_to_device_memcpy_read_ce") == ((None, 396.0), (397.0, None))


test_damaged_copies_are_refused = refuses(
    parse_nvbandwidth,
    ("nvbandwidth Version: v0.6\nRunning host_to_device_memcpy_ce.\n 0 369.36\n", "no JSON document"),
    (f"{OLD}\n{OLD}\n", "more than one"),
    (copies(lambda of: of.update(error="CUDA_ERROR_NOT_INITIALIZED")), "CUDA_ERROR_NOT_INITIALIZED"),
    (copies(lambda of: of["testcases"][0].update(error="ASSERT failed")), "host_to_device.*ASSERT failed"),
    (copies(lambda of: of.update(testcases=[])), "no test was run"),
    (copies(lambda of: of["testcases"].append(of["testcases"][0])), "two results"),
    (copies(lambda of: of["testcases"][0].pop("sum")), "sum is missing"),
    (copies(lambda of: of["testcases"][0].update(sum=9.0)), "its sum is 9, its cells add up to 110.5"),
    (copies(lambda of: of["testcases"][0]["bandwidth_matrix"][0].append("1e3")), "add up to"),
    (copies(lambda of: of["testcases"][1]["bandwidth_matrix"][0].pop()), "different lengths"),
    (copies(lambda of: of["testcases"][0].update(bandwidth_matrix=[["inf"]])), "is not a number"),
    (copies(lambda of: of["testcases"][0].update(bandwidth_matrix=[[55.1]])), "expected a bandwidth"),
    (copies(lambda of: of["testcases"][0].pop("bandwidth_matrix")), "is not a matrix"),
    (copies(lambda of: of["GPU Device list"].reverse()), "expected device 0"),
)


def test_rates_follow_from_work_and_time() -> None:
    run = parse_gpu_run(f"a warning\n{json.dumps(PRODUCT)}\n")
    assert (run.what, run.precision, run.runs, run.sizes) == ("product", "bf16", 2, (256, 512))
    first = run.gpus[0]
    assert first.best == (512, 512, 512)
    sample = PRODUCT["gpus"][0]["samples"][0]
    assert first.samples[0] == pytest.approx(2 * 512**3 * sample["count"] / sample["seconds"] / 1e12)
    triad = parse_gpu_run(json.dumps(TRIAD)).gpus[1]
    assert triad.samples[0] == pytest.approx(4100, rel=1e-3)


def product(change: Callable[[Any], object]) -> str:
    return edited(PRODUCT, lambda value: change(value["gpus"][1]))


test_damaged_figures_are_refused = refuses(
    parse_gpu_run,
    ("expected one GPU, PyTorch has 0\n", "no JSON document"),
    (f"{json.dumps(PRODUCT)}\n{json.dumps(TRIAD)}\n", "more than one"),
    (edited(PRODUCT, lambda value: value.update(rackproof_gpu=2)), "is not format 1"),
    (edited(PRODUCT, lambda value: value.update(what="burn")), "is unknown: burn"),
    (edited(PRODUCT, lambda value: value.update(gpus=[])), "gpus is empty"),
    (product(lambda gpu: gpu["samples"].pop()), "has 1 of 2 repetitions"),
    (product(lambda gpu: gpu["samples"][0].update(seconds=0)), "seconds is 0"),
    (product(lambda gpu: gpu["samples"][0].update(count=1, seconds=1e-6)), "seconds is 0.000001, expected 1 or more"),
    (product(lambda gpu: gpu["samples"][0].update(count=0)), "below 1"),
    (product(lambda gpu: gpu["tried"].pop()), "has 7 of 8 shapes"),
    (product(lambda gpu: gpu["tried"][0].pop()), "is not a shape"),
    (product(lambda gpu: gpu["best"].reverse() or gpu.update(best=[256, 512, 512])), "is not the fastest"),
    (product(lambda gpu: gpu.update(best=[1024, 1024, 1024])), "is not the fastest"),
    (product(lambda gpu: gpu.pop("wrong")), "wrong is missing"),
    (product(lambda gpu: gpu.update(checked=0)), "below 1"),
    (edited(TRIAD, lambda value: value["gpus"][0].update(bytes=1024)), "bytes is 1024"),
)
test_a_part_of_an_output_is_none = refuses_parts(
    (parse_nvbandwidth, OLD),
    (parse_nvbandwidth, json.dumps(COPIES)),
    (parse_gpu_run, json.dumps(PRODUCT)),
    (parse_gpu_run, json.dumps(TRIAD)),
)
test_damage_is_refused_or_harmless = survives_damage(
    (parse_nvbandwidth, json.dumps(COPIES)), (parse_gpu_run, json.dumps(TRIAD)), (parse_gpu_list, LISTED)
)


def test_the_list_has_every_index_once() -> None:
    assert [gpu.bus_id for gpu in parse_gpu_list(LISTED)] == list(BUSES)


test_an_odd_list_is_refused = refuses(
    parse_gpu_list,
    ("", "no output"),
    ("No devices were found\n", "expected a GPU"),
    (LISTED.replace("\n1, ", "\n2, "), "expected GPU 1"),
    (LISTED.replace(uuid(1), uuid(0)), "repeated"),
    (LISTED.replace(BUSES[0], "00000000:FF:00"), "order of their addresses"),
    (LISTED[:-3], "cut off"),
)
