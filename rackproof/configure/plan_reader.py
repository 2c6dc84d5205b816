"""Child process of ``rackproof.run.plan``: plans a deploy with pyinfra's own parts and prints it as JSON.

Reads one JSON object on standard input: ``inventories``, ``deploy``, ``limit``, ``data`` and ``diffs``, values of
``--diff``. The last line of its output is a list with one ``RackPlan`` per inventory and value. pyinfra's own dry run
stops every operation at its first command; this one collects all commands. Nothing is executed: the state stays in its
preparing stage.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rackproof.configure.pyinfra_state import cause, loaded, new_state, one_line, start
from rackproof.parse.pyinfra_log import node_line
from rackproof.parse.text import ANSI


class Listener(logging.Handler):
    """Collects pyinfra's warnings and errors by node."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: dict[str, list[str]] = defaultdict(list)
        self.secrets: tuple[str, ...] = ()
        """Secrets of the inventory's data."""

    def shown(self, text: str) -> str:
        """The text without secrets."""
        from rackproof.remote.redaction import redact

        for secret in self.secrets:
            text = text.replace(secret, "‹secret›")
        return redact(text)

    def without_secrets(self, value: Any) -> Any:
        """A document with ``shown`` for each of its texts."""
        if isinstance(value, str):
            return self.shown(value)
        if isinstance(value, dict):
            return {key: self.without_secrets(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.without_secrets(item) for item in value]
        return value

    def emit(self, record: logging.LogRecord) -> None:
        text = ANSI.sub("", record.getMessage())
        if told := node_line(text):
            self.errors[told[0]].append(told[1])


def main() -> None:
    request = json.loads(sys.stdin.read())
    listener = Listener()
    start(listener)
    plans = [
        _planned(inventory, request["deploy"], request["limit"], request["data"], diff, listener)
        for diff in request["diffs"]
        for inventory in request["inventories"]
    ]
    print(json.dumps(plans))


def _planned(
    inventory: str, deploy: str, limit: Sequence[str], data: Sequence[str], diff: bool, listener: Listener
) -> dict[str, Any]:
    listener.errors.clear()
    answer: dict[str, Any] = {"inventory": inventory, "deploy": deploy}
    try:
        answer["nodes"] = _nodes(inventory, deploy, limit, data, diff, listener)
    except (Exception, SystemExit) as error:
        answer["problems"] = [asdict(problem) for problem in getattr(cause(error), "problems", ())]
        answer["error"] = one_line(error).removeprefix(f"{inventory}: ")
    return answer


def _nodes(
    source: str, deploy: str, limit: Sequence[str], data: Sequence[str], diff: bool, listener: Listener
) -> list[dict[str, Any]]:
    state = new_state(source, data, diff)
    chosen = _selected(source, state.inventory, limit)
    if limit:
        state.limit_hosts = chosen
    listener.secrets = _secrets([host.data.dict() for host in state.inventory])
    with loaded(state, deploy):
        planned = _operations(state, chosen, listener)
    return [_node(source, state, host, planned.get(host.name, []), listener) for host in chosen]


def _selected(source: str, inventory: Any, limit: Sequence[str]) -> list[Any]:
    """pyinfra's hosts that ``--limit`` selects. Raises InventoryError."""
    from rackproof.core.rack import Node, Rack
    from rackproof.errors import InventoryError

    hosts = {host.name: host for host in inventory}
    if not hosts:
        raise InventoryError("lists no node")
    rack = Rack(source, tuple(Node(name, tuple(_groups(source, host))) for name, host in hosts.items()))
    return [hosts[node.name] for node in rack.select(limit)]


def _groups(source: str, host: Any) -> list[str]:
    """Groups of the inventory: pyinfra adds ``all`` and one named after the file."""
    file_group = os.path.basename(source).rsplit(".", 1)[0]
    return [group for group in host.groups if group not in ("all", file_group)]


def _secrets(data: Any) -> tuple[str, ...]:
    """Every secret in the inventory's data, long ones first."""
    from rackproof.core.secret import Secret

    secrets: set[str] = set()
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Secret):
            secrets.add(str(value))
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
    return tuple(sorted(secrets, key=len, reverse=True))


def _operations(state: Any, hosts: Sequence[Any], listener: Listener) -> dict[str, list[dict[str, Any]]]:
    """Operations by node, in pyinfra's order; nodes are planned concurrently."""
    from pyinfra.context import ctx_host, ctx_state

    from rackproof.remote.pyinfra_recording import ASKED_FILE

    order = state.get_op_order()
    by_node: dict[str, list[dict[str, Any]]] = {}

    def plan(host: Any) -> None:
        planned = by_node.setdefault(host.name, [])
        with ctx_state.use(state), ctx_host.use(host):
            for op_hash in order:
                if op_hash not in state.ops[host] or host in state.failed_hosts:
                    continue
                operation = _operation(state, host, op_hash, listener)
                planned.append(operation)
                if operation.get("refused") and ASKED_FILE not in os.environ:
                    return  # a real run of this node would end here

    greenlets = [state.pool.spawn(plan, host) for host in hosts if host in state.active_hosts]
    for greenlet in greenlets:
        greenlet.join()
    for greenlet in greenlets:
        greenlet.get()  # raises its exception
    return by_node


def _operation(state: Any, host: Any, op_hash: str, listener: Listener) -> dict[str, Any]:
    from pyinfra.api.exceptions import PyinfraError

    from rackproof.configure.operation import report_of, shown

    commands: list[str] = []
    refused = None
    try:
        for command in state.get_op_data_for_host(host, op_hash).command_generator():
            if report_of(state, host.name, op_hash).refused is not None:
                break  # refused, or it reads the effect of commands that have not run
            commands.append(shown(command))
    except PyinfraError as error:
        refused = None if commands else one_line(error)  # also "No hosts remaining!", replaced below
    report = report_of(state, host.name, op_hash)
    if not commands:
        refused = refused if report.refused is None else report.refused
    document = report.model_dump() | {
        "name": ", ".join(sorted(state.op_meta[op_hash].names)),
        "commands": [] if refused else commands,
        "changes": report.model_dump()["changes"] if commands and not refused else [],
        "refused": refused,
    }
    redacted: dict[str, Any] = listener.without_secrets(document)
    return redacted


def _node(source: str, state: Any, host: Any, operations: list[dict[str, Any]], listener: Listener) -> dict[str, Any]:
    from rackproof.core.plan import identity_of
    from rackproof.core.rack import Node

    lost = None
    if host in state.failed_hosts and not any(operation["refused"] for operation in operations):
        messages = [listener.shown(" ".join(text.split())) for text in listener.errors.get(host.name, [])]
        lost = messages[-1].replace("[Errno None] ", "") if messages else "not reached"
    return {
        "node": host.name,
        "groups": _groups(source, host),
        "operations": operations,
        "lost": lost,
        "identity": identity_of(host.name, Node(host.name, (), host.data.dict()).data),
    }


if __name__ == "__main__":
    main()
