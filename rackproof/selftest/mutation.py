"""Changes to recorded answers. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from pydantic import Field, model_validator

from rackproof.remote.command import CommandResult
from rackproof.remote.document import Strict

_EDITS = ("replace", "replace_once", "sub", "drop_lines", "truncate")
_ANSWERS = ("stdout", "stderr", "rc", "error")


class Change(Strict):
    """A change to the answers of all commands that contain ``command``: one edit, or parts of another answer."""

    command: str = Field(min_length=1)
    replace: tuple[str, str] | None = None
    """Old and new text, everywhere in stdout."""
    replace_once: tuple[str, str] | None = None
    """The same, but only the first occurrence: one GPU of eight."""
    sub: tuple[str, str] | tuple[str, str, int] | None = None
    """Arguments of ``re.sub``: pattern, replacement, maximum count."""
    drop_lines: str | None = None
    """Pattern of the lines to drop."""
    truncate: float | None = Field(default=None, ge=0, lt=1)
    """Share of stdout to keep, without a newline at the end."""
    stdout: str | None = None
    stderr: str | None = None
    rc: int | None = None
    error: str | None = None
    """Why the command did not end."""

    @model_validator(mode="after")
    def _one_kind(self) -> Change:
        edits = [key for key in _EDITS if getattr(self, key) is not None]
        answers = [key for key in _ANSWERS if getattr(self, key) is not None]
        if len(edits) + bool(answers) != 1:
            raise ValueError(f"give one of {', '.join(_EDITS)}, or parts of another answer ({', '.join(_ANSWERS)})")
        if self.error is not None and self.rc is not None:
            raise ValueError("a command that did not end has no exit status")
        for pattern in (self.drop_lines, self.sub[0] if self.sub else None):
            if pattern is not None:
                _compiled(pattern)
        return self

    def applies(self, command: str) -> bool:
        return self.command in command

    def __call__(self, result: CommandResult) -> CommandResult:
        if any(getattr(self, key) is not None for key in _ANSWERS):
            return self._another(result)
        text = self._edited(result.stdout.decode("utf-8", "surrogateescape"))
        return replace(result, stdout=text.encode("utf-8", "surrogateescape"))

    def _another(self, result: CommandResult) -> CommandResult:
        stdout = result.stdout if self.stdout is None else self.stdout.encode()
        if self.error is not None:
            return replace(result, rc=None, stdout=stdout, error=self.error)
        rc = self.rc if self.rc is not None else result.rc
        if self.stdout is not None and self.rc is None:
            rc = 0
        stderr = result.stderr if self.stderr is None else self.stderr.encode()
        return replace(result, rc=rc, stdout=stdout, stderr=stderr, error=None if rc is not None else result.error)

    def _edited(self, text: str) -> str:
        if self.replace is not None:
            return text.replace(*self.replace)
        if self.replace_once is not None:
            return text.replace(*self.replace_once, 1)
        if self.sub is not None:
            pattern, new, *count = self.sub
            return re.sub(str(pattern), str(new), text, count=int(count[0]) if count else 0)
        if self.drop_lines is not None:
            lines = text.splitlines(keepends=True)
            return "".join(line for line in lines if not re.search(self.drop_lines or "", line))
        return cut(text, self.truncate or 0.0)


def cut(text: str, share: float) -> str:
    """The first part of a text, without newline at the end: a cut at the end of a line may look complete."""
    return text[: int(len(text) * share)].rstrip("\n")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r}: {error}") from None
