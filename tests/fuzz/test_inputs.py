"""No malformed input ends in a traceback, a forged line, an internal error, or a pass."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rackproof.cli import main as entry
from rackproof.cli import proof
from rackproof.core.evidence import Record
from rackproof.errors import RackproofError
from rackproof.evidence.store import read_records
from rackproof.inventories.nodesets import nodes
from rackproof.inventories.records import SourceError
from rackproof.inventories.slurm import from_slurm
from rackproof.inventories.table import from_csv
from rackproof.inventories.terraform import from_terraform
from tests.fuzz import inputs
from tests.fuzz.conftest import Finished
from tests.fuzz.inputs import FORGED, ROOT

pytestmark = pytest.mark.few(16)

FEW = 7
"""Every FEW-th input runs in `make test-unit`, all of them in `make test-long`."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
every = pytest.mark.parametrize("step", [FEW, pytest.param(1, marks=pytest.mark.slow)])


class Ended(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def problem(self) -> str | None:
        """A behaviour that no input may cause; None where there was none."""
        both = self.out + self.err
        errors = [line for line in self.err.splitlines() if line.startswith("rackproof: ")]
        if self.status not in (0, 1, 2, 3):
            return f"status {self.status}"
        if "Traceback" in both or "internal error" in both:
            return "a defect"
        if control := CONTROL.search(both):
            return f"control character {control[0]!r}"
        if FORGED in both.splitlines() or len(errors) > 1:
            return "a forged line, or several errors"
        if self.status == 3 and not self.err.strip():
            return "no error line"
        return None


def call(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> Ended:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    monkeypatch.setattr(sys, "argv", ["rackproof", *arguments])
    status = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            entry.main()
        except SystemExit as end:
            status = int(end.code or 0)
    return Ended(status, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    inputs.surroundings(tmp_path)
    (tmp_path / "architectures").symlink_to(ROOT / "architectures")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@every
@pytest.mark.parametrize("slot", inputs.SLOTS)
def test_a_word_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch, slot: str, step: int) -> None:
    first = list(inputs.SLOTS).index(slot) % step
    tried = {word: call(monkeypatch, inputs.filled(inputs.SLOTS[slot], word)) for word in inputs.WORDS[first::step]}
    assert {word: (ended.problem, ended) for word, ended in tried.items() if ended.problem} == {}


@pytest.mark.slow
@pytest.mark.parametrize("slot", inputs.SELECTIONS)
def test_a_word_that_selects(folder: Path, monkeypatch: pytest.MonkeyPatch, slot: str) -> None:
    tried = {word: call(monkeypatch, inputs.filled(inputs.SELECTIONS[slot], word)) for word in inputs.WORDS}
    assert {word: (ended.problem, ended) for word, ended in tried.items() if ended.problem} == {}


@every
@pytest.mark.parametrize("file", inputs.FILES)
def test_a_damaged_file(folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, step: int) -> None:
    source, name, command = inputs.FILES[file]
    data = source.read_bytes()
    problems = {}
    few = file in ("recording", "validated")  # whose every edit the hash shows
    for case in list(inputs.damaged(1 if step > 1 or few else 5, (file,)))[:: step * (2 if step > 1 else 1)]:
        (folder / name).write_bytes(case.bytes(data))
        ended = call(monkeypatch, list(command))
        passed = ended.status == 0 and few and (folder / name).read_bytes() != data
        if ended.problem or passed:
            problems[case.id] = (ended.problem or "passed", ended)
    assert problems == {}


@pytest.mark.slow
def test_garbage_that_a_node_answers_never_passes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (Path(inputs.RECORDINGS) / "gpu-01.json").read_bytes()
    problems = {}
    for seed in range(2 * len(inputs.DAMAGES)):
        (folder / "folder/gpu-01.json").write_bytes(inputs.resealed(data, seed))
        command = ["validate", "--from", "folder", "--limit", "gpu-01", "--architecture", "virtual-rack"]
        ended = call(monkeypatch, command)
        if ended.problem or ended.status == 0:
            problems[seed] = (ended.problem or "passed", ended)
    assert problems == {}


def records_of(folder: Path) -> list[Record] | None:
    try:
        return read_records(folder)
    except RackproofError:
        return None


def outputs(folder: Path) -> dict[str, bytes]:
    """Regular files in ``raw``; one of the damages swaps a line with itself."""
    paths = (path for path in (folder / "raw").iterdir() if path.is_file() and not path.is_symlink())
    return {path.name: path.read_bytes() for path in paths if path.stat().st_size < 10**7}


@every
def test_a_damaged_run_is_never_certified(
    folder: Path, monkeypatch: pytest.MonkeyPatch, finished: Finished, step: int
) -> None:
    """Unless its evidence is what it was: spaces between values say nothing."""
    monkeypatch.setattr(proof, "plan_steps", finished.plan)
    monkeypatch.setattr(proof, "reread", finished.reread)
    whole = records_of(finished.folder)
    assert call(monkeypatch, ["judge", str(inputs.copied(finished.folder, folder / "run"))]).status == 0
    problems = {}
    for name, spoil in list(inputs.run_damages(1 if step > 1 else 4))[::step]:
        run = inputs.copied(finished.folder, folder / "run")
        spoil(run)
        same = outputs(run) == outputs(finished.folder) and records_of(run) == whole
        ended = call(monkeypatch, ["judge", "run"])
        if ended.problem or (ended.status == 0 and not same) or ("CERTIFIED" in ended.out and ended.status == 3):
            problems[name] = (ended.problem or "certified", ended)
    assert problems == {}


SOURCES: dict[str, tuple[Path, Callable[[Path], object]]] = {
    "csv": (ROOT / "inventories/data/rack.csv", from_csv),
    "slurm": (ROOT / "inventories/data/slurm-nodes.txt", from_slurm),
    "terraform": (ROOT / "inventories/data/netbox-devices.json", from_terraform),
}


@every
@pytest.mark.parametrize("source", SOURCES)
def test_a_damaged_source_of_an_inventory(folder: Path, source: str, step: int) -> None:
    path, read = SOURCES[source]
    data = path.read_bytes()
    for case in list(inputs.damaged(1 if step > 1 else 4, ("recording",)))[::step]:
        (folder / "source").write_bytes(case.bytes(data))
        with contextlib.suppress(SourceError):
            read(folder / "source")


@every
def test_a_word_as_node_set_and_template(step: int) -> None:
    for word in inputs.WORDS[::step]:
        for arguments in ({"nodeset": word}, {"nodeset": "gpu[1-3]", "address": word, "x": {"y": [word]}}):
            with contextlib.suppress(SourceError):
                nodes(**arguments)  # type: ignore[arg-type]


def test_there_are_as_many_inputs_as_the_documentation_says() -> None:
    arguments = len(inputs.SLOTS) + len(inputs.SELECTIONS)
    words = len(inputs.WORDS) * (arguments + 2)
    files = 3 * 5 * len(inputs.DAMAGES) + 2 * len(inputs.DAMAGES)
    runs = len(list(inputs.run_damages(4)))
    sources = len(SOURCES) * 4 * len(inputs.DAMAGES)
    number = words + files + runs + sources + 2 * len(inputs.DAMAGES)
    text = " ".join((ROOT / "SECURITY.md").read_text().split())
    assert f"{len(inputs.WORDS)} words in {arguments} arguments, {len(inputs.DAMAGES)} kinds of damage" in text
    assert f"{number:,} inputs in all" in text
