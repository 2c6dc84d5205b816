"""Several commands of a node in one round trip, one after the other: a batch (``remote.batch``) runs them side by side,
where two mounts of one export would meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackproof.parse.answer import PART, parse_parts
from rackproof.remote.command import CommandResult
from rackproof.remote.fleet import Fleet


def run_in_turn(fleet: Fleet, commands: Mapping[str, Sequence[str]], limit_s: float) -> dict[str, list[CommandResult]]:
    """Answers of each command, by node, all nodes in parallel. ``limit_s`` is of one command."""
    limit = limit_s * max(map(len, commands.values()), default=0)
    answers = fleet.run({node: in_turn(own) for node, own in commands.items() if own}, limit)
    return {node: parts_of(answer, commands[node]) for node, answer in answers.items()}


def in_turn(commands: Sequence[str]) -> str:
    """A command that runs each of them in a shell of its own; ``parts_of`` reads its answer."""
    return "\n".join(f'(\n{command}\n) 2>&1\necho "{PART} $?"' for command in commands)


def parts_of(answer: CommandResult, commands: Sequence[str]) -> list[CommandResult]:
    """The answer of each command, with its exit status and both of its streams as one. Commands that did not finish get
    the batch's error."""
    parts = [
        CommandResult(answer.node, command, status, text.encode())
        for command, (text, status) in zip(commands, parse_parts(answer.text), strict=False)
    ]
    missing = commands[len(parts) :]
    return parts + [CommandResult(answer.node, command, None, error=answer.why) for command in missing]
