"""pyinfra's connector for recordings: ``pyinfra @recording/DIR deploys/cluster.py --dry`` plans a deploy without nodes.

A fact that was not recorded fails its node; the error names it. Execution, uploads and downloads are refused. pyinfra
imports all connectors at its start: this module imports the rest of the kit in its functions, and gives pyinfra's ssh
connections the kit's limits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError, InventoryError
from pyinfra.api.state import StateStage
from pyinfra.connectors import ssh as pyinfra_ssh
from pyinfra.connectors.base import BaseConnector, ConnectorData, DataMeta
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command, read_output_buffers

from rackproof.kit import make_deploys_importable
from rackproof.remote.command import OUTPUT_LIMIT, TOO_MUCH
from rackproof.remote.greeting import greeted

if TYPE_CHECKING:
    from rackproof.remote.collect import RecordingReader

make_deploys_importable()  # every pyinfra process imports this module before its deploys

_arguments = SSHConnector.make_paramiko_kwargs
_PIECE = 1 << 16


def _with_greeting(self: SSHConnector) -> dict[str, Any]:
    return {**_arguments(self), "transport_factory": greeted}


def _within_limit(receive: Callable[[int], bytes], channel: Any) -> Iterator[bytes]:
    """Lines of an output. After OUTPUT_LIMIT bytes the channel is closed: the command has no exit status and failed."""
    size, rest = 0, b""
    while data := receive(_PIECE):
        size += len(data)
        if size > OUTPUT_LIMIT:
            channel.close()
            yield f"the command {TOO_MUCH}".encode()
            return
        *lines, rest = (rest + data).split(b"\n") if b"\n" in data else (rest + data,)
        yield from lines
    if rest:
        yield rest


def _outputs(stdout_buffer: Any, stderr_buffer: Any, **arguments: Any) -> CommandOutput:
    channel = stdout_buffer.channel
    out, err = (_within_limit(receive, channel) for receive in (channel.recv, channel.recv_stderr))
    return read_output_buffers(out, err, **arguments)


SSHConnector.make_paramiko_kwargs = _with_greeting  # type: ignore[method-assign]
pyinfra_ssh.read_output_buffers = _outputs  # type: ignore[attr-defined, assignment]

ASKED_FILE = "RACKPROOF_RECORDING_ASKED"
"""Environment variable with a file that receives commands that were not recorded, one JSON object per line.

Such commands then count as answered without output, so that the plan continues and reaches its other commands.
"""
PLANS_ONLY = "recordings answer plans only: use --dry"
_FILES_BESIDE = ("versions_lock",)
"""Keys of a written rack's data that name a file in its folder."""
_SHAPE = ("_env", "_chdir", "_shell_executable")
"""Arguments that are part of the recorded command. Users are not: recordings are made as root."""


class RecordingConnectorData(ConnectorData, total=False):
    """Data of the connector."""

    recording_file: str


class RecordingConnector(BaseConnector):
    """Nodes of a folder of recordings, with their recorded groups and data.

    The folder may also be a written rack (see ``rackproof.remote.written``).

    .. code:: shell

        pyinfra @recording/DIR deploys/cluster.py --dry
    """

    handles_execution = True
    data_cls = RecordingConnectorData
    data_meta = {"recording_file": DataMeta("The node's recording.")}  # noqa: RUF012

    @staticmethod
    def make_names_data(name: str | None = None) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        """One host per recording. Raises pyinfra's InventoryError."""
        from rackproof.errors import RackproofError
        from rackproof.remote.recording_folder import read_files
        from rackproof.remote.written import RACK

        if not name:
            raise InventoryError("the folder of recordings is missing; use @recording/DIR")
        if (Path(name) / RACK).is_file():
            yield from _written_nodes(Path(name))
            return
        try:
            recordings = read_files(Path(name))
        except RackproofError as error:
            raise InventoryError(str(error)) from None
        for path, recording in recordings.items():
            node = recording.node
            yield node.name, {**node.data, "recording_file": str(path)}, list(node.groups)

    def connect(self) -> None:
        from rackproof.errors import RackproofError

        if not self.data["recording_file"]:
            raise ConnectError("the node has no recording; use @recording/DIR as the inventory")
        try:
            self._reader = reader_of(self.host.name, Path(self.data["recording_file"]))
        except RackproofError as error:
            raise ConnectError(str(error)) from None

    def run_shell_command(
        self, command: StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        if self.state.current_stage >= StateStage.Execute:
            return False, _complaint(PLANS_ONLY)
        question = question_of(command, arguments)
        if not self._reader.has(question) and (log := os.environ.get(ASKED_FILE)):
            _append(Path(log), self.host.name, question)
            return True, CommandOutput([])
        result = self._reader.read(question)
        if result.rc is None:
            return False, _complaint(result.why)
        streams = (("stdout", result.stdout), ("stderr", result.stderr))
        output = CommandOutput([OutputLine(name, line) for name, data in streams for line in _lines(data)])
        return result.rc in (arguments.get("_success_exit_codes") or (0,)), output

    def put_file(self, *_: Any, **__: Any) -> NoReturn:
        raise OSError(PLANS_ONLY)

    def get_file(self, *_: Any, **__: Any) -> NoReturn:
        raise OSError(PLANS_ONLY)


def _written_nodes(folder: Path) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    from rackproof.errors import RackproofError
    from rackproof.remote.written import RACK, read_written

    try:
        written = read_written(folder)
    except RackproofError as error:
        raise InventoryError(str(error)) from None
    for node in written.nodes:
        data = {"architecture": str(written.architecture), **node.data, "recording_file": str(folder / RACK)}
        for key in _FILES_BESIDE:
            if key in data:
                data[key] = str(folder / str(data[key]))
        yield node.name, data, list(node.groups)


def reader_of(node: str, file: Path) -> RecordingReader:
    """Reader of a node's recording, or of its written rack. Raises RackproofError."""
    from rackproof.remote.collect import RecordingReader
    from rackproof.remote.recording_folder import read_recording
    from rackproof.remote.written import RACK, read_written

    if file.name == RACK:
        return RecordingReader(node, read_written(file.parent).answers[node])
    return RecordingReader(node, known=read_recording(file).results.values())


def question_of(command: StringCommand, arguments: dict[str, Any]) -> str:
    """The recorded form of a command, without sudo, su and doas."""
    shape = {name: arguments[name] for name in _SHAPE if arguments.get(name)}
    return str(make_unix_command(command, **shape).get_raw_value())


def _lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "replace").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _complaint(text: str) -> CommandOutput:
    return CommandOutput([OutputLine("stderr", text)])


def _append(path: Path, node: str, question: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"node": node, "command": question}) + "\n")
