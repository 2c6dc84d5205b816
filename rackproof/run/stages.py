"""The stages of a run: connect, deploy, validate, bench. Each records evidence; none judges."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from rackproof.architectures import LoadedArchitecture
from rackproof.bench.forecast import spaces, total_s, writings
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.leftovers import remove_files
from rackproof.bench.plan import plan_steps, refuse_wrong_inputs
from rackproof.bench.runner import run_steps
from rackproof.bench.space import refuse_without_space
from rackproof.bench.step import Step
from rackproof.core.course import CONVERGED, REACHABLE
from rackproof.core.evidence import CheckOutcome, CheckResult, DeployRecord, EventKind, Kind, Record
from rackproof.core.history import History, history_of
from rackproof.core.judging.again import starved_steps
from rackproof.core.planned_checks import PlannedChecks
from rackproof.core.rack import Rack, fold
from rackproof.core.verdict import with_item
from rackproof.core.wording import counted
from rackproof.errors import EvidenceWriteError, RunError
from rackproof.evidence.folder import check_resumable, earlier_seconds, info_of, run_info
from rackproof.evidence.session import Session
from rackproof.evidence.store import RAW, EvidenceStore, read_records
from rackproof.parse.identity import FACTS
from rackproof.remote.fleet import Fleet
from rackproof.run.converge import converge
from rackproof.run.deploy_outcome import INTERRUPTED
from rackproof.run.display import STAGES, Display
from rackproof.run.identity import record_identities
from rackproof.run.rack_lock import RELEASE_S, take_rack
from rackproof.run.resume import Finished, finished
from rackproof.validation.known import digest_of
from rackproof.validation.reread import store_inventory
from rackproof.validation.run import run_validators, validators_folder
from rackproof.validation.selection import EVERYTHING, Selection

log = logging.getLogger("rackproof")

GAPS_SHOWN = 3
"""Lines on what will be UNMEASURED, before a run begins."""


@dataclass
class Run:
    """One pass over a rack. ``stages`` are executed in order; a resumed run skips finished ones."""

    folder: Path
    rack: Rack
    architecture: LoadedArchitecture
    profile: str
    display: Display
    stages: Sequence[str] = STAGES[:-1]
    resume: bool = False
    selection: Selection = EVERYTHING
    """Nodes and checks to validate; a limited selection is an event of the evidence."""
    validators: Path | None = None
    """Folder of validators; None for the kit's own."""
    take_over: str | None = None
    """A run that has ended, from which nodes are taken."""
    _before: History | None = None
    """History of the previous parts."""
    left: str = ""
    """Operations that continue on nodes after an interrupted deploy."""
    storages: tuple[str, ...] = ()
    """Those on which an interrupted bench stage leaves files."""

    def execute(self) -> list[Record]:
        """Execute the stages and return all evidence. Raises EvidenceWriteError, RunError, ArchitectureError,
        InventoryError."""
        steps: list[Step] = []
        if "bench" in self.stages:
            refuse_wrong_inputs(self.rack)
            steps = plan_steps(self.architecture.model, self.profile, self.rack)
        # Benchmarks take what their steps take.
        seconds = earlier_seconds(self.folder.parent, self.rack.source, set(self.stages) - {"bench"})
        if self.resume:
            # Before the store opens the folder, so that a run that does not match is not modified.
            records = read_records(self.folder)
            info = info_of(records)
            check_resumable(info, self.rack, self.architecture, self.profile)
            if info.validators != digest_of(validators_folder(self.validators)):
                raise RunError(f"{info.run}: its validators have changed since it began; start a new run")
            self._before = history_of(records, self.architecture.model, info.nodes)
        with EvidenceStore(self.folder) as store, Fleet(self.rack) as fleet:
            fleet.on_wait = self.display.waiting
            session = Session(self.rack, self.architecture.model, fleet, store)
            try:
                self._begin(session, self._finished(session.store, steps))
                gaps = self._gaps(steps)
                for gap in gaps:
                    store.append(Kind.NOTE, {"text": gap})
                for line in first_gaps(self.profile, gaps):
                    self._say(line)
                self._execute(session, steps, seconds)
            except EvidenceWriteError:
                raise
            except BaseException:
                with suppress(EvidenceWriteError):
                    store.end(self.stages, interrupted=True)
                raise
            store.end(self.stages)
        return read_records(self.folder)

    def _gaps(self, steps: Sequence[Step]) -> list[str]:
        """Gaps of the benchmarks on this rack, one line each (``plan_gaps``); empty without the stage bench."""
        model = self.architecture.model
        return plan_gaps(model, self.profile, self.rack, steps) if "bench" in self.stages else []

    def _begin(self, session: Session, done: Finished) -> None:
        """The first record of this part of the run."""
        if self.resume:
            finished_before = ", ".join(sorted(done.stages)) or "nothing"
            self._say(f"continues {self.folder.name}; finished before: {finished_before}")
            session.event(EventKind.RESUMED, f"resumed; finished before: {finished_before}")
            return
        session.store.raw(self.architecture.text.encode())
        info = run_info(
            self.folder, self.rack, self.architecture, self.profile,
            inventory_data=store_inventory(session.store, self.rack),
            validators=digest_of(validators_folder(self.validators)),
            own_validators=str(self.validators) if self.validators is not None else None,
        )  # fmt: skip
        session.store.append(Kind.RUN, info)
        if self.selection.description:
            session.event(EventKind.NARROWED, f"validation {self.selection.description}")

    def _execute(self, session: Session, steps: list[Step], seconds: Mapping[str, float]) -> None:
        work: dict[str, Callable[[], bool]] = {
            "connect": lambda: self._connect(session),
            "deploy": lambda: self._deploy(session),
            "validate": lambda: self._validate(session),
            "bench": lambda: self._bench(session, steps, done.steps),
        }
        for name in self.stages:
            done = self._finished(session.store, steps)
            if name in done.stages:
                self.display.line(f"{name}: finished before")
                continue
            # An earlier run may have had another profile, or only the rest of a run that was resumed.
            estimate = seconds.get(name)
            if name == "bench":
                left = [step for step in steps if step.id not in done.steps]
                estimate = total_s(left, list(writings(self.architecture.model, self.profile, self.rack, left)))
            with self._stage(session, name, estimate) as outcome:
                outcome["ok"] = work[name]()
                if name != "connect":
                    record_identities(session, session.answering)

    def _finished(self, store: EvidenceStore, steps: Sequence[Step]) -> Finished:
        """Finished stages and steps; records of this part may have reopened some."""
        if not self.resume:
            return Finished()
        return finished(store.records, self.architecture.model, steps)

    @contextmanager
    def _stage(self, session: Session, name: str, estimate_s: float | None) -> Iterator[dict[str, bool]]:
        self.display.stage(name, estimate_s)
        log.info("stage %s", name)
        store = session.store
        session.stage = name
        store.append(Kind.STAGE, {"stage": name, "event": "begin"})
        began = time.monotonic()
        outcome = {"ok": True}
        try:
            yield outcome
        except KeyboardInterrupt:
            session.event(EventKind.INTERRUPTED, f"interrupted in {name}")
            raise
        body = {"stage": name, "event": "end", "elapsed_s": round(time.monotonic() - began, 3), "ok": outcome["ok"]}
        store.append(Kind.STAGE, body)
        session.stage = None

    def _say(self, text: str) -> None:
        log.info(text)
        self.display.line(text)

    def _lock(self, session: Session, wait_s: float = RELEASE_S) -> None:
        """Lock the nodes that answer; the connections of this run's deploy may take a moment to end."""
        nodes = [name for name in session.answering if self.selection.has_node(name)]
        take_rack(session.fleet, nodes, self.folder.name, self._say, self.take_over, wait_s)

    def _connect(self, session: Session) -> bool:
        """Check that every node answers; name those that do not."""
        nodes = [node.name for node in self.rack.nodes if self.selection.has_node(node.name)]
        answers = session.run(dict.fromkeys(nodes, FACTS), 30)
        lost = {name: answer.why for name, answer in answers.items() if not answer.ok}
        self._identify(session, [name for name in answers if name not in lost])
        self._lock(session, wait_s=0)
        for name, answer in answers.items():
            if not answer.ok:
                self._say(f"{name}: {answer.why}")
            session.store.append(Kind.CHECK, reachable_check(name, lost.get(name), session.outputs(answer)))
        if not lost:
            self._say(f"{fold(answers)} answer")
        return not lost

    def _identify(self, session: Session, nodes: Sequence[str]) -> None:
        """Record the nodes' identities; name exchanged nodes, and lost ones that answer again."""
        before = self._before
        for name, identity in record_identities(session, nodes).items():
            _, earlier = before.identities.get(name, (-1, None)) if before else (-1, None)
            if earlier is not None and (differences := ", ".join(identity.differences(earlier))):
                self._say(f"{name} is another machine than before, so it starts again: {differences}")
            elif earlier is not None and earlier.boot_id != identity.boot_id:
                self._say(f"{name} has rebooted in the meantime; it is validated again")
        for name in before.lost_now() if before else ():
            if name in session.answered:
                session.event(EventKind.BACK, "answered again", name)

    def _deploy(self, session: Session) -> bool:
        architecture = self.folder.resolve() / RAW / self.architecture.sha256
        data = [f"architecture={architecture}", f"take_over={self.folder.name}"]

        def show(line: str) -> None:
            log.info("pyinfra: %s", line)
            if line.startswith("--> Starting operation: "):
                self.display.step(line.removeprefix("--> Starting operation: ").strip(), 0, 0, None)

        plan = converge(self.rack, data=data, dry=True, on_line=show)
        outcomes = [plan]
        changes_nodes = not plan.record.ok or any(node.changed or node.reboot for node in plan.record.nodes)
        if changes_nodes and plan.record.reason != INTERRUPTED:
            outcomes.append(converge(self.rack, data=data, on_line=show))
        for outcome in outcomes:
            outcome.keep(session.store)
        for name in {name for outcome in outcomes for name in outcome.rebooted}:
            session.fleet[name].forget()
        last = outcomes[-1].record
        for check in deploy_checks(last):
            session.store.append(Kind.CHECK, check)
        changes = sum(len(node.changed) for node in last.nodes)
        done = f"{counted(changes, 'change', 'changes')} in {last.elapsed_s:.0f} s" if changes else "no changes"
        self._say(last.reason or done)
        if last.reason == INTERRUPTED:
            self.left = outcomes[-1].goes_on
            raise KeyboardInterrupt
        return last.ok

    def _validate(self, session: Session) -> bool:
        same = Counter[tuple[str, str]]()

        def show(result: CheckResult) -> None:
            session.store.append(Kind.CHECK, result)
            if result.outcome is CheckOutcome.PASSED:
                return
            cause = (result.node, result.message)
            same[cause] += 1
            if same[cause] == 1:
                where = with_item(result.check, result.item)
                self._say(f"{result.node}: {where}: {result.outcome.value}: {result.message}")

        self._lock(session)

        def plan(checks: PlannedChecks) -> None:
            session.store.append(Kind.PLANNED, checks)

        folder = validators_folder(self.validators)
        results = run_validators(session, show, plan, selection=self.selection, folder=folder)
        for (node, message), times in same.items():
            if times > 1:
                self._say(f"{node}: {times - 1} further checks: {message}")
        count = sum(r.outcome is CheckOutcome.PASSED for r in results)
        self._say(f"{count} of {len(results)} checks passed")
        return bool(results)

    def _bench(self, session: Session, steps: list[Step], done: Collection[str]) -> bool:
        self._lock(session)
        open_steps = [step for step in steps if step.id not in done]
        seconds = (0.0 if step.id in done else step.estimate_s for step in reversed(steps))
        remaining_s = list(accumulate(seconds))[::-1]

        def show(step: Step, index: int) -> None:
            left = remaining_s[index]
            log.info("step %s", step.id)
            self.display.step(step.title, index + 1, len(steps), left)

        def starved() -> dict[str, str]:
            return starved_steps(self.architecture.model, session.store.records)

        refuse_without_space(session, spaces(self.architecture.model, self.profile, self.rack, open_steps))
        every = list(spaces(self.architecture.model, self.profile, self.rack, steps))
        self.storages = tuple(space.storage for space in every if space.kinds)
        run_steps(session, steps, done, self._say, show, starved)
        if open_steps:
            remove_files(session, every, self._say)
        self.storages = ()
        self._say(f"{counted(len(open_steps), 'benchmark step')} done")
        return True


def first_gaps(profile: str, gaps: Sequence[str]) -> Iterator[str]:
    """The first lines of ``plan_gaps``, and how many more there are: a profile of minutes has dozens."""
    yield from gaps[:GAPS_SHOWN]
    if (more := len(gaps) - GAPS_SHOWN) > 0:
        names = "`rackproof bench --dry-run` names them"
        yield f"profile {profile}: {counted(more, 'more line')} on what will be UNMEASURED; {names}"


def reachable_check(node: str, why: str | None, raw: tuple[str, ...]) -> CheckResult:
    """Whether a node answers, or why not."""
    return CheckResult(
        check=REACHABLE, node=node, message="answers" if why is None else why, raw=raw,
        outcome=CheckOutcome.PASSED if why is None else CheckOutcome.UNMEASURED,
        protects="A node that does not answer cannot be measured.",
        hint="Check its power, its management network and its host key; then run again with --resume.",
    )  # fmt: skip


def deploy_checks(record: DeployRecord) -> list[CheckResult]:
    """The deploy's outcome as one check per node, so that a rack that did not converge is never certified."""
    results = []
    for node in record.nodes:
        if not node.reached:
            outcome, message = CheckOutcome.UNMEASURED, node.reason or "not reached"
        elif node.failed:
            outcome, message = (
                CheckOutcome.FAILED,
                f"expected no failed operation, actual {len(node.failed)}: {node.reason}",
            )
        elif node.reason or not record.ok:
            outcome, message = CheckOutcome.UNMEASURED, node.reason or record.reason or "the deploy did not finish"
        else:
            changes, others = counted(len(node.changed), "change"), counted(node.unchanged, "operation")
            outcome, message = CheckOutcome.PASSED, f"{changes}, {others} without"
        results.append(
            CheckResult(
                check=CONVERGED, node=node.node, outcome=outcome, message=message, raw=record.raw,
                protects="An incompletely configured node fails later, at another place.",
                hint=f"Run `rackproof deploy {record.inventory} --limit {node.node}`; read the first error.",
            )
        )  # fmt: skip
    return results
