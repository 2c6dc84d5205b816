"""Trees of files that were written through one protocol, as the mounts of all clients show them. Pure.

The contents follow from the run's seed, see ``tree_node.py``: hashes are compared with those that the kit computes,
not with what a writer reports. Caches are dropped before the reads, and each client's own counters show that its bytes
came from the storage; where a mount is the writer, its counters show that as well.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rackproof.bench.ingest import tree_node
from rackproof.bench.reading import Reading
from rackproof.bench.storage.byte_counters import counted_bytes
from rackproof.bench.storage.commands import AFTER, BEFORE, state_of
from rackproof.bench.storage.proof import check_mounts
from rackproof.bench.storage.runs import state_of_node
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.evidence import Measurement
from rackproof.core.metrics import DAMAGE
from rackproof.core.texts import SHA256
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.node_programs import parse_document
from rackproof.remote.command import CommandResult

METRIC: Final = "ingest.differing_files"
LEG: Final = "protocol"
PROGRAM: Final = "tree_node.py"
SHOWN: Final = 20
"""Maximum number of files that are named."""
_TREE: Final[Any] = tree_node
_CALL: Final = re.compile(rf"/{re.escape(PROGRAM)} (write|read) (.*)\Z", re.DOTALL)


class _Call(NamedTuple):
    """The tree's program on one node, with the states of the node's mounts around it."""

    action: str
    spec: Mapping[str, Any]
    answer: CommandResult
    before: CommandResult | None
    after: CommandResult | None


def read_tree(answers: Sequence[CommandResult], measurement: Measurement, architecture: Architecture) -> Reading:
    """One sample: number of files that any client's mount shows differently. Raises ParseError."""
    calls = _calls(answers)
    writes, reads = ([call for call in calls if call.action == action] for action in ("write", "read"))
    if len(writes) != 1:
        raise ParseError(PROGRAM, f"expected one tree, actual {len(writes)}")
    (write,) = writes
    labels, spec = measurement.labels, write.spec
    if (spec["protocol"], spec["storage"]) != (labels["protocol"], labels["storage"]):
        raise Mismatch(PROGRAM, f"its tree was written to {spec['storage']} by {spec['protocol']}")
    _check_written(write, architecture)
    if strange := set(measurement.members) ^ {call.answer.node for call in reads}:
        raise ParseError(PROGRAM, f"{', '.join(sorted(strange))}: not one of the clients that took part")
    storage = architecture.storage[labels["storage"]]
    differing: dict[int, str] = {}
    for call in reads:
        for number, place, why in _differing(call, spec, storage):
            differing.setdefault(number, f"{place} on {call.answer.node}: {why}")
    through = spec["way"].get("storage")
    conditions: dict[str, Any] = {
        "tree": {"files": spec["files"], "max_bytes": spec["max_bytes"], "through": through},
        "bytes": sum(_TREE.size_of(spec, number) for number in range(spec["files"])),
        "written_by": f"{write.answer.node} through {through or spec['way']['by']}",
        "clients": len(reads),
        "cache": "cold on clients",
    }
    if differing:
        conditions[DAMAGE] = [differing[number] for number in sorted(differing)[:SHOWN]]
    used = (write.answer, *(call.answer for call in reads))
    return Reading((float(len(differing)),), used, conditions)


def _calls(answers: Sequence[CommandResult]) -> list[_Call]:
    """All calls, each with the latest state of its node before and the first one after it."""
    calls = []
    for place, answer in enumerate(answers):
        if match := _CALL.search(answer.command):
            states = [
                [
                    one
                    for one in part
                    if one.node == answer.node and (asked := state_of(one.command)) and asked[0] == when
                ]
                for part, when in ((answers[:place], BEFORE), (answers[place:], AFTER))
            ]
            spec = json.loads(shlex.split(match[2])[0])
            calls.append(_Call(match[1], spec, answer, next(reversed(states[0]), None), next(iter(states[1]), None)))
    return calls


def _document(call: _Call) -> Mapping[str, Any]:
    """The document that the program printed. Raises ParseError with the program's error."""
    node = call.answer.node
    if not call.answer.stdout:
        raise ParseError(PROGRAM, f"{node}: {call.answer.why}")
    document = parse_document(PROGRAM, call.answer.stdout, _TREE.MARK)
    if error := document.get("error"):
        raise ParseError(PROGRAM, f"{node}: {error}")
    if not call.answer.ok or document.get("action") != call.action:
        raise ParseError(PROGRAM, f"{node}: {call.answer.why}")
    return document


def _moved(call: _Call, storage: Storage, size: int, *, writes: bool) -> None:
    """The mounts are the architecture's, and each that has a cache of its own moved ``size`` bytes. Raises
    ParseError."""
    states = []
    for when, answer in ((BEFORE, call.before), (AFTER, call.after)):
        states.append(state_of_node(answer, call.answer.node, when))
        mounts = check_mounts(storage, states[-1], when)
    caches = 1 if writes else len({mount.device for mount in mounts})
    counted_bytes(storage, states[0], states[1], writes=writes).check(size * caches, PROGRAM)


def _check_written(write: _Call, architecture: Architecture) -> None:
    document, spec = _document(write), write.spec
    size = sum(_TREE.size_of(spec, number) for number in range(spec["files"]))
    if (document.get("files"), document.get("bytes")) != (spec["files"], size):
        raise ParseError(PROGRAM, f"expected {spec['files']} files of {size} B, actual {document.get('files')} files")
    if through := spec["way"].get("storage"):
        _moved(write, architecture.storage[through], size, writes=True)


def _differing(call: _Call, written: Mapping[str, Any], storage: Storage) -> list[tuple[int, str, str]]:
    """Number, place and difference of each file that a client's mounts show differently."""
    spec = call.spec
    if any(spec[key] != written[key] for key in ("seed", "files", "max_bytes")):
        raise Mismatch(PROGRAM, f"{call.answer.node} was given another tree than was written")
    if [folder.rpartition("/")[0].rpartition("/")[0] for folder in spec["folders"]] != list(storage.mountpoints):
        raise Mismatch(PROGRAM, f"{call.answer.node} read other mounts than those of {written['storage']}")
    hashes = _document(call).get("hashes")
    if not isinstance(hashes, list) or len(hashes) != len(spec["folders"]) * spec["files"]:
        raise ParseError(PROGRAM, f"{call.answer.node}: expected a hash of each file over each mount")
    expected = [hashlib.sha256(_TREE.contents(spec, number)).hexdigest() for number in range(spec["files"])]
    differing = []
    for folder, part in zip(spec["folders"], _parts(hashes, spec["files"]), strict=True):
        for number, (own, right) in enumerate(zip(part, expected, strict=True)):
            if own != right:
                why = "other contents" if re.fullmatch(SHA256, str(own)) else str(own)
                differing.append((number, f"{folder}/{_TREE.path_of(number)}", why))
    wrong = {number for number, _, _ in differing}
    right_bytes = sum(_TREE.size_of(spec, number) for number in range(spec["files"]) if number not in wrong)
    _moved(call, storage, right_bytes, writes=False)
    return differing


def _parts(values: Sequence[Any], count: int) -> list[Sequence[Any]]:
    return [values[at : at + count] for at in range(0, len(values), count)]
