"""Golden plans of the written racks: what ``deploys/cluster.py`` would do to each node, to the letter.

``python -m tests.unit.plan.golden`` writes all of them anew; look at the difference before it is committed. A node that
is ``like`` another has a golden file of its own too: what differs between the two is part of the plan.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from pathlib import Path

from rackproof.core.plan import RackPlan
from rackproof.report.plan import whole
from rackproof.run.plan import plan_deploys

ROOT = Path(__file__).resolve().parents[3]
PLANS = Path("tests/data/plans")
DEPLOY = "deploys/cluster.py"
COMMAND = "python -m tests.unit.plan.golden"
MOST_LINES = 60
_RUN = re.compile(r"\b\d{8}T\d{6}-[0-9a-f]{4}\b")
"""Under which previous versions of files are kept; another one in every run."""


def racks() -> list[Path]:
    return sorted(path.parent for path in (ROOT / PLANS).glob("*/rack.yaml"))


def plan_all(deploy: str = DEPLOY) -> dict[str, RackPlan]:
    """Every written rack by name, planned in one process. The working directory must be the root of the checkout."""
    os.environ.setdefault("RACKPROOF_PLAN_SECRET", "not a secret")  # what inventories of the written racks name
    names = [path.name for path in racks()]
    plans = plan_deploys([f"@recording/{PLANS / name}" for name in names], deploy)
    return dict(zip(names, plans, strict=True))


def texts(plan: RackPlan) -> dict[str, str]:
    """Content of the golden files by name. The second node of two alike is only what differs from the first."""
    texts_by_file: dict[str, str] = {}
    first: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    for node in plan.nodes:
        text = _RUN.sub("RUN", whole(node))
        if node.groups in first:
            name, lines = first[node.groups]
            changed = difflib.unified_diff(lines, text.splitlines(), name, node.node, lineterm="", n=0)
            text = "\n".join([f"# {node.node}: what differs from {name}", *changed]) + "\n"
        else:
            first[node.groups] = (node.node, text.splitlines())
        texts_by_file[f"{node.node}.txt"] = text
    return texts_by_file


def difference(golden: Path, text: str) -> str | None:
    """How a plan differs from its golden file, for a person; None when it does not."""
    old = golden.read_text(encoding="utf-8") if golden.is_file() else ""
    if old == text:
        return None
    name = str(golden.relative_to(ROOT))
    lines = list(difflib.unified_diff(old.splitlines(), text.splitlines(), name, "planned", lineterm="", n=1))
    more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join([*lines[:MOST_LINES], *more, f"when that is what is meant: {COMMAND}"])


def main() -> None:
    failed = False
    for name, plan in plan_all().items():
        if plan.error is not None:
            print(f"{name}: {plan.error}", file=sys.stderr)
            failed = True
            continue
        folder = ROOT / PLANS / name / "golden"
        folder.mkdir(exist_ok=True)
        wanted = texts(plan)
        for path in folder.iterdir():
            if path.name not in wanted:
                path.unlink()
        for file, text in wanted.items():
            (folder / file).write_text(text, encoding="utf-8")
        print(f"{name}: {', '.join(wanted)}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
