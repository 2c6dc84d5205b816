from __future__ import annotations

import io

import pytest
from rich.console import Console

from rackproof.core.status import Status
from rackproof.report.schema import Certificate
from rackproof.report.terminal import FINDINGS, summary

from .sample import passing, rejudged, sample


def printed(certificate: Certificate, width: int = 80, **options: object) -> str:
    file = io.StringIO()
    summary(certificate, Console(file=file, width=width, **options), "reports/x/certificate.html")  # type: ignore[arg-type]
    return file.getvalue()


def test_fits_eighty_columns_without_a_terminal() -> None:
    text = printed(sample()[0])
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_prints_outcome_simulation_findings_and_page() -> None:
    text = " ".join(printed(sample()[0]).replace("│", " ").split())
    assert "NOT CERTIFIED 2 of 75 required verdicts failed, on gpu-02" in text
    assert "All nodes are virtual machines." in text
    assert "FAIL base.sysctl: vm.swappiness on gpu-02 expected 1 actual 60" in text
    assert "do: Run the deploy again" in text
    assert "page reports/x/certificate.html" in text


def test_counts_by_area() -> None:
    rows = {line[:18].strip(): line[18:].split() for line in printed(sample()[0]).splitlines()[2:12]}
    assert rows["checks: base"] == ["10", "·", "1", "·", "1"]
    assert rows["storage: nfs"] == ["10", "·", "1", "1", "·"]
    assert list(rows)[-2:] == ["links", "collectives"]


def test_long_lists_end_with_how_many_more() -> None:
    certificate, _ = passing()
    check = certificate.verdicts[0]
    failing = [
        check.model_copy(update={"id": f"base.check{i}", "status": Status.FAIL, "message": "x"}) for i in range(14)
    ]
    text = printed(rejudged(certificate, failing))
    assert text.count("FAIL base") == FINDINGS
    assert "and 4 more in the page" in text


def test_colours_on_a_terminal() -> None:
    assert "\x1b[" in printed(passing()[0], force_terminal=True, color_system="standard")


def test_what_a_node_said_is_neither_markup_nor_escape() -> None:
    certificate, _ = passing()
    bad = certificate.verdicts[0].model_copy(
        update={"status": Status.FAIL, "title": "[bold]x[/bold] [/red]", "message": "\x1b[2J\x07gone\nline two"}
    )
    text = printed(rejudged(certificate, [bad]))
    assert "[bold]x[/bold] [/red]" in text
    assert "\x1b" not in text
    assert "␇gone line two" in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode(encoding: str) -> None:
    buffer = io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding=encoding)
    summary(sample()[0], Console(file=file, width=80), "certificate.html")
    file.flush()
    text = buffer.getvalue().decode(encoding)
    assert "expected >= 3 %" in text
    assert "gpu-01 <-> gpu-02" in text


def test_an_empty_run_is_named_in_one_line() -> None:
    text = printed(rejudged(sample()[0], []))
    assert "INCOMPLETE" in text
    assert "nothing is proven" in text
