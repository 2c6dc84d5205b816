"""Which of two values of one key demands more, by the key's path.

Used to compare a file with the published architecture that it extends. A key without a rule may not change: what has no
order counts as weaker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

from rackproof.core.grouping import grouped

Path = tuple[str, ...]
Rule = Callable[[Any, Any], bool]
"""``(published, here)``: whether ``here`` demands at least as much."""

EMPTY: Final[tuple[Any, ...]] = (None, "", [], {}, ())


def at_least(published: Any, site: Any) -> bool:
    """More is stronger; without a value nothing is demanded."""
    return published is None or (site is not None and _number(site) >= _number(published))


def at_most(published: Any, site: Any) -> bool:
    """Less is stronger; without a limit nothing is demanded."""
    return published is None or (site is not None and _number(site) <= _number(published))


def superset(published: Any, site: Any) -> bool:
    """Every entry demands something."""
    return _set(published) <= _set(site)


def subset(published: Any, site: Any) -> bool:
    """Every entry allows something."""
    return _set(site) <= _set(published)


def allowed(published: Any, site: Any) -> bool:
    """A list of what is allowed; without entries everything is."""
    return published in EMPTY or (site not in EMPTY and subset(published, site))


def all_or_some(published: Any, site: Any) -> bool:
    """A list of what is measured; None: all."""
    return site is None or (published is not None and superset(published, site))


def labels(published: Any, site: Any) -> bool:
    """Values of one label, each with a verdict of its own; a label more selects fewer measurements."""
    return published is not None and superset(published, site)


def excuse(published: Any, site: Any) -> bool:
    """A reason for which nothing is demanded."""
    return site is None or published is not None


def version(published: Any, site: Any) -> bool:
    """``>=525.105.17``: a later one is stronger; an exact version may only take the place of an older lower bound."""
    if published is None:
        return True
    if site is None or not str(published).startswith(">="):
        return False
    return _version(site) >= _version(published)


def true(published: Any, site: Any) -> bool:
    """A switch that demands something when it is on."""
    return not published or bool(site)


def false(published: Any, site: Any) -> bool:
    """A switch that allows something when it is on."""
    return bool(published) or not site


def added(published: Any, site: Any) -> bool:
    """Any value where none was published."""
    return published in EMPTY


def never(published: Any, site: Any) -> bool:
    """Any change is weaker, also a value where none was published."""
    return False


def free(published: Any, site: Any) -> bool:
    """Names and texts of the site, which demand nothing."""
    return True


_AT_LEAST = """
    roles.*.count.min  gpu.count  gpu.memory_mib  gpu.power_limit_w  gpu.clocks.*  gpu.temperature_margin_min_c
    gpu.pcie_generation  gpu.pcie_width  gpu.nvlink.links  gpu.nvlink.gb_per_s_per_link  gpu.nvswitches  gpu.dcgm_level
    roles.*.expect.cpu.sockets  roles.*.expect.cpu.cores  roles.*.expect.cpu.threads
    roles.*.expect.memory.installed_gb  roles.*.expect.memory.dimms  roles.*.expect.memory.dimm_gib
    roles.*.expect.memory.dimm_speed_mts
    roles.*.expect.drives.*.count  roles.*.expect.drives.*.size_tb  roles.*.expect.drives.*.total_tb
    roles.*.expect.drives.*.pcie_generation  roles.*.expect.drives.*.pcie_width  roles.*.expect.scratch.drives
    roles.*.expect.nics.*.count  roles.*.expect.nics.*.speed_gbps  roles.*.expect.nics.*.mtu
    roles.*.expect.nics.*.pcie_generation  roles.*.expect.nics.*.pcie_width
    fabric.rails  fabric.mtu  fabric.line_rate_gbps
    system.limits.nofile
    storage.*.connections  storage.*.min_free_gb  storage.*.min_free_inodes  storage.*.mounts_per_client
    storage.*.read_ahead_kib  storage.*.targets
    ceph.pool_size  slurm.gres.*
    criteria.*.min_samples  curves.*.min_samples  outliers.*.min_samples
    criteria.*.conditions.*_min  curves.*.conditions.*_min  outliers.*.conditions.*_min
    curves.*.efficiency_min  curves.*.r2_min
    profiles.*.storage.jobs.*.file_bytes  profiles.*.storage.jobs.*.runtime_s  profiles.*.storage.jobs.*.ramp_s
    profiles.*.storage.jobs.*.runs
    profiles.*.links.rdma_duration_s  profiles.*.links.latency_iterations  profiles.*.links.tcp_duration_s
    profiles.*.links.runs
    profiles.*.collectives.max_bytes  profiles.*.collectives.iterations  profiles.*.collectives.warmup
    profiles.*.collectives.runs  profiles.*.collectives.node.max_bytes  profiles.*.collectives.rails.max_bytes
    profiles.*.collectives.guest.max_bytes
    profiles.*.containers.job.file_bytes  profiles.*.containers.job.runtime_s  profiles.*.containers.job.ramp_s
    profiles.*.containers.job.runs
    profiles.*.drives.runtime_s  profiles.*.drives.runs  profiles.*.osds.bytes  profiles.*.osds.runs
    profiles.*.ingest.datasets.*.samples  profiles.*.ingest.datasets.*.copies  profiles.*.ingest.datasets.*.mean_bytes
    profiles.*.ingest.jobs.*.seconds  profiles.*.ingest.jobs.*.warmup_s  profiles.*.ingest.jobs.*.runs
    profiles.*.ingest.jobs.*.accelerators  profiles.*.ingest.jobs.*.crop
    profiles.*.ingest.trees.*.files  profiles.*.ingest.trees.*.max_bytes
    profiles.*.ingest.dlio.*.accelerators  profiles.*.ingest.dlio.*.files  profiles.*.ingest.dlio.*.epochs
    profiles.*.ingest.dlio.*.runs
"""

_AT_MOST = """
    roles.*.count.max  gpu.memory_tolerance_pct  gpu.ecc_corrected_max  gpu.ecc_uncorrected_lifetime_max
    gpu.remapped_rows_max  gpu.nvlink.errors_max
    roles.*.expect.cpu.idle_latency_max_us
    roles.*.expect.memory.tolerance_pct  roles.*.expect.memory.corrected_errors_max
    roles.*.expect.memory.uncorrected_errors_max
    roles.*.expect.drives.*.wear_max_pct  roles.*.expect.drives.*.media_errors_max
    roles.*.expect.pcie.correctable_errors_max  roles.*.expect.pcie.uncorrectable_errors_max
    roles.*.expect.pcie.messages_max
    roles.*.expect.nics.*.counters.*  roles.*.expect.nics.*.link_flaps_max  roles.*.expect.nics.*.effective_ber_max
    roles.*.expect.nics.*.driver_messages_max
    fabric.loss_max_pct  system.time.max_offset_ms
    storage.*.max_used_pct  storage.*.mounts_balance  storage.*.stat_latency_ms  storage.*.max_retransmit_pct
    storage.*.max_timeouts  storage.*.stat_timeout_s
    ceph.answer_timeout_s  slurm.memory_tolerance_pct  slurm.max_clock_skew_s
    criteria.*.max_cv_pct  curves.*.max_cv_pct  outliers.*.max_cv_pct
    criteria.*.warmup  curves.*.warmup  outliers.*.warmup
    criteria.*.conditions.*_max  curves.*.conditions.*_max  outliers.*.conditions.*_max
    criteria.*.pass.tolerance_pct  outliers.*.rel_pct  outliers.*.z  outliers.*.min_peers
    profiles.*.collectives.min_bytes  profiles.*.collectives.factor
    profiles.*.ingest.jobs.*.slowdown  profiles.*.storage.join.least_bytes
    profiles.*.collectives.node.min_bytes  profiles.*.collectives.rails.min_bytes
"""

_SUPERSET = """
    system.packages  system.cmdline_required  system.cmdline_forbidden  system.modules  system.modules_forbidden
    system.dkms  system.holds  system.kernel_log  system.limits.services  tools.packages  tools.programs
    roles.*.expect.services  roles.*.expect.nics.*.pkeys  gpu.gds
    storage.*.client_roles  storage.*.options  storage.*.options_required  storage.*.options_forbidden
    slurm.roles  slurm.partitions  containers.roles  containers.mounts  containers.bridge
    criteria.*.gates  curves.*.gates  outliers.*.gates  curves.*.points  profiles.*.collectives.ops
    profiles.*.links.to_storage
    profiles.*.ingest.jobs.*.data  profiles.*.ingest.jobs.*.nodes
    profiles.*.collectives.algorithms  profiles.*.collectives.node.ops  profiles.*.collectives.node.algorithms
    profiles.*.collectives.rails.ops
    roles.*.claim  gpu.claim  fabric.claim  storage.*.claim  slurm.claim  containers.claim  workloads.*.claim
    roles.*.expect.cpu.claim  roles.*.expect.memory.claim  roles.*.expect.drives.*.claim  roles.*.expect.pcie.claim
    roles.*.expect.scratch.claim  roles.*.expect.nics.*.claim  criteria.*.claim  curves.*.claim  outliers.*.claim
"""

_FREE = """
    apiVersion  extends  level  metadata  overrides  drop  sizing  claims.*.source
    roles.*.title  roles.*.source  roles.*.expect.cpu.source  roles.*.expect.memory.source
    roles.*.expect.drives.*.source  roles.*.expect.pcie.source  roles.*.expect.scratch.source
    roles.*.expect.nics.*.source  gpu.source  slurm.source  containers.source
    fabric.source  fabric.interface_prefix  fabric.rdma_prefix  fabric.topology
    links.*.title  links.*.each.source  links.*.each.note
    storage.*.source  storage.*.mountpoint  storage.*.servers  storage.*.server_role  storage.*.port  storage.*.note
    system.time.server_role  ceph.filesystem  ceph.osd_memory_target_mib  slurm.controller_role  containers.data_root
    workloads.*.title  workloads.*.*.source  workloads.*.*.note
    criteria.*.title  criteria.*.source  criteria.*.reason  criteria.*.hint  criteria.*.lab  criteria.*.published
    criteria.*.changed  criteria.*.ceiling.because
    curves.*.title  curves.*.source  curves.*.reason  curves.*.hint  curves.*.lab  curves.*.published  curves.*.changed
    outliers.*.title  outliers.*.source  outliers.*.reason  outliers.*.hint  outliers.*.lab  outliers.*.published
    outliers.*.changed
    profiles.*.ingest.datasets.*.per_shard  profiles.*.ingest.datasets.*.seed
    profiles.*.ingest.jobs.*.start_s  profiles.*.ingest.jobs.*.workers  profiles.*.ingest.dlio.*.limit_s
"""

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_AT_LEAST.split(), at_least),
    **dict.fromkeys(_AT_MOST.split(), at_most),
    **dict.fromkeys(_SUPERSET.split(), superset),
    **dict.fromkeys(_FREE.split(), free),
    "gpu.xid_allowed": subset,
    "gpu.pci_ids": allowed,
    "gpu.driver": version,
    "gpu.gds_fallback": false,
    "roles.*.managed": true,
    "roles.*.expect.cpu.microcode": version,
    "roles.*.expect.drives.*.firmware": allowed,
    "roles.*.expect.nics.*.firmware": version,
    "storage.*.managed": true,
    "profiles.*.ingest.jobs.*.settle": true,
    "storage.*.at_boot": true,
    "slurm.munge": true,
    "curves.*.no_negative_step": true,
    "claims.*.not_checkable": excuse,
    "criteria.*.where.*": labels,
    "outliers.*.where.*": labels,
    "curves.*.where.*": never,
    "criteria.*.any_of": subset,
    "criteria.*.where": never,
    "curves.*.where": never,
    "outliers.*.where": never,
    "profiles.*.storage.storages": all_or_some,
    "profiles.*.containers.storages": all_or_some,
    "profiles.*.drives.uses": all_or_some,
}


def rule_of(path: Path) -> Rule:
    """The rule of a key; ``added`` where there is none."""
    section = path[:1]
    for pattern, rule in _by_section().get(section[0] if section else "", ()):
        if len(pattern) == len(path) and all(_fits(p, key) for p, key in zip(pattern, path, strict=True)):
            return rule
    return added


@cache
def _by_section() -> dict[str, list[tuple[Path, Rule]]]:
    rules: list[tuple[Path, Rule]] = [(tuple(pattern.split(".")), rule) for pattern, rule in _RULES.items()]
    return grouped((keys[0], (keys, rule)) for keys, rule in rules)


def _fits(pattern: str, key: str) -> bool:
    return pattern == key or (pattern.startswith("*") and key.endswith(pattern[1:]))


def _set(values: Any) -> set[str]:
    listed: Iterable[Any] = () if values is None else values if isinstance(values, list | tuple) else (values,)
    return {repr(value) for value in listed}


def _number(value: Any) -> float:
    """``unlimited`` is more than any number."""
    return float(value) if isinstance(value, int | float) else float("inf")


def _version(text: Any) -> tuple[int, ...]:
    digits = str(text).removeprefix(">=").strip()
    if digits.startswith("0x"):
        return (int(digits, 16),)
    return tuple(int(part) for part in re.findall(r"\d+", digits))
