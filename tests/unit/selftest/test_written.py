"""Written racks: their answers, and messages about a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.errors import SelfTestError
from rackproof.selftest.written import open_rack, open_written, racks_below
from tests.unit.selftest.small import write


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path / "tests" / "data" / "written" / "small"


def test_the_first_entry_that_matches_answers(small: Path) -> None:
    (small / "n1" / "a.yaml").write_text('- {match: count --all, stdout: "all\\n", stderr: "w\\n", rc: 4}\n')
    reader = open_written(small).readers["n1"]
    answer = reader.read("count --all --ports")
    assert (answer.rc, answer.text, answer.stderr) == (4, "all\n", b"w\n")
    assert reader.read("count --ports").text == "ports 8 of n1\n"


def test_a_node_like_another_answers_in_its_own_name_or_for_itself(small: Path) -> None:
    assert open_written(small).readers["n2"].read("count").text == "ports 8 of n2\n"
    (small / "n2").mkdir()
    (small / "n2" / "own.yaml").write_text('- {match: uptime, stdout: "up 1 day\\n"}\n')
    reader = open_written(small).readers["n2"]
    assert reader.read("uptime").text == "up 1 day\n"
    assert reader.read("count").text == "ports 8 of n2\n"


def test_what_is_not_written_is_not_installed(small: Path) -> None:
    answer = open_written(small).readers["n1"].read("ibstat -p")
    assert (answer.rc, answer.stdout, answer.stderr) == (127, b"", b"sh: 1: ibstat: not found\n")


def test_an_answer_in_a_file_keeps_its_bytes(small: Path) -> None:
    (small / "n1" / "blob.bin").write_bytes(b"\xff\x00\r\n")
    (small / "n1" / "z.yaml").write_text("- {match: dump, file: blob.bin}\n")
    assert open_written(small).readers["n1"].read("dump").stdout == b"\xff\x00\r\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("match: x\n", "expected a list of answers, actual dict"),
        ("- {match: x, output: y}\n", "x: output: Extra inputs"),
        ("- {stdout: y}\n", "entry 1: match: Field required"),
        ("- {match: x, file: absent.txt}\n", "x: absent.txt: No such file"),
        ("- {match: x, file: a, stdout: b}\n", "give only one of"),
    ],
)
def test_bad_answers_are_refused_in_one_line(small: Path, text: str, complaint: str) -> None:
    (small / "n1" / "bad.yaml").write_text(text)
    with pytest.raises(SelfTestError, match=complaint) as caught:
        open_written(small)
    assert "bad.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_node_can_only_be_like_one_above_it(small: Path) -> None:
    (small / "rack.yaml").write_text("architecture: architecture.yaml\nnodes: {n1: {groups: [gpu], like: n2}}\n")
    with pytest.raises(SelfTestError, match=r"rack\.yaml: nodes\.n1\.like: no node 'n2' before it"):
        open_written(small)


def test_racks_are_found_by_name(small: Path) -> None:
    data = small.parents[1]
    assert racks_below(data) == ["small"]
    assert [node.name for node in open_rack(data, "small").rack.nodes] == ["n1", "n2"]
    with pytest.raises(SelfTestError, match="no rack 'large'"):
        open_rack(data, "large")
