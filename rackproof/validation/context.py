"""What a validation works on: a rack, what was promised, and who answers for its nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet, NodeSetParseError
from testinfra.host import Host

from rackproof import architectures
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckResult
from rackproof.core.nearest import suggestion
from rackproof.core.rack import Rack
from rackproof.errors import ArchitectureError, InventoryError
from rackproof.inventory import load_rack
from rackproof.remote.collect import COMMAND_TIMEOUT_S, Question, RecordingReader, gather
from rackproof.remote.command import CommandResult
from rackproof.remote.ssh import Fleet
from rackproof.remote.testinfra_backend import host_of
from rackproof.validation.evaluate import Case, call, result_of
from rackproof.validation.recordings import read_recordings


@dataclass
class Context:
    """Readers of all nodes of a rack. ``fleet`` is None where only recordings answer."""

    rack: Rack
    arch: Architecture
    readers: dict[str, RecordingReader]
    fleet: Fleet | None = None
    limit: frozenset[str] | None = None
    """Nodes to look at; None is all of them."""
    owned: bool = False
    """The fleet belongs to this context and is closed with it."""
    _hosts: dict[str, Host] = field(default_factory=dict)

    def given(self, case: Case) -> dict[str, Any]:
        """Everything that a check can ask for, by name."""
        name = case.node.name
        if name not in self._hosts:
            self._hosts[name] = host_of(name, self.readers[name])
        return {"host": self._hosts[name], "node": case.node, "rack": self.rack, "arch": self.arch, "item": case.item}

    def evaluate(self, function: Callable[..., None], case: Case) -> CheckResult:
        """Run a check outside of pytest and say what came out."""
        error: Exception | None = None
        with self.readers[case.node.name].tracing() as seen:
            try:
                call(function, self.given(case))
            except Exception as raised:
                error = raised
        return result_of(case, self.arch, error, seen)

    def gather(self, questions: dict[str, list[Question]]) -> int:
        """Read beforehand what the questions need. Returns the number of round trips."""
        return gather(self.fleet, self.readers, questions) if self.fleet is not None else 0

    def close(self) -> None:
        if self.owned and self.fleet is not None:
            self.fleet.close()


@dataclass(eq=False)
class Embedding:
    """What a pytest session is given by the program that starts it, as a plugin, and what it gives back."""

    context: Context
    on_check: Callable[[CheckResult], object] = lambda result: None
    fatal: BaseException | None = None
    """Why the session ended early, when it was not pytest's own doing."""
    problem: str | None = None
    """The first validator that could not be loaded, and why, in one line."""


def live_context(
    rack: Rack,
    arch: Architecture,
    fleet: Fleet,
    on_result: Callable[[CommandResult], object] = lambda result: None,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> Context:
    """Nodes answer themselves, over the fleet's connections."""
    readers = {
        node.name: RecordingReader(node.name, fleet[node.name], timeout_s=timeout_s, on_result=on_result)
        for node in rack.nodes
    }
    return Context(rack, arch, readers, fleet)


def open_context(inventory: str | None, architecture: str | None, recordings: str | None) -> Context:
    """A context from what a user gave: an inventory, recordings (a folder of files, or a run), or both.

    Raises InventoryError, ArchitectureError or RunError, one line each.
    """
    rack = load_rack(inventory) if inventory else None
    if recordings:
        read = read_recordings(Path(recordings))
        # A run knows its nodes by name and group only; an inventory says the rest.
        rack = rack or Rack(recordings, tuple(recording.node for recording in read))
        results = {recording.node.name: recording.results.values() for recording in read}
        readers = {node.name: RecordingReader(node.name, known=results.get(node.name, ())) for node in rack.nodes}
        return Context(rack, _architecture(rack, architecture), readers)
    if rack is None:
        raise InventoryError("no inventory given: --inventory inventories/lab.py")
    arch = _architecture(rack, architecture)
    context = live_context(rack, arch, Fleet(rack))
    context.owned = True
    return context


def nodes_of(rack: Rack, limit: str) -> frozenset[str]:
    """Names that a limit means: nodes (``gpu-[01-03,07]``) and groups. Raises InventoryError."""
    names = {node.name for node in rack.nodes}
    groups = {group for node in rack.nodes for group in node.groups} | {"all"}
    try:
        asked = list(NodeSet(limit))
    except NodeSetParseError as error:
        raise InventoryError(f"--limit {limit}: {error}") from None
    found: set[str] = set()
    for name in asked:
        if name in names:
            found.add(name)
        elif name in groups:
            found.update(node.name for node in rack.group(name))
        else:
            hint = suggestion(name, sorted(names | groups))
            raise InventoryError(f"--limit {limit}: no node or group '{name}' in {rack.source}; {hint}")
    if not found:
        raise InventoryError(f"--limit {limit}: names no node")
    return frozenset(found)


def _architecture(rack: Rack, named: str | None) -> Architecture:
    if named is None:
        in_data = {str(node.data["architecture"]) for node in rack.nodes if node.data.get("architecture")}
        if len(in_data) != 1:
            what = f"its nodes name {', '.join(sorted(in_data))}" if in_data else "its group data names none"
            raise ArchitectureError(f"{rack.source}: which architecture? {what}; give --architecture")
        named = in_data.pop()
    return architectures.load(named).model
