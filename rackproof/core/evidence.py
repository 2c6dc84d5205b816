"""Evidence: immutable records of a run.

A run's ``evidence.jsonl`` is a hash chain: each line carries the hash of the line before, so ``link_breaks`` notices
removed, changed and inserted lines. Records hold facts only, never verdicts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from rackproof.core.plan import Change
from rackproof.core.texts import Sha256

SCHEMA: Final = "rackproof.evidence/v2"
"""Format of the evidence. A record with another field, or with a field less, needs another number."""
GENESIS: Final = "0" * 64


class Kind(StrEnum):
    """Kind of a line of evidence; comments name the body's model."""

    RUN = "run"  # RunInfo: the first line of every run
    STAGE = "stage"  # {"stage", "event": "begin"|"end", "elapsed_s"?}
    COMMAND = "command"  # CommandRecord
    CHECK = "check"  # CheckResult
    MEASUREMENT = "measurement"  # Measurement
    STEP = "step"  # {"step", "status": "done"|"failed"|"partial", "elapsed_s", "reason"?, "digest"?}
    DEPLOY = "deploy"  # DeployRecord
    NOTE = "note"  # {"text"}: free text for the reader; the judge does not read it
    IDENTITY = "identity"  # NodeIdentity
    EVENT = "event"  # Event
    END = "end"  # End: the last record of a run that ended orderly
    PLANNED = "planned"  # PlannedChecks: what a validation is going to ask


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Scope(StrEnum):
    """Kind of subject of a measurement or a criterion."""

    GPU = "gpu"
    NIC = "nic"
    DRIVE = "drive"
    NODE = "node"
    PAIR = "pair"
    RACK = "rack"


PROOFS: Final = ("checks", "end", "guard", "identity", "readers", "planned", "ports", "storage")
"""Proofs that every run records beside its results: part of the format, like ``SCHEMA``.

The inventory's data (for checks), the end, the nodes' states before and after every step, their identities, the reader
of every number, planned checks, counters of ports, and mounts and files of storage.
"""


class NodeInfo(Frozen):
    """A node at the start of the run, without address and credentials."""

    name: str
    groups: tuple[str, ...]
    virtual: bool = False
    simulated_gpus: bool = False


class RunInfo(Frozen):
    """First record of a run: architecture, inventory and nodes."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    run: str
    started: str
    """UTC, ISO 8601."""
    rackproof: str
    """Version of the kit."""
    inventory: str
    architecture: str
    architecture_sha256: Sha256
    """sha256 of the architecture file, whose text is stored under ``raw/``."""
    profile: str
    """Size of the benchmarks: ``lab`` or ``full``."""
    nodes: tuple[NodeInfo, ...]
    controller: dict[str, str]
    proofs: tuple[str, ...] = PROOFS
    kit_sha256: Sha256
    """sha256 of the kit's modules: two builds may have the same version."""
    node_data: dict[str, Sha256]
    """sha256 of the inventory data by node."""
    inventory_data: dict[str, Sha256]
    """sha256 name of the stored output with each node's inventory data, without secrets and access details."""
    validators: Sha256
    """sha256 of the validators' files."""
    own_validators: str | None
    """Folder of validators as passed by the user; None for the kit's validators."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


STAND_IN: Final = "rackproof stand-in programs"
"""Vendor and product of a node whose answers stand-in programs print. Who builds such a rack lets them answer this to
the question for the identity, which every run asks and every judge reads again."""


class NodeIdentity(Frozen):
    """Identity of a machine, recorded at the start and at each resume of a run.

    Empty strings are unknown.
    """

    node: str
    machine_id: str
    """``/etc/machine-id``: changes when the system is installed again."""
    boot_id: str
    """Changes at every boot; not part of the machine's identity."""
    serial: str
    """Serial numbers of the system, its board and its chassis: ``product=…; board=…``, without placeholders."""
    host_key: str
    """Type and fingerprint of the ssh host key that the connection was checked against."""
    model: str
    """Vendor and product of the system."""
    virtual: bool | None
    """Whether the machine is virtual, as its firmware and its processors show it; None if they do not."""
    simulated_gpus: bool
    """Whether its ``nvidia-smi`` is the kit's, which replays answers."""
    raw: tuple[str, ...] = ()

    @property
    def stand_in(self) -> bool:
        """Whether programs answered in the place of the machine."""
        return self.model == STAND_IN

    @property
    def known(self) -> bool:
        """Whether any part identifies the machine."""
        return bool(self.machine_id or self.serial or self.host_key)

    def differences(self, before: NodeIdentity) -> Iterator[str]:
        """``machine-id 1c… → 7f…`` for each known part that differs, except the boot."""
        for name, old, new in (
            ("machine-id", before.machine_id, self.machine_id),
            *(
                (f"{part} serial number", serial, _serials(self.serial).get(part, ""))
                for part, serial in _serials(before.serial).items()
            ),
            *((("host key", before.host_key, self.host_key),) if self._same_type(before) else ()),
        ):
            if old and new and old != new:
                yield f"{name} {old} → {new}"

    def _same_type(self, other: NodeIdentity) -> bool:
        """Whether the two host keys can be compared: a machine has one of each type."""
        return self.host_key.partition(" ")[0] == other.host_key.partition(" ")[0]


def _serials(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split("; ") if "=" in part)


class EventKind(StrEnum):
    """Events of a run, for the judge."""

    LOST = "lost"
    """A node stopped answering during a step or a stage."""
    BACK = "back"
    """A lost node answers again."""
    INTERRUPTED = "interrupted"
    RESUMED = "resumed"
    """The run continues completely; a selection of the previous part no longer applies."""
    NARROWED = "narrowed"
    """Until the next resume the run is limited to a part of the rack or of the checks."""


class Event(Frozen):
    """An event of a run, which the judge turns into a verdict."""

    event: EventKind
    text: str
    """One sentence."""
    node: str | None = None
    stage: str | None = None
    step: str | None = None


class End(Frozen):
    """Last record of a run that ended normally. Evidence without it is truncated, or still being written."""

    records: int
    """Number of records before this one."""
    head: str
    """Hash of the record before this one."""
    stages: tuple[str, ...]
    """Requested stages of this part of the run."""
    interrupted: bool = False


class CommandRecord(Frozen):
    """One command on one node. ``stdout``/``stderr`` are sha256 names of files under ``raw/``."""

    node: str
    command: str
    rc: int | None
    """Exit status; None when the command did not end (timeout, connection lost)."""
    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int
    elapsed_s: float
    timeout_s: float
    error: str | None = None
    """Why there is no exit status, in one line."""


class CheckOutcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNMEASURED = "unmeasured"


class CheckResult(Frozen):
    """Result of one validator on one node; ``item`` is the parameter, e.g. a sysctl key."""

    check: str
    node: str
    item: str = ""
    outcome: CheckOutcome
    required: bool = True
    protects: str
    """One sentence: what breaks in production when the check fails."""
    hint: str
    """Action when it fails."""
    message: str = ""
    """``expected … actual …`` when failed; the reason when unmeasured."""
    reads: str = ""
    """The architecture key with the expected value."""
    expected: Any = None
    """Value of that key when the check ran, as JSON; None where not recorded."""
    elapsed_s: float = 0.0
    raw: tuple[str, ...] = ()
    """sha256 names of the outputs read."""
    beside: str = ""
    """Output of programs before their answers, which the check did not read; empty without any."""
    blames: str = ""
    """Server that may have caused a failure: ``storage-01 (10.77.0.11)``, or its address."""


Quantity = tuple[str, str, tuple[str, ...], tuple[tuple[str, str], ...]]
"""Metric, scope, sorted members and sorted labels."""


class Measurement(Frozen):
    """One number (with its repetitions) for one subject, or the reason why there is none.

    ``labels`` identify it beside metric and members, e.g. ``{"storage": "nfs-tcp"}`` or
    ``{"op": "all_reduce", "bytes": "1048576"}``; ``conditions`` describe it (cache state, run time, versions).
    """

    metric: str
    scope: Scope
    members: tuple[str, ...]
    """Node names: one for NODE, two for PAIR, all participants for RACK. One device for GPU, NIC and
    DRIVE."""
    labels: dict[str, str] = Field(default_factory=dict)
    unit: str
    samples: tuple[float, ...] = ()
    """In ``unit``; empty when unmeasured."""
    reason: str | None = None
    """Set if, and only if, there are no samples."""
    invalid: bool = False
    """Whether the reason disproves what a benchmark measured: the verdict is INVALID, not UNMEASURED."""
    conditions: dict[str, Any] = Field(default_factory=dict)
    companions: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Further numbers of the same repetitions, one per sample, for the sanity gates.

    ``iops`` (1/s), ``latency_s`` (mean of one request, s) and ``outstanding`` (jobs × depth);
    ``application_bytes`` (B, as the benchmark reports) and ``counter_bytes`` (B, as the mount, the NIC or
    the device counted); ``dataset_bytes`` (B, all clients), ``client_ram_bytes`` (B, all clients together)
    and ``bytes_read`` (B, only where no byte is read again before all others);
    ``cached_bytes_start`` (B of the data set in any client cache at the start of the repetition);
    ``clients_read_bytes`` and ``server_drives_bytes`` (B that all clients of the run and the drives of all
    servers read; only where the servers are nodes of the rack).
    Not for gates: ``local_cache_asked`` and ``local_cache_answered`` (reads, as the kernel counted them) and
    ``local_cache_drive_bytes`` (B read from the cache's drive).
    """
    raw: tuple[str, ...] = ()
    step: str
    simulated: bool = False
    reader: str = ""
    """Name of the reader of the samples, see ``bench.readers``; empty without one."""

    @property
    def subject(self) -> str:
        return subject_of(self.scope, self.members)

    @property
    def quantity(self) -> Quantity:
        """The measured quantity; a repetition has the same."""
        return _quantity(self.metric, self.scope, self.members, self.labels)


def quantity_of(body: Mapping[str, Any]) -> Quantity:
    """``Measurement.quantity`` from a record's body."""
    return _quantity(body["metric"], body["scope"], body["members"], body["labels"])


def _quantity(metric: str, scope: str, members: Iterable[str], labels: Mapping[str, str]) -> Quantity:
    return metric, str(scope), tuple(sorted(members)), tuple(sorted(labels.items()))


def subject_of(scope: Scope, members: Iterable[str]) -> str:
    """``gpu-01``, ``gpu-01/gpu3``, ``gpu-01|gpu-02`` (sorted, a pair has no direction) or ``rack``."""
    if scope is Scope.RACK:
        return "rack"
    return "|".join(sorted(members))


REBOOT_REQUIRED: Final = "reboot required: "
REBOOTED: Final = "rebooted in "
"""Prefixes of a node's status line; reasons follow, separated by ``;``."""
CONNECTION_LOST: Final = (
    "the connection was lost: the node restarted, or its network went away; run again when it is back"
)


class OperationChanges(Frozen):
    """Changes of one operation on one node, recorded before they were made."""

    operation: str
    changes: tuple[Change, ...]


class NodeChanges(Frozen):
    """Result of one deploy on one node."""

    node: str
    reached: bool
    changed: tuple[str, ...] = ()
    unchanged: int = 0
    failed: tuple[str, ...] = ()
    rebooted: bool = False
    """Whether the deploy rebooted the node."""
    reason: str | None = None
    details: tuple[OperationChanges, ...] = ()
    """Changes of ``changed`` operations; pyinfra's own operations record none."""
    reboot: str | None = None
    """Changes that need a reboot that was not allowed."""


class DeployRecord(Frozen):
    """Outcome of one pyinfra run."""

    inventory: str
    deploy: str
    dry: bool = False
    exit_status: int
    """pyinfra's exit status, 0 for some failures; see ``ok``."""
    ok: bool
    reason: str | None = None
    nodes: tuple[NodeChanges, ...]
    elapsed_s: float
    raw: tuple[str, ...] = ()
    """sha256 names of pyinfra's stdout, of its stderr and of the reports of the kit's operations, in this order."""


class Record(Frozen):
    """One line of ``evidence.jsonl``."""

    seq: int
    time: str
    kind: Kind
    body: dict[str, Any]
    prev: str
    hash: str


def canonical(value: Any) -> bytes:
    """Canonical JSON for hashing: sorted keys, no blanks, UTF-8, no NaN."""
    return _CANONICAL.encode(value).encode()


_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def chain_hash(seq: int, time: str, kind: Kind, body: dict[str, Any], prev: str) -> str:
    return hashlib.sha256(
        canonical({"seq": seq, "time": time, "kind": kind.value, "body": body, "prev": prev})
    ).hexdigest()


def make_record(seq: int, time: str, kind: Kind, body: dict[str, Any], prev: str) -> Record:
    return Record(seq=seq, time=time, kind=kind, body=body, prev=prev, hash=chain_hash(seq, time, kind, body, prev))


def link_breaks(record: Record, expected: int, prev: str) -> Iterator[str]:
    """Why the record is not number ``expected`` after a record with hash ``prev``.

    Raises ValueError or RecursionError for a body that is not JSON.
    """
    if record.seq != expected:
        yield f"expected record {expected}, actual record {record.seq}"
    if record.prev != prev:
        yield f"record {record.seq} does not follow the record before it"
    if record.hash != chain_hash(record.seq, record.time, record.kind, record.body, record.prev):
        yield f"record {record.seq} was changed after it was written"
