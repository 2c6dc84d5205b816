"""A host that answers facts from a table, for operations without a connection."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from pyinfra.context import ctx_host, ctx_inventory, ctx_state


class StubState:
    def __init__(self, executing: bool) -> None:
        self.config = SimpleNamespace(DIFF=False)
        self.is_executing = executing
        self.failed_hosts: set[Any] = set()


class StubHost:
    def __init__(self, facts: Mapping[type, Any], name: str = "gpu-01", executing: bool = True) -> None:
        self.name = name
        self.facts = facts
        self.asked: list[tuple[type, dict[str, Any]]] = []
        self.noops: list[str] = []
        self.logged: list[str] = []
        self.connected = True
        self.connector: object = None
        self.aside: list[str] = []
        self.current_op_global_arguments: dict[str, Any] = {}
        self.state = StubState(executing)

    def get_fact(self, fact: type, **kwargs: Any) -> Any:
        self.asked.append((fact, kwargs))
        return self.facts[fact]

    def noop(self, reason: str) -> None:
        self.noops.append(reason)

    def run_shell_command(self, command: Any, **kwargs: Any) -> tuple[bool, Any]:
        """Whatever is run aside goes well and says nothing."""
        self.aside.append(command.get_raw_value())
        return True, SimpleNamespace(output="")

    def log(self, message: str, log_func: Any = None) -> None:
        self.logged.append(message)


class StubInventory:
    def __init__(self, *hosts: StubHost) -> None:
        self.hosts = {host.name: host for host in hosts}

    def get_host(self, name: str) -> StubHost:
        return self.hosts[name]


@contextmanager
def at(host: StubHost, *others: StubHost) -> Generator[StubHost, None, None]:
    """Make ``host`` the one that operations talk to."""
    with ctx_host.use(host), ctx_state.use(host.state), ctx_inventory.use(StubInventory(host, *others)):
        yield host


def run(operation: Any, host: StubHost, *others: StubHost, **arguments: Any) -> list[str]:
    """The commands that an operation would send; reasons for sending none are in ``host.noops``."""
    with at(host, *others):
        return [command.get_raw_value() for command in operation._inner(**arguments)]
