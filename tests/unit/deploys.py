"""Output of pyinfra, and the outcome that the kit reads from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from rackproof.core.plan import NodeReport
from rackproof.run.converge import Converged
from rackproof.run.deploy_outcome import Printed, outcome_of


def deployed(
    nodes: Sequence[str],
    changed: Mapping[str, Iterable[str]] | None = None,
    *,
    failed: Mapping[str, Iterable[str]] | None = None,
    dry: bool = False,
    inventory: str = "inv.py",
    stopped: str | None = None,
    reports: Iterable[NodeReport] = (),
) -> Converged:
    """A deploy with the changed and failed operations of each node; all nodes connect."""
    changes = {name: list((changed or {}).get(name, ())) for name in nodes}
    failures = {name: list((failed or {}).get(name, ())) for name in nodes}
    operations = dict.fromkeys(o for names in (*changes.values(), *failures.values()) for o in names)
    lines = ["--> Connecting to hosts...", *(f"    [{name}] Connected" for name in nodes)]
    for operation in operations if not dry else ():
        lines.append(f"--> Starting operation: {operation}")
        for name in nodes:
            result = "Success" if operation in changes[name] else "No changes"
            lines.append(f"    [{name}] {'Error: executed 0 commands' if operation in failures[name] else result}")
    plan = [{"name": o, "hosts_with_change": [n for n in nodes if o in changes[n]]} for o in operations]
    document = {"plan": plan} | ({} if dry else {"results": {"totals": {"error": 0}}})
    printed = Printed(
        inventory, "deploys/cluster.py", dry, 0, stopped, 1.0,
        b"" if stopped else json.dumps(document).encode(),
        "\n".join([*lines, ""]).encode(),
        b"".join(report.model_dump_json().encode() + b"\n" for report in reports),
    ).without_secrets()  # fmt: skip
    return Converged(outcome_of(printed, nodes), printed)
