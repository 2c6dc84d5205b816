"""Operations on files of a version set: put into their places, and read back at the end."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api.command import StringCommand
from pyinfra.context import host, state

from rackproof.configure.operation import Commands, ask, operation, record_reasons
from rackproof.configure.rollback.journal import file_line
from rackproof.configure.rollback.run import journal_here
from rackproof.configure.versions import downloads, facts
from rackproof.errors import Refused


@operation()
def placed_files(wanted: Sequence[downloads.Placed], proxy: str | None = None) -> Commands:
    """Download what is not there as the set says. Another content than the locked one is refused."""
    found = ask(facts.PlacedFiles, "the files of the version set", wanted=list(wanted))
    wrong = downloads.differences(wanted, found)
    if not wrong:
        host.noop(f"all {len(wanted)} files are the locked ones")
        return
    record_reasons(wrong.values())
    kept = [file_line(each.path, each.sha256) for each in wrong]
    yield StringCommand(journal_here().before(kept, downloads.script(list(wrong), proxy)))


@operation()
def placed_files_read_back(wanted: Sequence[downloads.Placed]) -> None:
    """Every file is the locked one; anything else is an error. Changes nothing."""
    found = ask(facts.PlacedFiles, "the files of the version set", wanted=list(wanted))
    wrong = downloads.differences(wanted, found)
    # Before the run nothing need be there yet.
    if wrong and state.is_executing:
        raise Refused(f"not as the version set says: {'; '.join(wrong.values())}")
    else:
        host.noop(f"{len(wanted)} files are as the version set says")
