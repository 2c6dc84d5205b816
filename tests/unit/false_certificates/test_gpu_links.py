"""PCIe links of GPUs: what is slow under load fails, and an idle link alone proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rackproof.bench.gpu.links import results
from rackproof.core.evidence import CheckOutcome, Kind, NodeInfo
from rackproof.core.gpu_clocks import judge_clocks
from rackproof.core.gpu_links import IDLE, LinkSample, judge_links
from rackproof.core.status import Outcome, Status
from rackproof.parse import ParseError
from rackproof.parse.gpu_load import SAMPLER, parse_gpu_links
from rackproof.remote.command import CommandResult
from tests.unit.fakes import reply
from tests.unit.false_certificates.edited import certificate, chained, without
from tests.unit.false_certificates.test_links import Fabricated, Make, make
from tests.unit.judging import GPU, architecture, criterion
from tests.unit.refusals import refuses

pytestmark = pytest.mark.few(2)

__all__ = ["make"]

REPORT = Path(__file__).parents[2] / "data/tools/nvidia-smi-590-2gpu.xml"
BUSES = ("00000000:18:00.0", "00000000:2A:00.0")
STEP = "collectives/nccl-tests/all_reduce"
CLOCKS = "0x0000000000000004, 1755, 690.12, 61"
BUSY, IDLE_ROW = f"P0, 98, 5, 5, 16, 16, {CLOCKS}", f"P8, 0, 1, 5, 16, 16, {CLOCKS}"


def rows(*moments: str) -> str:
    """The same row of both GPUs at every moment."""
    return "".join(f"{bus}, {moment}\n" for moment in moments for bus in BUSES)


HEALTHY = rows(IDLE_ROW, f"P0, 3, 1, 5, 16, 16, {CLOCKS}", *[BUSY] * 4)


class Loaded:
    """A world with two real GPUs a node, whose links are slow while they are idle."""

    def __init__(self, fabric: Fabricated) -> None:
        self.world, self.samples = fabric.world, dict.fromkeys(GPU, HEALTHY)
        path = self.world.folder / "architectures/small.yaml"
        document = yaml.safe_load(path.read_text())
        gpu = {"count": 2, "model": "NVIDIA H200", "memory_mib": None, "pcie_generation": 5, "pcie_width": 16}
        path.write_text(yaml.safe_dump(document | {"gpu": gpu}, sort_keys=False))
        for name in GPU:
            self.world.computers[name].gpus = REPORT.read_text().replace(">Active<", ">Not Active<")
        self.world.silent |= {("gpu.pcie_generation", name) for name in GPU}
        self.world.reasons["gpu.pcie_generation"] = f"{IDLE}: P8, generation 1 on {BUSES[0]}"
        plain = self.world.answer

        def answer(node: str, command: str) -> CommandResult | None:
            if command == SAMPLER:
                return reply(node, command, self.samples[node], rc=143)  # SIGTERM ends the sampler
            return plain(node, command)

        self.world.answer = answer  # type: ignore[method-assign]

    def verdict(self, id_: str, node: str = "gpu-01") -> tuple[str, str]:
        verdict = self.world.verdicts(id_)[node]
        return verdict["status"], verdict["message"]


@pytest.fixture
def loaded(make: Make) -> Loaded:
    return Loaded(make(engine="nccl-tests"))


def test_the_load_answers_what_the_idle_link_could_not(loaded: Loaded) -> None:
    result = loaded.world.certify()
    assert result.exit_code == 0, result.output
    assert loaded.verdict(f"load.gpu_links[{STEP}]") == ("PASS", "2 GPUs at generation 5 x16 or more under load")
    assert loaded.verdict("gpu.pcie_generation") == (
        "PASS", f"2 GPUs at generation 5 x16 or more under load, during {STEP}",
    )  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            f"P0, 98, 4, 5, 16, 16, {CLOCKS}",
            "expected generation 5 x16 under load, actual generation 4 x16 in 1 of 5 samples",
        ),
        (
            f"P0, 98, 5, 5, 8, 16, {CLOCKS}",
            "expected generation 5 x16 under load, actual generation 5 x8 in 1 of 5 samples",
        ),
        (f"P0, 98, 4, 4, 16, 16, {CLOCKS}", "actual generation 4 x16"),  # the slot's own limit
    ],
)
def test_a_link_that_is_slow_under_load_fails(loaded: Loaded, row: str, words: str) -> None:
    loaded.samples["gpu-02"] = HEALTHY + f"{BUSES[0]}, {row}\n{BUSES[1]}, {BUSY}\n"
    result = loaded.world.certify()
    assert result.exit_code == 1
    status, message = loaded.verdict(f"load.gpu_links[{STEP}]", "gpu-02")
    assert status == "FAIL"
    assert f"GPU {BUSES[0]}: " in message
    assert words in message
    assert "load.gpu_links" in result.output
    assert loaded.verdict("gpu.pcie_generation", "gpu-02")[0] == "UNMEASURED"
    assert loaded.verdict("gpu.pcie_generation")[0] == "PASS"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (rows(*[IDLE_ROW] * 5), f"GPU {BUSES[0]} was under load in 0 of 5 samples"),
        (rows(*[f"P0, [N/A], 5, 5, 16, 16, {CLOCKS}"] * 5), "was under load in 0 of 5 samples"),
        (rows(*[f"P0, 98, [N/A], 5, 16, 16, {CLOCKS}"] * 5), f"GPU {BUSES[0]} does not report its link"),
        (rows(BUSY, BUSY), "was under load in 2 of 2 samples"),
        ("".join(line + "\n" for line in HEALTHY.splitlines() if BUSES[0] in line), "1 of 2 GPUs told their links"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "NVIDIA-SMI has failed"),
        ("", "exit status 143"),
    ],
)
def test_without_a_sample_under_load_an_idle_link_stays_unmeasured(loaded: Loaded, samples: str, words: str) -> None:
    loaded.samples = dict.fromkeys(GPU, samples)
    assert loaded.world.certify().exit_code == 2
    status, message = loaded.verdict("gpu.pcie_generation")
    assert status == "UNMEASURED"
    assert message.startswith(IDLE)
    assert words in message


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (0x08, "hardware slowdown"),
        (0x20 | 0x04, "software thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "hardware power brake"),
        (0x240, "hardware thermal slowdown"),
    ],
)
def test_a_gpu_that_slows_down_under_load_fails_by_name(loaded: Loaded, reasons: int, words: str) -> None:
    slow = BUSY.replace("0x0000000000000004", f"{reasons:#018x}")
    loaded.samples["gpu-02"] = HEALTHY + f"{BUSES[0]}, {BUSY}\n{BUSES[1]}, {slow}\n"
    result = loaded.world.certify()
    assert result.exit_code == 1
    status, message = loaded.verdict(f"load.gpu_clocks[{STEP}]", "gpu-02")
    assert (status, message) == ("FAIL", f"GPU {BUSES[1]}: {words} in 1 of 5 samples under load")
    assert loaded.verdict(f"load.gpu_clocks[{STEP}]")[0] == "PASS"
    assert loaded.verdict(f"load.gpu_links[{STEP}]", "gpu-02")[0] == "PASS"


def test_a_gpu_that_does_not_tell_its_reasons_proves_nothing(loaded: Loaded) -> None:
    loaded.samples["gpu-02"] = HEALTHY.replace("0x0000000000000004", "[N/A]")
    loaded.world.certify()
    assert loaded.verdict(f"load.gpu_clocks[{STEP}]", "gpu-02")[0] == "UNMEASURED"


@pytest.mark.parametrize("reasons", [0x200, 0x204, 1 << 63])
def test_a_reason_that_the_kit_does_not_know_proves_nothing(loaded: Loaded, reasons: int) -> None:
    """A newer driver may have more of them; NVML itself has one of an unknown cause, the last bit."""
    strange = BUSY.replace("0x0000000000000004", f"{reasons:#018x}")
    loaded.samples["gpu-02"] = HEALTHY + f"{BUSES[0]}, {BUSY}\n{BUSES[1]}, {strange}\n"
    loaded.world.certify()
    status, message = loaded.verdict(f"load.gpu_clocks[{STEP}]", "gpu-02")
    assert status == "UNMEASURED"
    assert message == f"GPU {BUSES[1]} gives an unknown reason for its clocks, {reasons & ~4:#x}"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "answer",
    [
        None,
        CommandResult("gpu-01", SAMPLER, None, error="the connection was lost"),
        reply("gpu-01", SAMPLER, "", rc=143),
        reply("gpu-01", SAMPLER, rows(*[IDLE_ROW] * 5), rc=143),
        reply("gpu-01", SAMPLER, HEALTHY.replace("0x0000000000000004", "[N/A]"), rc=143),
        reply("gpu-01", SAMPLER, HEALTHY, rc=0),  # its loop ends where nvidia-smi fails or hangs
        reply("gpu-01", SAMPLER, f"{HEALTHY}1795895505.241151093\n", rc=0),
        reply("gpu-01", SAMPLER, HEALTHY, rc=124),
    ],
)
def test_samples_that_are_missing_are_required_of_products_alone(answer: CommandResult | None) -> None:
    gpu = {"count": 2, "model": "NVIDIA H200", "memory_mib": None, "pcie_generation": 5, "pcie_width": 16}
    made = architecture(criterion(), gpu=gpu)
    node = NodeInfo(name="gpu-01", groups=("gpu",), simulated_gpus=False)
    for step, required in (("gpu/product/bf16", True), ("gpu/triad", False), (STEP, False)):
        by_check = {result.check: result for result in results(made, node, step, answer, ())}
        clocks = by_check["load.gpu_clocks"]
        assert (clocks.outcome, clocks.required) == (CheckOutcome.UNMEASURED, required)
        assert by_check["load.gpu_links"].required is (step == "gpu/product/bf16")


def test_a_slowdown_cannot_be_removed_from_the_evidence(loaded: Loaded) -> None:
    loaded.samples["gpu-02"] = HEALTHY.replace("0x0000000000000004", "0x0000000000000040")
    assert loaded.world.certify().exit_code == 1
    records, folder, id_ = loaded.world.records, loaded.world.runs[-1], f"load.gpu_clocks[{STEP}]"
    (failed,) = [
        r
        for r in records
        if r.kind is Kind.CHECK and (r.body["check"], r.body["item"]) == ("load.gpu_clocks", STEP)
        if "thermal" in r.body["message"]
    ]
    made = certificate(without(records, failed), folder)
    assert {v.subject: v.status for v in made.verdicts if v.id == id_}["gpu-02"] is Status.UNMEASURED
    passed = failed.body | {"outcome": "passed", "message": "2 GPUs without a slowdown under load"}
    edited = chained((r.kind, passed if r is failed else r.body) for r in records)
    (verdict,) = [v for v in certificate(edited, folder).verdicts if (v.id, v.subject) == (id_, "gpu-02")]
    assert verdict.status is Status.INVALID


def test_simulated_gpus_are_under_no_load(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = loaded.world.rack
    rack = plain("a.py")
    for node in rack.nodes:
        node.data["simulated_gpus"] = True
    monkeypatch.setattr("rackproof.cli.runs.load_rack", lambda inventory: rack)
    assert loaded.world.certify().exit_code == 2
    assert not loaded.world.verdicts(f"load.gpu_links[{STEP}]")
    assert "no step of the benchmarks loads GPUs" in loaded.verdict("gpu.pcie_generation")[1]


def test_a_result_under_load_can_be_neither_removed_nor_edited(loaded: Loaded) -> None:
    loaded.samples["gpu-02"] = HEALTHY.replace("98, 5,", "98, 4,")
    assert loaded.world.certify().exit_code == 1
    records, folder, id_ = loaded.world.records, loaded.world.runs[-1], f"load.gpu_links[{STEP}]"
    checks = [r for r in records if r.kind is Kind.CHECK and r.body["item"] == STEP]
    (failed,) = [r for r in checks if "generation 4" in r.body["message"]]
    made = certificate(without(records, failed), folder)
    assert made.outcome is Outcome.INCOMPLETE
    statuses = {v.subject: v.status for v in made.verdicts if v.id == id_}
    assert statuses == {"gpu-01": Status.PASS, "gpu-02": Status.UNMEASURED}
    passed = failed.body | {"outcome": "passed", "message": "2 GPUs at generation 5 x16 or more under load"}
    edited = chained((r.kind, passed if r is failed else r.body) for r in records)
    (verdict,) = [v for v in certificate(edited, folder).verdicts if (v.id, v.subject) == (id_, "gpu-02")]
    assert verdict.status is Status.INVALID
    assert "its outputs give failed" in verdict.message


# rule and parser

samples = st.builds(
    LinkSample,
    st.sampled_from(BUSES), st.sampled_from(["P0", "P8", None]), st.sampled_from([None, 0, 5, 100]),
    st.sampled_from([None, 1, 4, 5]), st.sampled_from([None, 5]), st.sampled_from([None, 8, 16]), st.just(16),
)  # fmt: skip


@given(st.lists(samples, max_size=12), st.sampled_from([None, 5]))
def test_nothing_passes_without_full_speed_of_every_gpu_under_load(
    several: list[LinkSample], asked: int | None
) -> None:
    if judge_links(several, 2, asked, 16).outcome is CheckOutcome.PASSED:
        for bus in BUSES:
            busy = [one for one in several if one.bus_id == bus and one.loaded][1:]
            assert len(busy) >= 2
            assert all((one.generation, one.width) == (5, 16) for one in busy)


@given(st.lists(st.tuples(st.sampled_from(BUSES), st.sampled_from([0, 98]), st.integers(0, 0x3FF)), max_size=12))
def test_no_slowdown_under_load_passes(several: list[tuple[str, int, int]]) -> None:
    made = [LinkSample(bus, "P0", used, 5, 5, 16, 16, reasons) for bus, used, reasons in several]
    finding = judge_clocks(made, 2)
    for bus in BUSES:
        busy = [one for one in made if one.bus_id == bus and one.used_pct][1:]
        if any((one.reasons or 0) & 0xE8 for one in busy):
            assert finding.outcome is CheckOutcome.FAILED
        elif any((one.reasons or 0) & 0x200 for one in busy):  # unknown
            assert finding.outcome is not CheckOutcome.PASSED
        if finding.outcome is CheckOutcome.PASSED:
            assert len(busy) >= 2


@given(st.lists(samples, max_size=12))
def test_an_idle_gpu_never_fails(several: list[LinkSample]) -> None:
    idle = [one._replace(used_pct=0) for one in several]
    assert judge_links(idle, 2, 5, 16).outcome is CheckOutcome.UNMEASURED


def test_every_truncation_of_the_samples_is_read_as_fewer_of_them() -> None:
    whole = parse_gpu_links(HEALTHY)
    assert whole[0] == LinkSample(BUSES[0], "P8", 0, 1, 5, 16, 16, 4, 1755, 690.12, 61)
    for end in range(HEALTHY.index("\n") + 1, len(HEALTHY)):
        read = parse_gpu_links(HEALTHY[:end])
        assert read == whole[: len(read)]
    with pytest.raises(ParseError, match="no whole line"):
        parse_gpu_links(HEALTHY[:10])


test_an_odd_row_is_refused = refuses(
    lambda row: parse_gpu_links(rows(BUSY, row)),
    f"P0, 98, 5, 5, 16, {CLOCKS}",
    f"P0, 98 %, 5, 5, 16, 16, {CLOCKS}",
    f"fast, 98, 5, 5, 16, 16, {CLOCKS}",
    f"P0, -1, 5, 5, 16, 16, {CLOCKS}",
    "P0, 98, 5, 5, 16, 16, Active, 1755, 690.12, 61",
    "P0, 98, 5, 5, 16, 16, 0x4, 1755, 690.12, 61",
    "P0, 98, 5, 5, 16, 16, 0x0000000000000004, 1755, 690 W, 61",
    says="",
)
