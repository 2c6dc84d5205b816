"""Answer of ``rackproof/bench/guard.sh``: the state of a node between two steps of a benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

from rackproof.core.load import KernelLog, LoadState
from rackproof.parse.chrony import parse_chrony_tracking
from rackproof.parse.cpu import parse_pressure, parse_processor_times
from rackproof.parse.errors import ParseError
from rackproof.parse.kernel_log import parse_kernel_log
from rackproof.parse.kernel_troubles import troubles_in
from rackproof.parse.mounts import Mount, folders_above, parse_proc_mounts, visible_mounts
from rackproof.parse.nvidia_smi import Gpu, NvidiaSmi, parse_nvidia_smi
from rackproof.parse.nvme import SmartLog, parse_smart_logs
from rackproof.parse.sections import sections_of
from rackproof.parse.slurm import step_in
from rackproof.parse.text import excerpt, integer, marked_lines, processor_list, real, text_from, whole_lines

MARK: Final = "rackproof load 1"
"""First line of every answer, and part of the command."""
T = TypeVar("T")
_TOOL: Final = "guard.sh"
_END: Final = "end of load"
_SECTIONS: Final = 8

_TRANSIENT: Final = re.compile(
    r"/(?:run|tmp|var/tmp|proc|sys|dev)(?:/|$)|/var/lib/(?:docker|containers|containerd|kubelet)/"
)
"""Mountpoints of programs that come and go."""
_VIRTUAL: Final = re.compile(
    r"autofs|binfmt_misc|bpf|cgroup2?"
    r"|(?:config|debug|devtmp|efivar|hugetlb|ns|ram|root|rpc_pipe|security|selinux|sys|tmp|trace)fs"
    r"|cpuset|devpts|fuse\.fuse-overlayfs|fuse\.lxcfs|fusectl|mqueue|nfsd|overlay|proc|pstore|resctrl"
)
"""File systems without data that stays; all others are kept, unknown ones as well."""

USED_PCT: Final = 2.0
"""Memory of an unused GPU that may be in use, % of all: the driver's own services take a few hundred MiB."""
_SLOW: Final = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")


def parse_load_state(output: str | bytes) -> LoadState:
    """Raises ParseError where the answer is incomplete; a single unreadable subject is named in ``unread``."""
    lines = marked_lines(_TOOL, output, MARK, _END)
    state, mounts, kernel, counted, clock, drives, slurm, gpus = sections_of(lines, _SECTIONS + 1)[:-1]
    running = [_threads(line) for part in (state, mounts, counted, slurm) for line in part if _RUNNING.fullmatch(line)]
    unread: dict[str, str] = {}

    def read(subject: str, function: Callable[[], T]) -> T | None:
        try:
            return function()
        except ParseError as error:
            unread[subject] = f"unreadable: {error}"
            return None

    counters, states = _counters(counted, unread)
    logs = read("drives", lambda: parse_smart_logs(text_from(drives)))
    counters["drives"] |= _of_drives(logs or {}, unread)
    report, complaints = None, {}
    if gpus[:1] != ["none"]:
        report = read("gpus", lambda: parse_nvidia_smi(text_from(gpus)))
        listed = report.gpus if report else ()
        counters["gpus"], states["gpus"] = _of_gpus(listed, unread), _states_of_gpus(listed)
        complaints["gpus"] = _complaints_of_gpus(report) if report else ()
    mounted = read("mounts", lambda: parse_proc_mounts(text_from(mounts[1:])))
    return replace(
        _processors(state),
        running=max(0, min(running) - 1),
        mounts=_mounts(mounted or ()),
        log=read("kernel", lambda: _log(kernel)),
        offset_s=_offset(clock),
        counters=counters,
        states=states,
        complaints=complaints,
        unread=unread,
        in_use=(*_jobs(slurm), *(_users(report) if report else ())),
    )


def parse_state(output: str | bytes) -> LoadState:
    """The state alone, as ``state.sh`` prints it. Raises ParseError."""
    return _processors(whole_lines(_TOOL, output))


def _processors(lines: Sequence[str]) -> LoadState:
    values = _state(lines)
    times = parse_processor_times(_TOOL, values["cpu"])
    return LoadState(
        boot_id=values["boot"],
        uptime_s=(_seconds(values["uptime"]), _seconds(values["uptime after"])),
        clock_s=_seconds(values["clock"]),
        processors=len(processor_list(_TOOL, values["online"])),
        cpu=(times[7], sum(times)),
        running=max(0, integer(_TOOL, "running threads", values["running"]) - 1),
        pressure_us={
            name: parse_pressure(_TOOL, text)
            for name in RESOURCES
            if (text := values.get(f"pressure {name}")) is not None
        },
    )


RESOURCES: Final = ("cpu", "io", "memory")
_RUNNING: Final = re.compile(r"running (\d{1,6})")


def _threads(line: str) -> int:
    return int(line.split()[1])


def _state(lines: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "pressure":
            resource, _, value = value.partition(" ")
            key = f"pressure {resource}"
        values[f"{key} after" if key in values else key] = value
    missing = [
        key for key in ("boot", "online", "cpu", "uptime", "clock", "uptime after", "running") if not values.get(key)
    ]
    if missing:
        raise ParseError(_TOOL, f"expected {', '.join(missing)}")
    return values


def _seconds(text: str) -> float:
    return real(_TOOL, "time", text)


def _mounts(mounts: Iterable[Mount]) -> dict[str, str]:
    """Mounts of drives and storage that are to stay: not those of containers and automounters."""
    every = tuple(mounts)
    automatic = [mount.mountpoint.rstrip("/") + "/" for mount in every if mount.fstype == "autofs"]
    order = {mount.mountpoint: number for number, mount in enumerate(every)}
    kept = {}
    for point, mount in visible_mounts(every).items():
        lasting = not _VIRTUAL.fullmatch(mount.fstype) and not mount.source.startswith("/dev/loop")
        if lasting and not _TRANSIENT.match(point) and not any(f"{point}/".startswith(root) for root in automatic):
            # The list is in the order of the mounts, except for the root and its like, which a step does not change.
            later = [above for above in folders_above(point)[1:] if order.get(above, -1) > order[point]]
            hidden = f" below a later mount on {later[-1]}" if later else ""
            kept[point] = f"{mount.source} {mount.fstype} {'ro' if 'ro' in mount.options else 'rw'}{hidden}"
    return kept


def _log(lines: Sequence[str]) -> KernelLog:
    messages = parse_kernel_log(text_from(lines))
    new = messages[1:] if len(messages) > 1 else messages
    return KernelLog(messages[0].seconds, messages[-1].seconds, troubles_in(new))


_PATHS: Final = (
    ("ports", re.compile(r"/sys/class/net/([^/]+)/(?:statistics/)?(\w+)")),
    ("ports", re.compile(r"/sys/class/infiniband/([^/]+)/ports/(\d+)/(?:hw_)?counters/(\w+)")),
    ("memory", re.compile(r"/sys/devices/system/edac/mc/(mc\d+)/([cu]e_count)")),
    ("drives", re.compile(r"/sys/block/(md[^/]+)/md/(array_state|degraded|raid_disks)")),
    ("throttling", re.compile(r"/sys/devices/system/cpu/(cpu\d+)/thermal_throttle/(\w+)_throttle_count")),
    ("pcie", re.compile(r"/sys/bus/pci/devices/([^/]+)/aer_dev_(correctable|nonfatal|fatal)")),
)
_NAMES: Final = {"ce_count": "corrected", "ue_count": "uncorrected"}
_ARRAY_WORKS: Final = frozenset({"active", "active-idle", "clean", "read-auto", "write-pending"})
"""States between which a healthy array changes (the kernel's Documentation/admin-guide/md.rst)."""


@lru_cache(maxsize=8192)  # the paths of a rack's nodes are alike
def _counted(path: str) -> tuple[str, tuple[str, ...]] | None:
    """Subject and parts of a counter's path."""
    for subject, kind in _PATHS:
        if match := kind.fullmatch(path):
            return subject, tuple(part for part in match.groups() if part)
    return None


def _counters(
    lines: Iterable[str], unread: dict[str, str]
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, str]]]:
    """Counters and states of the kernel by subject and name."""
    counters: dict[str, dict[str, int]] = {name: {} for name in ("ports", "memory", "drives", "throttling", "pcie")}
    arrays = {}
    for line in lines:
        path, _, value = line.rpartition(":")
        known = _counted(path)
        if known is None:
            if match := re.fullmatch(r"devices (\d{1,6})", line):
                counters["pcie"]["devices"] = int(match[1])
            elif not _RUNNING.fullmatch(line):
                raise ParseError(_TOOL, f"expected a counter, got {excerpt(line)}")
            continue
        subject, parts = known
        if parts[-1] == "array_state":
            arrays[f"{parts[0]} state"] = "active" if value in _ARRAY_WORKS else value
            continue
        name = " ".join(("/".join(parts[:-1]), _NAMES.get(parts[-1], parts[-1])))
        if subject == "throttling":
            name = f"{parts[0]} {parts[1]} throttled"
        if subject == "pcie":
            kind, _, value = value.rpartition(" ")
            if kind.startswith("TOTAL_"):
                continue
            name = f"{parts[0]} {kind} {parts[1]}"
        if value.isdecimal() and value.isascii() and len(value) <= 20:
            counters[subject][name] = int(value)
        elif subject != "ports" or not value.startswith("N/A"):  # of a port without this counter
            unread[subject] = f"unreadable: {name}: {excerpt(value)}"
    if "devices" not in counters["pcie"]:
        raise ParseError(_TOOL, "expected the number of PCI devices")
    return counters, {"drives": arrays}


def _of_drives(logs: Mapping[str, SmartLog | None], unread: dict[str, str]) -> dict[str, int]:
    counters = {}
    for name, log in logs.items():
        if log is None:
            unread["drives"] = f"{name} did not answer"
            continue
        counters[f"{name} media_errors"] = log.media_errors
        for warning in log.warnings:
            counters[f"{name} {warning}: warning"] = 1
    return counters


def _of_gpus(gpus: Iterable[Gpu], unread: dict[str, str]) -> dict[str, int]:
    """Counters of GPUs; what a GPU has and does not report is named in ``unread``."""
    counters: dict[str, int | None] = {}
    for gpu in gpus:
        name, rows = gpu.bus_id, gpu.remapped_rows
        counters[f"{name} ecc_corrected"] = gpu.ecc_volatile.corrected
        counters[f"{name} ecc uncorrected"] = gpu.ecc_volatile.uncorrected
        counters[f"{name} pcie_replays"] = gpu.pcie_replays
        counters[f"{name} present"] = 1
        if gpu.ecc != "Disabled" and gpu.ecc is not None and gpu.ecc_volatile.uncorrected is None:
            unread["gpus"] = f"GPU {name} does not report its memory errors"
        told = () if rows is None else (rows.corrected, rows.uncorrected, rows.pending, rows.failed)
        if rows is not None and rows.corrected is not None and rows.uncorrected is not None and None not in told:
            counters[f"{name} rows remapped"] = rows.corrected + rows.uncorrected
            counters[f"{name} rows pending remapped"] = int(bool(rows.pending))
            counters[f"{name} rows not remapped"] = int(bool(rows.failed))
        elif any(value is not None for value in told):
            unread["gpus"] = f"GPU {name} does not report all of its remapped rows"
        for reason, time_us in gpu.slowdowns_us.items():
            fault = re.search("therm|brak", reason)
            # Drivers of some GPUs count their power limit as thermal slowdown by software, too.
            same = reason == "sw_therm_slowdown" and time_us == gpu.slowdowns_us.get("sw_power_cap")
            counters[f"{name} {reason} µs {'throttled' if fault else 'slower'}"] = 0 if same else time_us
    return {name: value for name, value in counters.items() if value is not None}


def _states_of_gpus(gpus: Iterable[Gpu]) -> dict[str, str]:
    """States that change only by a reset or a loss of the GPU."""
    states: dict[str, str | None] = {}
    for gpu in gpus:
        states |= {
            f"{gpu.bus_id} {name}": value
            for name, value in (
                ("UUID", gpu.uuid),
                ("persistence mode", gpu.persistence),
                ("MIG mode", gpu.mig),
                ("ECC mode", gpu.ecc),
                ("fabric state", gpu.fabric_state),
                ("fabric status", gpu.fabric_status),
                ("recovery action", gpu.recovery_action),
                *((f"fabric {key}", value) for key, value in gpu.fabric_health.items()),
            )
        }
    return {name: value for name, value in states.items() if value is not None}


def _complaints_of_gpus(report: NvidiaSmi) -> tuple[str, ...]:
    """Messages of the driver beside its values, and instead of them."""
    return (*report.messages, *(f"GPU {gpu.bus_id}: {problem}" for gpu in report.gpus for problem in gpu.problems))


def _offset(lines: Sequence[str]) -> float | None:
    if lines == ["none"]:
        return None
    try:
        tracking = parse_chrony_tracking(text_from(lines))
    except ParseError:
        return None  # whether chrony runs is the validation's question
    return tracking.system_offset_s if tracking.synchronised else None


def _jobs(lines: Iterable[str]) -> Iterable[str]:
    if steps := [step for line in lines if (step := step_in(line))]:
        yield f"Slurm runs {', '.join(steps)}"


def _users(report: NvidiaSmi) -> Iterable[str]:
    """Why GPUs are not free for a benchmark."""
    for gpu in report.gpus:
        for process in gpu.processes:
            yield f"{process.name} (process {process.pid}) uses GPU {gpu.bus_id}"
        if gpu.compute_mode not in (None, "Default"):
            yield f"GPU {gpu.bus_id} has compute mode {gpu.compute_mode}, expected Default"
        used, total = gpu.memory_used_mib, gpu.memory_total_mib
        if not gpu.processes and used is not None and total and 100 * used > USED_PCT * total:
            yield f"{used} of {total} MiB of GPU {gpu.bus_id} are in use"
        if slow := [reason for reason in gpu.throttle_reasons or () if reason in _SLOW]:
            yield f"GPU {gpu.bus_id} is slowed down: {', '.join(slow)}"
