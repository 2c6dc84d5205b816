"""``rackproof judge`` looks at every output that the evidence names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.architectures import parse
from rackproof.cli.main import cli
from rackproof.core.evidence import Kind
from rackproof.evidence.store import RAW, EvidenceStore
from tests.unit.cli.test_judge import TEXT, here
from tests.unit.judging import GPU, NODES, check, measurement, run_info
from tests.unit.recorded_reads import append_reads

__all__ = ["here"]

ARCHITECTURE = parse(TEXT, "x")


def record(folder: Path, *more: str) -> list[str]:
    """A run with one output a number, whose names it returns; a further number of the first node refers to ``more``."""
    run = run_info().model_copy(update={"architecture_sha256": hashlib.sha256(TEXT.encode()).hexdigest()})
    with EvidenceStore(folder) as store:
        store.raw(TEXT.encode())
        store.append(Kind.RUN, run)
        for name in NODES:
            store.append(Kind.CHECK, check(name))
        names = [append_reads(store, ARCHITECTURE, {name: 60.0}, part=f"/{name}")[0].raw[0] for name in GPU]
        for output in more:
            store.append(Kind.MEASUREMENT, measurement(GPU[0], 60.0).model_copy(update={"raw": (names[0], output)}))
    return names


def judged(here: Path) -> tuple[str, list[str]]:
    """The outcome, and what is said of the evidence."""
    result = CliRunner().invoke(cli, ["judge", "a", "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    folder = here / "reports/a"
    assert (folder / "certificate.html").stat().st_size > 0
    document = json.loads((folder / "certificate.json").read_text())
    verdicts = [v for v in document["verdicts"] if v["id"] == "run.evidence"]
    assert all((v["status"], v["required"]) == ("INVALID", True) for v in verdicts)
    return document["outcome"], [v["message"] for v in verdicts]


def test_a_run_with_all_its_outputs_is_certified(here: Path) -> None:
    record(here / "reports/a")
    assert judged(here) == ("CERTIFIED", [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.unlink(), "is missing (No such file or directory)"),
        (lambda path: path.write_bytes(b"gpu-01 read 90"), "was changed after it was recorded"),
    ],
)
def test_an_output_that_is_gone_or_changed_makes_the_run_invalid(here: Path, change, said: str) -> None:  # type: ignore[no-untyped-def]
    name, _ = record(here / "reports/a")
    change(here / "reports/a" / RAW / name)
    assert judged(here) == ("INCOMPLETE", [f"output {name[:12]} {said}, of the command in record 4"])


def test_several_are_counted(here: Path) -> None:
    for name in record(here / "reports/a"):
        (here / "reports/a" / RAW / name).unlink()
    outcome, (message,) = judged(here)
    assert outcome == "INCOMPLETE"
    assert message.startswith("2 outputs are missing or changed, the first: output ")


def test_a_path_is_no_name_of_an_output(here: Path) -> None:
    record(here / "reports/a", "../../../../etc/passwd")
    outcome, (message,) = judged(here)
    assert outcome == "INCOMPLETE"
    assert "output '../../../../' is missing (outputs have a sha256 for a name)" in message
