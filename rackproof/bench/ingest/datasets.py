"""Data sets of JPEG samples on a storage: made by all nodes at once, resumed, checked.

``PROGRAM`` runs on the nodes, as the account that measures. It writes shards; each has an entry in the
index, so a killed run continues with the missing ones.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rackproof.bench.step import BenchContext, OncePerStage
from rackproof.bench.storage.commands import mounted, origin_of, own_folders, state_after
from rackproof.bench.storage.proof import mount_fault
from rackproof.bench.user import HOME, Account, BenchUsers, node_program
from rackproof.core.architecture import DataSet, Storage
from rackproof.core.rack import fold
from rackproof.core.wording import counted, scaled
from rackproof.errors import DataSetError
from rackproof.parse import ParseError
from rackproof.parse.node_programs import parse_document
from rackproof.remote.command import CommandResult

_SEAL: Final = re.compile(rf" python3 -I {HOME}/dataset_node\.py seal '[^']*'$")
PROGRAM: Final = "dataset_node.py"
FOLDER: Final = "rackproof-data"
"""Folder of all data sets below a mount point."""
STATE_S: Final = 120.0
WORK_S: Final = 6 * 3600.0
"""Time limit in seconds of one node's share; a killed one is resumed."""
MARK: Final = "rackproof_dataset"


class Made(NamedTuple):
    """A complete data set, as its index counts it."""

    samples: int
    bytes: int
    """Bytes of all shards."""
    distinct: int
    """Samples that differ."""
    copies: int
    sha256: str
    """Digest of the samples, independent of their format."""

    def text(self, storage: str) -> str:
        """Text for users; names copies, because a storage that deduplicates holds them once."""
        size = f"{self.samples} samples, {scaled(self.bytes, 'B')}, {self.bytes / self.samples:.0f} B a sample"
        if self.copies == 1:
            return size
        return f"{size}: {self.copies} copies of {self.distinct} distinct ones, which {storage} must not deduplicate"


def folder_of(storage: Storage, name: str, dataset: DataSet, mountpoint: str | None = None) -> str:
    """Architectures may call different data sets by one name: the folder's ends with a digest of the samples. More
    copies are the same set, extended."""
    samples = dataset.model_dump_json(exclude={"storage", "copies"})
    digest = hashlib.sha256(samples.encode()).hexdigest()[:8]
    return f"{mountpoint or storage.mountpoints[0]}/{FOLDER}/{name}-{digest}"


def spec_of(storage: Storage, name: str, dataset: DataSet) -> dict[str, Any]:
    """Configuration of ``dataset_node.py``."""
    return {"folder": folder_of(storage, name, dataset), **dataset.model_dump(mode="json", exclude={"storage"})}


def command(
    action: str, storage: Storage, spec: Mapping[str, Any], account: Account, share: int = 0, shares: int = 1
) -> str:
    """Command of one node, with all of its processors."""
    return f"{mounted(storage.mountpoints)}; {account.prefix}{_program(action, spec, share, shares)}"


def _program(action: str, spec: Mapping[str, Any], share: int = 0, shares: int = 1) -> str:
    words = [action, json.dumps(spec, sort_keys=True)]
    words += [] if action in ("state", "seal") else [str(share), str(shares), "0"]
    return node_program(PROGRAM, *words)


def writing(storage: Storage, name: str, dataset: DataSet, nodes: int) -> list[str]:
    """Programs of the first of so many nodes that write what is missing, and look at it before and after."""
    spec, shares = spec_of(storage, name, dataset), 1 if storage.class_ == "local" else nodes
    return [_program(action, spec, 0, shares) for action in ("state", *actions(dataset), "seal")]


def actions(dataset: DataSet) -> tuple[str, ...]:
    """Actions of the program that together write the data set."""
    return ("distinct", "copies") if dataset.copies > 1 else ("distinct",)


def is_of_content(command: str) -> bool:
    """Whether a command prints the same of the same data set, whenever it runs."""
    return _SEAL.search(command) is not None


def answer_of(answer: CommandResult) -> dict[str, Any]:
    """The program's document. Raises DataSetError with its own error, ParseError without a document."""
    try:
        document = parse_document(PROGRAM, answer.stdout, MARK)
    except ParseError:
        if not answer.ok:
            raise DataSetError(f"{answer.node}: {answer.why}") from None
        raise
    if error := document.get("error"):
        raise DataSetError(f"{answer.node}: {error}")
    if not answer.ok:
        raise DataSetError(f"{answer.node}: {answer.why}")
    return document


def made_of(document: Mapping[str, Any]) -> Made:
    """The summary of ``seal``. Raises ParseError."""
    try:
        samples, size, distinct, copies = (int(document[key]) for key in ("samples", "bytes", "distinct", "copies"))
        made = Made(samples, size, distinct, copies, str(document["samples_sha256"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ParseError("dataset_node.py", f"no complete summary: {error}") from None
    if made.samples < 1 or made.bytes < made.samples or made.samples != made.distinct * made.copies:
        raise ParseError("dataset_node.py", f"an impossible summary: {made}")
    return made


class DataSets(OncePerStage):
    """Data sets that this stage has made or found complete."""

    def __init__(self, context: BenchContext) -> None:
        super().__init__(context)
        self._users = BenchUsers.of(context)
        self._complete: set[str] = set()

    def ready(self, nodes: Sequence[str], programs: Iterable[str] = (PROGRAM,)) -> None:
        """Accounts and programs on the nodes. Raises DataSetError."""
        if lost := self._users.ready(nodes):
            raise DataSetError("; ".join(lost.values()))
        self._users.put(nodes, "rackproof.bench.ingest", programs)

    def make(self, name: str, dataset: DataSet, nodes: Sequence[str]) -> tuple[Made, list[CommandResult]]:
        """Make what is missing, on mounts that are the architecture's. Returns it with the answers that count it.

        Raises DataSetError: no mount, no space, another data set in its place, a file system that fails.
        """
        storage = self._session.architecture.storage[dataset.storage]
        spec = spec_of(storage, name, dataset)
        self._check_mounts(storage, spec, nodes)
        self.ready(nodes)
        owners = list(nodes) if storage.class_ == "local" else list(nodes[:1])
        if name not in self._complete:
            self._write(name, dataset, storage, spec, nodes, owners)
            self._complete.add(name)
        commands = {node: command("seal", storage, spec, self._users[node]) for node in owners}
        answers = self._answers(commands, STATE_S)
        sealed = [made_of(answer_of(answer)) for answer in answers]
        if len(set(sealed)) > 1:
            raise DataSetError(f"{name}: {fold(owners)} have other samples than each other: other versions of Pillow")
        return sealed[0], answers

    def _write(
        self, name: str, dataset: DataSet, storage: Storage, spec: Mapping[str, Any], nodes: Sequence[str],
        owners: Sequence[str],
    ) -> None:  # fmt: skip
        folders = {node: own_folders(storage, [spec["folder"]], self._users[node], "unused") for node in owners}
        open_to_all = f"chmod 1777 -- {shlex.quote(spec['folder'])}"  # the account has another number on other nodes
        opened = {node: f"{text}\n{self._users[node].prefix}{open_to_all}" for node, text in folders.items()}
        self._answers(opened, STATE_S, plain=True)
        states = self._each("state", storage, spec, owners)
        for node, state in states.items():
            if state["needed"] > state["free"]:
                raise DataSetError(
                    f"{name}: needs {scaled(state['needed'], 'B')} more below {spec['folder']} on {node}, which has"
                    f" {scaled(state['free'], 'B')} free; make room, or lower samples or copies"
                )
            if state["complete"] < state["shards"]:
                self._context.say(
                    f"{name}: {state['complete']} of {counted(state['shards'], 'shard', 'shards')} there,"
                    f" {scaled(state['needed'], 'B')} to write"
                )
        if all(state["complete"] == state["shards"] for state in states.values()):
            return
        for action in actions(dataset):
            self._each(action, storage, spec, nodes, storage.class_ == "local")

    def check(self, name: str, dataset: DataSet, nodes: Sequence[str]) -> list[str]:
        """Read every byte again, each node its share. Returns a line per damaged shard. Raises DataSetError."""
        storage = self._session.architecture.storage[dataset.storage]
        spec = spec_of(storage, name, dataset)
        self._check_mounts(storage, spec, nodes)
        self.ready(nodes)
        answers = self._each("check", storage, spec, nodes, storage.class_ == "local")
        return [f"{node}: {fault}" for node, answer in answers.items() for fault in answer["faults"]]

    def _check_mounts(self, storage: Storage, spec: Mapping[str, Any], nodes: Sequence[str]) -> None:
        origin = origin_of(self._session.architecture, self._session.rack, storage)
        ask = state_after(storage, [f"{spec['folder']}/index"], origin)
        answers = self._session.run(dict.fromkeys(nodes, ask), STATE_S)
        faults = [f"{node}: {why}" for node, answer in answers.items() if (why := mount_fault(storage, answer))]
        if faults:
            raise DataSetError("; ".join(faults))

    def _each(
        self, action: str, storage: Storage, spec: Mapping[str, Any], nodes: Sequence[str], apart: bool = True
    ) -> dict[str, dict[str, Any]]:
        """Documents of all nodes; with ``apart`` each does everything, for storage of its own."""
        shares = [(0, 1) if apart else (number, len(nodes)) for number in range(len(nodes))]
        commands = {
            node: command(action, storage, spec, self._users[node], *share)
            for node, share in zip(nodes, shares, strict=True)
        }
        answers = self._answers(commands, STATE_S if action == "state" else WORK_S)
        return {answer.node: answer_of(answer) for answer in answers}

    def _answers(self, commands: Mapping[str, str], limit_s: float, plain: bool = False) -> list[CommandResult]:
        answers = list(self._session.run(commands, limit_s, hold=True).values())
        if failed := [f"{answer.node}: {answer.why}" for answer in answers if plain and not answer.ok]:
            raise DataSetError("; ".join(failed))
        return answers
