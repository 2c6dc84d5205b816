"""Small architectures, runs and evidence for the judge's tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.consistency import problems
from rackproof.core.architecture.expectations import expected_checks
from rackproof.core.architecture.node_checks import Place, node_checks
from rackproof.core.evidence import (
    GENESIS,
    CheckOutcome,
    CheckResult,
    End,
    Kind,
    Measurement,
    NodeIdentity,
    NodeInfo,
    Record,
    RunInfo,
    Scope,
    make_record,
)
from rackproof.core.judging.judge import judge
from rackproof.core.load import PREFIX, subjects_for
from rackproof.core.metrics import METRICS
from rackproof.core.planned_checks import PlannedChecks, planned
from rackproof.core.programs import used_programs
from rackproof.core.verdict import Judgement, Verdict

GPU = ("gpu-01", "gpu-02")
NODES = (*GPU, "sto-01")


def bar(op: str, value: float, unit: str, **more: Any) -> dict[str, Any]:
    return {"op": op, "value": value, "unit": unit, **more}


def criterion(*, bar: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A valid criterion on node reads of the storage ``nfs``, at least 20 MB/s, unless told otherwise.

    ``bar`` is its key ``pass``.
    """
    whole = {
        "id": "nfs.read",
        "title": "Reading",
        "metric": "storage.read_bandwidth",
        "where": {"storage": "nfs"},
        "scope": "node",
        "pass": {"op": "ge", "value": 20, "unit": "MB/s"},
        "source": "us",
        "reason": "Because it is so.",
        "hint": "Look at it.",
    } | fields
    return whole | {"pass": bar} if bar else whole


def document(*criteria: dict[str, Any], **fields: Any) -> dict[str, Any]:
    # no clients, no programs, no fabric: every key of theirs would ask for a check
    storage = {"class": "nfs", "fstype": "nfs4", "source": "/srv", "server_role": "storage", "client_roles": []}
    return {
        "apiVersion": "refarch/v1",
        "metadata": {
            "id": "small",
            "version": "1.2.3",
            "title": "Small rack",
            "scope": "Tests only",
            "sources": {"us": {"doc": "ourselves", "status": "proposed"}},
        },
        "roles": {"gpu": {"count": {"min": 1}}, "storage": {"count": {"min": 1, "max": 1}}},
        "system": {"time": {"max_offset_ms": 10}},
        "storage": {
            "nfs": {**storage, "mountpoint": "/mnt/nfs"},
            "local": {**storage, "class": "local", "mountpoint": "/mnt/local"},
        },
        "tools": {"packages": ["fio"]},
        "profiles": {"lab": {}},
        "criteria": list(criteria),
    } | fields


def architecture(*criteria: dict[str, Any], **fields: Any) -> Architecture:
    """A consistent architecture with these criteria."""
    made = Architecture.model_validate(document(*criteria, **fields))
    assert [problem.message for problem in problems(made)] == []
    return made


def run_info(*names: str, simulated: tuple[str, ...] = ()) -> RunInfo:
    """``gpu-…`` nodes are in the group gpu, the others in storage."""
    return info_of_nodes(
        NodeInfo(
            name=name, groups=("gpu",) if name.startswith("gpu") else ("storage",), simulated_gpus=name in simulated
        )
        for name in names or NODES
    )


def info_of_nodes(nodes: Iterable[NodeInfo], **fields: Any) -> RunInfo:
    nodes = tuple(nodes)
    sums = {node.name: "0" * 64 for node in nodes}
    made: dict[str, Any] = {
        "run": "r1",
        "started": "2026-01-02T03:04:05Z",
        "rackproof": "0",
        "inventory": "inventories/x.py",
        "architecture": "small",
        "architecture_sha256": "0" * 64,
        "profile": "lab",
        "controller": {},
        "kit_sha256": "0" * 64,
        "node_data": sums,
        "inventory_data": sums,
        "validators": "0" * 64,
        "own_validators": None,
    }
    return RunInfo(nodes=nodes, **(made | fields))


def measurement(
    members: str | tuple[str, ...],
    *samples: float,
    metric: str = "storage.read_bandwidth",
    scope: Scope | None = None,
    unit: str | None = None,
    reason: str | None = None,
    conditions: dict[str, Any] | None = None,
    companions: dict[str, tuple[float, ...]] | None = None,
    **labels: str,
) -> Measurement:
    """A measurement of a node where ``members`` is a name, of a pair where it is two, of a device where it has a slash.

    Reading ``nfs`` unless told otherwise.
    """
    members = (members,) if isinstance(members, str) else members
    if scope is None and len(members) == 1 and "/" in members[0]:
        scope = Scope(members[0].partition("/")[2].rstrip("0123456789"))
    if metric.startswith("storage.") and not labels:
        labels = {"storage": "nfs", "block_bytes": "1048576"}
    return Measurement(
        metric=metric,
        scope=scope or (Scope.NODE if len(members) == 1 else Scope.PAIR),
        members=members,
        labels=labels,
        unit=unit or METRICS[metric].unit,
        samples=samples,
        reason=reason if samples or reason else "not measured",
        conditions=conditions or {},
        companions=companions or {},
        raw=(f"raw-of-{'-'.join(members)}",),
        step="s",
    )


def check(node: str, name: str = "base.kernel", outcome: str = "passed", item: str = "", **fields: Any) -> CheckResult:
    return CheckResult(
        check=name,
        node=node,
        item=item,
        outcome=CheckOutcome(outcome),
        protects="Everything.",
        hint="Look.",
        **{"message": "" if outcome == "passed" else f"{name} is not so", **fields},
    )


CHECKED = tuple(check(name) for name in NODES)
"""One passing check for every node."""


def judged(made: Architecture, *measurements: Measurement, run: RunInfo | None = None) -> Judgement:
    """With every node checked."""
    run = run or run_info()
    return judge(made, run, measurements, [check(node.name) for node in run.nodes])


def verdicts(judgement: Judgement, id_: str = "nfs.read") -> dict[str, Verdict]:
    """Verdicts on one id by subject."""
    matching = [verdict for verdict in judgement.verdicts if verdict.id == id_]
    assert len({verdict.subject for verdict in matching}) == len(matching)
    return {verdict.subject: verdict for verdict in matching}


def recorded(*bodies: Any) -> list[Record]:
    """A chain of records; models and bodies of stages."""
    chain: list[Record] = []
    for seq, body in enumerate(bodies):
        plain = {"text": body} if isinstance(body, str) else body
        if not isinstance(plain, dict):
            plain = plain.model_dump(mode="json", by_alias=True)
        prev = chain[-1].hash if chain else GENESIS
        chain.append(make_record(seq, "2026-01-02T03:04:05Z", _KINDS[type(body)], plain, prev))
    return chain


_KINDS: dict[type, Kind] = {
    RunInfo: Kind.RUN,
    CheckResult: Kind.CHECK,
    Measurement: Kind.MEASUREMENT,
    dict: Kind.STAGE,
    str: Kind.NOTE,
    PlannedChecks: Kind.PLANNED,
    NodeIdentity: Kind.IDENTITY,
    End: Kind.END,
}
VALIDATE_BEGIN = {"stage": "validate", "event": "begin"}
VALIDATE_END = {"stage": "validate", "event": "end", "elapsed_s": 1.0, "ok": True}


def asked(made: Architecture, nodes: Sequence[NodeInfo]) -> list[tuple[str, str, str]]:
    """Check, item and node of everything that a validation must answer."""
    groups = {group for node in nodes for group in node.groups}
    first = {group: next(node.name for node in nodes if group in node.groups) for group in groups}
    cases = []
    for node in nodes:
        leads = tuple(group for group in node.groups if first[group] == node.name)
        gpus = sum("gpu" in other.groups for other in nodes)
        place = Place((*node.groups, "all"), leads, node.simulated_gpus, len(nodes), gpus)
        by_key = [entry for entry in expected_checks(made) if entry.role in place.groups]
        cases += [(entry.check, entry.item, node.name) for entry in (*node_checks(made, place), *by_key)]
    return list(dict.fromkeys(cases))


def whole(made: Architecture, *bodies: Any, run: RunInfo | None = None) -> list[Record]:
    """A run without gaps: everything was validated, then came ``bodies``, and no step did anything to a node.

    A result among ``bodies`` takes the place of the validation's.
    """
    run = run or run_info()
    given = {(body.check, body.item, body.node): body for body in bodies if isinstance(body, CheckResult)}
    numbers = [body for body in bodies if isinstance(body, Measurement)]
    cases = {case: check(case[2], case[0], item=case[1]) for case in asked(made, run.nodes)} | given
    identities = (
        NodeIdentity(
            node=node.name,
            machine_id=f"{k:032x}",
            boot_id=f"{k}",
            serial="",
            host_key="",
            model="",
            virtual=None,
            simulated_gpus=False,
        )
        for k, node in enumerate(run.nodes)
    )
    after = {
        (f"{PREFIX}{subject}", number.step, node.name): None
        for number in numbers
        for node in run.nodes
        for subject in subjects_for(made, node.groups, node.simulated_gpus)
    } | {
        ("bench.programs", program, node): None
        for number in numbers
        if number.samples
        for program in used_programs(
            number.metric, number.labels, number.conditions.get("command"), number.conditions.get("image")
        )
        for node in {member.partition("/")[0] for member in number.members}
    }
    chain = recorded(
        run, *identities, VALIDATE_BEGIN, planned(cases), *cases.values(), VALIDATE_END,
        *(body for body in bodies if not isinstance(body, CheckResult)),
        *(check(node, name, item=item) for name, item, node in after if (name, item, node) not in cases),
    )  # fmt: skip
    end = End(records=len(chain), head=chain[-1].hash, stages=("validate", "bench"))
    body = end.model_dump(mode="json")
    return [*chain, make_record(len(chain), "2026-01-02T03:04:05Z", Kind.END, body, chain[-1].hash)]
