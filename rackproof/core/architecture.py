"""Reference architectures, schema ``refarch/v1``: what was promised.

One file is read by deploys, validators, benchmarks and judge alike. ``rackproof.architectures`` loads files and
reports errors with file and line; these models only say what a valid file is.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from rackproof.core.evidence import Scope

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
Sentence = Annotated[str, StringConstraints(min_length=3, strip_whitespace=True)]


def _text_of_integer(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


LabelValue = Annotated[str, BeforeValidator(_text_of_integer), StringConstraints(min_length=1)]
"""Labels are text in evidence; a file may write ``bytes: 1048576``."""


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SourceStatus(StrEnum):
    VERIFIED = "verified"
    DERIVED = "derived"
    PROPOSED = "proposed"
    UNVERIFIED = "unverified"


class Source(Model):
    """Where a figure comes from; ``status`` says how far it can be trusted."""

    doc: str
    status: SourceStatus


class Metadata(Model):
    id: Identifier
    version: str
    title: Sentence
    scope: Sentence
    """What a certificate against this file claims, and what it does not."""
    sources: dict[str, Source]


class Count(Model):
    """How many nodes of a role a rack may have."""

    min: int = Field(default=1, ge=0)
    max: int | None = None


class Role(Model):
    """A role is a pyinfra group of the same name."""

    count: Count = Count()


class TimeSync(Model):
    """One node serves the time, the others follow it."""

    server_role: str = "storage"
    max_offset_ms: float = Field(gt=0)


class System(Model):
    """State of the operating system on every node."""

    packages: tuple[str, ...] = ()
    sysctl: dict[str, str] = Field(default_factory=dict)
    limits_memlock: Literal["unlimited"] | int = "unlimited"
    """KiB, as in limits.conf."""
    transparent_hugepages: Literal["always", "madvise", "never"] = "madvise"
    cpu_governor: str | None = None
    """Applied and checked only where the kernel offers frequency scaling."""
    unattended_upgrades: Literal["frozen", "allowed"] = "frozen"
    time: TimeSync


class Fabric(Model):
    """The network between nodes that carries storage and collectives."""

    kind: Literal["soft-roce", "roce", "infiniband"]
    rails: int = Field(default=1, ge=1)
    mtu: int = Field(ge=576, le=65520)
    """Bytes, of the netdev."""
    interface_prefix: str = "fabric"
    """Rail k is named prefix + k."""
    rdma_prefix: str = "rdma"
    line_rate_gbps: float | None = Field(default=None, gt=0)
    """Gb/s of one port; null where the link has no rate (an emulated one)."""


class Storage(Model):
    """One file system as the clients see it. ``class`` is one of the storage classes of the vocabulary."""

    class_: Literal["local", "nfs", "parallel", "object"] = Field(alias="class")
    mountpoint: str
    fstype: str
    """As /proc/mounts names it: ext4, nfs4, ceph …"""
    source: str
    """local: file-system label; nfs: exported path on the server; parallel: the file system's name."""
    server_role: str | None = None
    client_roles: tuple[str, ...] = ("gpu",)
    transport: Literal["tcp", "rdma"] | None = None
    port: int | None = None
    options: tuple[str, ...] = ()
    """Mount options that are set."""
    options_required: tuple[str, ...] = ()
    """Options that the kernel must report in force."""
    options_forbidden: tuple[str, ...] = ()
    connections: int | None = Field(default=None, ge=1, le=16)
    """nconnect."""
    min_free_gb: float = 0.0
    """GB (10^9 B)."""
    stat_timeout_s: float = Field(default=5.0, gt=0)
    """A mount that does not answer statfs within this many seconds is not usable."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class Ceph(Model):
    """A Ceph cluster that the kit sets up itself (virtual rack)."""

    filesystem: str
    pool_size: int = Field(ge=1, le=3)
    osd_memory_target_mib: int = Field(default=896, ge=512)


class Gpu(Model):
    """GPUs of every node of the role ``gpu``."""

    count: int = Field(ge=0)
    model: str
    memory_mib: int
    memory_tolerance_pct: float = 1.0
    driver: str | None = None
    ecc: Literal["Enabled", "Disabled"] | None = None
    persistence: Literal["Enabled", "Disabled"] | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


class Tools(Model):
    """Benchmark programs on every node: package and the program that proves it."""

    packages: tuple[str, ...]
    programs: tuple[str, ...]


class Statistic(StrEnum):
    """How the samples of one measurement become one number."""

    MEDIAN = "median"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"


class Reduce(StrEnum):
    """How the members of a criterion become subjects of a verdict."""

    EACH = "each"
    """One verdict a member: every node or every pair must reach the bar."""
    MIN = "min"
    MAX = "max"
    MEDIAN = "median"
    SUM = "sum"
    MIN_OVER_MEDIAN = "min_over_median"
    """Fairness between members, a ratio; needs at least two of them."""
    MAX_OVER_MEDIAN = "max_over_median"


class Reference(Model):
    """Another measured quantity that a bar is a share of.

    With ``reduce: each`` it is looked up for the same member; otherwise its members become one number.
    """

    metric: str
    where: dict[str, LabelValue] = Field(default_factory=dict)
    scope: Scope
    statistic: Statistic = Statistic.MEDIAN
    reduce: Reduce = Reduce.MEDIAN
    max_cv_pct: float | None = Field(default=None, gt=0)
    """As in a criterion: a share of a noisy number is INVALID too."""


class Bar(Model):
    """What must be reached.

    Without ``of`` the bar is an absolute ``value`` in ``unit``. With ``of`` it is a share of another quantity:
    ``unit`` is then ``percent`` or ``ratio`` and both quantities must have the same dimension.
    """

    op: Literal["ge", "le", "eq", "range"]
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """``range`` uses low and high (both included), the others use value."""
    unit: str
    of: Reference | None = None
    warn: float | None = None
    """Reaching ``value`` but not ``warn`` is WARN; for ``ge`` and ``le`` only."""
    tolerance_pct: float = Field(default=0.0, ge=0, le=20)
    """Percent of the bar that a number may miss it by and still pass."""


class Severity(StrEnum):
    REQUIRED = "required"
    ADVISORY = "advisory"


class Criterion(Model):
    """A number that must be reached."""

    id: Identifier
    title: Sentence
    metric: str
    where: dict[str, LabelValue | Annotated[tuple[LabelValue, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """Labels that the measurement must carry. A list asks for one verdict for each of its values."""
    scope: Scope
    members: str = "gpu"
    """The group whose nodes (or pairs of nodes) must have a verdict."""
    statistic: Statistic = Statistic.MEDIAN
    reduce: Reduce = Reduce.EACH
    min_samples: int = Field(default=1, ge=1)
    max_cv_pct: float | None = Field(default=None, gt=0)
    """Coefficient of variation over the samples above which the number is INVALID, not FAIL."""
    pass_: Bar = Field(alias="pass")
    severity: Severity = Severity.REQUIRED
    source: str
    reason: Sentence
    """Why this bar and not another."""
    hint: Sentence
    """What to look at when it is not reached."""

    def variants(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Verdict id and exact labels for every combination of the listed label values.

        ``where: {op: all_reduce, bytes: [1024, 4096]}`` gives ``id[1024]`` and ``id[4096]``.
        """
        listed = [key for key, value in self.where.items() if isinstance(value, tuple)]
        choices = [value if isinstance(value, tuple) else (value,) for value in self.where.values()]
        for combination in product(*choices):
            labels = dict(zip(self.where, combination, strict=True))
            item = ",".join(labels[key] for key in listed)
            yield (f"{self.id}[{item}]" if item else self.id), labels

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class FioJob(Model):
    """One fio workload; sizes are integers of bytes because fio's suffixes are ambiguous."""

    rw: Literal["read", "write", "randread"]
    block_bytes: int = Field(gt=0)
    iodepth: int = Field(default=8, ge=1)
    numjobs: int = Field(default=1, ge=1)
    file_bytes: int = Field(gt=0)
    """Per job and client."""
    runtime_s: int = Field(ge=1)
    ramp_s: int = Field(default=0, ge=0)
    runs: int = Field(default=1, ge=1)


class StorageProfile(Model):
    jobs: dict[Literal["read", "write", "randread"], FioJob]
    storages: tuple[str, ...] | None = None
    """None: all of the architecture's."""


class LinkProfile(Model):
    rdma_block_bytes: int = 65536
    rdma_duration_s: int = Field(ge=1)
    latency_iterations: int = Field(ge=5)
    tcp_duration_s: int = Field(ge=1)
    tcp_streams: int = Field(default=1, ge=1)
    runs: int = Field(default=1, ge=1)


class CollectiveProfile(Model):
    engine: Literal["nccl-tests", "mpi"]
    ops: tuple[Literal["all_reduce", "all_gather", "alltoall"], ...]
    min_bytes: int = Field(gt=0)
    max_bytes: int = Field(gt=0)
    factor: int = Field(default=2, ge=2)
    iterations: int = Field(ge=1)
    warmup: int = Field(ge=0)
    ranks_per_node: int = Field(default=1, ge=1)


class Profile(Model):
    """How much a run measures: ``lab`` is small, ``full`` is an acceptance test."""

    storage: StorageProfile | None = None
    links: LinkProfile | None = None
    collectives: CollectiveProfile | None = None


class Architecture(Model):
    """A whole reference architecture."""

    apiVersion: Literal["refarch/v1"]
    metadata: Metadata
    roles: dict[str, Role]
    system: System
    fabric: Fabric
    storage: dict[Identifier, Storage]
    ceph: Ceph | None = None
    gpu: Gpu | None = None
    tools: Tools
    profiles: dict[str, Profile]
    criteria: tuple[Criterion, ...]
    checks: dict[str, Severity] = Field(default_factory=dict)
    """Severity of a check where it differs from the validator's own."""
    required_checks: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Check ids that every node of a role must have a result for; absence is UNMEASURED."""

    def client_storage(self, role: str) -> dict[str, Storage]:
        """Storage that nodes of a role mount."""
        return {name: s for name, s in self.storage.items() if role in s.client_roles}
