"""Records of deploys, stages, steps, events, ends and machines that were edited, with a chain made anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from markupsafe import escape

from rackproof.cli import outputs
from rackproof.cli.outputs import judged
from rackproof.cli.proof import Proof, prove
from rackproof.core.course import contradictions
from rackproof.core.evidence import EventKind, Kind, Record, canonical
from rackproof.core.status import Outcome, Status
from rackproof.evidence.folder import info_of, stored_architecture
from rackproof.evidence.store import read_records
from rackproof.report.certificate import Certificate
from rackproof.report.page import render_page
from tests.unit.false_certificates.edited import (
    Body,
    certificate,
    chained,
    copy,
    edited,
    example,
    headline,
    of_kind,
    with_body,
    without,
)
from tests.unit.false_certificates.racks import World

pytestmark = pytest.mark.few(2)

Change = Callable[[Body], Body]


def test_the_records_of_an_honest_run_agree() -> None:
    assert contradictions(example()) == {}


def of_first_node(**fields: object) -> Change:
    return lambda body: {"nodes": [body["nodes"][0] | fields, *body["nodes"][1:]]}


DEPLOYS: list[tuple[Change, str]] = [
    (of_first_node(changed=[]), "gpu-01: changed: recorded none, its outputs give 1 ('Base | Files')"),
    (of_first_node(unchanged=7), "gpu-01: unchanged: recorded '7', its outputs give '0'"),
    (of_first_node(failed=["Base | Files"]), "gpu-01: failed: recorded 1 ('Base | Files'), its outputs give none"),
    (of_first_node(rebooted=True), "gpu-01: rebooted: recorded 'True', its outputs give 'False'"),
    (of_first_node(reboot="x"), "gpu-01: reboot: recorded 'x', its outputs give none"),
    (lambda body: {"nodes": body["nodes"][1:]}, "recorded the nodes gpu-02, storage-01, the run has gpu-01, gpu-02"),
    (lambda body: {"raw": body["raw"][:2]}, "it names 2 outputs; a deploy has three"),
    (lambda body: {"raw": body["raw"][::-1]}, "its outputs give"),
    (lambda body: {"exit_status": 1}, "recorded 'success', its outputs give 'pyinfra ended with exit status 1'"),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("change", "words"), DEPLOYS)
def test_a_deploy_that_its_outputs_do_not_give_is_invalid(change: Change, words: str) -> None:
    deploy = of_kind(Kind.DEPLOY)[-1]
    made = certificate(with_body(deploy.seq, **change(deploy.body)))
    assert made.outcome is not Outcome.CERTIFIED
    assert words in headline(made).message


def first(kind: Kind, **fields: object) -> Record:
    return next(r for r in of_kind(kind) if all(r.body.get(key) == value for key, value in fields.items()))


def test_the_result_of_a_stage_follows_from_its_records() -> None:
    for stage in ("connect", "deploy", "validate"):
        end = first(Kind.STAGE, stage=stage, event="end")
        assert "recorded ok False, its records give True" in contradictions(with_body(end.seq, ok=False))[end.seq]


@pytest.mark.parametrize(
    ("status", "words"),
    [("partial", "recorded as partial, all of its measurements have numbers"), ("failed", "recorded as failed")],
)
def test_the_status_of_a_step_follows_from_its_measurements(status: str, words: str) -> None:
    step = of_kind(Kind.STEP)[0]
    assert words in contradictions(with_body(step.seq, status=status))[step.seq]


def test_a_step_without_one_of_its_numbers_is_not_done() -> None:
    step = of_kind(Kind.STEP)[0]
    number = next(r for r in of_kind(Kind.MEASUREMENT) if r.body["step"] == step.body["step"])
    lacking = with_body(number.seq, samples=[], reason="none")
    assert "1 of its measurements have no number" in contradictions(lacking)[step.seq]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: {"interrupted": True}, ""),
        (lambda r: {"stages": ["connect", "deploy", "validate", "bench", "other"]}, "other never ran"),
    ],
)
def test_an_end_that_says_something_else_is_not_certified(change: Callable[[Record], Body], words: str) -> None:
    end = of_kind(Kind.END)[-1]
    made = certificate(edited(lambda r: r.body | change(r) if r.seq == end.seq else None))
    assert made.outcome is not Outcome.CERTIFIED
    assert not words or words in headline(made).message


def test_an_end_amid_the_evidence_needs_a_resume() -> None:
    bodies = [(record.kind, record.body) for record in example()]
    at = first(Kind.STAGE, stage="bench", event="begin").seq
    records = chained([*bodies[:at], bodies[-1], *bodies[at:]])
    assert "it follows an end, without an event of the resume" in contradictions(records).values()
    assert certificate(records).outcome is not Outcome.CERTIFIED


def test_a_stage_that_has_no_end_was_interrupted() -> None:
    end = first(Kind.STAGE, stage="bench", event="end")
    made = certificate(without(example(), end))
    assert "recorded as not interrupted, bench has no end" in headline(made).message


def certificate_of(world: World, records: list[Record]) -> Certificate:
    folder = world.runs[-1]
    return judged(records, stored_architecture(folder, info_of(records)), folder=folder)


def without_event(records: list[Record], event: EventKind) -> list[Record]:
    """Without the events of a kind; the ends count again."""
    kept = [(r.kind, r.body) for r in records if r.kind is not Kind.EVENT or r.body["event"] != event]
    return chained(kept)


def test_a_loss_that_was_removed_shows_in_the_commands(world: World) -> None:
    world.hooks["storage/nfs/read"] = lambda: world.dead.add("gpu-02")
    world.certify()
    world.dead.clear()
    world.certify("--resume", "latest")
    records = read_records(world.runs[-1])
    assert contradictions(records) == {}
    made = certificate_of(world, without_event(records, EventKind.LOST))
    assert made.outcome is not Outcome.CERTIFIED
    assert "the connection to gpu-02 was lost, no event says so" in headline(made).message


def test_a_resume_that_was_removed_shows_in_the_ends(world: World) -> None:
    world.silent.add(("gpu.xid", "gpu-01"))
    world.certify()
    world.silent.clear()
    world.certify("--resume", "latest")
    records = read_records(world.runs[-1])
    assert contradictions(records) == {}
    made = certificate_of(world, without_event(records, EventKind.RESUMED))
    assert "it follows an end, without an event of the resume" in headline(made).message
    ends = [r for r in without_event(records, EventKind.RESUMED) if r.kind is not Kind.END]
    again = contradictions(chained([*((r.kind, r.body) for r in ends), (Kind.END, of_kind(Kind.END)[-1].body)]))
    assert any("begins twice, without an event of a resume" in fault for fault in again.values())


def nodes_with(folder: Path, records: list[Record], **fields: object) -> list[Record]:
    """The run's nodes with other fields, and inventory data that says the same."""
    run = records[0].body
    names = {}
    for name, sha256 in run["inventory_data"].items():
        document = json.loads((folder / "raw" / sha256).read_bytes())
        text = canonical(document | {"data": document["data"] | fields})
        names[name] = hashlib.sha256(text).hexdigest()
        (folder / "raw" / names[name]).write_bytes(text)
    nodes = [node | fields for node in run["nodes"]]
    return edited(lambda r: r.body | {"nodes": nodes, "inventory_data": names} if r.kind is Kind.RUN else None, records)


def test_a_rack_that_is_not_called_virtual_is_virtual_on_the_page(tmp_path: Path) -> None:
    folder = copy(tmp_path / "run", example())
    made = certificate(nodes_with(folder, list(example()), virtual=False), folder)
    assert "All nodes are virtual machines." in made.simulated
    assert "Virtual rack" in render_page(made, {})
    (kind,) = [v for v in made.verdicts if v.id == "run.kind"]
    assert (kind.status, kind.subject) == (Status.WARN, "gpu-[01-02],storage-01")
    assert "the inventory says machines, their answers show virtual machines (QEMU Standard PC" in kind.message


def test_simulated_gpus_that_are_not_called_so_are_invalid_and_on_the_page(tmp_path: Path) -> None:
    folder = copy(tmp_path / "run", example())
    made = certificate(nodes_with(folder, list(example()), simulated_gpus=False), folder)
    assert made.outcome is not Outcome.CERTIFIED
    assert "gpu-01: recorded simulated_gpus False, its nvidia-smi replays recorded answers" in headline(made).message
    assert any(line.startswith("GPUs of gpu-[01-02] are simulated") for line in made.simulated)


@pytest.mark.few(1)
@pytest.mark.parametrize(("field", "value"), [("virtual", False), ("simulated_gpus", False), ("model", "DGX H200")])
def test_a_machine_that_its_answer_does_not_show_is_invalid(field: str, value: object) -> None:
    made = certificate(edited(lambda r: r.body | {field: value} if r.kind is Kind.IDENTITY else None))
    assert made.outcome is not Outcome.CERTIFIED
    assert f"{field}: recorded {value}, its raw output gives" in headline(made).message


@pytest.mark.few(1)
@pytest.mark.parametrize("flag", ["virtual", "simulated_gpus"])
def test_a_flag_that_was_flipped_alone_is_invalid(flag: str) -> None:
    nodes = [node | {flag: False} for node in example()[0].body["nodes"]]
    made = certificate(with_body(0, nodes=nodes))
    assert made.outcome is not Outcome.CERTIFIED
    assert f"recorded {flag} False, the inventory says True" in headline(made).message


def test_another_group_than_the_inventorys_is_invalid() -> None:
    nodes = [node | {"groups": []} if node["name"] == "gpu-02" else node for node in example()[0].body["nodes"]]
    assert (
        "gpu-02: recorded groups , the inventory says gpu" in headline(certificate(with_body(0, nodes=nodes))).message
    )


def _removed(kind: Kind, at: int) -> Callable[[], list[Record]]:
    return lambda: without(example(), of_kind(kind)[at])


def _without_begin(stage: str) -> list[Record]:
    return without(example(), first(Kind.STAGE, stage=stage, event="begin"))


def _moved_benchmarks() -> list[Record]:
    bodies = [(record.kind, record.body) for record in example()]
    validate, bench = (first(Kind.STAGE, stage=stage, event="begin").seq for stage in ("validate", "bench"))
    return chained([*bodies[:validate], *bodies[bench:-1], *bodies[validate:bench], bodies[-1]])


def _repeated_measurement() -> list[Record]:
    bodies = [(record.kind, record.body) for record in example()]
    number = of_kind(Kind.MEASUREMENT)[0]
    return chained([*bodies[: number.seq], (number.kind, number.body), *bodies[number.seq :]])


def _step(**fields: object) -> Callable[[], list[Record]]:
    return lambda: with_body(of_kind(Kind.STEP)[0].seq, **fields)


def _check(**fields: object) -> Callable[[], list[Record]]:
    return lambda: with_body(first(Kind.CHECK, check="base.sysctl").seq, **fields)


HOSTILE: list[tuple[str, Callable[[], list[Record]], str]] = [
    ("dry deploy for real", lambda: with_body(of_kind(Kind.DEPLOY)[-1].seq, dry=True), "its outputs show changes"),
    ("another deploy", lambda: with_body(of_kind(Kind.DEPLOY)[-1].seq, deploy="x.py"), "a run deploys"),
    ("no real deploy", _removed(Kind.DEPLOY, -1), "recorded ok True, its records give False"),
    ("no dry deploy", _removed(Kind.DEPLOY, 0), "recorded without the dry deploy before it"),
    *(
        (f"no begin of {stage}", partial(_without_begin, stage), f"{stage} ends, and never began")
        for stage in ("connect", "deploy")
    ),
    ("no last identity", _removed(Kind.IDENTITY, -1), "no identity of storage-01 after it"),
    ("benchmarks before the validation", _moved_benchmarks, "they began as connect, deploy, bench, validate"),
    ("a measurement twice", _repeated_measurement, "recorded twice in one attempt at"),
    ("a step of other parameters", _step(digest="0" * 64), "recorded with parameters 000000000000, the plan has"),
    ("a step that is not planned", _step(step="storage/other/read"), "the plan has no step storage/other/read"),
    ("a step that is gone", _removed(Kind.STEP, 0), "never ran"),
    ("a measurement that is gone", _removed(Kind.MEASUREMENT, 0), "it lacks 1 of its measurements"),
    (
        "another label",
        lambda: with_body(of_kind(Kind.MEASUREMENT)[0].seq, labels={"rail": "0", "x": "y"}),
        "the plan of loss/rail0 has no such measurement",
    ),
    ("another message", _check(message="as expected"), 'recorded message "as expected", its recorded answers give'),
    ("another reason", _check(protects="nothing"), 'recorded protects "nothing"'),
    ("no outputs of a check", _check(raw=[]), "recorded raw []"),
    (
        "another version",
        lambda: with_body(0, rackproof="9.9"),
        "recorded version 9.9 of this build",
    ),
]  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize(("edit", "words"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_an_edit_that_keeps_the_chain_is_not_certified(
    edit: Callable[[], list[Record]], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs: list[Proof] = []
    monkeypatch.setattr(outputs, "prove", lambda *given: proofs.append(prove(*given)) or proofs[-1])
    made = certificate(edit())
    assert made.outcome is not Outcome.CERTIFIED
    assert any(words in fault for fault in proofs[0].faults.values()), headline(made)


def test_a_size_that_the_output_does_not_have_breaks_the_evidence() -> None:
    command = next(record for record in of_kind(Kind.COMMAND) if record.body["stdout_bytes"])
    made = certificate(with_body(command.seq, stdout_bytes=0))
    assert made.outcome is not Outcome.CERTIFIED
    assert "bytes, recorded 0, of the command in record" in headline(made, "run.evidence").message


def test_evidence_of_another_build_says_what_was_not_compared() -> None:
    made = certificate(with_body(0, kit_sha256="ab" * 32))
    assert "Recorded by another build of the kit (sha256 abababababab): its plan was not compared." in (made.notes)


def test_the_page_says_what_is_stated_only() -> None:
    made = certificate(example())
    assert "a signature shows that" in made.evidence.stated
    assert f"<dt>Stated, not proven</dt><dd>{escape(made.evidence.stated)}</dd>" in render_page(made, {})
