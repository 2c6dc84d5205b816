"""Last month's rack, read from its run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.core.evidence import Kind, NodeInfo
from rackproof.core.rack import Node
from rackproof.errors import RunError
from rackproof.evidence.recordings import read_recordings
from rackproof.evidence.store import EvidenceStore
from rackproof.remote.collect import RecordingReader
from rackproof.remote.command import CommandResult
from rackproof.remote.recording import Recording, by_command
from rackproof.remote.recording_folder import write_recordings
from rackproof.remote.redaction import redacted
from rackproof.validation.context import Context, open_context
from rackproof.validation.known import load_checks
from rackproof.validation.survey import survey
from tests.unit.judging import info_of_nodes

INFO = info_of_nodes(
    (NodeInfo(name=name, groups=("gpu",)) for name in ("gpu-01", "gpu-02")), architecture="virtual-rack"
)
UNAME = CommandResult("gpu-01", "uname -r", 0, b"6.12\n", b"warning\n", 0.25, 20.0)
HUNG = CommandResult("gpu-01", "df", None, b"half", b"", 20.5, 20.0, "not finished within 20 s")


ROOT = Path(__file__).parents[3]


def run(folder: Path, *stages: tuple[str, list[CommandResult]]) -> Path:
    with EvidenceStore(folder) as store:
        store.append(Kind.RUN, INFO)
        for name, results in stages:
            store.append(Kind.STAGE, {"stage": name, "event": "begin"})
            for result in results:
                store.command(result)
            store.append(Kind.STAGE, {"stage": name, "event": "end", "elapsed_s": 1.0, "ok": True})
    return folder


def test_a_run_is_a_recording_of_its_nodes(tmp_path: Path) -> None:
    other = CommandResult("gpu-01", "uname -r", 0, b"another stage\n")
    folder = run(tmp_path, ("connect", [other]), ("validate", [UNAME, HUNG]), ("bench", [other]))
    one, two = read_recordings(folder)
    assert (one.node, dict(one.results)) == (Node("gpu-01", ("gpu",)), {"uname -r": UNAME, "df": HUNG})
    assert (two.node, dict(two.results)) == (Node("gpu-02", ("gpu",)), {})


def test_of_a_resumed_run_the_last_validation_counts(tmp_path: Path) -> None:
    before, after = (replace(UNAME, stdout=text) for text in (b"6.12\n", b"6.13\n"))
    folder = run(tmp_path, ("validate", [before, HUNG]), ("bench", [UNAME]), ("validate", [after]))
    assert dict(read_recordings(folder)[0].results) == {"uname -r": after}
    with EvidenceStore(folder) as store:  # killed
        store.append(Kind.STAGE, {"stage": "validate", "event": "begin"})
        store.command(before)
    assert dict(read_recordings(folder)[0].results) == {"uname -r": after}


def test_a_validation_that_was_killed_is_read_where_no_other_is_there(tmp_path: Path) -> None:
    with EvidenceStore(tmp_path) as store:
        store.append(Kind.RUN, INFO)
        store.append(Kind.STAGE, {"stage": "validate", "event": "begin"})
        store.command(UNAME)
    assert dict(read_recordings(tmp_path)[0].results) == {"uname -r": UNAME}


def test_an_inventory_says_what_a_run_does_not_know(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", ("validate", [UNAME]))
    inventory = tmp_path / "inv.py"
    inventory.write_text('gpu = [("gpu-01", {"fabric_addresses": ["10.0.0.1/24"]}), ("gpu-03", {})]\n')
    context = open_context(str(inventory), "virtual-rack", str(folder))
    assert [node.name for node in context.rack.nodes] == ["gpu-01", "gpu-03"]
    assert context.rack.node("gpu-01").fabric_address() == "10.0.0.1"
    assert context.readers["gpu-01"].read("uname -r") == UNAME
    assert context.readers["gpu-03"].read("uname -r").error == "not in the recording: uname -r"
    assert context.fleet is None


def test_a_run_that_validated_nothing_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="its nodes were not validated"):
        read_recordings(run(tmp_path, ("connect", [UNAME])))


def test_a_changed_output_of_a_run_is_refused(tmp_path: Path) -> None:
    folder = run(tmp_path, ("validate", [UNAME]))
    for path in (folder / "raw").iterdir():
        if path.read_bytes() == b"6.12\n":
            path.write_bytes(b"7.00\n")
    with pytest.raises(RunError, match="was changed after it was recorded"):
        read_recordings(folder)


def test_nodes_without_an_answer_leave_no_file(tmp_path: Path) -> None:
    recordings = [Recording(Node("gpu-01", ()), by_command([UNAME])), Recording(Node("gpu-02", ()))]
    write_recordings(tmp_path / "rec", recordings)
    assert [path.name for path in (tmp_path / "rec").iterdir()] == ["gpu-01.json"]
    assert read_recordings(tmp_path / "rec") == recordings[:1]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write recordings: "):
        write_recordings(tmp_path / "file", [Recording(Node("gpu-01", ()), by_command([UNAME]))])


# Secrets


def spoken(result: CommandResult) -> CommandResult:
    """The answer as a machine gives it that spells its secrets out."""
    text = result.stdout.replace(b"secret=<hidden>", b"secret=AQ" + b"Bvz1FnAAAAABAAj8dWYb2mP3TSKlK0VJkzXg==")
    return replace(result, stdout=text, stderr=result.stderr + b"warning: password=hunter2 on the command line\n")


def test_every_check_says_the_same_of_the_redacted_text() -> None:
    rack = ROOT / "tests" / "data" / "recordings" / "virtual-rack"
    base = open_context(None, str(ROOT / "architectures" / "virtual-rack.yaml"), str(rack))
    known = {name: [spoken(result) for result in reader.known()] for name, reader in base.readers.items()}
    plain, hidden = (
        Context(
            base.rack, base.arch, {n: RecordingReader(n, known=map(change, results)) for n, results in known.items()}
        )
        for change in (lambda result: result, redacted)
    )
    changed = [result for results in known.values() for result in results if redacted(result) != result]
    assert any(b"secret=AQ" in result.stdout for result in changed)
    assert len(changed) > 50
    checks = load_checks(ROOT / "validators")
    pairs = list(zip(survey(plain, checks), survey(hidden, checks), strict=True))
    assert len(pairs) > 150
    assert [(a, b) for a, b in pairs if (a.outcome, a.message) != (b.outcome, b.message)] == []


def test_what_a_node_says_is_redacted_before_a_check_sees_it() -> None:
    class Talkative:
        def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
            return CommandResult("gpu-01", command, 0, b"token=abcdef\n")

    seen: list[CommandResult] = []
    reader = RecordingReader("gpu-01", Talkative(), on_result=seen.append)
    assert reader.read("env").text == "token=‹redacted›\n"
    reader.add([CommandResult("gpu-01", "set", 0, b"password=hunter2\n")])
    assert reader.read("set").text == "password=‹redacted›\n"
    assert [result.stdout for result in seen] == ["token=‹redacted›\n".encode(), "password=‹redacted›\n".encode()]
