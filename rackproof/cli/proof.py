"""Evidence read again: every number from its raw outputs, by the parsers of this kit."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from rackproof import kit
from rackproof.architectures import LoadedArchitecture
from rackproof.bench.reread import disproven
from rackproof.core.evidence import (
    CheckOutcome,
    CheckResult,
    CommandRecord,
    DeployRecord,
    Kind,
    NodeIdentity,
    Record,
    RunInfo,
)
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.core.wording import some
from rackproof.errors import ArchitectureError, RunError
from rackproof.evidence.folder import info_of, stored_architecture
from rackproof.evidence.store import read_raw
from rackproof.parse import ParseError
from rackproof.parse.identity import IDENTITY_COMMAND, parse_identity
from rackproof.run.stages import deploy_checks
from rackproof.validation.known import digest_of, load_checks
from rackproof.validation.reread import STAGE, reread

CHECKS: Final = "checks"
"""Name of the proof of checks in ``RunInfo.proofs``: the inventory's data are recorded."""
REACHABLE, CONVERGED = "node.reachable", "deploy.converged"
"""Checks of the stages connect and deploy."""
_SHOWN: Final = 8
"""Checks that a note names."""


class Proof(NamedTuple):
    """What reading again found."""

    faults: dict[int, str]
    """Why outputs do not give a record's result, by the ``seq`` of the record."""
    unproven: dict[int, str]
    """Why results of checks can be neither proven nor disproven; only evidence of other kits has such."""
    read: int
    """How many results were read again."""
    seconds: float

    @property
    def line(self) -> str:
        return f"read {self.read} results again from their raw outputs in {self.seconds:.1f} s"


def prove(records: Sequence[Record], folder: Path, reference: LoadedArchitecture) -> Proof:
    """Read a run's evidence again. The run's own architecture counts; ``reference`` replaces one that is unreadable."""
    began = time.monotonic()
    info = info_of(records)
    own = reference
    if info.architecture_sha256 != reference.sha256:
        with contextlib.suppress(RunError, ArchitectureError):
            own = stored_architecture(folder, info)
    output = partial(read_raw, folder)
    faults = disproven(records, output, own.model, info.proofs, info.profile, info.nodes)
    faults |= strangers(records) | other_identities(records, output)
    if why := contradiction(info, own, output):
        faults[records[0].seq] = why
    count = sum(record.kind is Kind.MEASUREMENT and bool(record.body.get("samples")) for record in records)
    unproven: dict[int, str] = {}
    if any(record.kind is Kind.CHECK for record in records):
        validators = kit.folder("validators")
        known = load_checks(validators)
        checks = reread(records, output, own.model, known, digest_of(validators))
        faults |= checks.faults | disproven_outside(records, known)
        unproven, count = checks.unproven, count + checks.read
    return Proof(faults, unproven, count, time.monotonic() - began)


def note_of(unproven: Mapping[int, str], records: Sequence[Record]) -> str:
    """One line on the results that could not be read again; ``unproven`` is not empty."""
    ids = sorted({str(record.body["check"]) for record in records if record.seq in unproven})
    return (
        f"{len(unproven)} results of checks are as they were recorded: another version of the validators or of the kit"
        f" recorded them, and their answers cannot be evaluated again ({some(ids, _SHOWN)})."
    )


def contradiction(info: RunInfo, own: LoadedArchitecture, output: Callable[[str], bytes]) -> str | None:
    """What the first record of a run says of the run that its outputs contradict; None where nothing does."""
    if own.sha256 == info.architecture_sha256 and own.model.metadata.id != info.architecture:
        return f"recorded against {info.architecture}, the stored architecture is {own.model.metadata.id}"
    if info.profile not in own.model.profiles:
        return f"{own.model.metadata.id} has no profile {info.profile}"
    if CHECKS in info.proofs and set(info.inventory_data) != {node.name for node in info.nodes}:
        return "the inventory's data of some nodes were not recorded"
    for node in info.nodes:
        try:
            data = json.loads(output(info.inventory_data[node.name])) if node.name in info.inventory_data else None
        except (RunError, ValueError) as error:
            return f"the inventory's data of {node.name} cannot be read: {error}"
        if data is None:
            continue
        for name, flag in (("virtual", node.virtual), ("simulated_gpus", node.simulated_gpus)):
            if bool(data.get(name)) != flag:
                return f"{node.name}: recorded {name} {flag}, the inventory says {bool(data.get(name))}"
    return None


def strangers(records: Sequence[Record]) -> dict[int, str]:
    """Records of nodes that the run's first record does not name: it claims less than was done."""
    names = {node.name for node in info_of(records).nodes}
    faults = {}
    for record in records:
        body = record.body
        match record.kind:
            case Kind.MEASUREMENT:
                nodes = [str(member).partition("/")[0] for member in body["members"]]
            case Kind.COMMAND | Kind.CHECK | Kind.IDENTITY:
                nodes = [str(body["node"])]
            case Kind.DEPLOY:
                nodes = [str(node["node"]) for node in body["nodes"]]
            case _:
                continue
        if unknown := sorted(set(nodes) - names):
            faults[record.seq] = f"the run does not name {', '.join(unknown)} among its nodes"
    return faults


def other_identities(records: Sequence[Record], output: Callable[[str], bytes]) -> dict[int, str]:
    """Faults of identities that the node's answer before them does not give, by ``seq``."""
    faults: dict[int, str] = {}
    answers: dict[str, CommandRecord] = {}
    for record in records:
        if record.kind is Kind.COMMAND and record.body["command"] == IDENTITY_COMMAND:
            answers[str(record.body["node"])] = CommandRecord.model_validate(record.body)
        if record.kind is not Kind.IDENTITY:
            continue
        identity = NodeIdentity.model_validate(record.body)
        recorded = (identity.machine_id, identity.boot_id, identity.serial)
        try:
            given = parse_identity(output(answers[identity.node].stdout))
        except (KeyError, ParseError, RunError):
            faults[record.seq] = "no answer of the node gives it"
            continue
        if recorded != given:
            faults[record.seq] = f"recorded {', '.join(recorded)}, its raw output gives {', '.join(given)}"
    return faults


def disproven_outside(records: Sequence[Record], validators: Iterable[str]) -> dict[int, str]:
    """Faults of results that were recorded outside of a validation, by ``seq``.

    Those of connections and deploys follow from what was recorded beside them; those of ``validators`` are misplaced.
    """
    faults: dict[int, str] = {}
    stage: str | None = None
    answers: dict[str, list[CommandRecord]] = {}
    converged: dict[str, CheckOutcome] = {}
    for record in records:
        match record.kind:
            case Kind.STAGE:
                stage = str(record.body.get("stage")) if record.body.get("event") == "begin" else ""
                answers, converged = {}, {}
            case Kind.COMMAND if stage == "connect":
                command = CommandRecord.model_validate(record.body)
                answers.setdefault(command.node, []).append(command)
            case Kind.DEPLOY:
                deployed = DeployRecord.model_validate(record.body)
                converged = {result.node: result.outcome for result in deploy_checks(deployed)}
            case Kind.CHECK if stage not in (None, STAGE):
                result = CheckResult.model_validate(record.body)
                if result.check == REACHABLE:
                    shown = any(_shows(answer, result) for answer in answers.get(result.node, ()))
                elif result.check not in (CONVERGED, *validators):
                    continue
                else:
                    shown = result.check == CONVERGED and converged.get(result.node) is CheckOutcome.PASSED
                if not result.required:
                    faults[record.seq] = "recorded as not required, the check is required"
                elif result.outcome is CheckOutcome.PASSED and not shown:
                    faults[record.seq] = (
                        f"recorded as passed in stage {stage or 'none'}, nothing recorded there shows it"
                    )
    return faults


def _shows(answer: CommandRecord, result: CheckResult) -> bool:
    """Whether a node answered, with the outputs that the result names."""
    streams = ((answer.stdout, answer.stdout_bytes), (answer.stderr, answer.stderr_bytes))
    return answer.rc == 0 and {name for name, size in streams if size} == set(result.raw)


def verdict_of(faults: dict[int, str], records: Sequence[Record]) -> Verdict:
    """The headline for results that their raw outputs do not give; ``faults`` is not empty."""
    bodies = {record.seq: record.body for record in records if record.seq in faults}
    seq = min(faults)
    body = bodies[seq]
    what = body.get("check") or body.get("metric") or body.get("command") or ("run" if "run" in body else "record")
    name = str(what)[:80]
    where = body.get("node") or "|".join(map(str, body.get("members", ()))) or "rack"
    labels = ", ".join(f"{key}={value}" for key, value in sorted(dict(body.get("labels") or {}).items()))
    item = labels or body.get("item")
    first = f"{name}{f'[{item}]' if item else ''} on {where} (record {seq}): {faults[seq]}"
    many = len(faults) > 1
    return Verdict(
        id="run.proof",
        kind="check",
        title="Results as their raw outputs give them",
        subject="rack",
        status=Status.INVALID,
        required=True,
        message=f"{len(faults)} results are not what their raw outputs give, the first: {first}" if many else first,
        reason="A result that its raw output does not give was edited, or was read wrongly when it was recorded.",
        hint="Compare the evidence with a copy; measure again where the results matter.",
        records=tuple(sorted(faults)),
    )
