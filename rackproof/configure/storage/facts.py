"""Facts of the storage clients."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.facts import Answer, complete
from rackproof.configure.storage.steps import Step, holding_command, parse_holding


class Holding(Answer[tuple[bool, ...]]):
    """Whether the tests of steps succeed, in their order."""

    def command(self, steps: Sequence[Step]) -> str:
        return complete(holding_command(steps))

    def parse(self, lines: list[str]) -> tuple[bool, ...]:
        return parse_holding(lines)
