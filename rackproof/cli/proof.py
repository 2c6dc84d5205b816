"""Compare recorded results with their raw outputs, read again by this kit's parsers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rackproof import __version__
from rackproof.architectures import LoadedArchitecture
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.plan import plan_steps
from rackproof.bench.replan import unlike_plan
from rackproof.bench.reread import disproven
from rackproof.core.course import CONVERGED, REACHABLE, contradictions
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
from rackproof.core.verdict import RUN, Verdict, required_verdict, with_item
from rackproof.errors import ArchitectureError, RunError
from rackproof.evidence.folder import info_of, kit_digest, stored_architecture
from rackproof.evidence.store import read_raw
from rackproof.kit import CLUSTER
from rackproof.parse import ParseError
from rackproof.parse.identity import IDENTITY_COMMAND, parse_identity
from rackproof.report.certificate import EMPTY_SHA256 as EMPTY
from rackproof.run.deploy_outcome import contradiction as deploy_fault
from rackproof.run.stages import deploy_checks, reachable_check
from rackproof.validation.known import Checks, digest_of, load_checks
from rackproof.validation.reread import STAGE, rack_of, recorded_inventory, reread
from rackproof.validation.run import validators_folder


class Proof(NamedTuple):
    """Result of reading evidence again."""

    faults: dict[int, str]
    """Why outputs contradict a record's result, by ``seq``."""
    read: int
    """Number of results that were read again."""
    seconds: float

    @property
    def line(self) -> str:
        return f"read {self.read} results again from their raw outputs in {self.seconds:.1f} s"


def prove(
    records: Sequence[Record], folder: Path, reference: LoadedArchitecture, validators: Path | None = None
) -> Proof:
    """Read a run's evidence again, with the kit's validators or those in ``validators``.

    The run's architecture counts, or ``reference`` if it is unreadable.
    """
    began = time.monotonic()
    info = info_of(records)
    own = reference
    if info.architecture_sha256 != reference.sha256:
        with contextlib.suppress(RunError, ArchitectureError):
            own = stored_architecture(folder, info)
    output = partial(read_raw, folder)
    faults = disproven(records, output, own.model, info.profile, info.nodes)
    faults |= contradictions(records) | strangers(records) | unlike_deploys(records, output)
    identities = identities_of(records, output)
    faults |= identities.faults
    if why := contradiction(info, own, output, identities.simulated):
        faults[records[0].seq] = why
    count = sum(record.kind is Kind.MEASUREMENT and bool(record.body["samples"]) for record in records)
    if info.kit_sha256 == kit_digest():
        faults |= _unlike_plan(records, info, own, output)
    if any(record.kind is Kind.CHECK for record in records):
        where = validators_folder(validators)
        digest = digest_of(where)
        checks_by_id = _checks(where, digest)
        checks = reread(records, output, own.model, checks_by_id, digest)
        faults |= checks.faults | disproven_outside(records, checks_by_id)
        count += checks.read
    return Proof(faults, count, time.monotonic() - began)


@lru_cache(maxsize=4)
def _checks(folder: Path, digest: str) -> Checks:
    """The checks in validators of this ``digest``, for all runs that a process judges. Raises RunError."""
    return load_checks(folder)


def contradiction(
    info: RunInfo, own: LoadedArchitecture, output: Callable[[str], bytes], simulated: Collection[str] = ()
) -> str | None:
    """How outputs contradict the run's first record; None if they do not. ``simulated``: nodes that replay GPUs."""
    if own.sha256 == info.architecture_sha256 and own.model.metadata.id != info.architecture:
        return f"recorded against {info.architecture}, the stored architecture is {own.model.metadata.id}"
    if info.profile not in own.model.profiles:
        return f"{own.model.metadata.id} has no profile {info.profile}"
    names = {node.name for node in info.nodes}
    if set(info.inventory_data) != names or set(info.node_data) != names:
        return "the inventory's data of some nodes were not recorded"
    for node in info.nodes:
        try:
            groups, data = recorded_inventory(info, node.name, output)
        except RunError as error:
            return f"the inventory's data of {node.name} cannot be read: {error}"
        if groups != list(node.groups):
            return f"{node.name}: recorded groups {', '.join(node.groups)}, the inventory says {', '.join(groups)}"
        for name, flag in (("virtual", node.virtual), ("simulated_gpus", node.simulated_gpus)):
            if bool(data.get(name)) != flag:
                return f"{node.name}: recorded {name} {flag}, the inventory says {bool(data.get(name))}"
        if node.name in simulated and not node.simulated_gpus:
            return f"{node.name}: recorded simulated_gpus False, its nvidia-smi replays recorded answers"
    if info.kit_sha256 == kit_digest():
        here = digest_of(validators_folder(None))
        if info.rackproof != __version__:
            return f"recorded version {info.rackproof} of this build, it is {__version__}"
        if info.own_validators is None and info.validators != here:
            return f"recorded this kit's validators as {info.validators[:12]}, they are {here[:12]}"
    return None


def _unlike_plan(
    records: Sequence[Record], info: RunInfo, own: LoadedArchitecture, output: Callable[[str], bytes]
) -> dict[int, str]:
    """Faults of benchmarks that the plan of this build does not have, by ``seq``."""
    with TemporaryDirectory() as scratch:
        rack = rack_of(info, output, Path(scratch))
    try:
        steps = plan_steps(own.model, info.profile, rack)
        gaps = plan_gaps(own.model, info.profile, rack, steps)
    except ArchitectureError as error:
        return {records[0].seq: f"its benchmarks cannot be planned again: {error}"}
    return unlike_plan(records, steps, gaps)


def unlike_deploys(records: Sequence[Record], output: Callable[[str], bytes]) -> dict[int, str]:
    """Faults of deploys that their outputs do not give, by ``seq``."""
    names = [node.name for node in info_of(records).nodes]
    faults = {}
    for record in records:
        if record.kind is Kind.DEPLOY:
            deploy = DeployRecord.model_validate(record.body)
            if deploy.deploy != CLUSTER:
                faults[record.seq] = f"recorded {deploy.deploy}, a run deploys {CLUSTER}"
            try:
                fault = deploy_fault(deploy, [output(name) for name in deploy.raw], names)
            except RunError as error:
                fault = f"its outputs do not give it: {error}"
            if fault:
                faults[record.seq] = fault
    return faults


def strangers(records: Sequence[Record]) -> dict[int, str]:
    """Faults of records about nodes that the run's first record does not name, by ``seq``."""
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


class Identities(NamedTuple):
    """Result of reading the nodes' identities again."""

    faults: dict[int, str]
    """By ``seq``."""
    simulated: frozenset[str]
    """Nodes whose last answer shows simulated GPUs."""


def identities_of(records: Sequence[Record], output: Callable[[str], bytes]) -> Identities:
    """Identities that differ from the node's answer before them are faults."""
    faults: dict[int, str] = {}
    answers: dict[str, CommandRecord] = {}
    simulated: dict[str, bool] = {}
    for record in records:
        if record.kind is Kind.COMMAND and record.body["command"] == IDENTITY_COMMAND:
            answers[str(record.body["node"])] = CommandRecord.model_validate(record.body)
        if record.kind is not Kind.IDENTITY:
            continue
        identity = NodeIdentity.model_validate(record.body)
        try:
            answer = answers[identity.node]
            given = parse_identity(output(answer.stdout))
        except (KeyError, ParseError, RunError):
            faults[record.seq] = "no answer of the node gives it"
            continue
        simulated[identity.node] = given.simulated_gpus
        for name, value in given._asdict().items():
            if (recorded := getattr(identity, name)) != value:
                faults[record.seq] = f"{name}: recorded {recorded}, its raw output gives {value}"
        if set(identity.raw) != {answer.stdout, answer.stderr} - {EMPTY}:
            faults.setdefault(record.seq, "it names other outputs than those of its answer")
    return Identities(faults, frozenset(name for name, replays in simulated.items() if replays))


def disproven_outside(records: Sequence[Record], validators: Iterable[str]) -> dict[int, str]:
    """Faults of results that were recorded outside of a validation, by ``seq``.

    Results of the stages connect and deploy must follow from the records of that stage; results of ``validators`` are
    misplaced there.
    """
    faults: dict[int, str] = {}
    stage: str | None = None
    answers: dict[str, list[CommandRecord]] = {}
    converged: dict[str, CheckResult] = {}
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
                checks = deploy_checks(deployed.model_copy(update={"raw": ()}))
                converged = {result.node: result for result in checks}
            case Kind.CHECK if stage not in (None, STAGE):
                result = CheckResult.model_validate(record.body)
                given: CheckResult | None = None
                if result.check == REACHABLE:
                    if any(_shows(answer, result) for answer in answers.get(result.node, ())):
                        given = reachable_check(result.node, None, result.raw)
                elif result.check == CONVERGED:
                    given = converged.get(result.node)
                elif result.check not in validators:
                    continue
                if not result.required:
                    faults[record.seq] = "recorded as not required, the check is required"
                elif result.outcome is CheckOutcome.PASSED and result != given:
                    faults[record.seq] = (
                        f"recorded as passed in stage {stage or 'none'}, no record of that stage proves it"
                    )
    return faults


def _shows(answer: CommandRecord, result: CheckResult) -> bool:
    """Whether the command that the result names succeeded."""
    return answer.rc == 0 and {answer.stdout, answer.stderr} - {EMPTY} == set(result.raw)


def verdict_of(faults: dict[int, str], records: Sequence[Record]) -> Verdict:
    """The verdict on results that contradict their raw outputs; ``faults`` is not empty."""
    seq = min(faults)
    (first_record,) = [record for record in records if record.seq == seq]
    body = first_record.body
    name = str(body.get("check") or body.get("metric") or body.get("command") or first_record.kind.value)[:80]
    where = body.get("node") or "|".join(map(str, body.get("members", ()))) or "rack"
    labels = ", ".join(f"{key}={value}" for key, value in sorted(dict(body.get("labels") or {}).items()))
    item = labels or body.get("item")
    first = f"{with_item(name, str(item or ''))} on {where} (record {seq}): {faults[seq]}"
    message = f"{len(faults)} results contradict their raw outputs, the first: {first}" if len(faults) > 1 else first
    hint = "Compare the evidence with a copy; repeat the measurement."
    info, here = info_of(records), kit_digest()
    if info.kit_sha256 != here:
        recorded, this = f"{info.rackproof} (build {info.kit_sha256[:12]})", f"{__version__} (build {here[:12]})"
        message += f"; recorded by rackproof {recorded}, read again by {this}, which may read outputs in another way"
        hint = f"Judge with rackproof {recorded}: if that agrees, only the kits differ. {hint}"
    return required_verdict(
        f"{RUN}proof", "Results match their raw outputs", "rack", Status.INVALID, message,
        "A result that contradicts its raw output was edited, or this kit reads it otherwise than the recording one.",
        hint,
        records=tuple(sorted(faults)),
    )  # fmt: skip
