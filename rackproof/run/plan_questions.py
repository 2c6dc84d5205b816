"""Record the facts that a deploy's plan reads.

pyinfra plans on the recordings so far and lists the missing commands; these run on all nodes, in one round trip each,
and pyinfra plans again, until nothing is missing. Facts are thus read by the validators' reader, over its
connections, and the recording has exactly what ``pyinfra @recording/DIR`` reads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rackproof import kit
from rackproof.remote.collect import fetch
from rackproof.remote.pyinfra_recording import ASKED_FILE
from rackproof.remote.recording import Recording
from rackproof.remote.ssh import Fleet
from rackproof.validation.context import Context

ROUNDS = 8
"""Maximum length of a chain of facts that depend on each other."""
TIMEOUT_S = 600.0
MODES = ((), ("--diff",))
"""Options of pyinfra: a plan with ``--diff`` also reads the content of files; a recording serves both."""


def ask_plan(context: Context, deploy: str) -> str | None:
    """Record what the plan of a deploy reads on the selected nodes. Returns why it cannot be planned, in one line.

    The plan contains the selected nodes only. Raises InventoryError for an unknown deploy file.
    """
    if context.fleet is None:
        return "no node is reachable"
    deploy = str(kit.deploy_file(deploy))
    with TemporaryDirectory(prefix="rackproof-plan-") as name:
        for options in MODES:
            complaint = _ask(context, context.fleet, deploy, Path(name), options)
            if complaint:
                return complaint
    return None


def _ask(context: Context, fleet: Fleet, deploy: str, folder: Path, options: Sequence[str]) -> str | None:
    for _ in range(ROUNDS):
        missing, complaint = _plan(context, deploy, folder, options)
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
    return f"the plan still misses facts after {ROUNDS} rounds"


def _plan(
    context: Context, deploy: str, folder: Path, options: Sequence[str]
) -> tuple[dict[str, list[str]], str | None]:
    """Missing commands by node, and why there is no plan."""
    for node in context.rack.nodes:
        if context.selection.has_node(node.name) and context.readers[node.name].lost is None:
            recording = Recording(node, context.readers[node.name].used)
            (folder / f"{node.name}.json").write_text(recording.to_json(), encoding="utf-8")
    named = all("architecture" in node.data for node in context.rack.nodes)
    missing_file = folder / "asked.jsonl"
    missing_file.unlink(missing_ok=True)
    try:
        completed = subprocess.run(
            [
                *(sys.executable, "-m", "pyinfra", "--dry", *options),
                *([] if named else ["--data", f"architecture={context.arch.metadata.id}"]),
                *(f"@recording/{folder}", deploy),
            ],
            env={**os.environ, ASKED_FILE: str(missing_file), "PYINFRA_PROGRESS": "off"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {}, f"not planned within {TIMEOUT_S:g} s"
    missing: dict[str, dict[str, None]] = {}
    if missing_file.exists():
        for line in missing_file.read_text(encoding="utf-8").splitlines():
            question = json.loads(line)
            missing.setdefault(question["node"], {})[question["command"]] = None
    last = [line.strip() for line in completed.stderr.splitlines() if line.strip()][-1:]
    complaint = (
        f"pyinfra ended with exit status {completed.returncode}: {''.join(last)}" if completed.returncode else None
    )
    return {node: list(commands) for node, commands in missing.items()}, complaint
