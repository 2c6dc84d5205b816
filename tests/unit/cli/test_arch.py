"""``rackproof arch``: what the files say, as tables and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.architectures import available, load
from rackproof.cli.main import cli
from rackproof.core.metrics import METRICS, NOT_YET

pytestmark = pytest.mark.few(3)

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def arch(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(cli, ["arch", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_every_shipped_file_can_be_used() -> None:
    listed = arch("list")
    for item in available():
        assert item.problem is None, item.problem
        assert item.id in listed


def test_check_counts_what_is_there_and_what_can_be_measured() -> None:
    assert "virtual-rack.yaml: virtual-rack 1.1.0, 28 criteria (28 of 28 measured today)" in arch(
        "check", "virtual-rack"
    )


def test_check_ends_with_3_for_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: refarch/v2\n")
    shown = arch("check", str(tmp_path / "a.yaml"), "virtual-rack", status=3)
    assert "a.yaml:1: metadata: required key is missing" in shown


def test_show_prints_the_file_and_merged_everything_that_it_extends() -> None:
    child = next(item for item in available() if load(item.id).model.metadata.derived_from or _extends(item.path))
    assert arch("show", child.id) == child.path.read_text()
    merged = arch("show", child.id, "--merged")
    assert "derived_from:" in merged
    assert "extends:" not in merged.replace("derived_from", "")


def _extends(path: Path) -> bool:
    return "\nextends:" in path.read_text()


def test_the_schema_is_the_one_beside_the_files() -> None:
    """Editors read the committed copy: ``rackproof arch schema > architectures/refarch-v1.schema.json``."""
    assert arch("schema") == (ROOT / "architectures/refarch-v1.schema.json").read_text()


def test_every_file_tells_editors_where_its_schema_is() -> None:
    for item in available():
        assert item.path.read_text().startswith("# yaml-language-server: $schema=refarch-v1.schema.json\n"), item.path


def test_claims_have_a_way_or_a_reason() -> None:
    rows = json.loads(arch("claims", "--json"))
    assert rows
    for row in rows:
        assert bool(row["ways"]) != bool(row["not_checkable"]), row["claim"]
    ids = [row["claim"] for row in rows]
    assert sorted(ids) == sorted(set(ids))


def test_the_table_of_claims_names_every_claim() -> None:
    rows = json.loads(arch("claims", "--json"))
    shown = arch("claims")
    for row in rows:
        assert row["claim"] in shown
    assert f"{len(rows)} claims:" in shown


def test_metrics_print_the_vocabulary() -> None:
    listed = {entry["name"]: entry for entry in json.loads(arch("metrics", "--json"))}
    table = arch("metrics")
    assert set(listed) == set(METRICS)
    for name, metric in METRICS.items():
        assert listed[name]["benchmark"] == (None if metric.benchmark == NOT_YET else metric.benchmark)
        assert name in table
