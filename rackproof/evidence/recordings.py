"""Recordings from disk: a folder with one file a node, or the evidence of a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rackproof.core.evidence import CommandRecord, Kind, Record
from rackproof.core.history import VALIDATE
from rackproof.core.rack import Node
from rackproof.errors import RunError
from rackproof.evidence.folder import info_of
from rackproof.evidence.store import EVIDENCE, answer_of, read_raw, read_records
from rackproof.remote.command import CommandResult
from rackproof.remote.recording import Recording, by_command
from rackproof.remote.recording_folder import read_folder


def read_recordings(folder: Path) -> list[Recording]:
    """All recordings of a folder in the order of their file names, or those of a run. Raises RunError."""
    return recordings_of_run(folder) if (folder / EVIDENCE).is_file() else read_folder(folder)


def recordings_of_run(folder: Path) -> list[Recording]:
    """Answers of a run's nodes to its last validation that ended, in the run's order of nodes; to the last one at all
    where none ended.

    Nodes have no data: addresses do not go into evidence. Raises RunError.
    """
    records = read_records(folder)
    info = info_of(records)
    ended: list[Record] = []
    commands: list[Record] = []
    validating = False
    for record in records:
        if record.kind is Kind.STAGE:
            ended = commands if validating and record.body["event"] == "end" else ended
            validating = record.body["stage"] == VALIDATE and record.body["event"] == "begin"
            commands = [] if validating else commands
        elif record.kind is Kind.COMMAND and validating:
            commands.append(record)
    results: dict[str, list[CommandResult]] = {node.name: [] for node in info.nodes}
    for record in ended or commands:
        command = CommandRecord.model_validate(record.body)
        results.setdefault(command.node, []).append(answer_of(command, partial(read_raw, folder)))
    if not any(results.values()):
        raise RunError(f"{folder}: its nodes were not validated, there is nothing to read")
    return [Recording(Node(node.name, node.groups), by_command(results[node.name])) for node in info.nodes]
