from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rackproof.cli.size import size
from rackproof.core.sizing.answers import memo
from rackproof.errors import SizingError
from rackproof.report.sizing import LATENCY, SCALE, pictures, render_page, stage_rows
from tests.unit.refusals import error_of
from tests.unit.sizing.cases import F800_DGX1, architecture, case

pytestmark = pytest.mark.few(2)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "case.yaml"
    path.write_text(F800_DGX1)
    return str(path)


def run(*arguments: str) -> Result:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(size, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_memo_names_bottleneck_chassis_and_dependences(file: str) -> None:
    result = run(file, "--workload", "inception4-large")
    assert result.exit_code == 0
    assert "Capacity plan: A case of the sizing model" in result.output
    assert "the narrowest known stage is GPUs: at most 14,700 samples/s, 19.9 GB/s from the storage" in result.output
    assert "2 of: F800 chassis with 4 nodes." in result.output
    assert "With the measured 12 GB/s of a unit instead of the specified 15 GB/s: 3." in result.output
    assert "unit.read 15 GB/s (published), changes at 14.2 GB/s" in result.output
    assert "The knee is unknown: sizing.unit.unloaded_latency is not published." in result.output


def test_a_setting_and_a_mix(file: str) -> None:
    result = run(file, "-w", "resnet50:6", "-w", "googlenet-serving:3", "--set", "unit.count=3")
    assert "This one: every workload reaches the rate of its nodes." in result.output
    assert "unit.count 3 (--set)" in result.output


def test_json_is_alone_on_stdout(file: str) -> None:
    data = json.loads(run(file, "-w", "resnet50", "--json").stdout)
    assert data["schema"] == "rackproof.sizing/v1"
    assert data["phases"][0]["binding"] == ["gpu"]


def test_the_page_and_the_pictures_are_written(file: str, tmp_path: Path) -> None:
    page, folder = tmp_path / "plan.html", tmp_path / "svg"
    run(file, "-w", "resnet50", "--html", str(page), "--svg", str(folder), "--json")
    assert "<h1" in page.read_text()
    names = sorted(p.name for p in folder.iterdir())
    assert names == [f"{LATENCY}.svg", f"{SCALE}.svg"]
    for name in names:
        root = ET.fromstring((folder / name).read_text())  # noqa: S314 - our own file
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.findall(".//{*}polyline")


def test_a_page_that_cannot_be_written_is_one_line(file: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(SizingError, match="cannot be written"):
        run(file, "-w", "resnet50", "--html", str(tmp_path / "taken" / "plan.html"))


def test_a_title_is_text_on_the_page_and_not_markup() -> None:
    hostile = F800_DGX1.replace("A case of the sizing model", "<script>alert(1)</script> [red]rack")
    page = render_page(memo(architecture(hostile), case("resnet50", text=hostile)))
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_curves_show_the_rack_and_where_more_gpus_stop_helping() -> None:
    plan = memo(architecture(), case("inception4-large"))
    plots = pictures(plan)
    assert [mark.text for mark in plots[SCALE].marks] == ["here 72"]
    assert [mark.text for mark in plots[LATENCY].marks] == ["here 66.3 %", "planned 70 %"]
    takes, gives = (line.points for line in plots[SCALE].lines)
    assert gives[0] == takes[0]
    assert gives[-1][1] > takes[-1][1]  # lower on the page is less
    heights = [y for _, y in plots[LATENCY].lines[0].points]
    assert heights == sorted(heights, reverse=True)


def test_rows_have_numbers_or_the_reason_why_not() -> None:
    rows = stage_rows(memo(architecture(), case("resnet50")).view.first)
    assert [row.title for row in rows if row.binding] == ["GPUs"]
    for row in rows:
        assert bool(row.samples) != bool(row.remark)


@pytest.mark.parametrize("option", [("--html", "plan.html"), ("--svg", "svg")])
def test_nothing_is_written_into_a_folder_that_does_not_exist(
    file: str, tmp_path: Path, option: tuple[str, str]
) -> None:
    with pytest.raises(SizingError, match=r"nowhere: cannot be written to \(no such folder\)"):
        run(file, "-w", "resnet50", option[0], str(tmp_path / "nowhere" / option[1]))
    assert not (tmp_path / "nowhere").exists()


def test_the_example_of_the_help_text_runs() -> None:
    example = next(line for line in (size.help or "").splitlines() if line.strip().startswith("rackproof size "))
    assert run(*example.split()[2:]).exit_code == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("nodes=1e400",), "nodes is too large"),
        (("port_rate=-1Gb/s",), "port_rate: expected more than 0, actual -1 Gb/s"),
        (("nodes=0",), "nodes: expected more than 0, actual 0"),
        (("nodes=3", " nodes = 4"), "--set nodes is given twice"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_its_own_words(
    file: str, settings: tuple[str, ...], message: str
) -> None:
    options = [part for setting in settings for part in ("--set", setting)]
    assert error_of(SizingError, run, file, "-w", "resnet50", *options) == message


def test_what_the_units_feed_is_by_the_measured_figure_where_there_is_one(file: str) -> None:
    assert "by the measured 12 GB/s of a unit." in run(file, "-w", "inception4-large").output
    without = run(file, "-w", "inception4-large", "--set", "unit.read_measured=unknown").output
    assert "at full GPU speed." in without


def test_a_chassis_of_several_nodes_is_no_single_server(file: str) -> None:
    output = run(file, "-w", "resnet50").output
    assert "a single server is enough" not in output
    assert "it is a chassis of 4 nodes" in output
    assert "the CPU cores limit them" in output
