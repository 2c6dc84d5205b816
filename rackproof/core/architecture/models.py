"""A whole reference architecture, schema ``refarch/v1``.

Deploys, validators, benchmarks and judge read the same file. ``rackproof.architectures`` loads files and reports errors
with file and line; these models define a valid file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rackproof.core.architecture.base import Claim, ClaimId, Figure, Identifier, Metadata, Model, Sentence
from rackproof.core.architecture.criterion import Criterion, Curve, Outlier, Severity
from rackproof.core.architecture.gpu import Gpu
from rackproof.core.architecture.hardware import Role
from rackproof.core.architecture.network import Fabric
from rackproof.core.architecture.profiles import Profile
from rackproof.core.architecture.scale import Scale
from rackproof.core.architecture.services import Containers, Slurm
from rackproof.core.architecture.storage import Ceph, Storage
from rackproof.core.architecture.system import System, Tools, between_nodes, of_gpus
from rackproof.core.architecture.workloads import Sizing, Workload
from rackproof.core.texts import Line, Name, Prose

KeyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./:-]*$")]
CheckName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.]*(\[[A-Za-z0-9_./: -]*\])?$")]
"""A check, or one item of it: ``mount.free[nfs]``."""


class Link(Model):
    """Capacity of one kind of link in one direction: ``count`` lanes, ports or links of rate ``each``."""

    title: Sentence
    count: int = Field(default=1, ge=1)
    each: Figure
    """Raw rate of one lane, port or link, with a unit of bandwidth."""


class Override(Model):
    """A site's change and its reason. The certificate shows the published value, the site's and the reason.

    With thresholds it changes these. Without thresholds it is the reason for weakenings elsewhere in the file, in the
    entry or below the key of its name.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    warn: float | None = None
    """Warning level of a criterion, in the bar's own unit."""
    efficiency_min: float | None = Field(default=None, gt=0)
    r2_min: float | None = Field(default=None, gt=0, le=1)
    """Threshold of a curve."""
    rel_pct: float | None = Field(default=None, gt=0, lt=100)
    """Threshold of an outlier."""
    reason: Sentence
    by: Prose | None = None

    @property
    def thresholds(self) -> dict[str, float]:
        """Thresholds that it changes, by key."""
        return {key: value for key, value in self if isinstance(value, float)}


class Drop(Model):
    """An entry of the parent that does not apply here."""

    id: Identifier
    reason: Sentence
    by: Prose | None = None


class Architecture(Model):
    """A whole reference architecture."""

    apiVersion: Literal["refarch/v1"]
    extends: Line | None = None
    """Id or path of the parent architecture; merged before validation."""
    metadata: Metadata
    roles: dict[Name, Role]
    system: System = System()
    fabric: Fabric | None = None
    """Null: no fabric."""
    links: dict[Identifier, Link] = Field(default_factory=dict)
    storage: dict[Identifier, Storage] = Field(default_factory=dict)
    ceph: Ceph | None = None
    slurm: Slurm | None = None
    containers: Containers | None = None
    gpu: Gpu | None = None
    tools: Tools = Tools()
    profiles: dict[Identifier, Profile] = Field(default_factory=dict)
    claims: dict[ClaimId, Claim] = Field(default_factory=dict)
    scale: Scale | None = None
    """Set for a small rack that is certified against the claims of a larger system."""
    workloads: dict[Identifier, Workload] = Field(default_factory=dict)
    sizing: Sizing | None = None
    level: Identifier | None = None
    """The level of the bars that must be reached."""
    criteria: tuple[Criterion, ...] = ()
    curves: tuple[Curve, ...] = ()
    outliers: tuple[Outlier, ...] = ()
    overrides: dict[KeyName, Override] = Field(default_factory=dict)
    """By id of the criterion, curve or outlier, or by a dotted key of the file: ``gpu.count``."""
    drop: tuple[Drop, ...] = ()
    checks: dict[CheckName, Severity] = Field(default_factory=dict)
    """Severity of a check, where it differs from the validator's."""
    required_checks: dict[Name, tuple[CheckName, ...]] = Field(default_factory=dict)
    """Role: ids of checks required of every node; a missing result is UNMEASURED."""

    @property
    def rails(self) -> int:
        """Ports of every node that must be on the fabric; 0 without one."""
        return self.fabric.rails if self.fabric else 0

    def roles_of(self, groups: Iterable[str]) -> list[Role]:
        """Roles of a node in these groups."""
        return [self.roles[group] for group in groups if group in self.roles]

    def is_appliance(self, groups: Iterable[str]) -> bool:
        """Whether a node in these groups has roles, none of which the kit logs in to."""
        roles = self.roles_of(groups)
        return bool(roles) and not any(role.managed for role in roles)

    def client_storage(self, role: str) -> dict[str, Storage]:
        """Storage that nodes of a role mount."""
        return {name: s for name, s in self.storage.items() if role in s.client_roles}

    def programs_of(self, groups: Collection[str]) -> tuple[str, ...]:
        """Benchmark programs that a node in these groups needs."""
        return tuple(program for program in self.tools.programs if self.users_of(program) & {"all", *groups})

    def users_of(self, program: str) -> set[str]:
        """Groups whose nodes need a benchmark program; ``all``: every node."""
        if of_gpus(program):
            return {"gpu"}
        return {"gpu", *self._ends()} if between_nodes(program) else {"all"}

    def _ends(self) -> Iterable[str]:
        """Groups between whose nodes links or collectives are measured, and the ends of the way to a storage."""
        profiles = self.profiles.values()
        yield from (part.members for profile in profiles for part in (profile.links, profile.collectives) if part)
        yield from (storage.server_role for storage in self.storage.values() if storage.server_role)
        on_clients = {name for profile in profiles if profile.links for name in profile.links.to_storage}
        if any(profile.storage and profile.storage.beside_collectives for profile in profiles):
            on_clients |= self.storage.keys()
        for name in on_clients & self.storage.keys():
            yield from self.storage[name].client_roles
