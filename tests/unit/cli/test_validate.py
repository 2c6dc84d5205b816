"""``rackproof validate`` on recordings and on a part of a rack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from rackproof.cli import runs
from rackproof.cli.validate import validate
from rackproof.core.evidence import Kind
from rackproof.core.rack import Node, Rack
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult
from rackproof.remote.recording import Recording, by_command
from rackproof.remote.recording_folder import write_recordings
from rackproof.report.document import plain
from rackproof.run import stages
from tests.unit.fakes import FakeFleet, lab_rack, reply

pytestmark = pytest.mark.few(6)

CHECKS = """\
from rackproof.validation import check, expect, read

@check("t.kernel", protects="Something breaks.", hint="Mend it.", reads="system", tags=["quick"])
def test_kernel(host):
    expect(read(host, "uname -r").strip(), "6.12")

@check("storage_server.kernel", protects="Something breaks.", hint="Mend it.", reads="system", roles=["storage"])
def test_server(host):
    expect(read(host, "uname -r").strip(), "7.0")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with validators and recordings."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "validators").mkdir()
    (tmp_path / "validators" / "conftest.py").write_text('pytest_plugins = ["rackproof.validation.plugin"]\n')
    (tmp_path / "validators" / "test_t.py").write_text(CHECKS)
    recordings = [
        Recording(node, by_command([CommandResult(node.name, "uname -r", 0, b"6.12\n", elapsed_s=0.2)]))
        for node in lab_rack().nodes
    ]
    write_recordings(tmp_path / "rec", recordings)
    return tmp_path


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(validate, ["--architecture=virtual-rack", "--validators=validators", *arguments])


def test_recordings_are_judged_without_a_node(here: Path) -> None:
    done = ran("--from=rec", "--junit=out.xml")
    assert done.exit_code == 1
    assert "FAIL storage-01: storage_server.kernel: expected 7.0, actual 6.12" in done.output
    assert "3 nodes: 3 passed, 1 failed" in done.output
    assert done.output.endswith("from recordings in rec; no node was contacted\n")
    root = ElementTree.parse(here / "out.xml").getroot()  # noqa: S314
    assert (root.get("tests"), root.get("failures")) == ("4", "1")
    assert not (here / "reports").exists()


def test_validators_of_the_working_directory_run_only_when_they_are_named(here: Path) -> None:
    result = CliRunner().invoke(validate, ["--architecture=virtual-rack", "--from=rec"])
    assert "validators/ is not used: the kit's own run; `--validators validators` runs these instead" in result.stderr
    assert "storage_server.kernel" not in result.output
    assert "is not used" not in ran("--from=rec").output


def test_a_folder_without_validators_is_an_error(here: Path) -> None:
    result = CliRunner().invoke(validate, ["--architecture=virtual-rack", "--from=rec", "--validators=rec"])
    assert str(result.exception) == "rec: no validators there (test_*.py)"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ["--limit=gpu-[01-02]"],
            0,
            ["2 nodes: 2 passed", "limited to gpu-[01-02]: the rest of the rack was not checked"],
        ),
        (["--tags=storage"], 1, ["1 node: 1 failed", "limited to tags storage"]),
        (["-k", "t.kernel"], 0, ["3 nodes: 3 passed", "limited to -k 't.kernel'"]),
        (["--tags=storage", "--limit=gpu"], 2, ["nothing was checked"]),
    ],
)
def test_a_part_says_that_it_is_one(here: Path, arguments: list[str], status: int, words: list[str]) -> None:
    done = ran("--from=rec", *arguments)
    assert (done.exit_code, [word for word in words if word not in done.output]) == (status, [])


def test_the_answer_can_be_read_by_a_program(here: Path) -> None:
    done = ran("--from=rec", "--limit=gpu", "--json")
    assert json.loads(done.output) == {
        "exit_status": 0,
        "counts": {"passed": 2},
        "limited": "limited to gpu",
        "source": "from recordings in rec; no node was contacted",
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--from=rec", "--tags=storge"], "--tags storge: no check has that tag; did you mean 'storage'?"),
        (["--from=rec", "--limit=gpu-7"], "'gpu-7' matches no node; the rack has"),
        (["--from=rec", "-k", "("], "-k '(': expected"),
        (["--from=none"], "none: the folder has no recordings"),
        ([], "give an INVENTORY, or recordings with --from DIR"),
    ],
)
def test_what_cannot_be_done_is_refused(here: Path, arguments: list[str], complaint: str) -> None:
    done = ran(*arguments)
    assert complaint in f"{done.output} {done.exception}"
    assert done.exit_code != 0


def test_a_recording_that_was_edited_is_not_judged(here: Path) -> None:
    path = here / "rec" / "gpu-01.json"
    path.write_text(path.read_text().replace('"6.12\\n"', '"7.0\\n"'))
    done = ran("--from=rec")
    assert str(done.exception) == (
        "rec/gpu-01.json: edited by hand or damaged: sha256 of the output of 'uname -r' does not match"
    )


# Live nodes


@pytest.fixture
def live(here: Path, monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    """Nodes that answer one by one; what they were asked is in ``asked``."""

    def answer(node: str, command: str) -> CommandResult:
        return reply(node, command, "6.12\n") if command == "uname -r" else reply(node, command, rc=0)

    fleet = FakeFleet(lab_rack(), answer)
    monkeypatch.setattr(stages, "Fleet", lambda rack: fleet)
    monkeypatch.setattr(runs, "load_rack", lambda inventory: fleet.rack)
    return fleet


def test_a_part_of_a_live_rack_asks_only_that_part_and_its_evidence_says_so(here: Path, live: FakeFleet) -> None:
    done = ran("inventories/lab.py", "--limit=gpu-01", "--quiet", "--junit=out.xml")
    assert done.exit_code == 0, done.output
    assert {node for node, _ in live.asked} == {"gpu-01"}
    assert "limited to gpu-01: the rest of the rack was not checked" in done.output
    (run,) = (here / "reports").iterdir()
    events = [record.body for record in read_records(run) if record.kind is Kind.EVENT]
    assert [(e["event"], e["text"]) for e in events] == [("narrowed", "validation limited to gpu-01")]
    assert not (run / "verdicts.json").exists()
    root: Any = ElementTree.parse(here / "out.xml").getroot()  # noqa: S314
    assert {case.get("classname") for case in root.iter("testcase")} == {"gpu-01"}


def test_a_whole_live_rack_is_judged_and_written_for_the_build_server_as_well(here: Path, live: FakeFleet) -> None:
    ran("inventories/lab.py", "--quiet", "--junit=out.xml")
    (run,) = (here / "reports").iterdir()
    assert (run / "verdicts.json").exists()
    root = ElementTree.parse(here / "out.xml").getroot()  # noqa: S314
    cases = {(case.get("classname"), case.get("name")) for case in root.iter("testcase")}
    assert {case for case in cases if case[1] in ("node.reachable", "t.kernel")} == {
        (node.name, name) for node in lab_rack().nodes for name in ("node.reachable", "t.kernel")
    }
    assert ("storage-01", "storage_server.kernel") in cases
    assert "limited" not in {entry.get("name") for entry in root.iter("property")}


def test_the_build_server_sees_what_only_the_judge_knows(here: Path, live: FakeFleet) -> None:
    """Too few nodes and missing results are verdicts of the judge, not results of a check."""
    live.rack = Rack(live.rack.source, tuple(node for node in live.rack.nodes if "gpu" in node.groups))
    done = ran("inventories/lab.py", "--quiet", "--junit=out.xml")
    assert done.exit_code == 1, done.output
    root: Any = ElementTree.parse(here / "out.xml").getroot()  # noqa: S314
    wrong = {(c.get("classname"), c.get("name")): c[0].tag for c in root.iter("testcase") if len(c)}
    assert wrong["rack", "rack.count[storage]"] == "failure"
    assert wrong["gpu-01", "base.kernel"] == "error"
    (run,) = (here / "reports").iterdir()
    verdicts = plain(json.loads((run / "verdicts.json").read_text()))["verdicts"]
    bad = {(v["subject"], v["id"]) for v in verdicts if v["required"] and v["status"] not in ("PASS", "WARN")}
    assert set(wrong) == bad


def test_the_judge_does_not_take_a_part_for_the_whole(here: Path, live: FakeFleet) -> None:
    ran("inventories/lab.py", "--limit=gpu-01", "--quiet")
    (run,) = (here / "reports").iterdir()
    judged = CliRunner().invoke(runs.judge, [str(run), "--json"])
    assert json.loads(judged.stdout)["outcome"] != "CERTIFIED"
    assert judged.exit_code != 0


def test_nothing_selected_on_a_live_rack_is_no_success(here: Path, live: FakeFleet) -> None:
    done = ran("inventories/lab.py", "--limit=gpu-01", "-k", "zzz", "--quiet")
    assert done.exit_code == 2
    assert "nothing was checked" in done.output


@pytest.mark.parametrize("groups", [[], ["storage"], ["other"]])
def test_recordings_without_their_roles_do_not_pass(here: Path, groups: list[str]) -> None:
    """The architecture says which nodes must answer, not the groups in the files."""
    nodes = [Node(node.name, tuple(groups), node.data) for node in lab_rack().nodes]
    answers = [Recording(n, by_command([CommandResult(n.name, "uname -r", 0, b"6.12\n")])) for n in nodes]
    write_recordings(here / "rec", answers)
    done = ran("--from=rec", "-k", "t.kernel")
    assert done.exit_code == 0, done.output  # a selection says itself that it is a part
    done = ran("--from=rec")
    assert done.exit_code == 1
    assert "FAIL rack: rack.count[gpu]" in done.output
    if groups != ["storage"]:
        assert "rack.role: expected a node with one of the roles" in done.output
