"""Operations on files of a version set: download them, and verify them at the end."""

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
    """Download missing and different files. A download with another digest than the locked one is refused.

    + wanted: files with URL, sha256, path and mode
    + proxy: URL of a proxy for HTTP and HTTPS

    **Example:**

    .. code:: python

        file_operations.placed_files(name="Files", wanted=plan.placed_files(platform, machine, inputs))
    """
    present = ask(facts.PlacedFiles, "the files of the version set", wanted=list(wanted))
    wrong = downloads.differences(wanted, present)
    if not wrong:
        host.noop(f"all {len(wanted)} files are the locked ones")
        return
    record_reasons(wrong.values())
    kept = [file_line(file.path, file.sha256) for file in wrong]
    yield StringCommand(journal_here().before(kept, downloads.script(list(wrong), proxy)))


@operation()
def placed_files_read_back(wanted: Sequence[downloads.Placed]) -> None:
    """Refuse a node where a file is not the locked one. Changes nothing.

    + wanted: files with URL, sha256, path and mode

    **Example:**

    .. code:: python

        file_operations.placed_files_read_back(name="Files", wanted=files)
    """
    present = ask(facts.PlacedFiles, "the files of the version set", wanted=list(wanted))
    wrong = downloads.differences(wanted, present)
    # While planning, the files may not be installed yet.
    if wrong and state.is_executing:
        raise Refused(f"not as the version set says: {'; '.join(wrong.values())}")
    else:
        host.noop(f"{len(wanted)} files are as the version set says")
