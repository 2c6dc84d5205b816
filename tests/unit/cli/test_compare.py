"""``rackproof compare``: two runs on disk, exit status and output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from rackproof.architectures import parse
from rackproof.cli.compare import compare
from rackproof.core.evidence import Kind, Record
from rackproof.errors import ArchitectureError, RunError
from rackproof.evidence.store import EVIDENCE, EvidenceStore
from tests.unit.false_certificates.edited import Body, copy, edited, example
from tests.unit.judging import GPU, NODES, bar, check, criterion, document, measurement, run_info, whole

pytestmark = pytest.mark.few(3)

TEXT = yaml.safe_dump(document(criterion()), sort_keys=False)


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "architectures").mkdir()
    (tmp_path / "architectures" / "small.yaml").write_text(TEXT)
    return tmp_path / "reports"


def record(folder: Path, reads: Mapping[str, float], text: str = TEXT) -> Path:
    with EvidenceStore(folder) as store:
        run = run_info().model_copy(update={"run": folder.name, "architecture_sha256": store.raw(text.encode())})
        run = run.model_copy(update={"inventory_data": dict.fromkeys(NODES, store.raw(b"{}"))})
        raw = (store.raw(b"what the tool printed"),)
        numbers = [measurement(name, value, value).model_copy(update={"raw": raw}) for name, value in reads.items()]
        for line in whole(parse(text, "x"), *numbers, run=run)[:-1]:
            store.append(line.kind, line.body)
        store.end(("validate", "bench"))
    return folder


def slower(folder: Path) -> Path:
    """A certified run of the virtual rack with half of every bandwidth to NFS over RDMA."""

    def halved(record: Record) -> Body | None:
        body = record.body
        nfs_rdma = record.kind is Kind.MEASUREMENT and body["labels"].get("storage") == "nfs-rdma"
        return body | {"samples": [n / 2 for n in body["samples"]]} if nfs_rdma and "MB/s" in body["unit"] else None

    return copy(folder, edited(halved))


def call(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(compare, [str(argument) for argument in arguments], env={"COLUMNS": "120"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


GOOD = dict.fromkeys(GPU, 60.0)


def test_exit_status_says_regression_or_none(reports: Path) -> None:
    record(reports / "a", GOOD)
    record(reports / "b", GOOD | {"gpu-02": 40.0})
    same, worse, better = call("a", "a"), call("a", "b"), call("b", "a")
    assert [result.exit_code for result in (same, worse, better)] == [0, 1, 0]
    assert "NO REGRESSION" in same.stdout
    assert "REGRESSION: 1 number worse beyond noise, 0 verdicts worse" in worse.stdout
    row = next(line for line in worse.stdout.splitlines() if "nfs.read" in line)
    assert ("worse" in row, "2 PASS" in row, "gpu-02" in row, "−33.3" in row) == (True,) * 4


def test_a_number_that_is_gone_is_incomplete(reports: Path) -> None:
    record(reports / "a", GOOD)
    record(reports / "b", {"gpu-01": 60.0})
    result = call("a", "b")
    assert result.exit_code == 2
    assert "INCOMPLETE: no regression found" in result.stdout
    assert "3 required items cannot be compared" in result.stdout


def test_the_threshold_is_the_users(reports: Path) -> None:
    record(reports / "a", GOOD)
    record(reports / "b", GOOD | {"gpu-02": 58.0})
    assert call("a", "b").exit_code == 0
    assert call("a", "b", "--threshold", "2").exit_code == 1
    assert call("a", "b", "--threshold", "-1").exit_code == 2  # click's own; the program turns it into 3


def test_runs_are_found_by_name_path_and_as_latest(reports: Path) -> None:
    record(reports / "a", GOOD)
    record(reports / "b", GOOD | {"gpu-02": 40.0})
    document = json.loads(call("a", "latest", "--json").stdout)
    assert (document["before"], document["after"], document["exit_status"]) == ("a", "b", 1)
    assert call(reports / "a", reports / "b", "--output", "elsewhere").exit_code == 1
    with pytest.raises(RunError, match="yesterday: no such run"):
        call("a", "yesterday")


def test_both_are_judged_against_what_the_first_was_made_for(reports: Path) -> None:
    strict = yaml.safe_dump(document(criterion(bar=bar("ge", 100, "MB/s"))), sort_keys=False)
    record(reports / "a", GOOD)
    record(reports / "b", GOOD, strict)
    result = call("a", "b")
    assert (result.exit_code, "2 PASS" in result.stdout) == (0, True)
    assert "architecture sha256: " in result.stdout
    assert "2 FAIL" in call("b", "a").stdout
    assert "2 PASS" in call("b", "a", "--architecture", "small").stdout
    with pytest.raises(ArchitectureError, match="no reference architecture 'smal'; did you mean 'small'"):
        call("a", "b", "--architecture", "smal")


def test_json_is_all_there_is_on_stdout(reports: Path) -> None:
    record(reports / "a", GOOD)
    result = call("a", "a", "--json")
    document = json.loads(result.stdout)
    assert document["schema"] == "rackproof.comparison/v1"
    assert result.exit_code == document["exit_status"] == 0
    assert result.stdout == call("a", "a", "--json").stdout


def test_evidence_that_was_changed_is_not_compared(reports: Path) -> None:
    record(reports / "a", GOOD)
    path = record(reports / "b", GOOD) / EVIDENCE
    path.write_text(path.read_text().replace("60.0", "61.0"))
    with pytest.raises(RunError, match="was changed after it was written"):
        call("a", "b")


def test_a_whole_run_is_like_itself_and_a_changed_copy_is_not(reports: Path) -> None:
    whole = copy(reports / "whole", example())
    assert call(whole, whole).exit_code == 0
    worse = call(whole, slower(reports / "slower"))
    assert worse.exit_code == 1
    assert "nfs-rdma.read" in worse.stdout.partition("worse ")[2]
    assert "REGRESSION: 8 numbers worse beyond noise" in worse.stdout
    assert call(reports / "slower", whole).exit_code == 0


def test_a_run_that_was_cut_off_or_has_lost_outputs_is_named(reports: Path) -> None:
    record(reports / "a", GOOD)
    path = record(reports / "b", GOOD) / EVIDENCE
    assert "never finished" not in call("a", "b").stdout
    with path.open("ab") as handle:
        handle.write(b'{"seq":')
    assert "B: the last line of the evidence is incomplete and was left out" in call("a", "b").stdout
    assert len(json.loads(call("a", "b", "--json").stdout)["warnings"]) == 1
    with EvidenceStore(reports / "a") as store:
        store.append(Kind.CHECK, check(NODES[0], name="base.more").model_copy(update={"raw": ("f" * 64,)}))
    assert "A: output ffffffffffff is missing" in call("a", "b").stdout
