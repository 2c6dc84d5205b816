"""Faults of a node during a step of a benchmark: the difference of its states before and after. Pure.

A state is an answer of ``rackproof/bench/guard.sh``. Faults that existed before are left to the validation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome
from rackproof.core.verdict import LOAD
from rackproof.core.wording import some

PREFIX: Final = LOAD
"""Prefix of the ids of these checks. The item is the step."""

CLOCK_STEP_S: Final = 0.1
"""Maximum change of a clock during a step: the architectures' limit of offsets, 100 ms
(``system.time.max_offset_ms``)."""
_SHOWN: Final = 4


DEVICE: Final = "device"
"""An error report of a GPU or NVSwitch that no application caused."""
APPLICATION: Final = "application"
COMPLAINT: Final = "complaint"
"""An unknown error message."""


class Trouble(NamedTuple):
    """A kernel message about a fault."""

    seconds: float
    """Since the kernel started."""
    kind: str
    """An event of ``system.kernel_log``, or one of the above."""
    text: str
    of_slowness: bool = False
    """Starved machines print it as well."""


@dataclass(frozen=True, slots=True)
class KernelLog:
    first_s: float
    """Time of the oldest message in the kernel's buffer."""
    last_s: float
    troubles: tuple[Trouble, ...] = ()
    """Since the previous state."""


Counters = Mapping[str, int]
States = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LoadState:
    """State of a node between two steps. Values are None if unreadable; ``unread`` has the reason."""

    boot_id: str
    uptime_s: tuple[float, float]
    """Immediately before and after the clock was read."""
    clock_s: float
    processors: int
    cpu: tuple[int, int]
    """Stolen and total jiffies of all processors since the boot."""
    running: int
    """Threads that run or wait for a processor, without the script's: the minimum of several readings."""
    pressure_us: Mapping[str, int] = field(default_factory=dict)
    """Microseconds in which tasks waited, by resource; empty on kernels without pressure accounting."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """``ADDRESS:/export nfs4 rw`` by mountpoint."""
    log: KernelLog | None = None
    offset_s: float | None = None
    """Offset of the system clock by chrony's estimate; None without chrony, its answer or a source."""
    counters: Mapping[str, Counters] = field(default_factory=dict)
    """Error counters by subject (``ports``, ``pcie`` …) and name, ``mlx5_0/1 link_downed``."""
    states: Mapping[str, States] = field(default_factory=dict)
    """States that a step must not change, by subject and name: ``md0 state``, ``00000000:19:00.0 fabric state``."""
    complaints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Faults that devices report of themselves, by subject."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Why a subject could not be read."""
    in_use: tuple[str, ...] = ()
    """Other users of the node: processes on GPUs, jobs of Slurm."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One part of the state that is compared after every step."""

    protects: str
    hint: str
    counted: str = ""
    """Name of its counters; empty without counters."""
    required: bool = True


SUBJECTS: Final[dict[str, Subject]] = {
    "boot": Subject(
        "A node that restarts under load does so in production too.",
        "Read the management controller's event log and the journal of the boot before: journalctl -k -b -1.",
    ),
    "clock": Subject(
        "A clock that is set during a run makes durations and logs wrong.",
        "journalctl -u chrony; see which program sets the clock.",
    ),
    "complaints": Subject(
        "An error that no known fault explains is often the first sign of one.",
        "dmesg -T: read the lines around them, and look the driver's message up.",
        required=False,
    ),
    "drives": Subject(
        "A drive that reports errors under load will lose data.",
        "nvme smart-log; cat /proc/mdstat; exchange the drive.",
        "warnings, media errors and missing members of arrays",
    ),
    "gpus": Subject(
        "A GPU with memory errors or heat under load ends jobs at random.",
        "nvidia-smi -q -d ECC,ROW_REMAPPER,PERFORMANCE; check the cooling; exchange the GPU if it happens again.",
        "memory errors, remapped rows and slowdowns",
    ),
    "kernel": Subject(
        "What the kernel complains about under load it will complain about in production.",
        "dmesg -T; find the message and its device.",
    ),
    "memory": Subject(
        "Memory errors under load corrupt data or end the node.",
        "grep . /sys/devices/system/edac/mc/mc*/*_count; exchange the module.",
        "memory errors",
    ),
    "mounts": Subject(
        "A file system that goes away or becomes read-only under load loses the job's data.",
        "dmesg -T; mount the file system again and find out why it went.",
    ),
    "pcie": Subject(
        "PCIe errors under load slow devices down and end in their loss.",
        "dmesg for AER; reseat the card, check riser and cable.",
        "PCIe errors",
    ),
    "ports": Subject(
        "A link that fails under load slows down every rank of a job.",
        "dmesg for 'Link down'; clean or exchange cable and optics; check the switch's port.",
        "link errors",
    ),
    "throttling": Subject(
        "A processor that is too hot slows down every job on its node.",
        "Check fans, air flow and the power limits of the management controller.",
        "thermal slowdowns",
    ),
}

GPUS: Final = "gpus"
"""Read on real GPUs only."""


def gives_gpus_away(step: str) -> bool:
    """Whether a step gives the nodes' GPUs to guests, whose drivers reset them."""
    return step.startswith("collectives/") and "/guest/" in step


class Finding(NamedTuple):
    outcome: CheckOutcome
    message: str


def subjects_for(architecture: Architecture, groups: tuple[str, ...], simulated_gpus: bool) -> tuple[str, ...]:
    """Subjects of a node in these groups; none for a node that the kit does not log in to."""
    if architecture.is_appliance(groups):
        return ()
    real = architecture.gpu is not None and "gpu" in groups and not simulated_gpus
    return tuple(name for name in SUBJECTS if name != GPUS or real)


STRICT: Final = frozenset(
    {
        *("link_downed", "link_error_recovery", "local_link_integrity_errors", "excessive_buffer_overrun_errors"),
        *("carrier_down_count", "rx_crc_errors", "rx_frame_errors", "tx_carrier_errors"),
        *("fatal", "nonfatal", "uncorrected", "warning", "media_errors", "degraded", "throttled", "remapped", "gone"),
    }
)
"""Counters that must not grow under load, whatever the architecture allows since the boot, because each count is a
hardware fault: link recoveries, link downs, overruns (InfiniBand Architecture Specification, PortCounters).
Retransmissions, discards and corrected errors also occur on healthy machines; the architecture's limits apply to them
(``nics.*.counters``, ``memory.corrected_errors_max``, ``gpu.ecc_corrected_max``)."""


class Limits(NamedTuple):
    counters: Mapping[str, int]
    """Maximum growth of counters, by the last word of the name; other counters are only shown."""
    offset_s: float
    """Maximum offset of the clock."""
    events: frozenset[str]
    """Kinds of failing messages. Empty: all except those that starved machines print."""
    anew: frozenset[str] = frozenset()
    """Subjects whose counters may begin anew in the step."""

    def fails(self, trouble: Trouble) -> bool:
        if trouble.kind in (APPLICATION, COMPLAINT):
            return False
        return trouble.kind == DEVICE or (trouble.kind in self.events if self.events else not trouble.of_slowness)

    def complains(self, trouble: Trouble) -> bool:
        """Whether the message is reported without failing."""
        return not self.fails(trouble) and not trouble.of_slowness


def limits_of(architecture: Architecture, groups: tuple[str, ...], virtual: bool) -> Limits:
    """Limits of a node in these groups. Clocks of starved virtual machines fall behind, so their offset is left to the
    validation.
    """
    limits: dict[str, int] = {}
    for role in architecture.roles_of(groups):
        for nic in role.expect.nics:
            limits |= nic.counters or {}
        if role.expect.memory is not None and role.expect.memory.corrected_errors_max is not None:
            limits["corrected"] = role.expect.memory.corrected_errors_max
    if architecture.gpu is not None and architecture.gpu.ecc_corrected_max is not None:
        limits["ecc_corrected"] = architecture.gpu.ecc_corrected_max
    limits |= dict.fromkeys(STRICT, 0)
    system = architecture.system
    offset_s = math.inf if virtual else system.time.max_offset_ms / 1000
    return Limits(limits, offset_s, frozenset(system.kernel_log))


def compare(subject: str, before: LoadState | None, after: LoadState | None, limits: Limits) -> Finding:
    """Difference of a subject between two states; a state is None if the node did not answer."""
    if before is None or after is None:
        when = "after" if after is None else "before"
        return Finding(CheckOutcome.UNMEASURED, f"the node did not answer {when} the step")
    if before.boot_id != after.boot_id:
        text = f"the node restarted during the step: boot id {before.boot_id[:8]} → {after.boot_id[:8]}"
        return Finding(CheckOutcome.FAILED if subject == "boot" else CheckOutcome.UNMEASURED, text)
    if subject == "boot":
        return Finding(CheckOutcome.PASSED, f"the same boot, {after.boot_id[:8]}")
    findings = list(_DIFFERENCES.get(subject, _devices)(subject, before, after, limits))
    faults = [finding.message for finding in findings if finding.outcome is CheckOutcome.FAILED]
    if faults:
        return Finding(CheckOutcome.FAILED, f"appeared during the step: {some(faults, _SHOWN, '; ')}")
    source = "kernel" if subject in OF_LOG else subject
    why = [state.unread[source] for state in (before, after) if source in state.unread]
    if not why and subject in OF_LOG and _lost_messages(before.log, after.log):
        why = ["messages of the step are lost: the kernel's log has none that are older"]
    if why:
        return Finding(CheckOutcome.UNMEASURED, why[0])
    if findings:
        return Finding(CheckOutcome.UNMEASURED, some([finding.message for finding in findings], _SHOWN, "; "))
    return Finding(CheckOutcome.PASSED, _quiet(subject, before, after))


def _failed(message: str) -> Finding:
    return Finding(CheckOutcome.FAILED, message)


def _unknown(message: str) -> Finding:
    return Finding(CheckOutcome.UNMEASURED, message)


def _lost_messages(before: KernelLog | None, after: KernelLog | None) -> bool:
    return before is None or after is None or after.first_s > before.last_s


def _quiet(subject: str, before: LoadState, after: LoadState) -> str:
    """Message without faults, with counters that grew within their limits."""
    if subject not in after.counters:
        return "no change"
    counters = after.counters[subject]
    old = before.counters.get(subject, {})
    grown = [f"{name} +{growth}" for name, value in counters.items() if (growth := value - (old.get(name, value))) > 0]
    counted = f"no new {SUBJECTS[subject].counted}, {len(counters)} counters"
    return f"{counted}; {some(grown, _SHOWN)}" if grown else counted


def _devices(subject: str, before: LoadState, after: LoadState, limits: Limits) -> Iterator[Finding]:
    """Differences of devices: counters, states, and what they report. Only what both states have is compared."""
    yield from _counted(subject, before, after, limits)
    old, new = before.states.get(subject, {}), after.states.get(subject, {})
    for name, state in new.items():
        if name not in old:
            yield _unknown(f"{name} was unknown before the step, is {state}")
        elif old[name] != state:
            yield _failed(f"{name} was {old[name]}, is {state}")
    for name, state in old.items():
        # a device that is gone is reported by its counters
        if name not in new and subject not in after.unread and _device(name) in _known_devices(subject, after):
            yield _unknown(f"{name} is unknown after the step, was {state}")
    known = before.complaints.get(subject, ())
    yield from (_failed(text) for text in after.complaints.get(subject, ()) if text not in known)


def _counted(subject: str, before: LoadState, after: LoadState, limits: Limits) -> Iterator[Finding]:
    old, new = before.counters.get(subject, {}), after.counters.get(subject, {})
    for name, value in new.items():
        limit = limits.counters.get(_last(name))
        known = old.get(name, 0 if _only_above_zero(subject, name) else None)
        if subject in limits.anew and known is not None and value < known:
            known = 0
        if known is None:
            yield _unknown(f"{name} was unknown before the step, is {value}")
        elif limit is not None and value - known > limit:
            yield _failed(f"{name} {known} → {value}")
    if subject in after.unread:
        return
    gone = dict.fromkeys(map(_device, old))
    for name, value in old.items():
        if name in new:
            if new[name] < value and subject not in limits.anew and _last(name) not in _FALLS:
                yield _failed(f"{name} fell from {value} to {new[name]}")
        elif _last(name) in _WARNINGS:
            continue
        elif _only_above_zero(subject, name):
            yield _failed(f"{name} is gone")
        elif _device(name) in _known_devices(subject, after):
            yield _unknown(f"{name} is unknown after the step, was {value}")
        elif _device(name) in gone:
            del gone[_device(name)]
            yield _failed(f"{_device(name)} is gone")


def _last(name: str) -> str:
    return name.rpartition(" ")[2]


def _device(name: str) -> str:
    return name.partition(" ")[0]


def _known_devices(subject: str, state: LoadState) -> frozenset[str]:
    return frozenset(map(_device, (*state.counters.get(subject, {}), *state.states.get(subject, {}))))


_WARNINGS: Final = frozenset({"warning"})
"""Counters that exist only while the device warns."""
_FALLS: Final = frozenset({"degraded", *_WARNINGS})
"""Counters that are states, and fall when the state ends."""


def _only_above_zero(subject: str, name: str) -> bool:
    """Whether ``guard.sh`` prints the counter only when it is above 0."""
    return subject == "throttling" or (subject == "pcie" and " " in name) or _last(name) in _WARNINGS


def _mounts(subject: str, before: LoadState, after: LoadState, limits: Limits) -> Iterator[Finding]:
    if subject in after.unread:
        return
    for point, mount in before.mounts.items():
        current = after.mounts.get(point)
        if current is None:
            yield _failed(f"{point} is not mounted any longer ({mount})")
        elif current != mount and not (mount.endswith(" ro") and current == f"{mount[:-3]} rw"):
            yield _failed(f"{point} was {mount}, is {current}")


def _messages(subject: str, before: LoadState, after: LoadState, limits: Limits) -> Iterator[Finding]:
    if before.log is None or after.log is None:
        return
    known = set(before.log.troubles)
    for trouble in after.log.troubles:
        wanted = limits.fails if subject == "kernel" else limits.complains
        if trouble.seconds >= before.log.last_s and trouble not in known and wanted(trouble):
            yield _failed(f"{trouble.text[:160]} [{trouble.kind}]")


def _clock(subject: str, before: LoadState, after: LoadState, limits: Limits) -> Iterator[Finding]:
    # Clock minus uptime changes only when the clock is set: both are slewed equally.
    least = (after.clock_s - after.uptime_s[1]) - (before.clock_s - before.uptime_s[0])
    most = (after.clock_s - after.uptime_s[0]) - (before.clock_s - before.uptime_s[1])
    if least > CLOCK_STEP_S or most < -CLOCK_STEP_S:
        yield _failed(f"the clock was set by {(least + most) / 2:+.3f} s")
    was, now = before.offset_s, after.offset_s
    if limits.offset_s == math.inf or (was is None and now is None):
        return  # a validator checks whether chrony runs
    if now is None:
        yield _unknown(f"chrony gives no offset after the step, it was {abs(was or 0.0):.3f} s before")
    elif abs(now) > limits.offset_s and was is None:
        yield _unknown(f"the clock is {abs(now):.3f} s off, and chrony gave no offset before the step")
    elif abs(now) > limits.offset_s >= abs(was or 0.0):
        yield _failed(f"the clock is {abs(now):.3f} s off, was {abs(was or 0.0):.3f} s")


OF_LOG: Final = ("kernel", "complaints")
_DIFFERENCES: Final = {"clock": _clock, "mounts": _mounts, **dict.fromkeys(OF_LOG, _messages)}
