"""Runs the kit's programs of nodes on this machine, with their folders in a temporary one."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench import moment
from rackproof.bench.storage import program_runs
from rackproof.bench.user import HOME
from rackproof.core.evidence import Measurement
from rackproof.remote.command import CommandResult
from tests.unit import warm_python

LEADS_S = (0.8, 3, 10, 30)
"""From the readiness of programs to their start; a machine that is too busy for one gets the next."""
LATE = " the common start"
_PLACE = tempfile.TemporaryDirectory(prefix="rackproof-node-programs-")
BENCH = Path(_PLACE.name)
"""All programs in one folder, as on nodes."""
for _program in (Path(__file__).parents[3] / "rackproof" / "bench").rglob("*_node.py"):
    (BENCH / _program.name).symlink_to(_program)


def run(program: str, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    # Under a limit of its file sizes a program would leave cut bytecode, which the others then load.
    bytecode = ["-B"] if "preexec_fn" in options else []
    return warm_python.run(
        [sys.executable, "-I", *bytecode, str(BENCH / program), *words],
        capture_output=True,
        timeout=240,
        check=False,
        **options,
    )


def document(program: str, *words: str, **options: Any) -> dict[str, Any]:
    """Document that the program prints."""
    done = run(program, *words, **options)
    assert done.stdout, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    assert ("error" in answer) == (done.returncode != 0)
    return answer


@contextmanager
def starting(jobs: Sequence[str], lead_s: float) -> Iterator[dict[str, Any]]:
    """Keys of a common start for configurations; it is ``lead_s`` after the jobs are ready."""
    over = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "start")

        def tell() -> None:
            while not over.wait(0.02):
                if all(file.with_name(f"start.{job}").exists() for job in jobs):
                    file.with_suffix(".new").write_text(f"{time.time() + lead_s:.3f}")
                    file.with_suffix(".new").rename(file)
                    return

        teller = threading.Thread(target=tell)
        teller.start()
        try:
            yield {"start_file": str(file), "start_limit_s": 60}
        finally:
            over.set()
            teller.join()


def leads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leads of the kit's own common start, for as long as the machine is too busy for them."""
    for lead_s in LEADS_S:
        monkeypatch.setattr(moment, "LEAD_S", lead_s)
        yield


def punctual(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Iterable[Measurement]]) -> list[Measurement]:
    """Measurements of a run in which no program began late; of the last one on a machine that is too busy."""
    for _ in leads(monkeypatch):
        measured = list(run())
        if not any(LATE in (one.reason or "") for one in measured):
            break
    return measured


def started(program: str, config: dict[str, Any]) -> dict[str, Any]:
    """Document of a program with a common start."""
    for lead_s in LEADS_S:
        with starting([config["job"]], lead_s) as keys:
            answer = document(program, json.dumps(config | keys))
        if LATE not in answer.get("error", ""):
            break
    return answer


def configs(command: str, program: str) -> list[dict[str, Any]]:
    """Configurations in a command."""
    return program_runs.configs_of(command, program)


def answer(node: str, command: str, mountpoint: str, folder: Path, home: Path | None = None) -> CommandResult | None:
    """Carries out a command line of a program of nodes; None for another command.

    ``home`` stands for the home of the account that measures.
    """
    program = next((name for name in ("dataset_node.py", "ingest_node.py") if f"/{name} " in command), None)
    if program is None:
        return _shell(node, command, home) if home is not None and f"start={HOME}/" in command else None
    own = str(home or HOME)
    line = command[command.index(f"/{program} ") :].replace(mountpoint, str(folder))
    words = shlex.split(line.replace(HOME, own))[1:]
    words = [
        "1" if program == "dataset_node.py" and word == "0" and number == len(words) - 1 else word
        for number, word in enumerate(words)
    ]
    done = run(program, *words)
    out = done.stdout.replace(own.encode(), HOME.encode())
    return CommandResult(node, command, done.returncode, out, done.stderr, 0.1, 1)


def _shell(node: str, command: str, home: Path) -> CommandResult:
    done = subprocess.run(["sh", "-c", command.replace(HOME, str(home))], capture_output=True, timeout=60, check=False)
    return CommandResult(node, command, done.returncode, done.stdout, done.stderr, 0.1, 1)
