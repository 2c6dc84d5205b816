"""Machines of recorded and of written racks: their hardware and kernel decide what is installed on them."""

from __future__ import annotations

from pathlib import Path

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import InventoryError as NoInventory

from rackproof.configure.fact_prefetch import END
from rackproof.configure.facts import complete
from rackproof.core.machine import Machine
from rackproof.core.rack import Node, Rack
from rackproof.errors import InventoryError, RackproofError
from rackproof.parse.machine import MACHINE_COMMAND, parse_machine
from rackproof.remote.pyinfra_recording import RecordingConnector, question_of, reader_of

PREFIX = "@recording/"


def recorded_rack(folder: Path) -> tuple[Rack, dict[str, Machine]]:
    """The nodes of a folder, and the recorded machines by node. Raises InventoryError, one line."""
    nodes = []
    machines = {}
    question = question_of(StringCommand(complete(MACHINE_COMMAND)), {})
    try:
        for name, data, groups in RecordingConnector.make_names_data(str(folder)):
            file = Path(data.pop("recording_file"))
            nodes.append(Node(name, tuple(groups), data))
            answer = reader_of(name, file).read(question)
            if answer.rc == 0:
                lines = answer.stdout.decode("utf-8", "replace").splitlines()
                machines[name] = parse_machine([line for line in lines if line != END])
    except (NoInventory, RackproofError) as error:
        raise InventoryError(str(error)) from None
    except ValueError as error:
        raise InventoryError(f"{folder}: {name}: the recorded machine cannot be read: {error}") from None
    return Rack(f"{PREFIX}{folder}", tuple(nodes)), machines


def machine_like(node: Node, rack: Rack, machines: dict[str, Machine]) -> Machine | None:
    """The node's own machine, else that of the first recorded node in the same groups."""
    if node.name in machines:
        return machines[node.name]
    return next(
        (machines[other.name] for other in rack.nodes if other.groups == node.groups and other.name in machines), None
    )
