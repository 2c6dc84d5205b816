"""Which of two values of one key demands more, by the key's path.

Used to compare a file with the published architecture that it extends. A key without a rule may not change: what has no
order counts as weaker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import product
from typing import Any, Final

from rackproof.core.grouping import grouped
from rackproof.core.version_numbers import numbers

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
    """For lists of demands: ``site`` has every published entry."""
    return _set(published) <= _set(site)


def subset(published: Any, site: Any) -> bool:
    """For lists of exceptions: ``site`` adds none to the published ones."""
    return _set(site) <= _set(published)


def allowed(published: Any, site: Any) -> bool:
    """For lists of allowed values, where an empty list allows all values."""
    return published in EMPTY or (site not in EMPTY and subset(published, site))


def all_or_some(published: Any, site: Any) -> bool:
    """A list of what is measured; None: all."""
    return site is None or (published is not None and superset(published, site))


def labels(published: Any, site: Any) -> bool:
    """Values of one label, each with a verdict of its own; a label more selects fewer measurements."""
    return published is not None and superset(published, site)


def excuse(published: Any, site: Any) -> bool:
    """For a reason that lifts a demand: ``site`` has one only where the published file has one."""
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


def not_off(published: Any, site: Any) -> bool:
    """A switch that demands something unless it is off."""
    return site is not False or published is False


def false(published: Any, site: Any) -> bool:
    """A switch that allows something when it is on."""
    return bool(published) or not site


def any_value(published: Any, site: Any) -> bool:
    """For ways to the same: each demands as much as the others."""
    return published is None or site is not None


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
    roles.*.count.min  gpu.{count,memory_mib,power_limit_w,clocks.*,temperature_margin_min_c,nvswitches,dcgm_level}
    gpu.{pcie_generation,pcie_width,nvlink.links,nvlink.gb_per_s_per_link}
    roles.*.expect.cpu.{sockets,cores,threads}
    roles.*.expect.memory.{installed_gb,dimms,dimm_gib,dimm_speed_mts}
    roles.*.expect.drives.*.{count,size_tb,total_tb,pcie_generation,pcie_width}  roles.*.expect.scratch.drives
    roles.*.expect.nics.*.{count,speed_gbps,mtu,pcie_generation,pcie_width}
    fabric.{rails,mtu,line_rate_gbps}  system.limits.nofile
    storage.*.{connections,min_free_gb,min_free_inodes,mounts_per_client,read_ahead_kib,targets}
    ceph.pool_size  slurm.gres.*
    {criteria,curves,outliers}.*.{min_samples,conditions.*_min}  curves.*.{efficiency_min,r2_min}
    profiles.*.{storage.jobs.*,containers.job}.{file_bytes,runtime_s,ramp_s,runs}
    profiles.*.links.{rdma_duration_s,latency_iterations,tcp_duration_s,runs}
    profiles.*.links.groups.{bytes,iterations,warmup,least_gb_per_s,from_nodes}
    profiles.*.collectives.{max_bytes,iterations,warmup,runs,node.max_bytes,rails.max_bytes,guest.max_bytes}
    profiles.*.drives.{runtime_s,runs}  profiles.*.osds.{bytes,runs}
    profiles.*.gpu.{copy_runs,copy_samples,runs,seconds,triad_bytes,diagnoses.*}
    profiles.*.ingest.datasets.*.{samples,copies,mean_bytes}
    profiles.*.ingest.jobs.*.{seconds,warmup_s,runs,accelerators,crop}
    profiles.*.ingest.trees.*.{files,max_bytes}  profiles.*.ingest.dlio.*.{accelerators,files,epochs,runs}
"""

_AT_MOST = """
    roles.*.count.max  gpu.{memory_tolerance_pct,ecc_corrected_max,ecc_uncorrected_lifetime_max,remapped_rows_max}
    gpu.nvlink.errors_max  roles.*.expect.cpu.idle_latency_max_us
    roles.*.expect.memory.{tolerance_pct,corrected_errors_max,uncorrected_errors_max}
    roles.*.expect.drives.*.{wear_max_pct,media_errors_max}
    roles.*.expect.pcie.{correctable_errors_max,uncorrectable_errors_max,messages_max}
    roles.*.expect.nics.*.{counters.*,link_flaps_max,effective_ber_max,driver_messages_max}
    fabric.loss_max_pct  system.time.max_offset_ms
    storage.*.{max_used_pct,mounts_balance,stat_latency_ms,max_retransmit_pct,max_timeouts,stat_timeout_s}
    ceph.answer_timeout_s  slurm.{memory_tolerance_pct,max_clock_skew_s}
    {criteria,curves,outliers}.*.{max_cv_pct,warmup,conditions.*_max}
    criteria.*.pass.tolerance_pct  outliers.*.{rel_pct,z,min_peers}
    profiles.*.collectives.{min_bytes,factor,node.min_bytes,rails.min_bytes}
    profiles.*.ingest.jobs.*.slowdown  profiles.*.storage.join.least_bytes
"""

_SUPERSET = """
    system.{packages,cmdline_required,cmdline_forbidden,modules,modules_forbidden,dkms,holds,kernel_log,limits.services}
    tools.{packages,programs}  roles.*.expect.services  roles.*.expect.nics.*.pkeys  gpu.gds
    storage.*.{client_roles,options,options_required,options_forbidden}
    slurm.{roles,partitions}  containers.{roles,mounts,bridge}
    {criteria,curves,outliers}.*.{gates,claim}  curves.*.points
    profiles.*.links.to_storage  profiles.*.ingest.jobs.*.{data,nodes,port_gbps}
    profiles.*.collectives.{ops,algorithms,node.ops,node.algorithms,rails.ops}  profiles.*.gpu.{precisions,sides}
    {roles.*,gpu,fabric,storage.*,slurm,containers,workloads.*}.claim
    roles.*.expect.{cpu,memory,drives.*,pcie,scratch,nics.*}.claim
"""

_FREE = """
    apiVersion  extends  level  metadata  overrides  drop  sizing  claims.*.source
    {roles.*,gpu,slurm,containers,fabric}.source  roles.*.title
    roles.*.expect.{cpu,memory,drives.*,pcie,scratch,nics.*}.source
    fabric.{interface_prefix,rdma_prefix,topology}  links.*.{title,each.source,each.note}
    storage.*.{source,mountpoint,servers,server_role,port,note}
    system.time.server_role  ceph.{filesystem,osd_memory_target_mib}  slurm.controller_role  containers.data_root
    workloads.*.{title,*.source,*.note}
    {criteria,curves,outliers}.*.{title,source,reason,hint,lab,published,changed}  criteria.*.ceiling.because
    profiles.*.ingest.datasets.*.{per_shard,seed}
    profiles.*.storage.{small_files,metadata}.start_s  profiles.*.storage.left_out.*.*
    profiles.*.ingest.jobs.*.{start_s,workers}  profiles.*.ingest.dlio.*.limit_s
"""


def _keys(words: str) -> Iterator[str]:
    """``a.{b,c}`` as ``a.b`` and ``a.c``, as a shell expands it."""
    for word in words.split():
        yield from map("".join, product(*(part.split(",") for part in re.split(r"[{}]", word))))


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_keys(_AT_LEAST), at_least),
    **dict.fromkeys(_keys(_AT_MOST), at_most),
    **dict.fromkeys(_keys(_SUPERSET), superset),
    **dict.fromkeys(_keys(_FREE), free),
    "gpu.xid_allowed": subset,
    "gpu.pci_ids": allowed,
    "gpu.driver": version,
    "gpu.gds_fallback": false,
    "gpu.gpudirect": any_value,
    "roles.*.managed": true,
    "roles.*.expect.cpu.microcode": version,
    "roles.*.expect.drives.*.firmware": allowed,
    "roles.*.expect.nics.*.firmware": version,
    "storage.*.managed": true,
    "profiles.*.ingest.jobs.*.settle": true,
    "profiles.*.links.every_pair": not_off,
    "profiles.*.ingest.jobs.*.only_local_cache": true,
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
    return numbers(digits)
