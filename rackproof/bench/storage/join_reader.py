"""Bytes that a node gets on its own drives, or in file systems in its memory, before it can read from a storage. Pure.

The node mounts the storage once more and reads; its counters are read around that, and around a while in which nothing
is done. What other programs write in that while is not taken off: it could hide a copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rackproof.bench.reading import Reading
from rackproof.bench.storage import join_node
from rackproof.bench.storage.program_runs import ProgramRun, program_runs
from rackproof.bench.storage.proof import states_around
from rackproof.bench.user import OWN_MOUNT
from rackproof.core.architecture import Storage
from rackproof.core.evidence import Measurement
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.jsondoc import Json
from rackproof.remote.command import CommandResult

COPIED: Final = "join.bytes_copied"
PROGRAM: Final = "join_node.py"
MARK: Final = "rackproof_join"
TOLD_APART: Final = 10
"""A copy is that many times what other programs write, or cannot be told from it."""
SIZES: Final = ("least_bytes", "quiet_s")
"""Keys of a run that are the profile's."""
_NODE: Final[Any] = join_node


def read_join(answers: Sequence[CommandResult], measurement: Measurement, storage: Storage) -> Reading:
    """One sample: a node joins once, the second time what was staged is there. Raises ParseError."""
    (node,) = measurement.members
    runs = [run for run in program_runs(answers, PROGRAM, MARK, ProgramRun) if node in run.nodes]
    if not runs:
        raise ParseError(PROGRAM, f"{node}: no run of it")
    for run in runs:
        run.document(node, run.jobs[0])  # its own error
    run = runs[-1]
    config, document = run.document(node, run.jobs[0])
    if config["action"] != "join" or len(runs) != 2:
        raise ParseError(PROGRAM, f"{node}: expected one join, actual {len(runs) - 1}")
    states_around(run, node, storage)
    _check_mount(config, document, storage)
    expected = hashlib.shake_256(config["seed"].encode()).digest(_NODE.FILE_BYTES)
    if document.string("sha256") != hashlib.sha256(expected).hexdigest():
        raise Mismatch(PROGRAM, f"{node}: the new mount shows another file than was written")
    first, before, after = (document.child(name) for name in ("first", "before", "after"))
    least, copied, noise = float(config["least_bytes"]), _grown(before, after), _grown(first, before)
    noise *= max(1.0, document.number("join_s") / config["quiet_s"])
    if least < copied < TOLD_APART * noise:
        raise ParseError(
            PROGRAM,
            f"{node}: its drives got {copied:.0f} B, and {noise:.0f} B in as long without a join; end what writes",
        )
    conditions = {
        "workload": {key: config[key] for key in SIZES},
        "mount": "one of its own, beside the declared one",
        "mount_s": document.number("mount_s"),
        "first_read_s": document.number("read_s"),
        "drives": sorted(after.child("written").values),
        "also_counted": "file systems in memory and of the node, by what is in use",
    }
    return Reading((copied if copied > least else 0.0,), (run.answers[node],), conditions, {"local_bytes": (copied,)})


def _check_mount(config: Mapping[str, Any], document: Json, storage: Storage) -> None:
    """The new mount is there, of the declared one's type and source."""
    shown: Any = document.values.get("mounts")
    rows = {str(row[0]): list(row[1:]) for row in shown} if isinstance(shown, list) and all(map(_row, shown)) else {}
    own, declared = rows.get(OWN_MOUNT), rows.get(storage.mountpoints[0])
    if config["own"] != OWN_MOUNT or config["point"] != storage.mountpoints[0] or own is None or declared is None:
        raise ParseError(PROGRAM, f"no mount at {OWN_MOUNT} beside {storage.mountpoints[0]}")
    if own != declared:
        raise Mismatch(PROGRAM, f"expected {' '.join(declared)} at {OWN_MOUNT}, actual {' '.join(own)}")


def _row(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 3 and all(isinstance(word, str) for word in row)


def _grown(earlier: Json, later: Json) -> float:
    """Bytes on drives or in file systems, whichever got more. Raises ParseError where nothing is counted."""
    growths = []
    for kind in ("written", "used"):
        old, new = earlier.child(kind), later.child(kind)
        if kind == "used" and not new.values:
            raise ParseError(PROGRAM, "no file system of the node tells what is in use")
        names = sorted(old.values.keys() | new.values.keys())
        grown = [
            (new.number(one) if new.has(one) else 0.0) - (old.number(one) if old.has(one) else 0.0) for one in names
        ]
        if kind == "written" and any(value < 0 for value in grown):
            raise ParseError(PROGRAM, "a counter of a drive ran backwards, or a drive is gone")
        growths.append(sum(max(0.0, value) for value in grown))
    return max(growths)
