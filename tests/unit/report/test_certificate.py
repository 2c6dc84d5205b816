from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from rackproof.core.evidence import CommandRecord, Kind, Record, Scope
from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import Judgement
from rackproof.report.brevity import DETAILED, LISTED, brief_verdicts
from rackproof.report.certificate import build_certificate, document_of, from_json, json_schema, stage_times
from rackproof.report.document import to_json
from rackproof.report.schema import Certificate

from .sample import (
    GPUS,
    HEAD,
    Raw,
    architecture,
    check_results,
    check_verdicts,
    criterion_verdicts,
    deploys,
    judged,
    measurements,
    passing,
    rejudged,
    run_info,
    sample,
    stages,
)

pytestmark = pytest.mark.few(5)


def test_counts_add_up_to_the_verdicts() -> None:
    certificate, _ = sample()
    counts = certificate.counts
    assert sum(counts.required.values()) + sum(counts.advisory.values()) == len(certificate.verdicts)
    assert counts.required[Status.FAIL] == 2
    assert counts.required[Status.INVALID] == 1
    assert counts.required[Status.UNMEASURED] == 2
    assert set(counts.required) == set(counts.advisory) == set(Status)


def test_statement_of_each_outcome() -> None:
    failed, _ = sample()
    assert failed.outcome is Outcome.NOT_CERTIFIED
    assert failed.exit_status == 1
    assert failed.statement == (
        "2 of 75 required verdicts failed, on gpu-02; of the others 1 is invalid and 2 are unmeasured."
    )
    passed, _ = passing()
    assert passed.statement == "All 70 required verdicts passed, 1 of them with a warning."
    without_fail = rejudged(failed, [v for v in failed.verdicts if v.status is not Status.FAIL])
    assert without_fail.outcome is Outcome.INCOMPLETE
    assert without_fail.statement == (
        "Nothing failed, but not all of 73 required verdicts have a usable result: 1 is invalid and 2 are unmeasured."
    )
    nothing = rejudged(failed, [])
    assert (nothing.outcome, nothing.exit_status) == (Outcome.INCOMPLETE, 2)
    assert "nothing is proven" in nothing.statement


@pytest.mark.parametrize("claimed", [Outcome.CERTIFIED, Outcome.INCOMPLETE])
def test_no_certificate_is_better_than_its_verdicts(claimed: Outcome) -> None:
    certificate, _ = sample()
    judgement = Judgement(
        architecture="virtual-rack", architecture_version="1.0", outcome=claimed, verdicts=certificate.verdicts
    )
    with pytest.raises(ValueError, match="its verdicts say NOT CERTIFIED"):
        build_certificate(
            run_info(), architecture(), judgement, [], [], [], [], [], HEAD, 1, finished="2026-11-21T10:10:17Z"
        )


def test_changed_certificate_is_refused() -> None:
    certificate, _ = sample()
    document = json.loads(to_json(document_of(certificate)))
    document["outcome"], document["exit_status"] = "CERTIFIED", 0
    with pytest.raises(ValidationError, match="its verdicts say NOT CERTIFIED"):
        from_json(json.dumps(document))


def test_json_survives_the_round_trip() -> None:
    certificate, _ = sample()
    assert from_json(to_json(document_of(certificate))) == certificate


def _one_command() -> list[CommandRecord]:
    raw = Raw()
    raw.add("gpu-01", "uname -r", "6.12")
    return raw.commands


def large(nodes: int) -> Certificate:
    """A rack of many nodes, whose checks pass with an output of their own each, and a number of each node and pair."""
    certificate, _ = passing()
    names = [f"gpu-{number:03d}" for number in range(nodes)]
    shas = {name: [f"{number:032x}{index:032x}" for number in range(20)] for index, name in enumerate(names)}
    check = next(v for v in certificate.verdicts if v.kind == "check")
    verdicts = [
        check.model_copy(update={"id": f"made.up{number}", "subject": name, "records": (index,), "raw": (sha,)})
        for index, name in enumerate(names)
        for number, sha in enumerate(shas[name])
    ]
    number = next(m for m in measurements(Raw()) if m.scope is Scope.NODE and m.samples)
    pair = number.model_copy(update={"metric": "link.tcp_bandwidth", "scope": Scope.PAIR, "labels": {"rail": "0"}})
    criterion = next(v for v in certificate.verdicts if v.kind == "criterion" and v.status is Status.PASS)
    numbers = [number.model_copy(update={"members": (name,)}) for name in names]
    numbers += [
        pair.model_copy(update={"members": ends, "samples": (100.0 + index,)})
        for index, ends in enumerate(combinations(names, 2))
    ]
    verdicts += [
        criterion.model_copy(update={"subject": name, "distance_pct": float(index), "value": index / 7})
        for index, name in enumerate(names)
    ]
    commands = [
        command.model_copy(update={"node": name, "stdout": sha, "stdout_bytes": 9, "stderr": ""})
        for command in _one_command()
        for name in names
        for sha in shas[name]
    ]
    return build_certificate(
        run_info(), architecture(), judged(verdicts), numbers, [], stages(), [], commands, HEAD, 1,
        "2026-11-21T10:10:17Z",
    )  # fmt: skip


def test_written_form_is_read_back_whole() -> None:
    certificate = large(12)
    document = document_of(certificate)
    assert from_json(to_json(document)) == certificate
    (first, *_) = [v for v in document["verdicts"] if v["id"] == "made.up0"]
    assert first["each"]["subject"] == "gpu-[000-011]"
    assert len(document["verdicts"]) == 21


def test_large_rack_is_brief_and_keeps_every_number_and_the_worst_in_detail() -> None:
    certificate = large(300)
    assert from_json(to_json(document_of(certificate))) == certificate
    values = [v for v in certificate.verdicts if v.kind == "criterion"]
    assert [v.value for v in values] == [index / 7 for index in range(300)]
    detailed = [v for v in values if v.samples]
    assert [v.distance_pct for v in detailed] == [float(index) for index in range(DETAILED)]
    pairs = [m for m in certificate.measurements if m.scope is Scope.PAIR]
    assert len(pairs) == 300 * 299 // 2
    assert sorted(m.median or 0 for m in pairs if m.samples) == [100.0 + index for index in range(DETAILED)]
    assert len({output.sha256 for output in certificate.evidence.raw}) == LISTED
    assert any("the worst have their samples" in note for note in certificate.notes)
    assert any(note.startswith("Of 6000 outputs the certificate lists 500") for note in certificate.notes)


def test_findings_of_a_large_rack_lose_nothing() -> None:
    certificate = large(300)
    failing = [
        v.model_copy(update={"status": Status.FAIL, "distance_pct": 1e9}) if v.subject == "gpu-299" else v
        for v in certificate.verdicts
        if v.kind == "criterion"
    ]
    (brief,) = [v for v in brief_verdicts(failing) if v.status is Status.FAIL]
    assert brief == next(v for v in failing if v.status is Status.FAIL)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["verdicts"][0]["each"]["records"].pop(),
        lambda d: d["verdicts"][0].update(each={"subject": 5}),
        lambda d: d.update(verdicts=None),
        lambda d: d["measurements"][0].pop("scope"),
    ],
)
def test_other_documents_are_refused(change: Callable[[dict[str, Any]], object]) -> None:
    document = document_of(large(12))
    change(document)
    with pytest.raises(ValueError, match=r"no certificate|argument|valid"):
        from_json(to_json(document))


def test_json_is_the_same_whatever_order_the_evidence_came_in() -> None:
    raw = Raw()
    checks, numbers = check_results(raw), measurements(raw)
    verdicts = check_verdicts(checks) + criterion_verdicts(numbers)
    commands, done = raw.commands, deploys(raw)

    def once(seed: int) -> bytes:
        shuffled = [list(things) for things in (numbers, checks, verdicts, commands)]
        for things in shuffled:
            Random(seed).shuffle(things)  # noqa: S311
        certificate = build_certificate(
            run_info(), architecture(), judged(shuffled[2]), shuffled[0], shuffled[1], stages(), done,
            shuffled[3], HEAD, 1204, finished="2026-11-21T10:10:17Z",
        )  # fmt: skip
        return to_json(document_of(certificate))

    assert once(1) == once(2)


def test_json_form() -> None:
    text = to_json(document_of(sample()[0])).decode()
    document = json.loads(text)
    assert text.endswith("}\n")
    assert document["schema"] == "rackproof.certificate/v2"
    assert list(document) == sorted(document)
    assert document["architecture"]["storages"][0]["class"] == "local"


def test_infinite_numbers_become_null() -> None:
    certificate, _ = passing()
    odd = certificate.verdicts[-1].model_copy(update={"distance_pct": float("inf")})
    document = json.loads(to_json(document_of(rejudged(certificate, [odd]))))
    assert document["verdicts"][0]["distance_pct"] is None


def test_schema_describes_what_is_written() -> None:
    schema = json_schema()
    document = json.loads(to_json(document_of(sample()[0])))
    only_of_scaled_racks = {"claims", "left_out", "of_no_claim", "scaled_from", "throttles"}
    assert set(schema["properties"]) == set(document) | only_of_scaled_racks
    assert schema["additionalProperties"] is False


def test_simulation_is_stated_in_plain_sentences() -> None:
    assert sample()[0].simulated == (
        "All nodes are virtual machines.",
        "GPUs of gpu-[01-02] are simulated: device tools replay recorded answers.",
        "RDMA is Soft-RoCE: implemented by the kernel, without an RDMA adapter.",
    )


def test_real_rack_has_nothing_simulated() -> None:
    real = architecture().model_copy(update={"fabric": architecture().fabric.model_copy(update={"kind": "roce"})})
    nodes = [n.model_copy(update={"virtual": False, "simulated_gpus": False}) for n in run_info().nodes]
    certificate = rejudged(passing()[0], [], architecture=real, run=run_info(nodes))
    assert certificate.simulated == ()


def test_a_simulated_measurement_is_never_silent() -> None:
    numbers = [m.model_copy(update={"simulated": m.metric == "link.tcp_bandwidth"}) for m in measurements(Raw())]
    certificate = rejudged(passing()[0], [], measurements=numbers)
    assert "Measured on simulated devices: link.tcp_bandwidth." in certificate.simulated


def test_versions_come_from_controller_and_conditions() -> None:
    seen = {v.component: (v.version, v.where) for v in sample()[0].versions}
    assert seen["rackproof"] == ("0.1.0", ("controller",))
    assert seen["fio"] == ("3.39", GPUS)
    assert seen["perftest"] == ("25.01", GPUS)


def test_a_tool_named_in_the_conditions_is_a_version() -> None:
    numbers = [m.model_copy(update={"conditions": {"fio": "fio-3.39", "io": "O_DIRECT"}}) for m in measurements(Raw())]
    seen = {v.component: v.version for v in rejudged(passing()[0], [], measurements=numbers).versions}
    assert seen["fio"] == "3.39"
    assert "io" not in seen


def test_unmeasured_keeps_its_reason() -> None:
    absent = [m for m in sample()[0].measurements if m.median is None]
    assert {m.reason for m in absent} == {
        "fio exited with 1: No space left on device",
        "a client has no number, so there is no sum",
    }


def test_raw_index_skips_only_empty_stderr() -> None:
    certificate, raw = sample()
    indexed = {(r.command, r.which) for r in certificate.evidence.raw}
    assert ("chronyc -c tracking", "stderr") in indexed
    assert {(c.command, "stdout") for c in raw.commands} <= indexed
    assert len([i for i in indexed if i[1] == "stderr"]) == 1


def test_rejudging_against_another_file_is_noted() -> None:
    certificate, _ = passing()
    other = build_certificate(
        run_info(), architecture(), judged(certificate.verdicts), [], [], [], [], [], HEAD, 1,
        finished="2026-11-21T10:10:17Z", architecture_sha256="f" * 64,
    )  # fmt: skip
    assert other.architecture.sha256 == "f" * 64
    assert "judged against virtual-rack (sha256 ffffffffffff)" in other.notes[0]
    assert certificate.notes == ()


def test_stage_times_of_a_run_that_was_cut_and_resumed() -> None:
    def record(seq: int, second: int, body: dict[str, object], kind: Kind = Kind.STAGE) -> Record:
        time = f"2026-11-21T10:00:{second:02d}Z"
        return Record(seq=seq, time=time, kind=kind, body=dict(body), prev="", hash="")

    times = stage_times(
        [
            record(0, 0, {"stage": "bench", "event": "begin"}),
            record(1, 5, {"text": "resumed"}, Kind.NOTE),
            record(2, 6, {"stage": "bench", "event": "begin"}),
            record(3, 9, {"stage": "bench", "event": "end", "elapsed_s": 3.1}),
        ]
    )
    assert [(t.started[-3:-1], t.finished and t.finished[-3:-1], t.elapsed_s) for t in times] == [
        ("00", None, None),
        ("06", "09", 3.1),
    ]


def test_models_refuse_unknown_keys() -> None:
    document = json.loads(to_json(document_of(sample()[0]))) | {"surprise": 1}
    with pytest.raises(ValidationError, match="surprise"):
        Certificate.model_validate(document)
