"""The end of a command by a signal."""

from __future__ import annotations

import contextlib
from typing import IO, Any

import click

from rackproof.cli.terminal import say
from rackproof.remote import interrupt


class Interrupted(click.ClickException):
    """Ends a command with 128 and the signal's number. The message says how to go on."""

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click reads it only
        return interrupt.status()

    def show(self, file: IO[Any] | None = None) -> None:
        if not interrupt.tells():
            return
        with contextlib.suppress(OSError):  # the terminal is closed
            say(f"rackproof: interrupted; {self.message}", err=True)
