"""Child process of ``rackproof.inventory``: prints one JSON line about an inventory file.

``{"nodes": [{"name", "groups", "data"}]}`` or ``{"error": "one line"}``. Data that is not JSON (functions, modules)
is left out: it cannot describe a node. Paths become text. Secrets are left out, except those for connecting to a node.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections import Counter
from typing import Any


def main(path: str) -> None:
    try:
        answer = _read(path)
    except (Exception, SystemExit) as error:
        answer = {"error": _one_line(path, error)}
    print(json.dumps(answer))


def _read(path: str) -> dict[str, Any]:
    from pyinfra.api.config import Config
    from pyinfra.api.state import State
    from pyinfra.context import ctx_config, ctx_state
    from pyinfra_cli.inventory import _get_any_tuple_first, _get_groups_from_filename, make_inventory_from_files

    sys.path.append(os.getcwd())  # as the pyinfra command does
    ctx_config.set(Config())  # type: ignore[no-untyped-call]  # pyinfra has no types here
    ctx_state.set(State())  # type: ignore[no-untyped-call]
    for group, hosts in _get_groups_from_filename(path).items():
        names = [_get_any_tuple_first(host) for host in _get_any_tuple_first(hosts)]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            return {"error": f"group {group!r} lists {', '.join(twice)} twice"}
    inventory = make_inventory_from_files(path, cwd=os.getcwd())
    file_group = os.path.basename(path).rsplit(".", 1)[0]
    nodes = []
    for host in inventory:
        groups = [g for g in host.groups if g not in ("all", file_group)]
        nodes.append({"name": host.name, "groups": groups, "data": _plain(host.data.dict())})
    return {"nodes": nodes}


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    from rackproof.core.node_data import TESTS

    kept = {}
    for key, value in data.items():
        if not key.startswith("ssh_") and _has_secret(value):
            continue
        try:
            kept[key] = json.loads(json.dumps(value, default=os.fspath))
        except (TypeError, ValueError, RecursionError):
            if key in TESTS:  # it would be left out, and the default taken instead
                kept[key] = {"not JSON": type(value).__name__}
    return kept


def _has_secret(value: Any) -> bool:
    from rackproof.core.secret import Secret

    if isinstance(value, dict):
        return any(map(_has_secret, value.values()))
    return any(map(_has_secret, value)) if isinstance(value, list | tuple) else isinstance(value, Secret)


def _one_line(path: str, error: BaseException) -> str:
    """``line 12: NameError: name 'gpus' is not defined``, with the inventory's line where it is known."""
    from pyinfra.api.exceptions import PyinfraError

    from rackproof.errors import RackproofError

    error = getattr(error, "exception", error)  # pyinfra wraps what an inventory raises
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, PyinfraError | RackproofError):
        return text
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    own = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    where = f"line {own[-1]}: " if own else ""
    return f"{where}{type(error).__name__}: {text}"


if __name__ == "__main__":
    main(sys.argv[1])
