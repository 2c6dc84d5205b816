"""Evidence that was cut, exchanged or edited is never certified, and the first line names it."""

from __future__ import annotations

import json

import pytest
from click.testing import Result

from rackproof.cli.outputs import CERTIFICATE, judged
from rackproof.core.evidence import GENESIS, Kind, Record, make_record
from rackproof.core.status import Outcome
from rackproof.evidence.folder import info_of, stored_architecture
from rackproof.evidence.store import EVIDENCE
from tests.unit.false_certificates.edited import write
from tests.unit.false_certificates.racks import World

pytestmark = pytest.mark.few(1)


def not_certified(world: World, words: str) -> Result:
    """``judge`` ends with 2, and its first line, the page and the JSON say why."""
    result = world.run("judge", world.runs[0].name)
    assert result.exit_code == 2, result.output
    first = result.stdout.splitlines()[0]
    assert first.startswith("The evidence is not intact: ")
    assert words in first
    document = world.certificate()
    assert document["outcome"] == "INCOMPLETE"
    assert document["headline"].startswith("INCOMPLETE: The evidence is not intact")
    assert words in document["statement"]
    assert '<p class="statement">The evidence is not intact: ' in world.page()
    assert "no result of" not in result.stdout
    return result


def test_no_proper_prefix_of_a_certified_evidence_is_certified(world: World) -> None:
    folder, records = world.finished(), world.records
    architecture = stored_architecture(folder, info_of(records))
    assert judged(records, architecture).outcome is Outcome.CERTIFIED
    for length in range(1, len(records)):
        cut = judged(records[:length], architecture)
        assert cut.outcome is Outcome.INCOMPLETE, length
        assert "the evidence has no end" in cut.statement


def test_no_proper_prefix_of_a_resumed_evidence_is_certified(world: World) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    world.hooks["storage/local/read"] = interrupt
    world.run("certify", "a.py", "--quiet")
    assert world.certify("--resume", "latest").exit_code == 0
    records, folder = world.records, world.runs[0]
    architecture = stored_architecture(folder, info_of(records))
    assert judged(records, architecture).outcome is Outcome.CERTIFIED
    assert sum(record.kind is Kind.END for record in records) == 2
    for length in range(1, len(records)):
        assert judged(records[:length], architecture).outcome is not Outcome.CERTIFIED, length


def test_evidence_cut_at_ten_places_is_named(world: World) -> None:
    folder = world.finished()
    data = (folder / EVIDENCE).read_bytes()
    (folder / CERTIFICATE).unlink()
    lines = data.splitlines(keepends=True)
    ends = [len(lines) - 1, len(lines) - 2, len(lines) - 3, *(len(lines) * part // 8 for part in range(1, 7))]
    cuts = [b"".join(lines[:count]) for count in ends]
    cuts.append(data[: -len(lines[-1]) // 2])  # half a line
    assert len(cuts) == 10
    for cut in cuts:
        (folder / EVIDENCE).write_bytes(cut)
        not_certified(world, "the evidence has no end")
        (folder / CERTIFICATE).unlink()


@pytest.mark.few(1)
@pytest.mark.parametrize("lost", [1, 3, 10])
def test_a_certificate_on_disk_knows_how_long_the_evidence_was(world: World, lost: int) -> None:
    """The end is made anew after the cut, so that the chain alone shows nothing."""
    folder, records = world.finished(), world.records
    kept = [record for record in records[:-1] if record.kind is not Kind.END][:-lost]
    body = records[-1].body | {"records": len(kept), "head": kept[-1].hash}
    write(folder, [*kept, make_record(len(kept), "2026-01-01T00:00:00Z", Kind.END, body, kept[-1].hash)])
    words = f"{CERTIFICATE} was made from {len(records)} records"
    not_certified(world, words)
    not_certified(world, words)  # the certificate that says so does not forget it
    write(folder, records)
    assert world.run("judge", folder.name).exit_code == 0


def test_another_chain_of_equal_length_is_named(world: World) -> None:
    folder, records = world.finished(), world.records
    again: list[Record] = []
    for record in records:
        prev = again[-1].hash if again else GENESIS
        body = record.body | ({"head": prev} if record.kind is Kind.END else {})
        again.append(make_record(record.seq, "2026-01-01T00:00:00Z", record.kind, body, prev))
    write(folder, again)
    not_certified(world, "its records differ")


def test_an_end_that_counts_other_records_is_named(world: World) -> None:
    folder, records = world.finished(), world.records
    (folder / CERTIFICATE).unlink()
    last = records[-1]
    body = last.body | {"records": 3}
    write(folder, [*records[:-1], make_record(last.seq, last.time, Kind.END, body, last.prev)])
    not_certified(world, "the end counts 3 records before it")


@pytest.mark.few(1)
@pytest.mark.parametrize("failing", [False, True])
def test_a_broken_chain_is_reported_first(world: World, failing: bool) -> None:
    """Also where the rack has failed: evidence that was edited proves neither good nor bad."""
    if failing:
        world.failing.add(("gpu.xid", "gpu-01"))
    world.certify()
    path = world.runs[0] / EVIDENCE
    lines = path.read_text().splitlines()
    lines[20] = lines[20].replace('"time":"2', '"time":"3')
    path.write_text("\n".join(lines) + "\n")
    (world.runs[0] / CERTIFICATE).unlink()
    result = not_certified(world, "record 20 was changed after it was written")
    assert json.loads(world.run("judge", world.runs[0].name, "--json").stdout)["exit_status"] == 2
    assert "FAIL" not in result.stdout


def test_a_part_without_an_end_is_named_after_a_resume(world: World) -> None:
    """A killed run and one whose last records were removed look alike."""
    world.silent.add(("gpu.xid", "gpu-01"))
    world.certify()
    folder, records = world.runs[0], world.records
    (folder / CERTIFICATE).unlink()
    write(folder, records[:-4])
    world.silent.clear()
    assert world.certify("--resume", "latest").exit_code == 0
    (verdict,) = world.verdicts("run.resumed").values()
    assert verdict["status"] == "WARN"
    assert "has no end: it was killed, or its last records were removed" in world.page()


def test_evidence_that_was_cut_after_its_certificate_and_then_continued_is_named(world: World) -> None:
    """Failed numbers were removed and measured again."""
    world.rate = 1.0
    assert world.certify().exit_code == 1
    kept = [r for r in world.records[:-1] if r.kind not in (Kind.MEASUREMENT, Kind.STEP)]
    first = next(r.seq for r in world.records if r.kind in (Kind.MEASUREMENT, Kind.STEP))
    write(world.runs[0], [r for r in kept if r.seq < first])
    world.rate = 60.0
    assert world.certify("--resume", "latest").exit_code == 2
    assert f"{CERTIFICATE} was made from" in world.certificate()["statement"]
