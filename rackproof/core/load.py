"""What a heavy step did to a node: the difference of two looks at it. Pure.

A look is one answer of ``rackproof/bench/guard.sh``. A fault that the node had before belongs to the validation; what
appeared during a step belongs to the step.
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
"""Of the ids of these checks. The item is the step."""

CLOCK_STEP_S: Final = 0.1
"""A clock that was set by more than this during a step fails: the architectures' own limit of offsets, 100 ms
(``system.time.max_offset_ms``)."""
_SHOWN: Final = 4


DEVICE: Final = "device"
"""An error report of a GPU or NVSwitch that is no application's doing."""
APPLICATION: Final = "application"
COMPLAINT: Final = "complaint"
"""An error that no known fault explains."""


class Trouble(NamedTuple):
    """A message of the kernel that reports a fault."""

    seconds: float
    """Since the kernel started."""
    kind: str
    """An event of ``system.kernel_log``, or one of the above."""
    text: str
    of_slowness: bool = False
    """A machine that does not get its turn prints it as well."""


@dataclass(frozen=True, slots=True)
class KernelLog:
    first_s: float
    """Time of the oldest message that the kernel still has."""
    last_s: float
    troubles: tuple[Trouble, ...] = ()
    """Since the look before."""


Counters = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Look:
    """State of a node between two steps. None where the node could not tell, with the reason in ``unread``."""

    boot_id: str
    uptime_s: tuple[float, float]
    """Just before and just after the clock was read."""
    clock_s: float
    processors: int
    cpu: tuple[int, int]
    """Jiffies of all processors together since the start: stolen ones, and all."""
    running: int
    """Threads that ran or waited for a processor, without the look's own: the least of several readings."""
    pressure_us: Mapping[str, int] = field(default_factory=dict)
    """Microseconds in which some task waited, by resource; empty on kernels without pressure accounting."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """``ADDRESS:/export nfs4 rw`` by mountpoint."""
    log: KernelLog | None = None
    offset_s: float | None = None
    """Of the system clock, as chrony estimates it; None where chrony does not run or has no source."""
    counters: Mapping[str, Counters] = field(default_factory=dict)
    """Error counters by subject (``ports``, ``pcie`` …) and name, ``mlx5_0/1 link_downed``."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Why a subject could not be read."""
    in_use: tuple[str, ...] = ()
    """Who else uses the node: processes on GPUs, jobs of Slurm."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that is asked of every node after every step."""

    protects: str
    hint: str
    counted: str = ""
    """What its counters count; empty where it has none."""
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

GUARD: Final = "guard"
"""Name of this proof in ``RunInfo.proofs``."""
GPUS: Final = "gpus"
"""Only asked where GPUs are real."""


class Finding(NamedTuple):
    outcome: CheckOutcome
    message: str


def subjects_for(architecture: Architecture, groups: tuple[str, ...], simulated_gpus: bool) -> tuple[str, ...]:
    """Subjects that a node of these groups must answer after every step; none for one that the kit does not log in
    to."""
    roles = [architecture.roles[group] for group in groups if group in architecture.roles]
    if roles and not any(role.managed for role in roles):
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
"""Counters that must not grow by one under load: each means a fault of hardware. InfiniBand Architecture Specification,
PortCounters: links that recovered or went down, overruns. Retransmissions, discards and corrected errors occur on
healthy machines as well; for them the architecture's own limits count (``nics.*.counters``,
``memory.corrected_errors_max``, ``gpu.ecc_corrected_max``)."""


class Limits(NamedTuple):
    counters: Mapping[str, int]
    """How much a counter may grow at most, by the last word of its name; others than these are only shown."""
    offset_s: float
    """Of the clock."""
    events: frozenset[str]
    """Kinds of messages that fail. Empty: all but those that slow machines print as well."""

    def fails(self, trouble: Trouble) -> bool:
        if trouble.kind in (APPLICATION, COMPLAINT):
            return False
        return trouble.kind == DEVICE or (trouble.kind in self.events if self.events else not trouble.of_slowness)

    def complains(self, trouble: Trouble) -> bool:
        """Whether it is worth a look, although it does not fail."""
        return not self.fails(trouble) and not trouble.of_slowness


def limits_of(architecture: Architecture, groups: tuple[str, ...], virtual: bool) -> Limits:
    """Limits for a node of these groups. The clock of a virtual machine that does not get its turn falls behind, so its
    offset is left to the validation.
    """
    limits = dict.fromkeys(STRICT, 0)
    for group in groups:
        if group not in architecture.roles:
            continue
        hardware = architecture.roles[group].expect
        for nic in hardware.nics:
            limits |= nic.counters or {}
        if hardware.memory is not None and hardware.memory.corrected_errors_max is not None:
            limits["corrected"] = hardware.memory.corrected_errors_max
    if architecture.gpu is not None and architecture.gpu.ecc_corrected_max is not None:
        limits["ecc_corrected"] = architecture.gpu.ecc_corrected_max
    system = architecture.system
    offset_s = math.inf if virtual else system.time.max_offset_ms / 1000
    return Limits(limits, offset_s, frozenset(system.kernel_log))


def compare(subject: str, before: Look | None, after: Look | None, limits: Limits) -> Finding:
    """What happened to ``subject`` between two looks; None: the node did not answer."""
    if before is None or after is None:
        when = "after" if after is None else "before"
        return Finding(CheckOutcome.UNMEASURED, f"the node did not answer {when} the step")
    if before.boot_id != after.boot_id:
        text = f"the node restarted during the step: boot id {before.boot_id[:8]} → {after.boot_id[:8]}"
        return Finding(CheckOutcome.FAILED if subject == "boot" else CheckOutcome.UNMEASURED, text)
    if subject == "boot":
        return Finding(CheckOutcome.PASSED, f"the same boot, {after.boot_id[:8]}")
    faults = list(_FAULTS.get(subject, _counted)(subject, before, after, limits))
    if faults:
        return Finding(CheckOutcome.FAILED, f"appeared during the step: {some(faults, _SHOWN, '; ')}")
    source = "kernel" if subject in OF_LOG else subject
    why = [look.unread[source] for look in (before, after) if source in look.unread]
    if not why and subject in OF_LOG and _lost_messages(before.log, after.log):
        why = ["messages of the step are lost: the kernel's log has none that are older"]
    if why:
        return Finding(CheckOutcome.UNMEASURED, why[0])
    return Finding(CheckOutcome.PASSED, _quiet(subject, before, after))


def _lost_messages(before: KernelLog | None, after: KernelLog | None) -> bool:
    return before is None or after is None or after.first_s > before.last_s


def _quiet(subject: str, before: Look, after: Look) -> str:
    """Message of a subject without faults, with the counters that grew within their limits."""
    if subject not in after.counters:
        return "no change"
    counters = after.counters[subject]
    old = before.counters.get(subject, {})
    grown = [f"{name} +{counters[name] - old.get(name, 0)}" for name in counters if counters[name] > old.get(name, 0)]
    counted = f"no new {SUBJECTS[subject].counted}, {len(counters)} counters"
    return f"{counted}; {some(grown, _SHOWN)}" if grown else counted


def _counted(subject: str, before: Look, after: Look, limits: Limits) -> Iterator[str]:
    old, new = before.counters.get(subject, {}), after.counters.get(subject, {})
    for name, value in new.items():
        limit = limits.counters.get(name.rpartition(" ")[2])
        growth = value - old.get(name, 0)
        if limit is not None and growth > limit:
            yield f"{name} {old.get(name, 0)} → {value}"
    if subject in after.unread:
        return
    for name, value in old.items():
        if name.rpartition(" ")[2] in _FALLS:
            continue
        if name not in new:
            yield f"{name} is gone"
        elif new[name] < value:
            yield f"{name} fell from {value} to {new[name]}"


_FALLS: Final = frozenset({"warning", "degraded"})
"""Counters that are states: they fall when the state ends."""


def _mounts(subject: str, before: Look, after: Look, limits: Limits) -> Iterator[str]:
    for point, mount in before.mounts.items():
        now = after.mounts.get(point)
        if now is None:
            yield f"{point} is not mounted any longer ({mount})"
        elif now != mount and not (mount.endswith(" ro") and now == f"{mount[:-3]} rw"):
            yield f"{point} was {mount}, is {now}"


def _messages(subject: str, before: Look, after: Look, limits: Limits) -> Iterator[str]:
    if before.log is None or after.log is None:
        return
    known = set(before.log.troubles)
    for trouble in after.log.troubles:
        wanted = limits.fails if subject == "kernel" else limits.complains
        if trouble.seconds >= before.log.last_s and trouble not in known and wanted(trouble):
            yield f"{trouble.text[:160]} [{trouble.kind}]"


def _clock(subject: str, before: Look, after: Look, limits: Limits) -> Iterator[str]:
    # The clock minus the time since the start changes only when the clock is set: both are slewed alike.
    least = (after.clock_s - after.uptime_s[1]) - (before.clock_s - before.uptime_s[0])
    most = (after.clock_s - after.uptime_s[0]) - (before.clock_s - before.uptime_s[1])
    if least > CLOCK_STEP_S or most < -CLOCK_STEP_S:
        yield f"the clock was set by {(least + most) / 2:+.3f} s"
    if after.offset_s is not None and abs(after.offset_s) > limits.offset_s >= abs(before.offset_s or 0.0):
        yield f"the clock is {abs(after.offset_s):.3f} s off, was {abs(before.offset_s or 0.0):.3f} s"


OF_LOG: Final = ("kernel", "complaints")
_FAULTS: Final = {"clock": _clock, "mounts": _mounts, **dict.fromkeys(OF_LOG, _messages)}
