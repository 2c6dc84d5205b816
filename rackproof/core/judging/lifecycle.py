"""Verdicts on the run itself: whether its evidence is whole, its nodes stayed the same, and what was left out.

Verdicts whose ids begin with ``run.`` stand for the whole run; a run of one stage has them as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import NodeInfo, Record, RunInfo
from rackproof.core.history import CONFIGURED, EXCHANGED, LOST, REBOOTED, Change, History
from rackproof.core.judging.checks import is_appliance
from rackproof.core.rack import fold
from rackproof.core.status import Status
from rackproof.core.verdict import EVIDENCE, Verdict
from rackproof.core.wording import some

END: Final = "end"
IDENTITY: Final = "identity"
"""Names of proofs, see ``RunInfo.proofs``."""

RESUME: Final = "Continue it: rackproof certify INVENTORY --resume RUN."
_SHOWN: Final = 5
"""Replaced results that are named."""


def judge_lifecycle(
    architecture: Architecture, run: RunInfo, history: History, records: Sequence[Record]
) -> Iterator[Verdict]:
    """Verdicts on the run; none where there is nothing to say, and one on the identity of every node."""
    if END in run.proofs:
        yield from _end(history, records)
    if history.narrowed is not None:
        yield _verdict(
            "narrowed", "Extent of the run", "rack", Status.UNMEASURED, history.narrowed,
            "A run of a part proves nothing about the rest.", RESUME + " It validates everything again.",
        )  # fmt: skip
    for time in history.unended:
        yield _verdict(
            "resumed", "Parts of the run", "rack", Status.WARN,
            f"the part before {time} has no end: it was killed, or its last records were removed",
            "What was removed cannot be seen.", "Compare with a copy of the evidence, if there is one.",
        )  # fmt: skip
    if IDENTITY in run.proofs:
        yield from _identities(run.nodes, architecture, history)
    for node in run.nodes:
        yield from _changes(node.name, history)
    if history.replaced:
        yield _replaced(history)


def evidence_verdict(problems: Iterable[str]) -> Verdict:
    """The evidence cannot be relied on: the run's outcome is INCOMPLETE, whatever else was found."""
    return Verdict(
        id=EVIDENCE,
        kind="check",
        title="Evidence is unchanged",
        subject="rack",
        status=Status.INVALID,
        required=True,
        message="; ".join(problems),
        reason="A changed, removed or inserted record proves nothing, nor do the records after it;"
        " a number without its output cannot be checked.",
        hint="Find out what changed the files; restore them from a copy, or measure again.",
    )


def _end(history: History, records: Sequence[Record]) -> Iterator[Verdict]:
    end, last = history.end, records[-1]
    if end is None:
        yield evidence_verdict(
            [
                f"the evidence has no end (its last record is {last.seq}, a {last.kind.value}): the run was killed,"
                " is still running, or the evidence was cut"
            ]
        ).model_copy(update={"hint": f"{RESUME} If it had ended, restore the evidence from a copy."})
    elif (end.records, end.head) != (last.seq, last.prev):
        yield evidence_verdict(
            [f"the end counts {end.records} records before it, actual {last.seq}: records were removed or inserted"]
        )
    elif end.interrupted:
        yield _verdict(
            "interrupted", "End of the run", "rack", Status.UNMEASURED,
            f"the run was interrupted in {history.begun[-1] if history.begun else 'its beginning'}",
            "A run that was interrupted has gaps.", RESUME,
        )  # fmt: skip


def _identities(nodes: Sequence[NodeInfo], architecture: Architecture, history: History) -> Iterator[Verdict]:
    boots: dict[str, list[str]] = {}
    for node in nodes:
        seq, identity = history.identities.get(node.name, (-1, None))
        if identity is not None and identity.boot_id:
            boots.setdefault(identity.boot_id, []).append(node.name)
        if node.name in history.unreachable or (identity is None and is_appliance(architecture, node.groups)):
            continue  # its own verdict says that it did not answer
        if identity is None or seq < history.parts[-1]:
            status, message = Status.UNMEASURED, "expected its identity in this part of the run, actual none recorded"
        elif not identity.known:
            status, message = Status.UNMEASURED, "it shows no machine-id, serial number or host key"
        else:
            known = (("machine-id", identity.machine_id), ("serials", identity.serial), ("key", identity.host_key))
            status, message = Status.PASS, ", ".join(f"{name} {value}" for name, value in known if value)
        yield _verdict(
            "identity", "Identity of the node", node.name, status, message,
            "A number of another machine of this name says nothing about this one.",
            f"See whether it can be reached and whether /etc/machine-id can be read. {RESUME}",
        )  # fmt: skip
    for boot_id, names in boots.items():
        if len(names) > 1:
            yield _verdict(
                "machines", "One machine a node", fold(names), Status.FAIL,
                f"expected {len(names)} machines, actual one: they have the same boot id {boot_id}",
                "A machine that is counted twice hides one that is missing.",
                "Correct the addresses of the inventory.",
            )  # fmt: skip


def _changes(node: str, history: History) -> Iterator[Verdict]:
    """What happened to one node; every kind once, the latest of it."""
    mine = [change for change in history.changes if change.node == node]
    open_ = {change for change in history.unvalidated() if change.node == node}
    for kind, id_, title in (
        (EXCHANGED, "exchanged", "Exchanged nodes"),
        (LOST, "lost", "Lost nodes"),
        (REBOOTED, "rebooted", "Reboots during the run"),
        (CONFIGURED, "configured", "Changes after validation"),
    ):
        several = [change for change in mine if change.kind == kind]
        if not several or (kind == CONFIGURED and not open_ & set(several)):
            continue
        validated = not open_ & set(several)
        yield _verdict(
            id_, title, node, Status.WARN if validated else Status.UNMEASURED,
            f"{_sentence(several, history)}; {'validated again' if validated else 'not validated since'}",
            _REASONS[kind], "Find out why before the rack is handed over." if validated else RESUME,
        )  # fmt: skip


_REASONS = {
    EXCHANGED: "Results of the machine that was there before do not count for this one.",
    LOST: "A node that goes away under load does so in production too.",
    REBOOTED: "A node that restarts loses what was not made to last, and may do so again.",
    CONFIGURED: "What was validated before the change is not what runs now.",
}


def _sentence(several: Sequence[Change], history: History) -> str:
    last = several[-1]
    times = f" ({len(several)} times)" if len(several) > 1 else ""
    if last.kind == LOST:
        back = "answered again afterwards" if last.node not in history.lost_now() else "never answered again"
        return f"{last.text} at {last.time}{times}; {back}"
    words = {
        EXCHANGED: "it is another machine than when the run began",
        REBOOTED: "it rebooted during the run",
        CONFIGURED: "its configuration was changed",
    }
    return f"{words[last.kind]}{times}: {last.text}, seen at {last.time}"


def _replaced(history: History) -> Verdict:
    named = [f"{one.what} ({one.was})" if one.was else one.what for one in history.replaced]
    count = f"{len(named)} earlier result{'s were' if len(named) > 1 else ' was'} replaced by a whole repetition"
    return _verdict(
        "replaced", "Replaced results", "rack", Status.WARN,
        f"{count}: {some(named, _SHOWN, '; ')}",
        "What fails once and passes later may fail again.", "Read in the evidence why it failed at first.",
    )  # fmt: skip


def _verdict(id_: str, title: str, subject: str, status: Status, message: str, reason: str, hint: str) -> Verdict:
    return Verdict(
        id=f"run.{id_}", kind="check", title=title, subject=subject, status=status, required=True,
        message=message, reason=reason, hint=hint,
    )  # fmt: skip
