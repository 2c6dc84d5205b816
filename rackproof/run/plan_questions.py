"""What a deploy's plan asks the nodes: found out on recordings, asked live, until the plan lacks nothing.

pyinfra plans against the recordings that there are and names what it misses; all nodes are then asked what they
miss, in one round trip each, and the plan is made again. So the facts are read by the validators' own reader, over its
connections, and what is recorded is exactly what ``pyinfra @recording/DIR`` will ask.
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
"""As many questions may depend on each other's answers."""
TIMEOUT_S = 600.0
MODES = ((), ("--diff",))
"""With differences a plan asks for the content of files as well, and without them not: a recording has both."""


def ask_plan(context: Context, deploy: str) -> str | None:
    """Record what the plan of a deploy asks the selected nodes. Returns why it cannot be planned, in one line.

    The plan knows the selected nodes only. Raises InventoryError where there is no such deploy file.
    """
    if context.fleet is None:
        return "no node can be asked"
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
    return f"the plan asks for more, even after {ROUNDS} rounds"


def _plan(
    context: Context, deploy: str, folder: Path, options: Sequence[str]
) -> tuple[dict[str, list[str]], str | None]:
    """What the plan lacks, by node, and why there is no plan."""
    for node in context.rack.nodes:
        if context.selection.has_node(node.name) and context.readers[node.name].lost is None:
            recording = Recording(node, context.readers[node.name].used)
            (folder / f"{node.name}.json").write_text(recording.to_json(), encoding="utf-8")
    named = all("architecture" in node.data for node in context.rack.nodes)
    asked = folder / "asked.jsonl"
    asked.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pyinfra", "--dry", *options),
                *([] if named else ["--data", f"architecture={context.arch.metadata.id}"]),
                *(f"@recording/{folder}", deploy),
            ],
            env={**os.environ, ASKED_FILE: str(asked), "PYINFRA_PROGRESS": "off"},
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
    if asked.exists():
        for line in asked.read_text(encoding="utf-8").splitlines():
            question = json.loads(line)
            missing.setdefault(question["node"], {})[question["command"]] = None
    last = [line.strip() for line in done.stderr.splitlines() if line.strip()][-1:]
    complaint = f"pyinfra ended with exit status {done.returncode}: {''.join(last)}" if done.returncode else None
    return {node: list(commands) for node, commands in missing.items()}, complaint
