"""``rackproof judge`` looks at every output that the evidence names."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from rackproof.cli.main import cli
from rackproof.cli.outputs import CERTIFICATE
from rackproof.core.evidence import Kind, Record
from rackproof.evidence.store import RAW, read_records
from rackproof.report.document import plain
from tests.unit.cli.test_judge import here, record
from tests.unit.false_certificates.edited import edited, write
from tests.unit.false_certificates.racks import World

__all__ = ["here"]


def record_outputs(here: World) -> list[Record]:
    """A run; the commands whose outputs have its numbers."""
    record(here)
    records = read_records(here.folder / "reports/a")
    named = {name for r in records if r.kind is Kind.MEASUREMENT for name in r.body["raw"]}
    return [r for r in records if r.kind is Kind.COMMAND and r.body["stdout"] in named]


def judged(here: World) -> tuple[str, list[str]]:
    """The outcome, and the messages about the evidence."""
    result = CliRunner().invoke(cli, ["judge", "a", "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    folder = here.folder / "reports/a"
    assert (folder / "certificate.html").stat().st_size > 0
    document = plain(json.loads((folder / "certificate.json").read_text()))
    verdicts = [v for v in document["verdicts"] if v["id"] == "run.evidence"]
    assert all((v["status"], v["required"]) == ("INVALID", True) for v in verdicts)
    return document["outcome"], [v["message"] for v in verdicts]


def test_a_run_with_all_its_outputs_is_certified(here: World) -> None:
    record(here)
    assert judged(here) == ("CERTIFIED", [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.unlink(), "is missing (No such file or directory)"),
        (lambda path: path.write_bytes(b"gpu-01 read 90"), "was changed after it was recorded"),
    ],
)
def test_an_output_that_is_gone_or_changed_makes_the_run_invalid(here: World, change, words: str) -> None:  # type: ignore[no-untyped-def]
    first, *_ = record_outputs(here)
    name = first.body["stdout"]
    change(here.folder / "reports/a" / RAW / name)
    assert judged(here) == ("INCOMPLETE", [f"output {name[:12]} {words}, of the command in record {first.seq}"])


def test_several_lost_outputs_are_counted(here: World) -> None:
    commands = record_outputs(here)
    for command in commands:
        (here.folder / "reports/a" / RAW / command.body["stdout"]).unlink()
    outcome, (message,) = judged(here)
    assert outcome == "INCOMPLETE"
    assert message.startswith(f"{len(commands)} outputs are missing or changed, the first: output ")


def test_a_path_is_no_name_of_an_output(here: World) -> None:
    folder = record(here)
    first = next(record for record in read_records(folder) if record.kind is Kind.MEASUREMENT)
    raw = [*first.body["raw"], "../../../../etc/passwd"]
    write(folder, edited(lambda r: r.body | {"raw": raw} if r.seq == first.seq else None, read_records(folder)))
    (folder / CERTIFICATE).unlink()
    outcome, (message,) = judged(here)
    assert outcome == "INCOMPLETE"
    assert "output '../../../../' is missing (outputs have a sha256 for a name)" in message
