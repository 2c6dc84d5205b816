from __future__ import annotations

import re

from rackproof.report.prometheus import render_metrics

from .sample import Raw, measurements, passing, rejudged, sample

LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
LINE = re.compile(rf"^[a-z_]+(?:\{{{LABEL}(?:,{LABEL})*\}})? -?[0-9.e+-]+$")


def series(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_every_line_is_in_the_text_format() -> None:
    text = render_metrics(sample()[0])
    assert text.endswith("\n")
    assert [line for line in series(text) if not LINE.match(line)] == []


def test_every_family_is_described_once_before_its_series() -> None:
    lines = render_metrics(sample()[0]).splitlines()
    families = list(dict.fromkeys(re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")))
    for family in families:
        first = next(i for i, line in enumerate(lines) if re.split(r"[{ ]", line)[0] == family)
        assert lines[first - 1] == f"# TYPE {family} gauge"
        assert lines[first - 2].startswith(f"# HELP {family} ")
        assert lines.count(f"# TYPE {family} gauge") == 1


def test_certified_is_one_only_when_certified() -> None:
    assert "rackproof_certified 0.0\n" in render_metrics(sample()[0])
    assert "rackproof_certified 1.0\n" in render_metrics(passing()[0])


def test_unmeasured_has_no_series_and_is_counted() -> None:
    text = render_metrics(sample()[0])
    cephfs = [line for line in series(text) if 'metric="storage.write_bandwidth"' in line and "cephfs" in line]
    assert [line for line in cephfs if 'subject="gpu-02"' in line or 'subject="rack"' in line] == []
    assert 'rackproof_unmeasured{metric="storage.write_bandwidth"} 2.0' in text


def test_label_values_are_escaped_and_names_are_valid() -> None:
    odd = measurements(Raw())[0].model_copy(update={"labels": {"sto rage": 'a"b\\c\nd', "metric": "clash", "0": "x"}})
    text = render_metrics(rejudged(passing()[0], [], measurements=[odd]))
    (line,) = [line for line in series(text) if line.startswith("rackproof_measurement")]
    assert LINE.match(line)
    assert r'sto_rage="a\"b\\c\nd"' in line
    assert 'label_metric="clash"' in line
    assert 'label_0="x"' in line


def test_no_series_twice() -> None:
    m = measurements(Raw())[0]
    lines = series(render_metrics(rejudged(passing()[0], [], measurements=[m, m])))
    assert len([line for line in lines if line.startswith("rackproof_measurement")]) == 1
