"""Several commands of a node in one round trip, one after the other. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rackproof.remote.command import CommandResult

_END: Final = "rackproof-status"


def in_turn(commands: Sequence[str]) -> str:
    """A command that runs each of them in a shell of its own; ``parts_of`` reads its answer."""
    return "\n".join(f'(\n{command}\n) 2>&1\necho "{_END} $?"' for command in commands)


def parts_of(answer: CommandResult, commands: Sequence[str]) -> list[CommandResult]:
    """What each command answered, with its exit status and both of its streams as one; those that did not end have the
    error of the whole."""
    words = re.split(rf"{_END} (\d+)\n", answer.text)
    ended = zip(words[:-1:2], words[1::2], strict=True)
    parts = [
        CommandResult(answer.node, command, int(status), text.encode())
        for command, (text, status) in zip(commands, ended, strict=False)
    ]
    missing = commands[len(parts) :]
    return parts + [CommandResult(answer.node, command, None, error=answer.why) for command in missing]
