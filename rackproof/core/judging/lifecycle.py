"""Verdicts on the run: intact evidence, unchanged nodes, gaps.

Their ids start with ``run.``; a run of one stage has them as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.smoke import SMOKE
from rackproof.core.evidence import NodeInfo, Record, RunInfo
from rackproof.core.history import CONFIGURED, EXCHANGED, LOST, REBOOTED, VALIDATE, Change, History
from rackproof.core.rack import fold
from rackproof.core.status import Status
from rackproof.core.verdict import EVIDENCE, RUN, Verdict, required_verdict
from rackproof.core.wording import some

RESUME: Final = "Continue it: rackproof certify INVENTORY --resume RUN."
_SHOWN: Final = 5
"""Maximum number of replaced results in a message."""


def judge_lifecycle(
    architecture: Architecture, run: RunInfo, history: History, records: Sequence[Record]
) -> Iterator[Verdict]:
    """Verdicts on the run: one on the identity of each node, and one per event or gap."""
    yield from _end(history, records)
    if run.profile == SMOKE and VALIDATE in history.begun:  # without its checks nothing is certified anyway
        yield _verdict(
            "smoke", "Length of the benchmarks", "rack", Status.UNMEASURED,
            "the profile smoke runs its benchmarks once, for seconds",
            "Its figures show that the benchmarks run, not what the rack gives under load.",
            "Measure with --profile full, or lab on a virtual rack.",
        )  # fmt: skip
    if history.narrowed is not None:
        yield _verdict(
            "narrowed", "Extent of the run", "rack", Status.UNMEASURED, history.narrowed,
            "A partial run proves nothing about the rest of the rack.", RESUME + " It validates everything again.",
        )  # fmt: skip
    for time in history.unended:
        yield _verdict(
            "resumed", "Parts of the run", "rack", Status.WARN,
            f"the part before {time} has no end: it was killed, or its last records were removed",
            "Removed records leave no other trace.", "Compare with a copy of the evidence, if there is one.",
        )  # fmt: skip
    yield from _identities(run.nodes, architecture, history)
    yield from _kinds(run.nodes, history)
    for node in run.nodes:
        yield from _changes(node.name, history)
    if history.replaced:
        yield _replaced(history)


def evidence_verdict(problems: Iterable[str]) -> Verdict:
    """Verdict on evidence that is not intact: the outcome is INCOMPLETE, whatever the other verdicts."""
    return required_verdict(
        EVIDENCE, "Evidence is unchanged", "rack", Status.INVALID, "; ".join(problems),
        "A changed, removed or inserted record and all later records prove nothing;"
        " a number without its output cannot be checked.",
        "Find out what changed the files; restore them from a copy, or measure again.",
    )  # fmt: skip


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
            "An interrupted run has gaps.", RESUME,
        )  # fmt: skip


def _identities(nodes: Sequence[NodeInfo], architecture: Architecture, history: History) -> Iterator[Verdict]:
    boots: dict[str, list[str]] = {}
    for node in nodes:
        seq, identity = history.identities.get(node.name, (-1, None))
        if identity is not None and identity.boot_id:
            boots.setdefault(identity.boot_id, []).append(node.name)
        if node.name in history.unreachable or (identity is None and architecture.is_appliance(node.groups)):
            continue  # node.reachable reports it
        if identity is None or seq < history.parts[-1]:
            status, message = Status.UNMEASURED, "expected its identity in this part of the run, actual none recorded"
        elif not identity.known:
            status, message = Status.UNMEASURED, "it shows no machine-id, serial number or host key"
        else:
            parts = (("machine-id", identity.machine_id), ("serials", identity.serial), ("key", identity.host_key))
            status, message = Status.PASS, ", ".join(f"{name} {value}" for name, value in parts if value)
        yield _verdict(
            "identity", "Identity of the node", node.name, status, message,
            "Results of another machine with this name prove nothing about this one.",
            f"Check that the node can be reached and that /etc/machine-id is readable. {RESUME}",
        )  # fmt: skip
    for boot_id, names in boots.items():
        if len(names) > 1:
            yield _verdict(
                "machines", "One machine per node", fold(names), Status.FAIL,
                f"expected {len(names)} machines, actual one: they have the same boot id {boot_id}",
                "A machine that is counted twice hides one that is missing.",
                "Correct the addresses of the inventory.",
            )  # fmt: skip


def _kinds(nodes: Sequence[NodeInfo], history: History) -> Iterator[Verdict]:
    """One warning for all virtual nodes that the inventory does not call so, and one for all real ones that it does.

    Virtual machines of a cloud are measured like others; the certificate says what they are.
    """
    for declared, declares, shows in (
        (False, "machines", "virtual machines"),
        (True, "virtual machines", "machines without a hypervisor"),
    ):
        shown = {
            node.name: history.identities[node.name][1].model
            for node in nodes
            if node.virtual is declared and node.name in history.identities
            if history.identities[node.name][1].virtual is not declared
            if history.identities[node.name][1].virtual is not None
        }
        if shown:
            models = ", ".join(sorted(set(filter(None, shown.values())))) or "no name of the model"
            yield _verdict(
                "kind", "Kind of the machines", fold(shown), Status.WARN,
                f"the inventory says {declares}, their answers show {shows} ({models})",
                "Numbers of virtual machines depend on their host.", "Set `virtual` in the inventory.",
            )  # fmt: skip


def as_shown(nodes: Iterable[NodeInfo], history: History) -> tuple[NodeInfo, ...]:
    """The nodes; virtual and with simulated GPUs where the inventory or their answers say so."""
    shown = {name: identity for name, (_, identity) in history.identities.items()}
    return tuple(
        node.model_copy(
            update={
                "virtual": node.virtual or bool(shown[node.name].virtual),
                "simulated_gpus": node.simulated_gpus or shown[node.name].simulated_gpus,
            }
        )
        if node.name in shown
        else node
        for node in nodes
    )


def _changes(node: str, history: History) -> Iterator[Verdict]:
    """Verdicts on the events of one node, one per kind, with the latest event."""
    own = [change for change in history.changes if change.node == node]
    open_ = {change for change in history.unvalidated() if change.node == node}
    for kind, (title, _, reason) in _KINDS.items():
        changes = [change for change in own if change.kind == kind]
        if not changes or (kind == CONFIGURED and not open_ & set(changes)):
            continue
        validated = not open_ & set(changes)
        yield _verdict(
            kind, title, node, Status.WARN if validated else Status.UNMEASURED,
            f"{_sentence(changes, history)}; {'validated again' if validated else 'not validated since'}",
            reason, "Find out why before the rack is handed over." if validated else RESUME,
        )  # fmt: skip


class _Kind(NamedTuple):
    """How the certificate words changes of one kind, whose name is the verdict's id."""

    title: str
    what: str
    """The event in words; a lost node's record has its own."""
    reason: str


_KINDS = {
    EXCHANGED: _Kind(
        "Exchanged nodes", "it is another machine than when the run began",
        "Results of the former machine do not count for this one.",
    ),
    LOST: _Kind("Lost nodes", "", "A node that is lost under load is lost in production as well."),
    REBOOTED: _Kind(
        "Reboots during the run", "it rebooted during the run",
        "A reboot drops all settings that are not persistent, and may happen again.",
    ),
    CONFIGURED: _Kind(
        "Changes after validation", "its configuration was changed",
        "The validated configuration is not the current one.",
    ),
}  # fmt: skip


def _sentence(changes: Sequence[Change], history: History) -> str:
    last = changes[-1]
    times = f" ({len(changes)} times)" if len(changes) > 1 else ""
    if last.kind == LOST:
        back = "answered again afterwards" if last.node not in history.lost_now() else "never answered again"
        return f"{last.text} at {last.time}{times}; {back}"
    return f"{_KINDS[last.kind].what}{times}: {last.text}, seen at {last.time}"


def _replaced(history: History) -> Verdict:
    times = Counter(f"{result.name} ({result.was})" if result.was else result.name for result in history.replaced)
    named = [f"{name}, {many} times" if many > 1 else name for name, many in times.items()]
    number = len(history.replaced)
    count = f"{number} earlier result{'s were' if number > 1 else ' was'} replaced by a complete repetition"
    return _verdict(
        "replaced", "Replaced results", "rack", Status.WARN,
        f"{count}: {some(named, _SHOWN, '; ')}",
        "What failed before it passed may fail again.", "Find the cause of the first result in the evidence.",
    )  # fmt: skip


def _verdict(id_: str, title: str, subject: str, status: Status, message: str, reason: str, hint: str) -> Verdict:
    return required_verdict(f"{RUN}{id_}", title, subject, status, message, reason, hint)
