"""Plan a deploy without changes: all nodes' operations with their exact commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rackproof import kit
from rackproof.core.plan import RackPlan
from rackproof.errors import InventoryError
from rackproof.remote.pyinfra_recording import ASKED_FILE

TIMEOUT_S = 1800.0
_PLANS = TypeAdapter(list[RackPlan])


def plan_deploys(
    inventories: Sequence[str],
    deploy: str,
    *,
    limit: Sequence[str] = (),
    data: Sequence[str] = (),
    diffs: Sequence[bool] = (True,),
    asked: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> list[RackPlan]:
    """One plan per inventory (a file, or ``@recording/DIR``) and value of ``--diff``, all in one pyinfra process.

    ``asked`` receives the questions that recordings do not answer, see ``pyinfra_recording.ASKED_FILE``. Raises
    InventoryError without any plan; a single failed plan has an ``error``.
    """
    path = str(kit.deploy_file(deploy))
    for inventory in inventories:
        if not inventory.startswith("@"):
            kit.inventory_file(inventory)
    for pair in data:
        if "=" not in pair:
            raise InventoryError(f"--data {pair.split('=')[0]}: expected KEY=VALUE")
    request = {
        "inventories": list(inventories),
        "deploy": path,
        "limit": list(limit),
        "data": list(data),
        "diffs": list(diffs),
    }
    try:
        completed = subprocess.run(
            [sys.executable, "-P", "-m", "rackproof.configure.plan_reader"],
            input=json.dumps(request),
            env={**os.environ, "PYINFRA_PROGRESS": "off", **({ASKED_FILE: str(asked)} if asked else {})},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InventoryError(f"{', '.join(inventories)}: not planned within {timeout_s:g} s") from None
    try:
        plans = _PLANS.validate_json(completed.stdout.splitlines()[-1])
    except (IndexError, ValidationError):
        lines = completed.stderr.strip().splitlines()
        why = lines[-1] if lines else f"ended with exit status {completed.returncode} and without output"
        raise InventoryError(f"{', '.join(inventories)}: cannot be planned: {why}") from None
    return [plan.model_copy(update={"deploy": deploy}) for plan in plans]
