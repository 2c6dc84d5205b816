"""Resume an interrupted search from the outputs of its whole jobs, as long as its nodes are the same machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rackproof.bench.collectives.group_reader import SETS, STEP, is_part, launches
from rackproof.core.evidence import CommandRecord, EventKind, Kind, NodeIdentity, Record


class Interrupted:
    """Sees the records of a run in their order; keeps the commands of a search whose step did not end.

    A job counts if it ended by itself and all of its readings were answered. A node that was lost, exchanged or
    rebooted ends the search, which starts again.
    """

    def __init__(self) -> None:
        self.kept: list[CommandRecord] = []
        self._open: list[CommandRecord] = []
        self._identities: dict[str, NodeIdentity] = {}

    def see(self, record: Record) -> None:
        match record.kind:
            case Kind.COMMAND if is_part(str(record.body["command"])):
                self._open.append(CommandRecord.model_validate(record.body))
            case Kind.STAGE:
                whole = {id(command) for command in _of_whole_jobs(self._open)}
                self.kept += [command for command in self._open if id(command) in whole]
                self._open.clear()
            case Kind.STEP:
                self._open.clear()
                if str(record.body["step"]).startswith(STEP):
                    self.kept.clear()
            case Kind.EVENT if record.body["event"] == EventKind.LOST.value:
                self._forget()
            case Kind.IDENTITY:
                self._check_identity(NodeIdentity.model_validate(record.body))
            case _:
                pass

    def _check_identity(self, identity: NodeIdentity) -> None:
        before = self._identities.get(identity.node)
        self._identities[identity.node] = identity
        if before is not None and (before.boot_id != identity.boot_id or any(identity.differences(before))):
            self._forget()

    def _forget(self) -> None:
        self.kept.clear()
        self._open.clear()

    def before(self, comments: Iterable[str]) -> list[CommandRecord]:
        """The kept commands, if they belong to the same search as jobs with these comments."""
        own = {command.command.partition(SETS)[2] for command in self.kept if SETS in command.command}
        return list(self.kept) if len(own.union(comments)) == 1 else []


def _of_whole_jobs(commands: Iterable[CommandRecord]) -> Iterator[CommandRecord]:
    for answer, beside, complete in launches(commands):
        if complete and all(one.rc is not None for one in (answer, *beside)):
            yield from (answer, *beside)
