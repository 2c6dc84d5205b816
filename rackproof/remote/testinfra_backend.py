"""testinfra's backend for recordings: checks are plain testinfra, a reader answers their commands.

>>> host = testinfra.get_host("rackproof://gpu-01", reader=reader)   # doctest: +SKIP
"""

from __future__ import annotations

import weakref
from typing import Any

import testinfra.backend
from testinfra.backend.base import BaseBackend
from testinfra.backend.base import CommandResult as TestinfraResult
from testinfra.host import Host

from rackproof.remote.command import program
from rackproof.remote.recording import Reader, Unmeasured

NAME = "rackproof"
_NOT_FOUND = 127


class RecordingBackend(BaseBackend):  # type: ignore[misc]  # testinfra has no types
    """Answers commands from the node's reader.

    Raises Unmeasured for a command without an exit status, or whose program does not exist: no check may take a missing
    tool for an answer. ``command -v`` prints no error, so it remains an answer.
    """

    NAME = NAME

    def __init__(self, hostname: str, *args: Any, reader: Reader, **kwargs: Any) -> None:
        super().__init__(hostname, *args, **kwargs)
        self.reader = reader

    def run(self, command: str, *args: str, **kwargs: Any) -> TestinfraResult:
        command = self.get_command(command, *args)
        result = self.reader.read(command)
        if result.rc is None:
            raise Unmeasured(f"{program(command)}: {result.why}" if result.late else result.why)
        if result.rc == _NOT_FOUND and result.stderr.strip():
            raise Unmeasured(result.why)
        return self.result(result.rc, command.encode(), result.stdout, result.stderr)

    def announce(self, *commands: str) -> None:
        """See ``RecordingReader.announce``, which is optional for readers."""
        announce = getattr(self.reader, "announce", None)
        if announce is not None:
            announce(commands)

    def get_encoding(self) -> str:
        return "utf-8"

    def decode(self, data: bytes) -> str:
        return data.decode("utf-8", errors="replace")


def host_of(node: str, reader: Reader) -> Host:
    """A testinfra host outside of testinfra's cache, which never drops hosts."""
    backend = RecordingBackend(node, reader=reader)
    host = Host(backend)
    backend.set_host(weakref.proxy(host))  # without a cycle the host is freed after its check, not at a collection
    return host


testinfra.backend.BACKENDS[NAME] = f"{__name__}.{RecordingBackend.__name__}"
