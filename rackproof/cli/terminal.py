"""The only module that writes to the terminal: it replaces control characters, and its errors name the stream."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import click

from rackproof.core.visible import shown

_CONTROL = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
"""Control characters to replace: all except line ends, tabs and the colours of the kit's styles."""
_CONTROL_ON_A_TERMINAL = re.compile(r"\x1b(?!\[\??[0-9;]*[A-Za-z])|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
"""The same on a terminal, where a live display may also move the cursor."""


class OutputError(OSError):
    """Standard output or standard error cannot be written; ``filename`` says which one."""


def say(text: object, err: bool = False, **style: Any) -> None:
    """Print one line, with ``shown`` applied to it. ``style``: arguments of ``click.style``."""
    # with a file: otherwise click replaces an ASCII stream by a UTF-8 stream that is not guarded
    click.secho(shown(str(text)), file=sys.stderr if err else sys.stdout, **style)


def print_document(text: str, nl: bool = True) -> None:
    """Print a whole document, such as JSON or YAML, uncut."""
    click.echo(text, file=sys.stdout, nl=nl)


class _Stream:
    """A text stream that replaces control characters; its errors have its name."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream, self._name = stream, name
        self._control = _CONTROL_ON_A_TERMINAL if stream.isatty() else _CONTROL

    def write(self, text: str) -> int:
        with self._named():
            self._stream.write(self._control.sub(_picture, text))
        return len(text)

    def flush(self) -> None:
        with self._named():
            self._stream.flush()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(error.errno, error.strerror, self._name) from None

    def drop(self) -> None:
        """Point the stream at /dev/null, or Python writes the rest of its buffer once more at exit."""
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Standard output and standard error as streams of this module. A closed standard error is /dev/null."""
    before = sys.stdout, sys.stderr
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (until the program ends)
    if sys.stdout is not None:
        sys.stdout = _Stream(_whole(sys.stdout), "standard output")
    sys.stderr = _Stream(_whole(sys.stderr), "standard error")
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _whole(stream: TextIO) -> TextIO:
    """The stream without losses: it escapes characters that the locale lacks, and with PYTHONUNBUFFERED writes the rest
    of a text that the system accepts only in part."""
    if isinstance(getattr(stream, "buffer", None), io.RawIOBase):
        stream = open(stream.fileno(), "w", buffering=1, encoding=stream.encoding, closefd=False)  # noqa: SIM115
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # a locale without × prints \xd7
    return stream


def flush() -> None:
    """Raises OutputError when standard output is closed, or what was printed cannot be written."""
    if sys.stdout is None:
        raise OutputError(0, "it is closed", "standard output")
    sys.stdout.flush()


def drop() -> None:
    """Discard unwritten output after an OutputError."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, _Stream):
            stream.drop()
