"""Requests to a running QEMU, over its QMP socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rackproof.errors import LabError
from rackproof.lab import keeper

SOCKET = "qmp.sock"
TIMEOUT_S = 5.0


def ask(folder: Path, request: dict[str, Any]) -> None:
    """Send one request to the QEMU in a node's folder. Raises LabError without an answer, or for an error."""
    name = folder.name
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(TIMEOUT_S)
            keeper.connect_in(sock, folder, SOCKET)
            with sock.makefile("rwb") as stream:
                stream.readline()
                for message in ({"execute": "qmp_capabilities"}, request):
                    stream.write(json.dumps(message).encode() + b"\n")
                    stream.flush()
                    answer = _answer(stream)
    except (OSError, ValueError) as error:
        raise LabError(f"{name}: QEMU's monitor does not answer ({error})") from error
    if "error" in answer:
        raise LabError(f"{name}: {request['execute']}: {answer['error'].get('desc', answer['error'])}")


def _answer(lines: Iterable[bytes]) -> dict[str, Any]:
    """The next answer; events in between are skipped. Raises OSError, ValueError."""
    for line in lines:
        answer: dict[str, Any] = json.loads(line)
        if "return" in answer or "error" in answer:
            return answer
    raise OSError("connection closed")
