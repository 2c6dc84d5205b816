"""``rackproof judge``: offline, against the architecture of the run, and never better than the evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from rackproof.cli.main import cli
from rackproof.errors import RackproofError
from rackproof.evidence.store import EVIDENCE
from rackproof.report.document import plain
from tests.unit.false_certificates.racks import World
from tests.unit.judging import bar, criterion, document

pytestmark = pytest.mark.few(5)

TEXT = yaml.safe_dump(document(criterion(), profiles={"full": {}}), sort_keys=False)


@pytest.fixture
def here(world: World) -> World:
    """Runs of its rack are in ``reports/``; none yet."""
    (world.folder / "architectures/small.yaml").write_text(TEXT)
    return world


def record(world: World, read: float = 60.0) -> Path:
    """The folder ``reports/a`` of a finished run whose nodes all read at ``read`` MB/s."""
    world.rate = read
    return world.finished().rename(world.folder / "reports/a")


def judge(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["judge", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    result = judge(*arguments, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    document: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == document["exit_status"]
    return document


def test_judging_twice_gives_the_same_bytes(here: World) -> None:
    record(here)
    assert answer("a")["outcome"] == "CERTIFIED"
    files = {path: path.read_bytes() for path in (here.folder / "reports/a").iterdir() if path.is_file()}
    assert answer("a")["outcome"] == "CERTIFIED"
    assert files == {path: path.read_bytes() for path in (here.folder / "reports/a").iterdir() if path.is_file()}


def test_a_run_is_judged_against_the_text_that_was_stored_with_it(here: World) -> None:
    record(here)
    stricter = yaml.safe_dump(document(criterion(bar=bar("ge", 90, "MB/s"))))
    (here.folder / "architectures/small.yaml").write_text(stricter)
    result = judge("a")
    assert result.exit_code == 0
    assert "small.yaml has changed since the run; --architecture small judges against it as it is now" in result.stderr
    assert answer("a", "--architecture", "small")["outcome"] == "NOT CERTIFIED"


def test_an_architecture_that_is_gone_can_still_be_judged_against(here: World) -> None:
    record(here)
    (here.folder / "architectures/small.yaml").unlink()
    assert answer("a")["outcome"] == "CERTIFIED"


def test_a_run_whose_architecture_is_not_stored_says_what_to_do(here: World) -> None:
    folder = record(here)
    for path in (folder / "raw").iterdir():
        path.unlink()
    with pytest.raises(RackproofError, match="name one with --architecture"):
        cli.main(["judge", "a"], standalone_mode=False)


@pytest.mark.parametrize(
    ("kind", "old", "new"), [("check", "passed", "failed"), ("measurement", 'samples":[', 'samples":[9')]
)
def test_evidence_that_was_changed_makes_the_run_invalid(here: World, kind: str, old: str, new: str) -> None:
    folder = record(here)
    lines = (folder / EVIDENCE).read_text().splitlines()
    position = next(k for k, line in enumerate(lines) if f'"kind":"{kind}"' in line and old in line)
    lines[position] = lines[position].replace(old, new)
    (folder / EVIDENCE).write_text("\n".join(lines) + "\n")
    document = answer("a")
    assert document["outcome"] == "INCOMPLETE"
    verdicts = {v["id"]: v for v in plain(json.loads((folder / "verdicts.json").read_text()))["verdicts"]}
    assert verdicts["run.evidence"]["status"] == "INVALID"
    assert verdicts["run.evidence"]["message"].startswith(f"record {position} was changed after it was written")


def test_evidence_that_is_changed_from_the_start_is_an_error(here: World) -> None:
    folder = record(here)
    text = (folder / EVIDENCE).read_text()
    (folder / EVIDENCE).write_text(text.replace('"small"', '"large"', 1))
    with pytest.raises(
        RackproofError, match="record 0 was changed after it was written; nothing before it can be judged"
    ):
        cli.main(["judge", "a"], standalone_mode=False)


def test_a_last_line_that_was_cut_off_is_left_out_and_said(here: World) -> None:
    folder = record(here)
    evidence = (folder / EVIDENCE).read_bytes()
    (folder / EVIDENCE).write_bytes(evidence[: evidence.rindex(b"\n", 0, -1) - 30])  # in the last measurement
    assert answer("a")["outcome"] == "INCOMPLETE"
    notes = json.loads((folder / "certificate.json").read_text())["notes"]
    assert "The last line of the evidence is incomplete and was left out." in notes


@pytest.mark.few(1)
@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-Infinity"])
def test_a_value_that_is_not_a_number_is_a_damaged_line(here: World, bad: str) -> None:
    folder = record(here)
    (folder / EVIDENCE).write_text((folder / EVIDENCE).read_text().replace('"samples":[', f'"samples":[{bad},'))
    assert answer("a")["outcome"] == "INCOMPLETE"
    assert answer("a")["counts"]["required"]["INVALID"] == 1


def test_another_architecture_is_named_in_the_notes(here: World) -> None:
    folder = record(here)
    other = document(criterion()) | {"roles": {"login": {}}}
    other["metadata"] = other["metadata"] | {"id": "other"}
    other["criteria"][0]["members"] = "login"
    for storage in other["storage"].values():
        storage |= {"server_role": "login", "client_roles": ["login"]}
    (here.folder / "architectures/other.yaml").write_text(yaml.safe_dump(other))
    assert answer("a", "--architecture", "other")["outcome"] == "NOT CERTIFIED"
    notes = json.loads((folder / "certificate.json").read_text())["notes"]
    assert any("was made for small" in note and "judged against other" in note for note in notes)


def test_a_site_s_own_bar_stands_in_the_certificate_beside_the_published_one(here: World) -> None:
    folder = record(here, read=15.0)
    assert answer("a")["outcome"] == "NOT CERTIFIED"
    (here.folder / "architectures/site.yaml").write_text(
        "apiVersion: refarch/v1\nextends: small\nmetadata: {id: site, version: 1.0.0}\n"
        "overrides:\n  nfs.read: {value: 12, reason: One switch is still at 10G., by: Ada}\n"
    )
    assert answer("a", "--architecture", "site")["outcome"] == "CERTIFIED"
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["architecture"]["changed"] == [
        {
            "id": "nfs.read",
            "title": "Reading",
            "published": "≥ 20 MB/s",
            "here": "≥ 12 MB/s",
            "why": "One switch is still at 10G. (Ada)",
        }
    ]
    assert "2 of them against a bar that the site has changed" in certificate["statement"]
    page = (folder / "certificate.html").read_text()
    for text in ("1 threshold differs", "published ≥ 20 MB/s", "One switch is still at 10G. (Ada)"):
        assert text in page
    assert "Bars changed by the site: nfs.read" in judge("a", "--architecture", "site").output
