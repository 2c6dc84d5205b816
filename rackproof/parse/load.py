"""Answer of ``rackproof/bench/guard.sh``: the state of a node between two steps of a benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from rackproof.core.load import KernelLog, Look
from rackproof.parse.chrony import parse_chrony_tracking
from rackproof.parse.errors import ParseError
from rackproof.parse.kernel_log import parse_kernel_log
from rackproof.parse.kernel_troubles import troubles_in
from rackproof.parse.mounts import Mount, parse_proc_mounts, visible_mounts
from rackproof.parse.nvidia_smi import Gpu, NvidiaSmi, parse_nvidia_smi
from rackproof.parse.nvme import SmartLog, parse_smart_logs
from rackproof.parse.sections import sections_of
from rackproof.parse.text import excerpt, integer, processor_list, real, text_from, whole_lines

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
_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "ceph", "lustre", "gpfs", "beegfs", "wekafs", "fuse.ceph", "fuse.dfuse", "dfuse", "cifs", "9p"}
)

USED_PCT: Final = 2.0
"""Memory of an unused GPU that may be in use, % of all: the driver's own services take a few hundred MiB."""
_SLOW: Final = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")


def parse_look(output: str | bytes) -> Look:
    """Raises ParseError where the answer is incomplete; a single unreadable subject is named in ``unread``."""
    lines = whole_lines(_TOOL, output)
    if lines[0] != MARK or lines[-1] != _END:
        raise ParseError(_TOOL, f"expected a whole answer, it ends with {excerpt(lines[-1])}")
    state, mounts, kernel, counted, clock, drives, slurm, gpus = sections_of(lines[1:-1], _SECTIONS + 1)[:-1]
    running = [_threads(line) for part in (state, mounts, counted, slurm) for line in part if _RUNNING.fullmatch(line)]
    unread: dict[str, str] = {}

    def read(subject: str, function: Callable[[], T]) -> T | None:
        try:
            return function()
        except ParseError as error:
            unread[subject] = f"unreadable: {error}"
            return None

    counters = _counters(counted)
    logs = read("drives", lambda: parse_smart_logs(text_from(drives)))
    counters["drives"] |= _of_drives(logs or {}, unread)
    report = None
    if gpus[:1] != ["none"]:
        report = read("gpus", lambda: parse_nvidia_smi(text_from(gpus)))
        counters["gpus"] = _of_gpus(report.gpus if report else ())
    mounted = read("mounts", lambda: parse_proc_mounts(text_from(mounts[1:])))
    values = _state(state)
    return Look(
        boot_id=values["boot"],
        uptime_s=(_seconds(values["uptime"]), _seconds(values["uptime after"])),
        clock_s=_seconds(values["clock"]),
        processors=len(processor_list(_TOOL, values["online"])),
        cpu=_cpu(values["cpu"]),
        running=max(0, min(running) - 1),
        pressure_us={name: _total(values[f"pressure {name}"]) for name in RESOURCES if f"pressure {name}" in values},
        mounts=_mounts(mounted or ()),
        log=read("kernel", lambda: _log(kernel)),
        offset_s=_offset(clock),
        counters=counters,
        unread=unread,
        in_use=(*_jobs(slurm), *(_users(report) if report else ())),
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


def _cpu(text: str) -> tuple[int, int]:
    """Stolen and all jiffies; guests' time is counted in user time already (proc(5))."""
    fields = [integer(_TOOL, "cpu", field) for field in text.split()[:8]]
    if len(fields) < 8:
        raise ParseError(_TOOL, f"expected eight times of processors, got {excerpt(text)}")
    return fields[7], sum(fields)


def _total(text: str) -> int:
    match = re.fullmatch(r"some .*total=(\d{1,18})", text)
    if match is None:
        raise ParseError(_TOOL, f"expected pressure, got {excerpt(text)}")
    return int(match[1])


def _mounts(mounts: Iterable[Mount]) -> dict[str, str]:
    """Mounts of drives and storage that are to stay: not those of containers and automounters."""
    automatic = [mount.mountpoint.rstrip("/") + "/" for mount in mounts if mount.fstype == "autofs"]
    kept = {}
    for point, mount in visible_mounts(mounts).items():
        lasting = mount.fstype in _REMOTE or (mount.source.startswith("/dev/") and "/loop" not in mount.source)
        if lasting and not _TRANSIENT.match(point) and not any(f"{point}/".startswith(root) for root in automatic):
            kept[point] = f"{mount.source} {mount.fstype} {'ro' if 'ro' in mount.options else 'rw'}"
    return kept


def _log(lines: Sequence[str]) -> KernelLog:
    messages = parse_kernel_log(text_from(lines))
    new = messages[1:] if len(messages) > 1 else messages
    return KernelLog(messages[0].seconds, messages[-1].seconds, troubles_in(new))


_PATHS: Final = (
    ("ports", re.compile(r"/sys/class/net/([^/]+)/(?:statistics/)?(\w+)")),
    ("ports", re.compile(r"/sys/class/infiniband/([^/]+)/ports/(\d+)/(?:hw_)?counters/(\w+)")),
    ("memory", re.compile(r"/sys/devices/system/edac/mc/(mc\d+)/([cu]e_count)")),
    ("drives", re.compile(r"/sys/block/(md[^/]+)/md/(degraded)")),
    ("throttling", re.compile(r"/sys/devices/system/cpu/(cpu\d+)/thermal_throttle/(\w+)_throttle_count")),
    ("pcie", re.compile(r"/sys/bus/pci/devices/([^/]+)/aer_dev_(correctable|nonfatal|fatal)")),
)
_NAMES: Final = {"ce_count": "corrected", "ue_count": "uncorrected"}


def _counters(lines: Iterable[str]) -> dict[str, dict[str, int]]:
    """Counters of the kernel by subject and name."""
    counters: dict[str, dict[str, int]] = {name: {} for name in ("ports", "memory", "drives", "throttling", "pcie")}
    for line in lines:
        if _RUNNING.fullmatch(line):
            continue
        if match := re.fullmatch(r"devices (\d{1,6})", line):
            counters["pcie"]["devices"] = int(match[1])
            continue
        path, _, value = line.rpartition(":")
        known = next(((subject, match) for subject, kind in _PATHS if (match := kind.fullmatch(path))), None)
        if known is None:
            raise ParseError(_TOOL, f"expected a counter, got {excerpt(line)}")
        subject, match = known
        parts = [part for part in match.groups() if part]
        name = " ".join(("/".join(parts[:-1]), _NAMES.get(parts[-1], parts[-1])))
        if subject == "throttling":
            name = f"{parts[0]} {parts[1]} throttled"
        if subject == "pcie":
            kind, _, value = value.rpartition(" ")
            if kind.startswith("TOTAL_"):
                continue
            name = f"{parts[0]} {kind} {parts[1]}"
        if re.fullmatch(r"\d{1,20}", value):  # not the N/A of a device without this counter
            counters[subject][name] = int(value)
    if "devices" not in counters["pcie"]:
        raise ParseError(_TOOL, "expected the number of PCI devices")
    return counters


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


def _of_gpus(gpus: Iterable[Gpu]) -> dict[str, int]:
    counters: dict[str, int | None] = {}
    for gpu in gpus:
        name, rows = gpu.bus_id, gpu.remapped_rows
        counters[f"{name} ecc_corrected"] = gpu.ecc_volatile.corrected
        counters[f"{name} ecc uncorrected"] = gpu.ecc_volatile.uncorrected
        counters[f"{name} pcie_replays"] = gpu.pcie_replays
        counters[f"{name} present"] = 1
        if rows is not None:
            counters[f"{name} rows remapped"] = (rows.corrected or 0) + (rows.uncorrected or 0)
            counters[f"{name} rows pending remapped"] = int(bool(rows.pending))
            counters[f"{name} rows not remapped"] = int(bool(rows.failed))
        for reason, time_us in gpu.slowdowns_us.items():
            counters[f"{name} {reason} µs throttled"] = time_us
    return {name: value for name, value in counters.items() if value is not None}


def _offset(lines: Sequence[str]) -> float | None:
    if lines == ["none"]:
        return None
    try:
        tracking = parse_chrony_tracking(text_from(lines))
    except ParseError:
        return None  # whether chrony runs is the validation's question
    return tracking.system_offset_s if tracking.synchronised else None


def _jobs(lines: Iterable[str]) -> Iterable[str]:
    jobs = [match[1] for line in lines if (match := re.search(r"slurmstepd: \[(\S+)\]", line))]
    if jobs:
        yield f"Slurm runs {', '.join(jobs)}"


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
