"""GPUs: what no program measured on the GPUs that are there gives no number."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof import architectures
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.gpu.reader import PEER_READ, TESTS, TO_DEVICE, read_gpus
from rackproof.bench.plan import plan_steps
from rackproof.cli import proof
from rackproof.core.evidence import Kind, Measurement, Scope
from rackproof.core.rack import Node, Rack
from rackproof.parse.gpu_list import LIST
from rackproof.parse.gpu_program import parse_gpu_run
from rackproof.run import stages
from tests.unit.fakes import at_once
from tests.unit.false_certificates.edited import certificate, chained
from tests.unit.false_certificates.racks import World
from tests.unit.gpu_nodes import BUSES, BUSY, NAME, GpuNodes, uuid
from tests.unit.judging import GPU, NODES, architecture, bar, criterion, document

pytestmark = pytest.mark.few(2)

PROFILE = {
    "copy_runs": 3, "runs": 2, "seconds": 5, "triad_bytes": 536870912, "sides": [256, 512],
    "diagnoses": {"memory_bandwidth": 60, "targeted_stress": 140},
}  # fmt: skip
STAND_IN = Path(__file__).parents[2] / "data/stand_in_torch"
REPORT = Path(__file__).parents[2] / "data/tools/nvidia-smi-590-2gpu.xml"
BARS = {
    "gpu.host_to_device_bandwidth": ("ge", 50, "GB/s", {}),
    "gpu.device_to_host_bandwidth": ("ge", 50, "GB/s", {}),
    "gpu.peer_read_bandwidth": ("ge", 335, "GB/s", {}),
    "gpu.memory_bandwidth": ("ge", 3000, "GB/s", {}),
    "gpu.matmul_rate": ("ge", 739, "TFLOPS", {"precision": "bf16"}),
    "gpu.wrong_values": ("eq", 0, "1", {"op": ["product", "triad"]}),
    "gpu.diagnosed_faults": ("eq", 0, "1", {"test": ["memory_bandwidth", "targeted_stress"]}),
}


class Gpus:
    """A world whose nodes have two real GPUs each, which the kit's own benchmark measures."""

    def __init__(self, made: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.nodes = made, {name: GpuNodes(runs=1000 * number) for number, name in enumerate(GPU)}
        plain = made.answer

        def answer(node: str, command: str) -> Any:
            own = self.nodes[node].answer(node, command) if node in self.nodes else None
            return plain(node, command) if own is None or node in made.dead else own

        made.answer = answer  # type: ignore[method-assign]
        criteria = [
            criterion(
                id=metric, metric=metric, where=where, scope="gpu", statistic="max" if op == "eq" else "min",
                bar=bar(op, value, unit)
            )
            for metric, (op, value, unit, where) in BARS.items()
        ]  # fmt: skip
        gpu = {"count": 2, "model": NAME, "memory_mib": None, "pcie_generation": 5, "pcie_width": 16}
        text = document(*criteria, gpu=gpu, profiles={"full": {"gpu": PROFILE}})
        (made.folder / "architectures/small.yaml").write_text(yaml.safe_dump(text, sort_keys=False))
        for name in GPU:
            made.computers[name].gpus = REPORT.read_text().replace(">Active<", ">Not Active<")
        for module in (stages, proof):
            monkeypatch.setattr(module, "plan_steps", plan_steps)

    def certify(self, expected: int) -> None:
        result = self.world.certify()
        bad = [
            (v["id"], v["subject"], v["message"]) for v in self.world.certificate()["verdicts"] if v["status"] != "PASS"
        ]
        assert result.exit_code == expected, bad or result.output

    def verdicts(self, metric: str) -> dict[str, tuple[str, str]]:
        """Status and message by GPU."""
        return {
            verdict["subject"]: (verdict["status"], verdict["message"])
            for verdict in self.world.certificate()["verdicts"]
            if metric in (verdict["id"], verdict["id"].partition("[")[0])
        }


@pytest.fixture
def gpus(world: World, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return Gpus(world, monkeypatch)


def test_healthy_gpus_are_certified_one_by_one(gpus: Gpus) -> None:
    gpus.certify(0)
    names = {f"{node}/gpu{number}" for node in GPU for number in range(2)}
    for metric in BARS:
        verdicts = gpus.verdicts(metric)
        assert {status for status, _ in verdicts.values()} == {"PASS"}, verdicts
        assert set(verdicts) == names
    numbers = {
        r.body["members"][0]: r.body
        for r in gpus.world.records
        if r.kind is Kind.MEASUREMENT and r.body["metric"] == "gpu.peer_read_bandwidth"
    }
    body = numbers["gpu-02/gpu1"]
    assert len(body["samples"]) == 3
    assert body["conditions"]["slowest_peer"] == "gpu0"
    assert (body["conditions"]["uuid"], body["conditions"]["bus_id"]) == (uuid(1), BUSES[1])


def test_a_gpus_sample_is_its_slowest_peer_not_the_sum_or_the_mean() -> None:
    """The row is its own: what others read from it counts for them."""
    row = {(1, 0): 410.0, (1, 2): 310.0, (1, 3): 390.0}
    nodes = GpuNodes(count=4, buses=(*BUSES, "00000000:3A:00", "00000000:5D:00"), peer=row)
    copies = f"nvbandwidth -j -t {TESTS[PEER_READ]} && date +%s.%N"
    answers = [answer for command in (LIST, copies, copies) if (answer := nodes.answer("gpu-01", command))]
    read = read_gpus(answers, architecture(gpu={"count": 4, "model": NAME, "memory_mib": None}))

    def least(gpu: int) -> tuple[list[float], str]:
        members = (f"gpu-01/gpu{gpu}",)
        reading = read(Measurement(step="gpu/copies", metric=PEER_READ, scope=Scope.GPU, members=members, unit="GB/s"))
        return [round(sample) for sample in reading.samples], reading.conditions["slowest_peer"]

    assert least(1) == ([310, 310], "gpu2")
    assert least(2) == ([398, 398], "gpu0"), "GPU 1 reads slowly from it, not it from GPU 1"


def test_gpus_of_all_nodes_of_a_large_rack_are_measured_at_once(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler has a limit: it would end before the last nodes of a rack whose nodes take turns."""
    purposes = at_once(monkeypatch)
    gpus.certify(0)
    assert {"memory of GPUs", "DCGM's tests of GPUs"} <= set(purposes)


def conditions(gpus: Gpus, metric: str, member: str) -> dict[str, Any]:
    """Those of its first number."""
    bodies = (r.body for r in gpus.world.records if r.kind is Kind.MEASUREMENT)
    return dict(next(b["conditions"] for b in bodies if (b["metric"], b["members"]) == (metric, [member])))


@pytest.mark.parametrize("metric", BARS)
def test_clocks_and_heat_under_load_are_with_the_number(gpus: Gpus, metric: str) -> None:
    gpus.certify(0)
    expected = {
        "sm_clock_min_mhz": 1755, "power_max_w": 690.12, "temperature_max_c": 61, "clocks_limited_by": "power limit",
    }  # fmt: skip
    assert expected.items() <= conditions(gpus, metric, "gpu-01/gpu1").items()
    for step in ("gpu/copies", "gpu/triad/fp32", "gpu/product/bf16", "gpu/diagnosis"):
        for check in ("load.gpu_links", "load.gpu_clocks"):
            assert {v["status"] for v in gpus.world.verdicts(f"{check}[{step}]").values()} == {"PASS"}


def test_conditions_of_copies_are_those_of_the_samples_that_are_judged(gpus: Gpus) -> None:
    """Those of idle moments and of the first sample of each burst are not."""
    rises = BUSY.replace("0004, 1755, 690.12, 61", "0008, 900, 700.00, 71")
    hot = BUSY.replace("0004, 1755, 690.12, 61", "0048, 1200, 695.00, 88")
    gpus.nodes["gpu-01"].in_turn = [moments(IDLE, rises, BUSY, IDLE, rises, BUSY, BUSY)]
    gpus.nodes["gpu-02"].in_turn = [moments(IDLE, rises, BUSY, IDLE, rises, BUSY, hot)]
    gpus.certify(1)
    healthy, slow = (conditions(gpus, TO_DEVICE, f"{node}/gpu0") for node in ("gpu-01", "gpu-02"))
    assert (healthy["sm_clock_min_mhz"], healthy["power_max_w"], healthy["temperature_max_c"]) == (1755, 690.12, 61)
    assert healthy["clocks_limited_by"] == "power limit"
    assert (slow["sm_clock_min_mhz"], slow["power_max_w"], slow["temperature_max_c"]) == (1200, 695.0, 88)
    assert slow["clocks_limited_by"] == "hardware slowdown, hardware thermal slowdown, power limit"
    assert gpus.world.verdicts("load.gpu_clocks[gpu/copies]")["gpu-02"]["status"] == "FAIL"


def test_clocks_that_a_driver_does_not_report_are_no_conditions(gpus: Gpus) -> None:
    unknown = BUSY.replace("0x0000000000000004, 1755, 690.12, 61", "[N/A], [N/A], [N/A], [N/A]")
    gpus.nodes["gpu-01"].in_turn = [moments(unknown, unknown, unknown)]
    gpus.certify(0)
    names = {"sm_clock_min_mhz", "power_max_w", "temperature_max_c", "clocks_limited_by"}
    assert not names & conditions(gpus, TO_DEVICE, "gpu-01/gpu0").keys()
    assert names <= conditions(gpus, TO_DEVICE, "gpu-02/gpu0").keys()


def test_a_hot_gpu_fails_under_products(gpus: Gpus) -> None:
    gpus.nodes["gpu-02"].samples = gpus.nodes["gpu-02"].samples.replace("0x0000000000000004", "0x0000000000000048")
    gpus.certify(1)
    verdict = gpus.world.verdicts("load.gpu_clocks[gpu/product/bf16]")["gpu-02"]
    assert verdict["status"] == "FAIL"
    assert f"GPU {BUSES[0]}.0: hardware slowdown" in verdict["message"]


STEPS = ("gpu/copies", "gpu/triad/fp32", "gpu/product/bf16", "gpu/diagnosis")
IDLE = "P8, 0, 1, 5, 16, 16, 0x0000000000000001, 345, 70.12, 33"


def moments(*rows: str) -> str:
    """The same row of both GPUs at every moment."""
    return "".join(f"{bus}.0, {row}\n" for row in rows for bus in BUSES)


@pytest.mark.parametrize("step", ["gpu/copies", "gpu/diagnosis"])
@pytest.mark.parametrize(
    ("row", "check", "words"),
    [
        (BUSY.replace("0x0000000000000004", "0x0000000000000040"), "load.gpu_clocks", "hardware thermal slowdown in 1"),
        (BUSY.replace("98, 5, 5", "98, 1, 5"), "load.gpu_links", "expected generation 5 x16 under load, actual gen"),
        (BUSY.replace("16, 16", "8, 16"), "load.gpu_links", "actual generation 5 x8 in 1 of 4 samples"),
    ],
)
def test_a_gpu_that_slows_down_between_idle_moments_fails_by_name(
    gpus: Gpus, step: str, row: str, check: str, words: str
) -> None:
    """Under copies and DCGM's tests, which leave it idle in between."""
    loaded = moments(IDLE, BUSY, BUSY, BUSY, IDLE, BUSY, BUSY)
    nodes = gpus.nodes["gpu-02"]
    nodes.in_turn = [nodes.samples] * STEPS.index(step) + [f"{loaded}{BUSES[0]}.0, {BUSY}\n{BUSES[1]}.0, {row}\n"]
    gpus.certify(1)
    verdict = gpus.world.verdicts(f"{check}[{step}]")["gpu-02"]
    assert verdict["status"] == "FAIL"
    assert f"GPU {BUSES[1]}.0: " in verdict["message"]
    assert words in verdict["message"]
    assert {v["status"] for other in STEPS if other != step
            for v in gpus.world.verdicts(f"{check}[{other}]").values()} == {"PASS"}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ((IDLE, BUSY, BUSY, IDLE, BUSY, BUSY, IDLE), "PASS"),
        ((BUSY.replace("98, 5, 5", "7, 1, 5"), BUSY, BUSY, IDLE, BUSY.replace("98, 5", "7, 1"), BUSY, BUSY), "PASS"),
        ((IDLE, BUSY.replace("0x0000000000000004", "0x0000000000000008"), BUSY, BUSY, IDLE), "PASS"),
        ((BUSY, IDLE, BUSY, IDLE, BUSY, IDLE, BUSY), "UNMEASURED"),
        ((IDLE,) * 7, "UNMEASURED"),
    ],
    ids=["bursts", "a link that rises", "clocks that rise", "moments", "idle"],
)
def test_idle_moments_between_copies_neither_fail_nor_pass(gpus: Gpus, rows: tuple[str, ...], status: str) -> None:
    gpus.nodes["gpu-02"].in_turn = [moments(*rows)]
    gpus.certify(0)
    for check in ("load.gpu_links", "load.gpu_clocks"):
        verdict = gpus.world.verdicts(f"{check}[gpu/copies]")["gpu-02"]
        assert verdict["status"] == status, verdict
        assert status == "PASS" or "under load in" in verdict["message"]


def test_a_slow_gpu_fails_and_its_peers_do_not(gpus: Gpus) -> None:
    gpus.nodes["gpu-02"].to_device[1] = 26.0
    gpus.certify(1)
    statuses = {name: status for name, (status, _) in gpus.verdicts("gpu.host_to_device_bandwidth").items()}
    assert statuses.pop("gpu-02/gpu1") == "FAIL"
    assert set(statuses.values()) == {"PASS"}


def test_one_wrong_element_fails_and_its_rate_does_not_count(gpus: Gpus) -> None:
    def wrong(document: dict[str, Any]) -> None:
        if document["what"] == "product":
            document["gpus"][0]["wrong"] = 1

    gpus.nodes["gpu-01"].edit["program"] = wrong
    gpus.certify(1)
    assert gpus.verdicts("gpu.wrong_values[product]")["gpu-01/gpu0"][0] == "FAIL"
    assert gpus.verdicts("gpu.matmul_rate")["gpu-01/gpu0"][0] == "UNMEASURED"
    assert "1 elements of its result are wrong" in gpus.verdicts("gpu.matmul_rate")["gpu-01/gpu0"][1]
    assert gpus.verdicts("gpu.matmul_rate")["gpu-01/gpu1"][0] == "PASS"


def diagnosed(test: str, gpu: int, **changed: Any) -> Callable[[dict[str, Any]], object]:
    """Change of one GPU's result of one of DCGM's tests."""

    def change(document: dict[str, Any]) -> None:
        for category in document["DCGM Diagnostic"]["test_categories"]:
            for one in category["tests"]:
                if one["name"] == test:
                    one["results"][gpu].update(changed)

    return change


@pytest.mark.parametrize("status", ["Fail", "Warn"])
def test_a_gpu_that_fails_a_test_of_dcgm_fails_by_name(gpus: Gpus, status: str) -> None:
    words = "GPU 1 Memory bandwidth of 1.9 TB/s is below"
    gpus.nodes["gpu-02"].edit["diagnosis"] = diagnosed(
        "memory_bandwidth", 1, status=status, warnings=[{"error_id": 12, "warning": words}]
    )
    gpus.nodes["gpu-02"].ends["diagnosis"] = 226
    gpus.certify(1)
    verdicts = gpus.verdicts("gpu.diagnosed_faults[memory_bandwidth]")
    assert {gpu: status for gpu, (status, _) in verdicts.items() if status != "PASS"} == {"gpu-02/gpu1": "FAIL"}
    (body,) = [r.body for r in gpus.world.records if r.kind is Kind.MEASUREMENT and "complaint" in r.body["conditions"]]
    assert body["conditions"]["complaint"] == f"{status}: {words}"


def without_gpu_0(document: dict[str, Any]) -> None:
    for category in document["DCGM Diagnostic"]["test_categories"]:
        for test in category["tests"]:
            test["results"] = [result for result in test["results"] if result["entity_id"]]


def on_processors(document: dict[str, Any]) -> None:
    for category in document["DCGM Diagnostic"]["test_categories"]:
        for test in category["tests"]:
            for result in test["results"]:
                result["entity_group"] = "GPU" if result["entity_id"] else "CPU"


def _tests_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for category in document["DCGM Diagnostic"]["test_categories"]:
        yield from category["tests"]


def of_the_whole(summary: Any) -> Callable[[dict[str, Any]], object]:
    """Sets DCGM's result of a test as a whole."""
    return lambda document: [
        one.update(test_summary=summary) for one in _tests_of(document) if one["name"] == "memory_bandwidth"
    ]


def stopped(document: dict[str, Any]) -> None:
    document["DCGM Diagnostic"]["runtime_error"] = "nvvs was killed"


def on_a_switch(document: dict[str, Any]) -> None:
    for test in _tests_of(document):
        if test["name"] == "memory_bandwidth":
            sick = {
                "entity_group": "NvSwitch",
                "entity_id": 3,
                "status": "Fail",
                "warnings": [{"warning": "link 4 is down"}],
            }
            test["results"].append(sick)


def skipped_elsewhere(document: dict[str, Any]) -> None:
    """A skipped test explains no exit status."""
    for test in _tests_of(document):
        if test["name"] != "memory_bandwidth":
            for result in test["results"]:
                result["status"] = "Skip"


DIAGNOSED = "gpu.diagnosed_faults[memory_bandwidth]"


def first(begin: str, **changed: Any) -> Callable[[dict[str, Any]], object]:
    """Change of one test of nvbandwidth."""
    return lambda document: [
        test.update(changed) for test in document["nvbandwidth"]["testcases"] if test["name"].startswith(begin)
    ]


def one_gpu(document: dict[str, Any]) -> None:
    for test in document["nvbandwidth"]["testcases"]:
        test.update(bandwidth_matrix=[test["bandwidth_matrix"][0][:1]], sum=0)
        test["sum"] = sum(float(cell) for row in test["bandwidth_matrix"] for cell in row if cell != "N/A")
    document["nvbandwidth"]["GPU Device list"].pop()


def of_other_gpus(document: dict[str, Any]) -> None:
    for number, gpu in enumerate(document["gpus"]):
        gpu.update(uuid=uuid(number + 7))


@pytest.mark.parametrize(
    ("metric", "kind", "change", "words"),
    [
        ("gpu.host_to_device_bandwidth", "copies", {"edit": first("host", status="Waived")}, "actual Waived"),
        ("gpu.host_to_device_bandwidth", "copies", {"edit": first("host", name="all_to_host")}, "no result of host_to"),
        ("gpu.host_to_device_bandwidth", "copies", {"edit": one_gpu}, "expected 2 GPUs, actual 1"),
        ("gpu.peer_read_bandwidth", "copies",
         {"edit": first("device_to_device", bandwidth_matrix=[["N/A"] * 2] * 2, sum=0)}, "no bandwidth of GPU 0 from"),
        ("gpu.host_to_device_bandwidth", "copies", {"ends": 1}, "exit status 1"),
        ("gpu.host_to_device_bandwidth", "copies", {"ends": None}, "did not end within"),
        ("gpu.host_to_device_bandwidth", "copies", {"text": "{}\n{}\n"}, "more than one JSON document"),
        ("gpu.host_to_device_bandwidth", "copies", {"text": "CUDA_ERROR_SYSTEM_NOT_READY\n"}, "no JSON document"),
        ("gpu.matmul_rate", "program", {"ends": 139}, "exit status 139"),
        ("gpu.matmul_rate", "program", {"ends": None}, "did not end within"),
        ("gpu.matmul_rate", "program", {"text": "{}\n{}\n"}, "more than one JSON document"),
        ("gpu.matmul_rate", "program", {"edit": lambda document: document.update(precision="fp16")},
         "expected precision bf16, actual fp16"),
        ("gpu.matmul_rate", "program", {"edit": lambda document: document["gpus"].pop()}, "expected GPUs"),
        ("gpu.matmul_rate", "program", {"edit": of_other_gpus}, "expected GPU "),
        ("gpu.matmul_rate", "program", {"edit": lambda document: document["gpus"][0].update(name="NVIDIA L4")},
         "actual NVIDIA L4"),
        ("gpu.memory_bandwidth", "program", {"edit": lambda document: document.update(what="product")}, "tried"),
        (DIAGNOSED, "diagnosis", {"edit": diagnosed("memory_bandwidth", 0, status="Skip")}, "memory_bandwidth: Skip"),
        (DIAGNOSED, "diagnosis", {"edit": diagnosed("memory_bandwidth", 0, status="Not Run")}, "_bandwidth: Skip"),
        (DIAGNOSED, "diagnosis", {"edit": diagnosed("memory_bandwidth", 0, status="Passed")}, ": Passed"),
        (DIAGNOSED, "diagnosis", {"edit": diagnosed("memory_bandwidth", 0, status=None)}, "unreadable"),
        (DIAGNOSED, "diagnosis", {"edit": diagnosed("memory_bandwidth", 0, warnings=["not enough memory"])},
         "Pass not enough memory"),
        (DIAGNOSED, "diagnosis", {"edit": without_gpu_0}, "it printed no such result"),
        (DIAGNOSED, "diagnosis", {"edit": on_processors}, "it printed no such result"),
        (DIAGNOSED, "diagnosis", {"text": "{}\n{}\n"}, "more than one JSON document"),
        (DIAGNOSED, "diagnosis", {"text": "Error: unable to establish a connection\n"}, "no JSON document"),
        (DIAGNOSED, "diagnosis", {"text": "CUDA error 719\n{}\n"}, "it also printed: CUDA error 719"),
        (DIAGNOSED, "diagnosis", {"ends": None}, "did not end within"),
        (DIAGNOSED, "diagnosis", {"ends": 139}, "no test fails, but it ended otherwise"),
        (
            DIAGNOSED,
            "diagnosis",
            {"edit": of_the_whole({"status": "Fail", "warnings": [{"warning": "NvSwitch 3 is sick"}]}), "ends": 226},
            "no result of memory_bandwidth that holds for every device: Fail NvSwitch 3 is sick",
        ),
        (DIAGNOSED, "diagnosis", {"edit": of_the_whole({"status": "Fail"})}, "holds for every device: Fail"),
        (DIAGNOSED, "diagnosis", {"edit": of_the_whole("Fail")}, "holds for every device: unreadable"),
        (DIAGNOSED, "diagnosis", {"edit": stopped}, "holds for every device: unreadable nvvs was killed"),
        (DIAGNOSED, "diagnosis", {"edit": on_a_switch}, "holds for every device: Fail link 4 is down"),
        (DIAGNOSED, "diagnosis", {"edit": skipped_elsewhere, "ends": 226}, "no test fails, but it ended otherwise"),
    ],
)  # fmt: skip
@pytest.mark.few(5)
def test_what_was_not_measured_never_passes(
    gpus: Gpus, metric: str, kind: str, change: dict[str, Any], words: str
) -> None:
    for field, value in change.items():
        getattr(gpus.nodes["gpu-01"], field)[kind] = value
    gpus.certify(2)
    verdicts = gpus.verdicts(metric)
    assert verdicts["gpu-01/gpu0"][0] == "UNMEASURED"
    assert words in verdicts["gpu-01/gpu0"][1]
    assert {verdicts[f"gpu-02/gpu{number}"][0] for number in range(2)} == {"PASS"}


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        (f"0, {uuid(0)}, {BUSES[0]}.0, {NAME}\n", "expected 2 GPUs, actual 1"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "expected a GPU"),
        ("", "no output"),
    ],
)
def test_a_missing_gpu_is_no_number(gpus: Gpus, listed: str, words: str) -> None:
    gpus.nodes["gpu-01"].listed = listed
    gpus.certify(2)
    for metric in BARS:
        status, message = gpus.verdicts(metric)["gpu-01/gpu0"]
        assert status == "UNMEASURED"
        assert words in message


def test_an_edited_number_contradicts_its_output(gpus: Gpus) -> None:
    gpus.certify(0)
    records, folder = gpus.world.records, gpus.world.runs[-1]
    for metric in ("gpu.peer_read_bandwidth", "gpu.memory_bandwidth", "gpu.matmul_rate"):
        bodies = [
            (r.kind, r.body | {"samples": [value * 1.1 for value in r.body["samples"]]})
            if r.kind is Kind.MEASUREMENT and r.body["metric"] == metric
            else (r.kind, r.body)
            for r in records
        ]
        verdicts = [v for v in certificate(chained(bodies), folder).verdicts if v.id.partition("[")[0] == metric]
        assert {v.status.value for v in verdicts} == {"INVALID"}
        assert "its raw output gives" in verdicts[0].message


def test_a_node_without_gpus_in_the_plan_has_no_step(gpus: Gpus) -> None:
    architecture = architectures.load("small").model
    rack = Rack("a.py", tuple(Node(name, ("storage",), {}) for name in NODES))
    assert plan_steps(architecture, "full", rack) == []


# the program itself, on a stand-in for PyTorch


def program(what: str, sizes: str, mode: str = "", *uuids: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(PROGRAM), what]
    command += ["bf16" if what == "product" else "fp32", "2", "0.01", sizes, str(STAND_IN), *(uuids or (uuid(0),))]
    environment = {**os.environ, "STAND_IN": mode}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


PROGRAM = Path(__file__).parents[3] / "rackproof/bench/gpu/gpu_program.py"


@pytest.mark.parametrize(("what", "sizes"), [("product", "2,3"), ("triad", "4096")])
def test_the_program_measures_every_gpu_and_verifies(what: str, sizes: str) -> None:
    ended = program(what, sizes, "", uuid(0), uuid(1))
    assert ended.returncode == 0, ended.stderr
    run = parse_gpu_run(ended.stdout)
    assert [gpu.asked for gpu in run.gpus] == [uuid(0), uuid(1)] == [gpu.uuid for gpu in run.gpus]
    assert all(gpu.wrong == 0 and len(gpu.samples) == 2 and min(gpu.samples) > 0 for gpu in run.gpus)


@pytest.mark.parametrize(("what", "sizes"), [("product", "2,3"), ("triad", "4096")])
def test_the_program_finds_wrong_results(what: str, sizes: str) -> None:
    run = parse_gpu_run(program(what, sizes, "wrong").stdout)
    assert run.gpus[0].wrong > 0


@pytest.mark.parametrize(("mode", "words"), [("crash", "uncorrectable ECC"), ("none", "expected one GPU")])
def test_the_program_fails_where_pytorch_does(mode: str, words: str) -> None:
    ended = program("product", "2,3", mode)
    assert ended.returncode == 1
    assert words in ended.stderr
    assert not ended.stdout


def test_the_program_needs_pytorch(tmp_path: Path) -> None:
    command = [sys.executable, "-I", str(PROGRAM), "triad", "fp32", "1", "1", "64", str(tmp_path), uuid(0)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "No module named 'torch'" in ended.stderr


def test_the_page_says_which_benchmarks_never_ran_on_a_gpu(gpus: Gpus) -> None:
    gpus.certify(0)
    (statement,) = [text for text in gpus.world.certificate()["simulated"] if "never run on a GPU" in text]
    assert statement.startswith("Figures of gpu.diagnosed_faults, gpu.peer_read_bandwidth are from")
    assert "never run on a GPU" in gpus.world.page()


def test_a_second_precision_makes_a_criterion_without_one_ambiguous_before_the_run() -> None:
    """Found after the run it is INVALID, and hours are lost."""
    model = architectures.load("h200-single").model
    full = model.profiles["full"]
    gpu = full.gpu
    assert gpu is not None
    rack = Rack("rack.py", (Node("gpu-01", ("gpu",), {}),))

    def gaps(precisions: tuple[str, ...]) -> list[str]:
        wider = full.model_copy(update={"gpu": gpu.model_copy(update={"precisions": precisions})})
        made = model.model_copy(update={"profiles": {"full": wider}})
        return [line for line in plan_gaps(made, "full", rack, plan_steps(made, "full", rack)) if "several" in line]

    assert gaps(("bf16",)) == []
    assert gaps(("bf16", "fp64")) == [
        "profile full: several measurements fit, gpu.wrong_values[op=product,precision=bf16];"
        " gpu.wrong_values[op=product,precision=fp64]: gpu.correct will be INVALID; its where has to name one"
    ]
