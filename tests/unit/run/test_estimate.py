"""How long a stage takes, said before it begins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rackproof.architectures import load
from rackproof.core.evidence import Kind
from rackproof.core.rack import Rack
from rackproof.evidence.folder import earlier_seconds
from rackproof.evidence.store import EvidenceStore
from rackproof.run import stages
from rackproof.run.display import Display
from rackproof.run.stages import first_gaps


class Stages(Display):
    def __init__(self) -> None:
        self.estimates: dict[str, float | None] = {}

    def stage(self, name: str, estimate_s: float | None) -> None:
        self.estimates[name] = estimate_s


def test_benchmarks_take_what_their_steps_take_whatever_an_earlier_run_took(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The earlier run had another profile, or only what a resumed run had left."""
    display = Stages()
    run = stages.Run(tmp_path, Rack("rack.py", ()), load("virtual-rack"), "lab", display, ("connect", "bench"))
    monkeypatch.setattr(stages, "record_identities", lambda *_: None)
    for name in ("_connect", "_bench"):
        monkeypatch.setattr(run, name, lambda *_: True)
    session = SimpleNamespace(store=SimpleNamespace(append=lambda *_: None), answering=[])
    steps = [SimpleNamespace(id=name, estimate_s=420.0) for name in ("storage/nfs/read", "storage/nfs/knee")]
    run._execute(cast(Any, session), cast(Any, steps), {"connect": 7.0, "bench": 84.0})
    assert display.estimates == {"connect": 7.0, "bench": 840.0}


def test_other_stages_take_what_the_latest_run_with_them_took_benchmarks_or_not(tmp_path: Path) -> None:
    for name, ends in (
        ("20261121-100000-rack", {"validate": 9.0, "deploy": 60.0}),
        ("20261121-110000-rack", {"validate": 5.0}),
        ("20261121-120000-rack", {"bench": 80.0}),
        ("20261121-130000-other", {"validate": 1.0}),
    ):
        (tmp_path / name).mkdir()
        with EvidenceStore(tmp_path / name) as store:
            for stage, seconds in ends.items():
                store.append(Kind.STAGE, {"stage": stage, "event": "end", "elapsed_s": seconds, "ok": True})
    assert earlier_seconds(tmp_path, "rack.py", {"validate", "deploy", "connect"}) == {"validate": 5.0, "deploy": 60.0}
    assert earlier_seconds(tmp_path, "rack.py", {"validate"}) == {"validate": 5.0}
    assert earlier_seconds(tmp_path, "rack.py", ()) == {}


@pytest.mark.parametrize("count", [0, 1, 3, 4, 40])
def test_a_run_begins_with_the_first_gaps_and_the_number_of_the_others(count: int) -> None:
    gaps = [f"gap {number}" for number in range(count)]
    *lines, last = [*first_gaps("smoke", gaps), ""]
    assert lines[:3] == gaps[:3]
    assert last == ""
    if count > 3:
        assert lines[3:] == [
            f"profile smoke: {count - 3} more line{'s' * (count > 4)} on what will be UNMEASURED;"
            " `rackproof bench --dry-run` names them"
        ]
    else:
        assert lines == gaps
