"""Runs commands on the local machine with the interface of a connection to a node."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time

from rackproof.core.clocks import Clock
from rackproof.core.rack import Node, Rack
from rackproof.remote.command import GRACE_S, OUTPUT_LIMIT, TOO_MUCH, CommandResult, bounded, not_finished, timed_out
from rackproof.remote.fleet import Fleet
from rackproof.remote.ssh import Connection

NO_LIMIT_S = 10 * 365 * 86400.0
_BLOCKS = OUTPUT_LIMIT // 512 + 1
"""Largest file of a command, its outputs included, in the unit of POSIX's ``ulimit -f``; ends a command that prints
more."""


class LocalConnection(Connection):
    """Runs commands locally, in a fixed locale and with a time limit each, as on a node.

    ``deadline`` (``time.monotonic``) is for all commands together; after it none is started.
    """

    def __init__(self, node: Node, deadline: float | None = None, limit_s: float = NO_LIMIT_S) -> None:
        super().__init__(node)
        self._deadline, self._limit_s = deadline, limit_s

    def run(
        self, command: str, timeout_s: float, stdin: bytes | None = None, user: str = "", *, hold: bool = False
    ) -> CommandResult:
        began = time.monotonic()
        left = timeout_s if self._deadline is None else min(timeout_s, self._deadline - began)

        def result(rc: int | None, error: str | None, out: bytes = b"", err: bytes = b"") -> CommandResult:
            return CommandResult(self.node.name, command, rc, out, err, time.monotonic() - began, timeout_s, error)

        over = f"the time limit of {self._limit_s:g} s is over"
        if left <= 0:
            return result(None, over)
        # Files, not pipes: a process that a command leaves behind would keep a pipe open.
        with tempfile.TemporaryFile() as out_file, tempfile.TemporaryFile() as err_file:
            try:
                process = subprocess.Popen(  # noqa: S602  (commands of validators, written for a shell)
                    f"ulimit -f {_BLOCKS}; {bounded(command, max(left, 0.1), user=user)}",
                    shell=True,
                    stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                    stdout=out_file,
                    stderr=err_file,
                    start_new_session=True,
                )
            except OSError as error:
                return result(None, f"cannot be started: {error.strerror or error}")
            ended = _ended(process, stdin, left + GRACE_S)
            outputs = []
            for file in (out_file, err_file):
                file.seek(0)
                outputs.append(file.read(OUTPUT_LIMIT + 1))
        out, err = outputs
        if max(len(out), len(err)) > OUTPUT_LIMIT:
            return result(None, TOO_MUCH, out[:OUTPUT_LIMIT], err[:OUTPUT_LIMIT])
        if not ended:
            return result(None, f"no answer within {timeout_s:g} s", out, err)
        if timed_out(process.returncode):
            return result(None, over if left < timeout_s else not_finished(timeout_s), out, err)
        if process.returncode < 0:
            return result(None, f"ended by signal {-process.returncode}", out, err)
        return result(process.returncode, None, out, err)

    def clock(self, base_s: float) -> Clock | str:
        """The node is the controller."""
        return Clock(0.0, 0.0)

    def forget(self) -> None:
        """Nothing to close."""


class OtherNode(LocalConnection):
    """Another node of the rack, on which no commands are run."""

    def run(
        self, command: str, timeout_s: float, stdin: bytes | None = None, user: str = "", *, hold: bool = False
    ) -> CommandResult:
        why = "another node: commands run on the local node only"
        return CommandResult(self.node.name, command, None, timeout_s=timeout_s, error=why)


class LocalFleet(Fleet):
    """The nodes of a rack, on one of them. ``limit_s``: seconds from now for all commands together."""

    def __init__(self, rack: Rack, local: str, limit_s: float | None = None) -> None:
        super().__init__(rack, parallel=1)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        own = LocalConnection(rack.node(local), deadline, limit_s or NO_LIMIT_S)
        self._connections = {node.name: own if node.name == local else OtherNode(node) for node in rack.nodes}


def _ended(process: subprocess.Popen[bytes], stdin: bytes | None, limit_s: float) -> bool:
    """Write the input and wait; kill the whole session when even its ``timeout`` does not end."""
    try:
        if stdin is not None:
            process.communicate(stdin, timeout=limit_s)
        else:
            process.wait(timeout=limit_s)
    except BaseException as error:  # an interrupt, too, leaves nothing behind
        try:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass  # in an uninterruptible system call; left behind
        if isinstance(error, subprocess.TimeoutExpired):
            return False
        raise
    return True
