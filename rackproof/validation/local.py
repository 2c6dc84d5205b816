"""Validation of the local machine: its node, its context, and the result in one line."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from rackproof import architectures
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.rack import Node, Rack
from rackproof.core.wording import counted, shortened
from rackproof.errors import InventoryError, SelfTestError
from rackproof.remote.document import as_model, load_yaml
from rackproof.remote.local import LocalFleet
from rackproof.remote.written import WrittenRack
from rackproof.validation.context import Context, live_context
from rackproof.validation.selection import Selection
from rackproof.validation.terminal import name_of

RACK_FILE = Path("/etc/rackproof/rack.yaml")
"""Written by the deploy of the health check, next to the architecture file."""
BRIEF = 200
"""Maximum length of the line, in characters: it becomes Slurm's node reason."""


def read_rack(path: Path) -> tuple[Rack, str | Path]:
    """Rack of a rack file, and its architecture: an id, or the file beside it.

    Raises InventoryError, one line.
    """
    if not path.exists():
        raise InventoryError(
            f"{path}: no such rack file; run the deploy of the health check, or give --rack FILE, or --role and"
            " --architecture"
        )
    try:
        written = as_model(WrittenRack, load_yaml(path), str(path))
    except SelfTestError as error:
        raise InventoryError(str(error)) from None
    nodes = tuple(Node(name, node.groups, node.data) for name, node in written.nodes.items())
    beside = path.parent / written.architecture
    return Rack(str(path), nodes), beside if beside.is_file() else written.architecture


def host_name() -> str:
    return socket.gethostname()


def own_node(rack: Rack, name: str) -> Node:
    """The node with this host name, with or without its domain. Raises InventoryError."""
    short = name.partition(".")[0]
    matches = [node for node in rack.nodes if node.name in (name, short) or node.name.partition(".")[0] == short]
    if len(matches) == 1:
        return matches[0]
    count = "no node" if not matches else counted(len(matches), "node")
    raise InventoryError(f"{rack.source}: {count} named '{name}' like this machine; give --role and --architecture")


def local_context(
    rack_file: Path | None, role: str | None, architecture: str | None, limit_s: float | None, node: str | None = None
) -> tuple[Context, Node]:
    """Context of this machine, and its node. Raises InventoryError, ArchitectureError."""
    if role is not None:
        if architecture is None:
            raise InventoryError("--role needs --architecture: without an inventory none is known")
        local_node = Node(node or host_name().partition(".")[0], (role,))
        rack, arch = Rack("this machine", (local_node,)), architectures.load(architecture).model
        if role not in arch.roles:
            raise InventoryError(f"--role {role}: {arch.metadata.id} has {', '.join(arch.roles)}")
    else:
        rack, named = read_rack(rack_file or RACK_FILE)
        if architecture is None and isinstance(named, Path):
            arch = architectures.beside_rack(named).model
        else:
            arch = architectures.load(architecture or named).model
        local_node = own_node(rack, node or host_name())
    context = live_context(rack, arch, LocalFleet(rack, local_node.name, limit_s))
    return context, local_node


def only(node: Node, selection: Selection) -> Selection:
    """The selection, limited to this node."""
    return Selection(selection.limit, frozenset((node.name,)), selection.tags, selection.expression)


def excused(results: Sequence[CheckResult], checks: frozenset[str]) -> list[CheckResult]:
    """Results without unmeasured results of ``checks``; failed results stay."""
    return [r for r in results if not (r.check in checks and r.outcome is CheckOutcome.UNMEASURED)]


def brief(results: Sequence[CheckResult]) -> str:
    """One line: the first required check that did not pass, and the number of others; empty when all passed.

    Without required results it is "nothing was checked".
    """
    required = [result for result in results if result.required]
    bad = [r for r in required if r.outcome is CheckOutcome.FAILED]
    bad += [r for r in required if r.outcome is CheckOutcome.UNMEASURED]
    if not required:
        return "nothing was checked"
    if not bad:
        return ""
    first = bad[0]
    word = "" if first.outcome is CheckOutcome.FAILED else "not measured: "
    line = " ".join(f"{word}{name_of(first)}: {first.message}".split())
    more = f" (+{len(bad) - 1} more)" if len(bad) > 1 else ""
    return shortened(line, BRIEF - len(more)) + more
