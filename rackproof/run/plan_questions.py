"""Record the facts that a deploy's plan reads.

A deploy is planned on the current recordings, which lists missing commands; these run on all nodes, in one round trip
per node, and the deploy is planned again, until none is missing. So the validators' reader and connections are used.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from rackproof import kit
from rackproof.core.texts import file_name
from rackproof.errors import InventoryError
from rackproof.remote.collect import fetch
from rackproof.remote.recording import Recording
from rackproof.run.plan import plan_deploys
from rackproof.validation.context import Context

ROUNDS = 8
"""Maximum length of a chain of facts that depend on each other."""
TIMEOUT_S = 600.0


def ask_plan(context: Context, deploy: str) -> str | None:
    """Record the facts of a deploy's plan on the selected nodes. Returns why it cannot be planned, in one line.

    The plan contains the selected nodes only. Raises InventoryError for an unknown deploy file.
    """
    if context.fleet is None:
        return "no node is reachable"
    kit.deploy_file(deploy)
    with TemporaryDirectory(prefix="rackproof-plan-") as name:
        for _ in range(ROUNDS):
            missing, complaint = _missing(context, deploy, Path(name))
            if not missing:
                return complaint
            fetch(context.fleet, context.readers, missing)
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


def _missing(context: Context, deploy: str, folder: Path) -> tuple[dict[str, list[str]], str | None]:
    """Missing commands by node, and why there is no plan."""
    for node in context.rack.nodes:
        if context.selection.has_node(node.name) and context.readers[node.name].lost is None:
            recording = Recording(node, context.readers[node.name].used)
            (folder / f"{file_name(node.name)}.json").write_text(recording.to_json(), encoding="utf-8")
    asked = folder / "asked.jsonl"
    asked.write_bytes(b"")
    named = all("architecture" in node.data for node in context.rack.nodes)
    data = [] if named else [f"architecture={context.arch.metadata.id}"]
    try:
        # with --diff a plan also reads contents of files; a recording serves both
        plans = plan_deploys(
            [f"@recording/{folder}"], deploy, data=data, diffs=(False, True), asked=asked, timeout_s=TIMEOUT_S
        )
        lost = [plan.nodes[0].lost for plan in plans if plan.nodes and all(node.lost for node in plan.nodes)]
        complaint = next(filter(None, (*(plan.error for plan in plans), *lost)), None)
    except InventoryError as error:
        complaint = str(error).removeprefix(f"@recording/{folder}: ")
    missing: dict[str, dict[str, None]] = {}
    for question in map(json.loads, asked.read_text(encoding="utf-8").splitlines()):
        missing.setdefault(question["node"], {})[question["command"]] = None
    return {node: list(commands) for node, commands in missing.items()}, complaint
