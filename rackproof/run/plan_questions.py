"""Record the facts that a deploy's plan reads.

pyinfra plans on the current recordings and lists missing commands; these run on all nodes, in one round trip per node,
and pyinfra plans again, until none is missing. So the validators' reader and connections are used, and the recording
has exactly the commands of ``pyinfra @recording/DIR``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer

from rackproof import kit
from rackproof.core.texts import file_name
from rackproof.remote.collect import fetch
from rackproof.remote.fleet import Fleet
from rackproof.remote.pyinfra_recording import ASKED_FILE
from rackproof.remote.recording import Recording
from rackproof.validation.context import Context

ROUNDS = 8
"""Maximum length of a chain of facts that depend on each other."""
TIMEOUT_S = 600.0
MODES = (False, True)
"""Values of ``--diff``: a plan with differences also reads contents of files; a recording must serve both."""


def ask_plan(context: Context, deploy: str) -> str | None:
    """Record the facts of a deploy's plan on the selected nodes. Returns why it cannot be planned, in one line.

    The plan contains the selected nodes only. Raises InventoryError for an unknown deploy file.
    """
    if context.fleet is None:
        return "no node is reachable"
    deploy = str(kit.deploy_file(deploy))
    with TemporaryDirectory(prefix="rackproof-plan-") as name, _planner(context, deploy, Path(name)) as planner:
        for diff in MODES:
            complaint = _ask(context, context.fleet, planner, diff)
            if complaint:
                return complaint
    return None


def _ask(context: Context, fleet: Fleet, planner: _Planner, diff: bool) -> str | None:
    for _ in range(ROUNDS):
        missing, complaint = planner.plan(context, diff)
        if not missing:
            return complaint
        fetch(fleet, context.readers, missing)
        for node, commands in missing.items():
            for command in commands:
                context.readers[node].read(command)
        lost = [
            f"{node}: {context.readers[node].lost or f'no answer to: {command}'}"
            for node, commands in missing.items()
            for command in commands
            if not context.readers[node].has(command)
        ]
        if lost:
            return lost[0]
    return f"the plan still needs further facts after {ROUNDS} rounds"


class _Planner:
    """A process that plans the deploy on the recordings in ``folder`` as often as needed."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def plan(self, context: Context, diff: bool) -> tuple[dict[str, list[str]], str | None]:
        """Missing commands by node, and why there is no plan."""
        for node in context.rack.nodes:
            if context.selection.has_node(node.name) and context.readers[node.name].lost is None:
                recording = Recording(node, context.readers[node.name].used)
                (self._folder / f"{file_name(node.name)}.json").write_text(recording.to_json(), encoding="utf-8")
        missing_file = self._folder / "asked.jsonl"
        missing_file.unlink(missing_ok=True)
        complaint = self._answer({"diff": diff})
        missing: dict[str, dict[str, None]] = {}
        if missing_file.exists():
            for line in missing_file.read_text(encoding="utf-8").splitlines():
                question = json.loads(line)
                missing.setdefault(question["node"], {})[question["command"]] = None
        return {node: list(commands) for node, commands in missing.items()}, complaint

    def send(self, message: Mapping[str, object]) -> None:
        if self._process.stdin is None:
            raise RuntimeError("Popen was asked for pipes and gave none")
        self._process.stdin.write(f"{json.dumps(message)}\n")
        self._process.stdin.flush()

    def _answer(self, message: dict[str, object]) -> str | None:
        if self._process.stdout is None:
            raise RuntimeError("Popen was asked for pipes and gave none")
        timer = Timer(TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            self.send(message)
            answer: str | None = json.loads(self._process.stdout.readline())
            return answer
        except (OSError, ValueError):
            if not timer.is_alive():
                return f"not planned within {TIMEOUT_S:g} s"
            lines = (self._folder / "stderr").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return f"pyinfra ended with exit status {self._process.wait()}: {''.join(lines[-1:])}"
        finally:
            timer.cancel()


@contextmanager
def _planner(context: Context, deploy: str, folder: Path) -> Iterator[_Planner]:
    named = all("architecture" in node.data for node in context.rack.nodes)
    request = {
        "inventory": f"@recording/{folder}",
        "deploy": deploy,
        "data": [] if named else [f"architecture={context.arch.metadata.id}"],
    }
    with (
        (folder / "stderr").open("w", encoding="utf-8") as stderr,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "rackproof.configure.question_reader"],
            env={**os.environ, ASKED_FILE: str(folder / "asked.jsonl"), "PYINFRA_PROGRESS": "off"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
        ) as process,
    ):
        planner = _Planner(process, folder)
        try:
            planner.send(request)
            yield planner
        finally:
            process.kill()
