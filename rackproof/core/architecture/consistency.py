"""Consistency checks of a reference architecture, beyond the types of its keys.

References must resolve, figures need a unit and a source, bars must be possible and comparable with their metric,
claims must be checked or have a reason why not, and no statistic may select the best of several tries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from rackproof.core.architecture.base import Figure, parts_of
from rackproof.core.architecture.claims import claim_problems
from rackproof.core.architecture.coverage import coverage_problems
from rackproof.core.architecture.entries import entry_problems, groups
from rackproof.core.architecture.expectations import expected_checks
from rackproof.core.architecture.group_tests import group_problems
from rackproof.core.architecture.ingest import IngestProfile, Tree
from rackproof.core.architecture.models import Architecture
from rackproof.core.architecture.overrides import override_problems
from rackproof.core.architecture.plausibility import plausibility_problems
from rackproof.core.architecture.problem import KeyPath, Problem, each_known, known
from rackproof.core.architecture.profiles import CollectiveProfile
from rackproof.core.architecture.scaled_claims import scale_problems
from rackproof.core.architecture.storage import Storage, canonical
from rackproof.core.metrics import METRICS
from rackproof.core.topology import NAMES
from rackproof.core.units import UnitError, check
from rackproof.core.wording import exact


def problems(architecture: Architecture, stored: bool = False) -> Iterator[Problem]:
    """All contradictions, in the order of the file."""
    yield from _system(architecture)
    yield from _topology(architecture)
    if not stored:
        yield from _lossless(architecture)
    owners: dict[str, str] = {}
    for name, storage in architecture.storage.items():
        yield from _storage(architecture, name, storage)
        for mountpoint in storage.mountpoints:
            if mountpoint in owners:
                problem = f"{mountpoint} is already storage {owners[mountpoint]}'s"
                yield Problem(("storage", name, "mountpoint"), problem)
            owners.setdefault(mountpoint, name)
    yield from _services(architecture)
    for name, profile in architecture.profiles.items():
        if profile.storage:
            path = ("profiles", name, "storage", "storages")
            yield from each_known(path, profile.storage.storages or (), architecture.storage, "storage")
            for metric, reasons in profile.storage.left_out.items():
                entry = ("profiles", name, "storage", "left_out", metric)
                yield from known(entry, metric, METRICS, "metric")
                for left in reasons:
                    yield from known((*entry, left), left, architecture.storage, "storage")
        if profile.links:
            path = ("profiles", name, "links", "to_storage")
            yield from each_known(path, profile.links.to_storage, architecture.storage, "storage")
            for number, local in enumerate(profile.links.to_storage):
                if local in architecture.storage and architecture.storage[local].class_ == "local":
                    yield Problem((*path, number), f"{local} is local storage and has no network path")
        uses = tuple(drives.use for role in architecture.roles.values() for drives in role.expect.drives)
        if profile.drives:
            yield from each_known(
                ("profiles", name, "drives", "uses"), profile.drives.uses or (), uses, "use of drives"
            )
        if profile.osds:
            yield from known(("profiles", name, "osds", "use"), profile.osds.use, uses, "use of drives")
        for part in ("links", "collectives", "ingest", "gpu"):
            if (sized := getattr(profile, part)) is not None:
                path = ("profiles", name, part, "members")
                yield from known(path, sized.members, groups(architecture), "role")
        for dataset, made in profile.ingest.datasets.items() if profile.ingest else ():
            where = ("profiles", name, "ingest", "datasets", dataset, "storage")
            yield from known(where, made.storage, architecture.storage, "storage")
        if profile.ingest:
            yield from _local_caches(architecture, ("profiles", name, "ingest", "jobs"), profile.ingest)
        for tree, written in profile.ingest.trees.items() if profile.ingest else ():
            yield from _tree(architecture, ("profiles", name, "ingest", "trees", tree), written)
        for run, sizes in profile.ingest.dlio.items() if profile.ingest else ():
            where = ("profiles", name, "ingest", "dlio", run, "storage")
            yield from known(where, sizes.storage, architecture.storage, "storage")
        if profile.links and profile.links.groups:
            path = ("profiles", name, "links", "groups")
            if architecture.fabric is None:
                yield Problem(path, "the architecture has no fabric")
            if not stored:
                yield from group_problems(architecture, path, profile.links.groups)
        if profile.collectives:
            yield from _collectives(architecture, ("profiles", name, "collectives"), profile.collectives)
        if profile.gpu and not (architecture.gpu and architecture.gpu.count):
            yield Problem(("profiles", name, "gpu"), "the architecture has no GPUs (gpu.count)")
    yield from _figures(architecture)
    if architecture.sizing and architecture.sizing.storage is not None:
        yield from known(("sizing", "storage"), architecture.sizing.storage, architecture.storage, "storage")
    yield from entry_problems(architecture)
    if not stored:  # a stored run is judged despite gaps; a new run must not start with one
        yield from coverage_problems(architecture)
    yield from plausibility_problems(architecture)
    yield from claim_problems(architecture)
    yield from scale_problems(architecture)
    yield from override_problems(architecture)
    for role in architecture.required_checks:
        yield from known(("required_checks", role), role, groups(architecture), "role")


WITHOUT: Final = {"mpi": ("broadcast", "gather", "scatter"), "torch": ("gather", "scatter")}
"""Operations that the kit's own engines lack."""


def _tree(architecture: Architecture, path: KeyPath, tree: Tree) -> Iterator[Problem]:
    """Problems unless clients share the tree's storage, and the mount that writes has the tree's protocol."""
    for key, name in (("storage", tree.storage), ("through", tree.writer or tree.storage)):
        yield from known((*path, key), name, architecture.storage, "storage")
        own = {"nfs": ["nfs"], "posix": ["parallel"]} if key == "through" else {}
        kinds = own.get(tree.protocol, ["nfs", "parallel"])
        if name in architecture.storage and (actual := architecture.storage[name].class_) not in kinds:
            yield Problem((*path, key), f"expected a storage of class {' or '.join(kinds)}, actual {actual}")


def _collectives(architecture: Architecture, path: KeyPath, sizes: CollectiveProfile) -> Iterator[Problem]:
    if sizes.min_bytes > sizes.max_bytes:
        yield Problem((*path, "max_bytes"), "smaller than min_bytes")
    if sizes.engine == "mpi" and (sizes.algorithms or sizes.node or sizes.rails):
        yield Problem((*path, "engine"), "algorithms, node and rails need GPUs; the engine mpi runs on CPUs")
    for op in (*sizes.ops, *(sizes.node.ops if sizes.node else ())):
        if sizes.engine in WITHOUT and op in WITHOUT[sizes.engine]:
            yield Problem((*path, "ops"), f"the engine {sizes.engine} has no {op}")
    if sizes.engine == "torch" and sizes.rails:
        yield Problem((*path, "rails"), "only the engine nccl-tests runs on each rail by itself")
    if sizes.rails and architecture.fabric is None:
        yield Problem((*path, "rails"), "the architecture has no fabric")
    elif sizes.rails and architecture.rails != sizes.ranks_per_node:
        expected = f"one rank of a node for each of {architecture.rails} rails"
        yield Problem((*path, "ranks_per_node"), f"expected {expected}, actual {sizes.ranks_per_node}")
    steps = {size for n in range(64) if (size := sizes.min_bytes * sizes.factor**n) <= sizes.max_bytes}
    for key, part in (("node", sizes.node), ("rails", sizes.rails)):
        for end in ("min_bytes", "max_bytes") if part is not None else ():
            if getattr(part, end) not in steps:
                yield Problem((*path, key, end), f"{getattr(part, end)} B is no size of the sweep above it")
        if part is not None and part.min_bytes > part.max_bytes:
            yield Problem((*path, key, "max_bytes"), "smaller than min_bytes")


def unknown_checks(architecture: Architecture, validators: Collection[str]) -> Iterator[Problem]:
    """Entries of ``checks`` that are neither required nor in ``validators``, the ids of existing checks."""
    required = {check for checks in architecture.required_checks.values() for check in checks}
    required.update(expected.check for expected in expected_checks(architecture))
    for id_ in architecture.checks:
        yield from known(("checks", id_), id_, sorted(required | set(validators)), "check")


def _system(architecture: Architecture) -> Iterator[Problem]:
    if not architecture.roles:
        yield Problem(("roles",), "a rack without roles has nothing to certify")
    for name, role in architecture.roles.items():
        if role.count.max is not None and role.count.max < role.count.min:
            yield Problem(("roles", name, "count", "max"), f"{role.count.max} is less than min, {role.count.min}")
    server = architecture.system.time.server_role
    if server is not None:
        yield from known(("system", "time", "server_role"), server, architecture.roles, "role")
    if architecture.system.limits:
        expected = sorted({unit for role in architecture.roles.values() for unit in role.expect.services})
        path = ("system", "limits", "services")
        yield from each_known(path, architecture.system.limits.services, expected, "service that a role expects")
    if architecture.gpu and architecture.gpu.count and "gpu" not in architecture.roles:
        yield Problem(("gpu",), "there is no role gpu: no GPU would be checked")


def _topology(architecture: Architecture) -> Iterator[Problem]:
    gpu = architecture.gpu
    if gpu is None or gpu.topology is None:
        return
    path = ("gpu", "topology")
    yield from known(path, gpu.topology, NAMES, "topology")
    if gpu.topology in NAMES and NAMES[gpu.topology].gpus != gpu.count:
        yield Problem(path, f"{gpu.topology} joins {NAMES[gpu.topology].gpus} GPUs, gpu.count says {gpu.count}")


def _lossless(architecture: Architecture) -> Iterator[Problem]:
    """PFC on a priority that no packet uses: RoCE then stays in priority 0, and is dropped under congestion.

    An adapter takes the priority from the DSCP (``trust: dscp``), or from the service level of a queue pair (the
    default, ``pcp``): NVIDIA, MLNX_OFED documentation, "Quality of Service" and "RoCE".
    """
    lossless = architecture.fabric.lossless if architecture.fabric else None
    if lossless is None or lossless.pfc_priority is None:
        return
    priority, path = lossless.pfc_priority, ("fabric", "lossless")
    if lossless.trust != "dscp":
        declared = (architecture.gpu.nccl or {}) if architecture.gpu else {}
        if declared.get("NCCL_IB_SL") != str(priority):
            yield Problem(
                (*path, "pfc_priority"),
                f"nothing puts RoCE into priority {priority}: say trust: dscp, dscp_priority, tos and traffic_class,"
                f' or gpu.nccl: {{NCCL_IB_SL: "{priority}"}} where the service level does',
            )
        return
    codes = [dscp for dscp, mapped in (lossless.dscp_priority or {}).items() if mapped == priority]
    if not codes:
        yield Problem(
            (*path, "dscp_priority"), f"no DSCP means priority {priority}, which has PFC; 26: {priority} does"
        )
        return
    if lossless.tos is None and lossless.traffic_class is None:
        yield Problem(
            (*path, "traffic_class"),
            f"no connection has a DSCP of priority {priority}: say tos and traffic_class {codes[0] << 2 | 2}",
        )
    for key in ("tos", "traffic_class"):
        value = getattr(lossless, key)
        if value is not None and value >> 2 not in codes:
            yield Problem(
                (*path, key), f"{value} is DSCP {value >> 2}, which does not mean priority {priority}, the one with PFC"
            )


def _local_caches(architecture: Architecture, base: KeyPath, profile: IngestProfile) -> Iterator[Problem]:
    for name, job in profile.jobs.items():
        storage = profile.datasets[job.dataset].storage
        known_storage = architecture.storage.get(storage)
        if job.only_local_cache and known_storage is not None and known_storage.local_cache is None:
            yield Problem((*base, name, "only_local_cache"), f"{storage} has no local_cache")


def _storage(architecture: Architecture, name: str, storage: Storage) -> Iterator[Problem]:
    base = ("storage", name)
    if storage.server_role is not None:
        yield from known((*base, "server_role"), storage.server_role, architecture.roles, "role")
    yield from each_known((*base, "client_roles"), storage.client_roles, architecture.roles, "role")
    for index, option in enumerate(storage.options_forbidden):
        if option in storage.options or option in storage.options_required:
            yield Problem((*base, "options_forbidden", index), f"'{option}' is set or required as well")
    yield from _options(storage, base)
    for key in ("max_retransmit_pct", "max_timeouts", "local_cache"):
        if storage.class_ != "nfs" and getattr(storage, key) is not None:
            yield Problem((*base, key), f"is for class nfs, actual {storage.class_}")
    if storage.targets is not None and not storage.tells_targets:
        yield Problem((*base, "targets"), f"no command lists the targets of {storage.class_} {storage.fstype}")
    if storage.mounts_balance is not None and not (storage.mounts_per_client or 1) > 1:
        yield Problem((*base, "mounts_balance"), "needs mounts_per_client of 2 or more")


_OPPOSITES: Final = {"hard": "soft", "lock": "nolock", "ro": "rw", "atime": "noatime"}


def _options(storage: Storage, base: KeyPath) -> Iterator[Problem]:
    """Options that contradict ``transport``, ``port``, ``connections`` or each other."""
    opposites = _OPPOSITES | {second: first for first, second in _OPPOSITES.items()}
    keys = {"proto": "transport", "port": "port", "nconnect": "connections"} if storage.class_ == "nfs" else {}
    options = [canonical(option) if storage.class_ == "nfs" else option for option in storage.options]
    values = {option.partition("=")[0]: option for option in options}
    for place in ("options", "options_required"):
        for index, declared_option in enumerate(getattr(storage, place)):
            option = canonical(declared_option) if storage.class_ == "nfs" else declared_option
            if place == "options_required" and option in options:
                continue
            key, equals, value = option.partition("=")
            declared = getattr(storage, keys[key]) if key in keys else None
            if key in keys and (declared is not None or key == "nconnect") and value != str(declared or ""):
                yield Problem((*base, place, index), f"{keys[key]} says {declared}, this option says {value}")
            elif place == "options_required" and equals and values.get(key, option) != option:
                yield Problem((*base, place, index), f"options says {values[key]}, this option says {option}")
            elif opposites.get(key) in values and not equals:
                yield Problem((*base, place, index), f"options says {opposites[key]}, this option says {key}")


def _services(architecture: Architecture) -> Iterator[Problem]:
    for name, part in (("slurm", architecture.slurm), ("containers", architecture.containers)):
        if part is not None:
            yield from each_known((name, "roles"), part.roles, architecture.roles, "role")
    slurm, gpu = architecture.slurm, architecture.gpu
    if slurm and gpu and "gpu" in slurm.roles and slurm.gres.get("gpu", gpu.count) != gpu.count:
        yield Problem(("slurm", "gres", "gpu"), f"{slurm.gres['gpu']}, and gpu.count says {gpu.count}")
    if architecture.containers:
        base = ("containers", "mounts")
        yield from each_known(base, architecture.containers.mounts, architecture.storage, "storage")
        if architecture.containers.cdi and architecture.gpu is None:
            yield Problem(("containers", "cdi"), "needs a gpu section: CDI has one device per GPU")


def _figures(architecture: Architecture) -> Iterator[Problem]:
    """Unknown units and sources, and missing values without a note."""
    for base, part in parts_of(architecture):
        if isinstance(part, Figure):
            yield from _figure(part, base)
        source = getattr(part, "source", None)
        if isinstance(source, str) and not isinstance(part, Storage):  # a storage's source is what clients mount
            yield from known((*base, "source"), source, architecture.metadata.sources, "source")


def _figure(figure: Figure, base: KeyPath) -> Iterator[Problem]:
    try:
        check(figure.unit)
    except UnitError as error:
        yield Problem((*base, "unit"), str(error))
    if figure.value is None and not figure.note:
        yield Problem((*base, "value"), "is unpublished: say so in a note")
    elif figure.value is not None and figure.value < 0:
        yield Problem((*base, "value"), f"expected 0 or more, actual {exact(figure.value)}")
