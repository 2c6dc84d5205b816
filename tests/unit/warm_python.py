"""Python commands of tests, forked from a process per worker that has imported pyinfra, or numpy and Pillow, already.

Start-up with them takes up to half a second of processor time, a fork a few hundredths. A child runs the command as a
new interpreter would: arguments, directory, environment, standard streams, exit status. What a child cannot have is an
empty ``sys.modules``: tests about imports start a real process.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import posix
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any, Final

PRELOADED: Final = (
    "pyinfra_cli.main",
    "pyinfra.operations.server",
    "pyinfra.operations.files",
    "rackproof.configure.pyinfra_state",
    "rackproof.configure.site",
    "rackproof.inventory_reader",
    "rackproof.remote.pyinfra_recording",
    "rackproof.run.plan",
)
OF_PROGRAMS: Final = (
    "numpy.random",
    "PIL.JpegImagePlugin",
    "PIL.ImageDraw",
    "PIL.ImageFilter",
    "multiprocessing.popen_fork",
)
"""For programs of nodes, which pyinfra's gevent would change."""
_PYINFRA: Final = str(Path(sys.executable).with_name("pyinfra"))
cold_run: Final = subprocess.run


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """As ``subprocess.run`` with ``capture_output``, for pyinfra and for Python with ``[-P] -m``, ``-c`` or ``-I``.

    Raises subprocess.TimeoutExpired. Any other command is started as usual.
    """
    target = _target(command)
    if target is None or "preexec_fn" in options or not options.pop("capture_output", False):
        return cold_run(command, **options)
    text, timeout = options.pop("text", False), options.pop("timeout", None)
    given, errors = options.pop("input", None), options.pop("errors", "strict")
    directory, environment = options.pop("cwd", None), options.pop("env", None)
    assert not options.pop("check", False)
    assert options.pop("stdin", subprocess.DEVNULL) == subprocess.DEVNULL
    assert not options, options
    request = {
        **target,
        "cwd": str(directory or Path.cwd()),
        "env": {**os.environ} if environment is None else environment,
    }
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(given.encode() if isinstance(given, str) else given or b"")
        stdin.seek(0)
        status = _served(request, (stdin.fileno(), out.fileno(), err.fileno()), timeout, command)
        streams: list[Any] = []
        for stream in (out, err):
            stream.seek(0)
            answer = stream.read()
            streams.append(answer.decode(errors=errors) if text else answer)
    return subprocess.CompletedProcess(command, status, *streams)


def _target(command: list[str]) -> dict[str, Any] | None:
    """Program of a child, its ``sys.argv`` and first place of imports; None for a command of another form."""
    if command[0] == _PYINFRA:
        return {"module": "pyinfra", "argv": command, "path": str(Path(_PYINFRA).parent)}
    if command[0] != sys.executable:
        return None
    if command[1:2] == ["-I"]:
        return {"program": str(command[2]), "argv": [str(word) for word in command[2:]], "path": None}
    safe = command[1:2] == ["-P"]
    kind, value, *arguments = command[1 + safe :]
    if kind not in ("-m", "-c"):
        return None
    return {
        "module" if kind == "-m" else "code": value,
        "argv": [value if kind == "-m" else "-c", *arguments],
        "path": None if safe else "",
    }


def _served(request: dict[str, Any], streams: tuple[int, int, int], timeout: float | None, command: list[str]) -> int:
    channel = _server(OF_PROGRAMS if "program" in request else PRELOADED)
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(request).encode())
        file.seek(0)
        socket.send_fds(channel, [b"run"], [file.fileno(), *streams])
    process = int(channel.recv(64))
    channel.settimeout(timeout)
    try:
        status = os.waitstatus_to_exitcode(int(channel.recv(64)))
    except TimeoutError:
        os.kill(process, signal.SIGKILL)
        channel.settimeout(None)
        channel.recv(64)
        raise subprocess.TimeoutExpired(command, timeout or 0) from None
    return status


@cache
def _server(preloaded: tuple[str, ...]) -> socket.socket:
    """This worker's connection to its server, which ends with it."""
    own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno()), *preloaded],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def end() -> None:
        own.close()
        process.wait()

    atexit.register(end)
    return own


def _serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork a child for every request. Returns the request in a child, None when the worker has ended."""
    while True:
        message, files, _, _ = socket.recv_fds(channel, 16, 4)
        if not message:
            return None
        child = posix.fork()  # gevent has replaced os.fork
        if not child:
            channel.close()
            with os.fdopen(files[0]) as file:
                request: dict[str, Any] = json.load(file)
            for target, stream in enumerate(files[1:]):
                os.dup2(stream, target)
                os.close(stream)
            return request
        for number in files:
            os.close(number)
        channel.send(b"%d" % child)
        channel.send(b"%d" % posix.waitpid(child, 0)[1])


def _main() -> None:
    import importlib
    import runpy

    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()
    request = _serve(channel)
    if request is None:
        return
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    if request["path"] is not None:
        sys.path.insert(0, request["path"] or ("" if "code" in request else os.getcwd()))
    try:
        if "code" in request:
            exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
        elif "program" in request:
            runpy.run_path(request["program"], run_name="__main__")
        else:
            sys.modules.pop(request["module"], None)
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        _end(end.code or 0)
    _end(0)


def _end(status: int) -> None:
    """End as the interpreter does, but leave the memory to the system: to free it takes most of a child's time."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    _main()
