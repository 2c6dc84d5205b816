"""Child process of ``rackproof.run.plan``: plans a deploy with pyinfra's own parts and prints it as JSON.

Reads one JSON object on standard input: ``inventories``, ``deploy``, ``limit``, ``data``. The last line that it prints
is a list with one ``RackPlan`` an inventory. pyinfra's own dry run looks at every operation just long enough to see
whether it would change anything; here each is carried to its end, once, so that its commands are known. Nothing is
ever executed: the state stays in its preparing stage.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

PENDING_REBOOT = re.compile(r"/run/rackproof/pending/reboot:((?:[^'\n]|'\"'\"')+)")
"""As ``rackproof.configure.files`` leaves its marks. One with a variable of the shell is a function of a script, and
decided on the node; operations say which of those they expect."""
PACKAGE = Path(__file__).resolve().parents[1]
_PREFIX = re.compile(r"^\s*\[(?P<node>[^\]]+)\]\s+")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Listener(logging.Handler):
    """What is said while an operation is looked at, by greenlet, and what pyinfra says about a node."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
        self.errors: dict[str, list[str]] = defaultdict(list)
        self.secrets: tuple[str, ...] = ()
        """Of the inventory's data."""

    def shown(self, text: str) -> str:
        """The text without secrets."""
        from rackproof.remote.redaction import redact

        for secret in self.secrets:
            text = text.replace(secret, "‹secret›")
        return redact(text)

    def emit(self, record: logging.LogRecord) -> None:
        import gevent

        text = _ANSI.sub("", record.getMessage())
        prefix = _PREFIX.match(text)
        if prefix:
            text = text[prefix.end() :]
            if record.levelno >= logging.WARNING:
                self.errors[prefix["node"]].append(text)
        self.said[id(gevent.getcurrent())].append((record.levelno, record.pathname, text))

    @contextmanager
    def during(self) -> Iterator[list[tuple[int, str, str]]]:
        """What this greenlet says inside."""
        import gevent

        key = id(gevent.getcurrent())
        self.said[key] = []
        try:
            yield self.said[key]
        finally:
            del self.said[key]


def main() -> None:
    request = json.loads(sys.stdin.read())
    os.environ["PYINFRA_PROGRESS"] = "off"
    import pyinfra

    pyinfra.is_cli = True
    sys.dont_write_bytecode = True
    sys.path.append(".")
    listener = Listener()
    pyinfra.logger.setLevel(logging.DEBUG)
    pyinfra.logger.addHandler(listener)
    pyinfra.logger.propagate = False
    plans = [
        _planned(inventory, request["deploy"], request.get("limit", ()), request.get("data", ()), listener)
        for inventory in request["inventories"]
    ]
    print(json.dumps(plans))


def _planned(
    inventory: str, deploy: str, limit: Sequence[str], data: Sequence[str], listener: Listener
) -> dict[str, Any]:
    listener.said.clear()
    listener.errors.clear()
    answer: dict[str, Any] = {"inventory": inventory, "deploy": deploy}
    try:
        answer["nodes"] = _nodes(inventory, deploy, limit, data, listener)
    except (Exception, SystemExit) as error:
        answer["error"] = _one_line(error).removeprefix(f"{inventory}: ")
    return answer


def _nodes(
    source: str, deploy: str, limit: Sequence[str], data: Sequence[str], listener: Listener
) -> list[dict[str, Any]]:
    from pyinfra.api.config import Config
    from pyinfra.api.connect import connect_all, disconnect_all
    from pyinfra.api.state import State, StateStage
    from pyinfra.context import ctx_config, ctx_inventory, ctx_state
    from pyinfra_cli.inventory import make_inventory
    from pyinfra_cli.util import exec_file, load_deploy_file, parse_cli_arg

    state = State(check_for_changes=False)
    state.cwd = os.getcwd()
    ctx_state.set(state)  # type: ignore[no-untyped-call]
    config = Config()  # type: ignore[no-untyped-call]
    ctx_config.set(config)  # type: ignore[no-untyped-call]
    if Path("config.py").exists():
        exec_file("config.py")
    config.DIFF = True
    config.lock_current_state()
    override = {key: parse_cli_arg(value) for key, _, value in (pair.partition("=") for pair in data)}
    inventory = make_inventory(source, cwd=state.cwd, override_data=override)
    ctx_inventory.set(inventory)  # type: ignore[no-untyped-call]
    chosen = _selected(source, inventory, limit)
    listener.secrets = _secrets([host.data.dict() for host in inventory])
    state.init(inventory, config, initial_limit=chosen if limit else None)
    try:
        with _all_lost():
            state.set_stage(StateStage.Connect)
            connect_all(state)
            state.set_stage(StateStage.Prepare)
            load_deploy_file(state, deploy)
        planned = _operations(state, chosen, listener)
    finally:
        disconnect_all(state)
    return [_node(source, state, host, planned.get(host.name, []), listener) for host in chosen]


@contextmanager
def _all_lost() -> Iterator[None]:
    """pyinfra raises when the last node is lost; each node says why by itself."""
    from pyinfra.api.exceptions import PyinfraError

    try:
        yield
    except PyinfraError as error:
        if str(error) != "No hosts remaining!":
            raise


def _selected(source: str, inventory: Any, limit: Sequence[str]) -> list[Any]:
    """pyinfra's hosts that ``--limit`` means. Raises InventoryError."""
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

    found: set[str] = set()
    waiting = [data]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Secret):
            found.add(str(each))
        elif isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list | tuple):
            waiting.extend(each)
    return tuple(sorted(found, key=len, reverse=True))


def _operations(state: Any, hosts: Sequence[Any], listener: Listener) -> dict[str, list[dict[str, Any]]]:
    """Every operation of every node in pyinfra's order, nodes side by side."""
    from pyinfra.context import ctx_host, ctx_state

    order = state.get_op_order()
    found: dict[str, list[dict[str, Any]]] = {}

    def look(host: Any) -> None:
        mine = found.setdefault(host.name, [])
        with ctx_state.use(state), ctx_host.use(host):
            for op_hash in order:
                if op_hash not in state.ops[host] or host in state.failed_hosts:
                    continue
                operation = _operation(state, host, op_hash, listener)
                mine.append(operation)
                if operation.get("refused"):
                    return  # a run ends here for this node

    greenlets = [state.pool.spawn(look, host) for host in hosts if host in state.active_hosts]
    for greenlet in greenlets:
        greenlet.join()
    for greenlet in greenlets:
        greenlet.get()  # raises what was raised in it
    return found


def _errors(said: Sequence[tuple[int, str, str]]) -> list[str]:
    return [text for level, _, text in said if level >= logging.ERROR]


@cache
def is_own(path: str) -> bool:
    """Whether a source file is the package's. A folder above all of them may be called rackproof as well."""
    return Path(path).resolve().is_relative_to(PACKAGE)


def _refusal(commands: Sequence[str]) -> bool:
    """Whether these are what ``rackproof.configure.operations.refuse`` sends, or nothing."""
    return not commands or (len(commands) == 1 and commands[0].startswith("echo ") and commands[0].endswith("exit 1"))


def _operation(state: Any, host: Any, op_hash: str, listener: Listener) -> dict[str, Any]:
    from pyinfra.api.exceptions import PyinfraError

    from rackproof.core.plan import without_journal

    name = ", ".join(sorted(state.op_meta[op_hash].names))
    commands: list[str] = []
    refused = None
    with listener.during() as said:
        try:
            for command in state.get_op_data_for_host(host, op_hash).command_generator():
                if commands and _errors(said):
                    break  # it looked whether its commands had their effect; they have not run
                commands.append(listener.shown(without_journal(str(command))))
        except PyinfraError as error:
            refused = None if commands else _one_line(error)  # also "No hosts remaining!", which is no reason
    errors = _errors(said) if len(commands) <= 1 else []
    refused = listener.shown(errors[0]) if errors and _refusal(commands) else refused
    own = [(level, text) for level, path, text in said if is_own(path)]
    changes = [text.removeprefix(f"{host.name}: ") for level, text in own if level == logging.DEBUG]
    differences = [text.removeprefix("  ") for level, text in own if level == logging.INFO]
    reboots = [mark for command in commands for mark in PENDING_REBOOT.findall(command) if "$" not in mark]
    reboots += [line.removeprefix("reboot: ") for line in changes if line.startswith("reboot: ")]
    return {
        "name": name,
        "changes": [listener.shown(line) for line in changes] if commands and not refused else [],
        "commands": [] if refused else commands,
        "differences": [listener.shown(line) for line in differences],
        "reboots": [] if refused else list(dict.fromkeys(mark.replace("'\"'\"'", "'") for mark in reboots)),
        "notes": [listener.shown(text) for level, _, text in said if level == logging.WARNING],
        "refused": refused,
    }


def _node(source: str, state: Any, host: Any, operations: list[dict[str, Any]], listener: Listener) -> dict[str, Any]:
    from rackproof.core.plan import identity_of

    lost = None
    if host in state.failed_hosts and not any(operation["refused"] for operation in operations):
        said = [listener.shown(" ".join(text.split())) for text in listener.errors.get(host.name, [])]
        lost = said[-1].replace("[Errno None] ", "") if said else "not reached"
    return {
        "node": host.name,
        "groups": _groups(source, host),
        "operations": operations,
        "lost": lost,
        "identity": identity_of(host.name, host.data.dict()),
    }


def _one_line(error: BaseException) -> str:
    from rackproof.remote.redaction import redact

    error = getattr(error, "exception", error)  # pyinfra wraps what an inventory or a deploy raises
    text = " ".join(str(error).split()) or type(error).__name__
    from pyinfra.api.exceptions import PyinfraError

    from rackproof.errors import RackproofError

    known = isinstance(error, PyinfraError | RackproofError)
    return redact(text if known else f"{type(error).__name__}: {text}")


if __name__ == "__main__":
    main()
