"""``rackproof certify --continue`` and ``rackproof overview``: what is certified stays, a gap is filled, a failure
begins anew, and the page of all is never better than the worst of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from rackproof.cli import overview
from rackproof.cli import runs as cli_runs
from rackproof.cli.earlier import Earlier
from rackproof.cli.main import cli
from rackproof.core.architecture import Weakening
from rackproof.core.status import Outcome
from rackproof.report.certificate import Certificate
from rackproof.report.overview import Row, outcome_of_all, render_overview
from rackproof.report.quantities import moment
from tests.unit.fakes import lab_rack
from tests.unit.false_certificates.racks import World
from tests.unit.judging import criterion, document
from tests.unit.report.sample import passing, sample
from tests.unit.report.test_claims import with_claims

pytestmark = pytest.mark.few(3)


@pytest.fixture
def here(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(overview, "load_rack", world.rack)
    text = yaml.safe_dump(document(criterion(), profiles={"full": {}}), sort_keys=False)
    (world.folder / "architectures/small.yaml").write_text(text)
    return world


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def certify() -> Result:
    return call("certify", "a.py", "--architecture", "small", "--continue", "--quiet")


def runs() -> list[Path]:
    return sorted(path.parent for path in Path("reports").glob("*/evidence.jsonl"))


def apart(number: int) -> None:
    """The latest run as one of an earlier day, because two runs of one second have one name."""
    runs()[-1].rename(f"reports/2020010{number}-000000-a")


def test_a_certified_run_is_left_alone(here: World) -> None:
    assert certify().exit_code == 0
    apart(1)
    again = certify()
    assert again.exit_code == 0
    assert "CERTIFIED already" in again.output
    assert len(runs()) == 1


def test_the_date_of_a_certified_run_is_told_and_its_json_is_that_of_certify(here: World) -> None:
    here.finished()
    apart(1)
    finished = json.loads((runs()[0] / "certificate.json").read_text())["finished"]
    assert moment(finished) in certify().output
    again = call("certify", "a.py", "--architecture", "small", "--continue", "--json")
    assert again.exit_code == 0
    assert json.loads(again.output)["outcome"] == "CERTIFIED"
    assert json.loads(again.output)["folder"] == str(runs()[0])


def test_a_finished_smoke_run_is_not_continued_and_an_interrupted_one_is(here: World) -> None:
    text = yaml.safe_dump(document(criterion(), profiles={"full": {}, "smoke": {}}), sort_keys=False)
    (here.folder / "architectures/small.yaml").write_text(text)
    smoke = ("certify", "a.py", "--architecture", "small", "--continue", "--profile", "smoke", "--quiet")
    assert call(*smoke).exit_code == 2
    apart(1)
    again = call(*smoke)
    assert again.exit_code == 2
    assert f"a new run begins: {runs()[0]} is a finished run of smoke" in again.output.replace("\n", " ")
    assert len(runs()) == 2
    apart(2)
    evidence = runs()[-1] / "evidence.jsonl"
    evidence.write_text("".join(evidence.read_text().splitlines(keepends=True)[:-1]))  # killed before its end
    (runs()[-1] / "certificate.json").unlink()
    assert "a new run begins" not in call(*smoke).output
    assert len(runs()) == 2


def test_two_ways_to_name_the_run_are_refused(here: World) -> None:
    both = call("certify", "a.py", "--architecture", "small", "--continue", "--resume", "latest")
    assert both.exit_code != 0
    assert "not both" in f"{both.output}{both.exception}"
    assert not Path("reports").exists()


def test_a_certificate_that_its_evidence_does_not_give_is_no_certificate(here: World) -> None:
    here.finished()
    certified = (runs()[0] / "certificate.json").read_text()
    apart(1)
    here.rate = 1.0
    call("certify", "a.py", "--architecture", "small", "--quiet")
    failed = json.loads((runs()[-1] / "certificate.json").read_text())
    apart(2)
    claimed = json.loads(certified) | {"run": failed["run"], "evidence": failed["evidence"]}
    (runs()[-1] / "certificate.json").write_text(json.dumps(claimed))
    assert call("overview", "a.py", "small").exit_code == 1
    again = certify()
    assert "CERTIFIED already" not in again.output
    assert again.exit_code == 1
    assert len(runs()) == 3


def rubbish(evidence: Path) -> None:
    evidence.write_text("{rubbish\n")


def truncated_and_changed(evidence: Path) -> None:
    evidence.write_text(evidence.read_text().replace('"outcome":"passed"', '"outcome":"failed"', 1))


def of_another_kit(evidence: Path) -> None:
    evidence.write_text(evidence.read_text().replace("rackproof.evidence/v2", "rackproof.evidence/v9", 1))


def without_records(evidence: Path) -> None:
    evidence.write_text("")


@pytest.mark.parametrize("damage", [rubbish, truncated_and_changed, of_another_kit])
def test_a_later_run_that_cannot_be_read_ends_what_an_earlier_one_proved(
    here: World, damage: Callable[[Path], None]
) -> None:
    here.finished()
    apart(1)
    later = Path("reports/20200102-000000-a")
    shutil.copytree(runs()[0], later)
    damage(later / "evidence.jsonl")
    made = call("overview", "a.py", "small")
    assert made.exit_code == 2
    assert f"{later}/evidence.jsonl" in made.output
    assert f"{later}/evidence.jsonl" in Path("reports/overview.html").read_text()
    assert "certified by" not in call("overview", "a.py", "small", "--forecast").output
    again = certify()
    assert again.exit_code == 0
    assert f"a new run begins: {later}/evidence.jsonl" in again.output
    assert len(runs()) == 3


@pytest.mark.parametrize("name", ["good", "latest"])
def test_a_copy_of_an_earlier_run_is_not_the_latest_one(here: World, name: str) -> None:
    here.finished()
    apart(1)
    here.rate = 1.0
    assert call("certify", "a.py", "--architecture", "small", "--quiet").exit_code == 1
    failed = runs()[-1].name
    shutil.copytree(runs()[0], f"reports/{name}")
    assert json.loads(call("judge", "latest", "--json").stdout)["run"] == failed
    made = call("overview", "a.py", "small")
    assert "NOT CERTIFIED" in made.output
    assert made.exit_code == 1
    assert "CERTIFIED already" not in certify().output


def test_a_copy_that_is_left_alone_counts(here: World) -> None:
    here.finished()
    runs()[0].rename("reports/kept")
    assert call("overview", "a.py", "small").exit_code == 0


def test_a_run_that_began_in_the_future_does_not_stay_the_latest_for_good(here: World) -> None:
    here.finished()
    runs()[-1].rename("reports/29990101-000000-a")
    assert call("overview", "a.py", "small").exit_code == 2
    assert "reports/29990101-000000-a began in the future" in Path("reports/overview.html").read_text()
    here.rate = 1.0
    again = certify()
    assert "a new run begins: reports/29990101-000000-a began in the future" in again.output
    assert again.exit_code == 1
    assert call("overview", "a.py", "small").exit_code == 2


def test_a_later_run_that_cannot_be_continued_ends_what_an_earlier_one_proved(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.finished()
    apart(1)
    here.addresses["a.py"] = "10.9.9."
    here.rate = 1.0
    assert certify().exit_code == 1
    apart(2)
    del here.addresses["a.py"]
    assert call("overview", "a.py", "small").exit_code == 2
    again = certify()
    assert "says something else of gpu-01 than when it began" in again.output
    assert again.exit_code == 1
    assert len(runs()) == 3


def test_a_run_that_was_killed_before_it_began_ends_nothing(here: World) -> None:
    here.finished()
    apart(1)
    Path("reports/20200102-000000-a").mkdir()
    without_records(Path("reports/20200102-000000-a/evidence.jsonl"))
    assert "CERTIFIED already" in certify().output


@pytest.mark.parametrize("other", [("validate",), ("bench",), ("validate", "-k", "not xid")])
def test_a_run_of_another_command_replaces_no_certification(here: World, other: tuple[str, ...]) -> None:
    here.failing.add(("gpu.xid", "gpu-01"))
    assert certify().exit_code == 1
    apart(1)
    here.failing.clear()
    command, *more = other
    assert call(command, "a.py", "--architecture", "small", "--quiet", *more).exit_code == 0
    apart(2)
    assert call("overview", "a.py", "small").exit_code == 1
    assert certify().exit_code == 0
    assert len(runs()) == 3


def test_a_failed_run_begins_anew(here: World) -> None:
    here.rate = 1.0
    assert certify().exit_code == 1
    apart(1)
    here.rate = 60.0
    assert certify().exit_code == 0
    assert len(runs()) == 2


def test_a_gap_is_filled(here: World) -> None:
    here.silent.add(("gpu.xid", "gpu-01"))
    assert certify().exit_code == 2
    apart(1)
    here.silent.clear()
    assert certify().exit_code == 0
    assert len(runs()) == 1


def test_a_run_without_a_certificate_is_resumed(here: World) -> None:
    here.finished()
    apart(1)
    (runs()[0] / "certificate.json").write_text("{")
    assert "CERTIFIED already" not in certify().output
    assert len(runs()) == 1


def test_a_changed_architecture_begins_anew(here: World) -> None:
    here.finished()
    apart(1)
    text = yaml.safe_dump(document(criterion(hint="Look elsewhere."), profiles={"full": {}}), sort_keys=False)
    (here.folder / "architectures/small.yaml").write_text(text)
    assert "CERTIFIED already" not in certify().output
    assert len(runs()) == 2


def test_the_overview_names_what_was_not_run(here: World) -> None:
    made = call("overview", "a.py", "small")
    assert made.exit_code == 2
    assert "not run to its end" in made.output
    certify()
    made = call("overview", "a.py", "small")
    assert made.exit_code == 0, made.output
    page = Path("reports/overview.html").read_text()
    assert f"{runs()[0].name}/certificate.html" in page
    forecast = call("overview", "a.py", "small", "--forecast")
    assert "certified by" in forecast.output


def test_the_forecast_sums_what_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    monkeypatch.setattr(overview, "load_rack", lambda inventory: lab_rack(2))
    ids = ("hitachi-v225g-scaled", "weka-inference-nvme-dram-scaled")
    told = call("overview", "lab.py", *ids, "--forecast", "--profile", "lab", "--output", "reports/none-yet")
    assert told.exit_code == 0, told.output
    assert [line.split()[1].rstrip(":") for line in told.output.splitlines()[:2]] == list(ids)
    assert "at most to measure 2 architectures" in told.output


def test_the_forecast_is_that_of_dry_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    monkeypatch.setattr(overview, "load_rack", lambda inventory: lab_rack(2))
    monkeypatch.setattr(cli_runs, "load_rack", lambda inventory: lab_rack(2))
    arguments = ("lab.py", "--profile", "lab", "--output", "reports/none-yet")
    told = call("overview", *arguments[:1], "virtual-rack", "--forecast", *arguments[1:]).output.splitlines()
    dry = call("bench", *arguments, "--architecture", "virtual-rack", "--dry-run").output.splitlines()
    (total,) = [line for line in dry if "steps of profile lab" in line]
    unknown = total.partition("the time to ")[2]
    assert unknown.startswith("write ")
    assert any("local: writes its files" in line and "as local.write asks" in line for line in dry)
    assert [line.split()[0] for line in told] == 2 * [total.split()[0]]
    assert told[1].endswith(f"at most to measure 1 architecture, and the time to deploy, validate and {unknown}")


def test_the_worst_outcome_is_that_of_all() -> None:
    good, _ = passing()
    bad, _ = sample()
    assert outcome_of_all([Row("a", good, "a")]) is good.outcome
    assert outcome_of_all([Row("a", good, "a"), Row("b", None, "")]) is Outcome.INCOMPLETE
    assert outcome_of_all([Row("a", good, "a"), Row("b", bad, "b")]) is bad.outcome
    part = good.model_copy(update={"outcome": Outcome.PASSED})
    assert outcome_of_all([Row("a", good, "a"), Row("b", part, "b")]) is Outcome.INCOMPLETE
    assert outcome_of_all([]) is Outcome.INCOMPLETE


HEADLINE = "CERTIFIED against ours, which weakens 1 key of big"


def weaker(certificate: Certificate) -> Certificate:
    weakened = (Weakening(id="gpu", key="count", published="8", here="4"),)
    update = {"compared_with": "big 1.0.0", "weakened": weakened}
    architecture = certificate.architecture.model_copy(update=update)
    return certificate.model_copy(update={"architecture": architecture, "headline": HEADLINE})


def test_an_outcome_against_a_weaker_architecture_says_so() -> None:
    good, _ = passing()
    row = Row("ours", weaker(good), "a")
    assert row.result == HEADLINE
    assert HEADLINE in render_overview([row])


def test_a_run_that_was_certified_against_a_weaker_architecture_says_so(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.finished()
    assert HEADLINE not in certify().output
    earlier_run = cli_runs.earlier_run

    def of_weaker(*arguments: Any) -> Earlier | None:
        run = earlier_run(*arguments)
        assert run is not None
        assert run.certificate is not None
        return run._replace(certificate=weaker(run.certificate))

    monkeypatch.setattr(cli_runs, "earlier_run", of_weaker)
    assert HEADLINE in certify().output


def test_the_page_lists_every_claim() -> None:
    certificate, _ = with_claims()
    row = Row("big-scaled", certificate, "run/certificate.html")
    page = render_overview([row, Row("other-scaled", None, "")])
    assert row.counts == "1 UNMEASURED, 1 not judged"
    for words in (
        "It reads fast.",
        "20 GB/s",
        "Nothing looks at it.",
        'href="run/certificate.html#claims"',
        "other-scaled",
    ):
        assert words in page
