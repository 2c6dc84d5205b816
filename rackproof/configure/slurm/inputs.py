"""Inputs of Slurm. The architecture declares the rest (roles, resources, partitions, version)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, StringConstraints, field_validator, model_validator

from rackproof.configure.inputs import Repository
from rackproof.configure.settings import Inputs
from rackproof.core.texts import Host, Name, Path

OWN_KEYS = frozenset(
    key.lower()
    for key in (
        "ClusterName", "SlurmctldHost", "SlurmUser", "SlurmctldPort", "SlurmdPort", "StateSaveLocation",
        "SlurmdSpoolDir", "AuthType", "CredType", "ProctrackType", "TaskPlugin", "JobAcctGatherType", "SelectType",
        "SelectTypeParameters", "GresTypes", "ReturnToService", "RebootProgram", "ResumeTimeout", "MessageTimeout",
        "SlurmctldParameters", "LaunchParameters", "MpiDefault", "PrologFlags", "Prolog", "Epilog",
        "HealthCheckProgram", "HealthCheckInterval", "HealthCheckNodeState", "PropagateResourceLimitsExcept",
        "AccountingStorageType", "AccountingStorageHost", "AccountingStoragePort", "AccountingStorageTRES",
        "NodeName", "PartitionName", "Include",
    )
)  # fmt: skip
"""Keys of slurm.conf that the kit writes itself, in lower case: Slurm ignores case."""

Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]+$")]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_/(*-][A-Za-z0-9_.,:=/()\[\]@+%*-]*$")]
Words = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_/(*-][A-Za-z0-9_.,:=/()\[\]@+%* -]*$")]
Parameter = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+(=[A-Za-z0-9_.:/-]+)?$")]


class SlurmInputs(Inputs):
    """``slurm`` in the inventory's data. Every node of the cluster must have the same."""

    KEY: ClassVar = "slurm"
    DOWNLOADS: ClassVar = True

    cluster_name: str = Field(default="cluster", pattern=r"^[a-z][a-z0-9_-]{0,39}$")
    """Name of the cluster; lower case, because accounting keeps it so. Default: Slurm's own sample file."""
    controller_port: int = Field(default=6817, ge=1, le=65535)
    """TCP port of slurmctld. Source: slurm.conf(5)."""
    node_port: int = Field(default=6818, ge=1, le=65535)
    """TCP port of slurmd. Source: slurm.conf(5)."""
    user_id: int = Field(default=64030, ge=1, le=2**31)
    """Number of the user and group ``slurm`` where its package makes none (SchedMD's own). Default: the number that
    Debian allocates to Slurm (base-passwd)."""
    state_directory: Path = "/var/lib/slurm"
    """Absolute path below which the controller keeps jobs and a node its spool. Default: Debian's packages."""
    return_to_service: Literal[0, 1, 2] = 1
    """ReturnToService. 1: a node that only stopped answering comes back by itself, one that rebooted unexpectedly waits
    for an operator. With Slurm's own default, 0, an operator is needed after every network outage."""
    select_parameters: str = Field(default="CR_Core_Memory", pattern=r"^[A-Za-z_,]+$")
    """SelectTypeParameters of select/cons_tres. Cores and memory, as most GPU clusters share nodes between jobs."""
    memory_reserved_mib: int = Field(default=0, ge=0)
    """MemSpecLimit: MiB of every node that jobs cannot have. 0: the whole node, as Slurm does."""
    cpu_spec_list: tuple[NonNegativeInt, ...] = ()
    """CpuSpecList: processors of every node that neither jobs nor Slurm's daemons get (SlurmdOffSpec), such as those
    that WEKA's client polls on. Slurm's own numbers, not the kernel's: cores counted socket by socket, times
    ThreadsPerCore, plus the thread; one thread stands for its whole core. Default: none. Source: slurm.conf(5)."""
    controller_parameters: tuple[Parameter, ...] = ()
    """SlurmctldParameters, e.g. ``node_reg_mem_percent=95``. Slurm's default: none."""
    launch_parameters: tuple[Parameter, ...] = ("use_interactive_step",)
    """LaunchParameters. use_interactive_step: salloc gives a shell on the node. Source: slurm.conf(5)."""
    mpi_default: str = Field(default="none", pattern=r"^[a-z0-9_]+$")
    """MpiDefault; ``pmix`` where Slurm and MPI are built with it. Slurm's default."""
    message_timeout_s: int = Field(default=30, ge=5, le=100)
    """Seconds for one message. Slurm's default of 10 is short for a node whose processors are all taken."""
    boot_timeout_s: int = Field(default=1800, ge=60)
    """Seconds after ``scontrol reboot`` until a node counts as lost. GPU servers take 10 minutes and more to start."""
    health_check_interval_s: int = Field(default=300, ge=0, le=65534)
    """Seconds between health checks; 0 turns them off. The program itself ends at once, see ``health_check``."""
    health_check_node_state: tuple[Literal["ALLOC", "ANY", "CYCLE", "IDLE", "NONDRAINED_IDLE", "MIXED"], ...] = (
        "ANY",
        "CYCLE",
    )
    """HealthCheckNodeState. ANY: a GPU that dies under a job is found before the next one; CYCLE: not all nodes at
    the same moment."""
    prolog: Path | None = None
    """Absolute path on every node of a program that runs as root before a job's first step there."""
    epilog: Path | None = None
    """Absolute path on every node of a program that runs as root after a job."""
    accounting_host: Host | None = None
    """Where slurmdbd runs. The kit does not set slurmdbd up: its database is a site's own. None: no accounting."""
    accounting_port: int = Field(default=6819, ge=1, le=65535)
    """TCP port of slurmdbd. Source: slurm.conf(5)."""
    gres_autodetect: Literal["auto", "nvml", "nvidia", "rsmi", "off"] = "auto"
    """AutoDetect of gres.conf. auto: nvml where Slurm's package has that plugin, else the devices /dev/nvidiaN by
    number. MIG devices are found by nvml only (gres.conf(5)): anything else is refused with ``gpu.mig: Enabled``.
    Simulated GPUs are only counted, whatever the value."""
    partition_options: dict[Name, dict[Key, Word]] = Field(default_factory=dict)
    """By partition: keys of its line, e.g. ``{gpu: {MaxTime: 2-00:00:00}}``. The first partition is the default."""
    extra: dict[Key, Words] = Field(default_factory=dict)
    """Further keys of slurm.conf. Those that the kit writes itself are refused."""
    repository: Repository | None = None
    """A dnf repository with Slurm, for the RHEL family, whose own repositories have none."""

    @model_validator(mode="before")
    @classmethod
    def _older_spelling(cls, plain: Any) -> Any:
        """Former keys of ``slurm``: ``repository_url``, ``repository_key_url`` and ``repository_key_sha256``."""
        names = {"repository_url", "repository_key_url", "repository_key_sha256"}
        if not isinstance(plain, dict) or "repository" in plain or not names & set(plain):
            return plain
        rest = {key: value for key, value in plain.items() if key not in names}
        older = {key.removeprefix("repository_"): plain[key] for key in names if plain.get(key) is not None}
        if not older:
            return rest
        source = {"source": older.pop("url")} if "url" in older else {}
        return {**rest, "repository": {**source, "key": {k.removeprefix("key_"): v for k, v in older.items()}}}

    @field_validator("extra")
    @classmethod
    def _not_ours(cls, extra: dict[str, str]) -> dict[str, str]:
        for key in extra:
            if key.lower() in OWN_KEYS:
                raise ValueError(f"{key} is written by the kit")
        return extra

    @field_validator("partition_options")
    @classmethod
    def _not_its_nodes(cls, options: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        for name, pairs in options.items():
            for key in pairs:
                if key.lower() in ("partitionname", "nodes"):
                    raise ValueError(f"{name}: {key} follows from the architecture")
        return options

    @model_validator(mode="after")
    def _off_spec(self) -> SlurmInputs:
        if len(set(self.cpu_spec_list)) < len(self.cpu_spec_list):
            raise ValueError("cpu_spec_list: a processor is listed twice")
        params = self._task_parameters
        if self.cpu_spec_list and params is not None and "slurmdoffspec" not in params.lower().split(","):
            raise ValueError("extra.TaskPluginParam: with cpu_spec_list it has to say SlurmdOffSpec, too")
        return self

    @property
    def _task_parameters(self) -> str | None:
        return next((value for key, value in self.extra.items() if key.lower() == "taskpluginparam"), None)

    @property
    def daemons_off_spec(self) -> bool:
        """Whether TaskPluginParam is written: by default slurmd runs on the very processors that are reserved."""
        return bool(self.cpu_spec_list) and self._task_parameters is None
