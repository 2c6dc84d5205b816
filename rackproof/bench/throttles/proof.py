"""Proof, from the recorded answers of a step, that the declared limits of ports and drives were in force."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rackproof.bench.throttles.held import is_state, read_back
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, NodeInfo
from rackproof.core.throttles import CONDITION, LABEL, limits_of
from rackproof.parse.errors import ParseError
from rackproof.parse.throttles import TOOL
from rackproof.remote.command import CommandResult


def proven(
    architecture: Architecture, nodes: Iterable[NodeInfo], measurement: Measurement, answers: Sequence[CommandResult]
) -> dict[str, Any]:
    """Conditions of a measurement; none where the architecture limits nothing. Raises ParseError."""
    label = measurement.labels.get(LABEL)
    actual: dict[str, Any] = {}
    for node in nodes:
        wanted = limits_of(architecture, node.groups, float(label) if label is not None else None)
        if not any(wanted):
            continue
        own = [answer for answer in answers if answer.node == node.name and is_state(answer.command)]
        if not own:
            raise ParseError(TOOL, f"{node.name}: nothing says that its ports and drives were limited")
        for answer in own:
            limits, why = read_back(answer)
            if limits is None or (why := wanted.unlike(limits)):
                raise ParseError(TOOL, f"{node.name}: {why}")
            actual[node.name] = limits.plain()
    return {CONDITION: actual} if actual else {}
