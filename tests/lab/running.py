"""A command of the kit that runs while something happens to the rack, and what runs leave on the nodes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackproof.bench.user import HOME
from rackproof.core.rack import Rack
from rackproof.remote.fleet import Fleet
from rackproof.report.document import plain
from tests.lab.conftest import INVENTORY, ROOT, ask

RUN_S = 1800
"""One reduced run on a busy host."""
ENDED_S = 30
"""From a signal to the end of the process: 10 s is the limit, the rest is a busy host."""
GONE_S = 60
"""From the end of a run, or the return of a node, to the end of what the run started there."""
TRACES = Path(__file__).with_name("traces.sh").read_text()


def _as_from_a_terminal() -> None:
    """A program in the background inherits that SIGINT and SIGHUP are ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass
class Running:
    """A `certify` or `bench` that runs, and what it has printed."""

    folder: Path
    arguments: tuple[str, ...] = ()
    verb: tuple[str, ...] = ("certify", INVENTORY, "--no-deploy")
    text: str = ""
    _process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "rackproof", *self.verb, "--output", str(self.folder)]
        self._process = subprocess.Popen(
            [*command, *self.arguments],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=_as_from_a_terminal,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                self.text += line

    @property
    def run(self) -> Path:
        """The folder of the latest run."""
        return max(self.folder.glob("*/evidence.jsonl"), key=lambda path: path.stat().st_mtime).parent

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        with suppress(ValueError, OSError):
            return (self.run / "run.log").read_text()
        return ""

    def wait_for(self, pattern: str) -> None:
        """Until the log or the output has a line that matches."""
        deadline = time.monotonic() + RUN_S
        while not re.search(pattern, self.log() + self.text):
            assert self.alive, self.text
            assert time.monotonic() < deadline, f"no {pattern!r} in\n{self.text}"
            time.sleep(0.2)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def ended(self, timeout: float = RUN_S) -> int:
        """Exit status."""
        status = self._process.wait(timeout)
        self._reader.join(60)
        return status

    def certificate(self) -> dict[str, Any]:
        document = plain(json.loads((self.run / "certificate.json").read_text()))
        return document

    def verdicts(self) -> list[dict[str, Any]]:
        judged: list[dict[str, Any]] = plain(json.loads((self.run / "verdicts.json").read_text()))["verdicts"]
        return judged

    def stop(self) -> None:
        if self.alive:
            self._process.kill()
        self.ended()


@contextmanager
def undone(rack: Rack, node: str, heal: str) -> Iterator[None]:
    """Heal a node afterwards, whatever happens."""
    try:
        yield
    finally:
        on_node(rack, node, heal)


def on_node(rack: Rack, node: str, command: str) -> str:
    """The command's output."""
    with Fleet(rack) as fleet:
        result = ask(fleet[node], command)
    assert result.ok, f"{node}: {command}: {result.why}"
    return result.text


def traces(rack: Rack) -> dict[str, set[str]]:
    """Traces of runs on each node: processes, mounts, files, limits, tables of the firewall, jobs of Slurm."""
    with Fleet(rack) as fleet:
        answers = {node.name: ask(fleet[node.name], TRACES) for node in rack.nodes}
    assert all(answer.ok for answer in answers.values()), answers
    return {name: set(answer.text.splitlines()) for name, answer in answers.items()}


def left_behind(
    rack: Rack, before: Mapping[str, set[str]], lost: str = "", within_s: float = GONE_S
) -> dict[str, list[str]]:
    """Traces that nodes have more than before, by node, once they stay.

    ``lost``: a node that did not answer at the end of the run; it keeps the account's home up to the next run, which
    makes it anew, and may keep the table of the firewall as long.
    """
    deadline = time.monotonic() + within_s
    allowed = {lost: {f"file {HOME}", "table inet rackproof"}}
    while True:
        new = {node: now - before[node] - allowed.get(node, set()) for node, now in traces(rack).items()}
        more = {node: sorted(lines) for node, lines in new.items() if lines}
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(2)
