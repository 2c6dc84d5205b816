"""Proofs of a run of the input pipeline, without which its numbers do not count. All raise ParseError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rackproof.bench.ingest.runs import TOOL, Part, Run, part_of
from rackproof.bench.storage.byte_counters import counted_bytes
from rackproof.bench.storage.proof import states_around
from rackproof.core.architecture import Storage
from rackproof.parse import Mismatch, ParseError

CLOCKS_S: Final = 1.0
"""Largest difference between two nodes' clocks by the controller's measurement: per-second series are compared."""
TOGETHER_S: Final = 0.5
"""Largest difference between a node's start and its common start, seconds."""
IDENTITY: Final = 0.03
"""Tolerance of samples × bytes a sample against the bytes of the storage."""
_ROUNDING: Final = 1.0001
"""Factor on sums of times."""
_OWN_RANKS: Final = ("node", "gpus", "folder")


def check_together(parts: Sequence[tuple[str, Part]], *, apart: bool = False) -> None:
    """All nodes ran the same job, from the same moment, each its own share, or, ``apart``, each the whole."""
    first = _shared(parts[0][1])
    for node, part in parts:
        other = _shared(part)
        if other != first:
            raise Mismatch(TOOL, f"{node} was given another job than {parts[0][0]}")
        if part.answer.values.get("start_file") != part.config["start_file"]:
            raise Mismatch(TOOL, f"{node} answers another command")
        begun = part.answer.number("began_at") - part.start_at
        if abs(begun) > TOGETHER_S:
            raise Mismatch(TOOL, f"{node} began {begun:+.1f} s off the common start")
    shares = [0] * len(parts) if apart else list(range(int(first["nodes"])))
    if sorted(part.config["node"] for _, part in parts) != shares or (apart and first["nodes"] != 1):
        raise Mismatch(TOOL, f"expected the shares of {first['nodes']} nodes, actual {len(parts)}")
    starts = {node: part.start_at for node, part in parts}
    early, late = min(starts, key=starts.__getitem__), max(starts, key=starts.__getitem__)
    if starts[late] - starts[early] > CLOCKS_S:
        behind_s = starts[late] - starts[early]
        raise Mismatch(TOOL, f"the clock of {early} is {behind_s:.1f} s behind that of {late}; set it first (chrony)")
    sets = {part.answer.child("dataset").string("samples_sha256") for _, part in parts}
    if len(sets) > 1:
        raise Mismatch(TOOL, "the nodes read different data sets")
    if parts[0][1].reads and not first["seconds"]:
        _check_pass([part for _, part in parts], apart)


def _check_pass(parts: Sequence[Part], apart: bool) -> None:
    """One pass reads each sample of the data set once: all nodes together, or, ``apart``, each node."""
    samples = parts[0].answer.child("dataset").number("samples") * (len(parts) if apart else 1)
    read = sum(part.pipeline("samples") + part.pipeline("drained") for part in parts)
    if read != samples:
        raise ParseError(TOOL, f"expected a pass over {samples:.0f} samples, actual {read:.0f}")


def _shared(part: Part) -> dict[str, Any]:
    """The part of the configuration that all nodes have in common."""
    own = {key: value for key, value in part.config.items() if key != "node"}
    ranks = {key: value for key, value in part.real.items() if key not in _OWN_RANKS}
    return own | ({"torch": ranks} if ranks else {})


def check_figures(part: Part) -> None:
    """The figures of one node do not contradict each other."""
    window = part.window_s
    asked = float(part.config["seconds"])
    if window <= 0 or (asked and abs(window - asked) > 0.01 * asked):
        raise ParseError(TOOL, f"expected {asked:g} s, actual {window:g} s")
    if (most := max(part.busy_of_each)) > window * _ROUNDING:
        raise ParseError(TOOL, f"an accelerator was busy for {most:g} s of {window:g} s")
    if part.busy_s <= 0:
        raise ParseError(TOOL, "no batch reached an accelerator")
    steps = sum(part.steps) if part.real else max(sum(part.steps), part.busy_s / float(part.config["step_s"]))
    taken, given = steps * float(part.config["batch"]), part.pipeline("samples")
    if part.config["data"] != "synthetic" and taken > given * _ROUNDING:
        raise ParseError(TOOL, f"its accelerators took {taken:.0f} samples, its workers gave them {given:.0f}")
    wall = part.answer.number("ended_at") - part.answer.number("began_at")
    if wall < window + part.config["warmup_s"] - TOGETHER_S:
        raise ParseError(TOOL, f"it ran {wall:.1f} s, less than its timed part and warm-up")


def checked_bytes(storage: Storage, run: Run, node: str, part: Part, *, cold: bool) -> int | None:
    """Bytes that storage gave to this node, by its own counters; None without an exact one.

    Mounts are the architecture's before and after. What a cold run read came from the storage: fewer bytes mean that a
    cache answered. An exact counter has the bytes of the samples, in a run that is not cold at most these.
    """
    before, after = states_around(run, node, storage)
    counted = counted_bytes(storage, before, after, writes=False)
    if cold:
        counted.check(int(part.pipeline("bytes")), TOOL)
    if counted.exact is not None:
        jobs = (part if job == part.config["job"] else part_of(run, node, job) for job in run.jobs)
        parts = [job for job in jobs if job.reads and job.config["mountpoints"] == part.config["mountpoints"]]
        check_identity(parts, counted.exact, cold=cold, local=storage.class_ == "local")
    return counted.exact


def check_identity(parts: Sequence[Part], counted: int, *, cold: bool, local: bool) -> None:
    """The storage gave a node the bytes of the samples of all jobs that read it, within ``IDENTITY``.

    A ``local`` drive gives whole pages. Jobs that read one data set at once share the node's cache: it is read once at
    least, and once for each job at most. Raises ParseError.
    """
    sets: dict[str, list[float]] = {}
    for part in parts:
        sets.setdefault(part.config["folders"][0], []).append(part.read)
    most = sum(map(sum, sets.values()))
    least = sum(map(max, sets.values())) if cold else 0.0
    pages = sum(part.pages for part in parts) if local else 0.0
    if not least * (1 - IDENTITY) <= counted <= most * (1 + IDENTITY) + pages:
        size = f"{most:.0f}" if least == most else f"{least:.0f} to {most:.0f}"
        raise ParseError(
            TOOL, f"its samples have {size} B, the storage gave {counted} B: more than {IDENTITY:.0%} apart"
        )
