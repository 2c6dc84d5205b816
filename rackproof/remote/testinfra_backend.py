"""testinfra on top of a reader: checks ask as they always do, a recording answers.

>>> host = testinfra.get_host("rackproof://gpu-01", reader=reader)   # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

import testinfra.backend
from testinfra.backend.base import BaseBackend
from testinfra.backend.base import CommandResult as TestinfraResult
from testinfra.host import Host

from rackproof.remote.command import NOT_FINISHED, program
from rackproof.remote.recording import Reader, Unmeasured

NAME = "rackproof"
_NOT_FOUND = 127


class RecordingBackend(BaseBackend):  # type: ignore[misc]  # testinfra has no types
    """Commands go to the node's reader. Raises Unmeasured for a command that has no exit status.

    So does a command whose program does not exist, unless it only asks whether it exists (``command -v``): a check
    must not take a missing tool for an answer.
    """

    NAME = NAME

    def __init__(self, hostname: str, *args: Any, reader: Reader, **kwargs: Any) -> None:
        super().__init__(hostname, *args, **kwargs)
        self.reader = reader

    def run(self, command: str, *args: str, **kwargs: Any) -> TestinfraResult:
        command = self.get_command(command, *args)
        result = self.reader.read(command)
        if result.rc is None:
            late = result.why.startswith(NOT_FINISHED)
            raise Unmeasured(f"{program(command)}: {result.why}" if late else result.why)
        if result.rc == _NOT_FOUND and result.stderr.strip():
            raise Unmeasured(result.why)
        return self.result(result.rc, command.encode(), result.stdout, result.stderr)

    def announce(self, *commands: str) -> None:
        """See ``RecordingReader.announce``; a reader that has nothing to gain from it need not have it."""
        announce = getattr(self.reader, "announce", None)
        if announce is not None:
            announce(commands)

    def get_encoding(self) -> str:
        return "utf-8"

    def decode(self, data: bytes) -> str:
        return data.decode("utf-8", errors="replace")


def host_of(node: str, reader: Reader) -> Host:
    """A testinfra host that is not kept in testinfra's cache, which never forgets one."""
    backend = RecordingBackend(node, reader=reader)
    host = Host(backend)
    backend.set_host(host)
    return host


testinfra.backend.BACKENDS[NAME] = f"{__name__}.{RecordingBackend.__name__}"
