"""Answers of ``guard.sh`` as a machine gives them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from rackproof.bench.guard import is_load_command
from rackproof.bench.programs import is_question
from rackproof.bench.waiting import STATE
from rackproof.core.programs import IMAGE, TOOLS
from rackproof.remote.command import CommandResult

BOOT = "1f2e3d4c-0000-4000-8000-0123456789ab"

MOUNTS = (
    "proc /proc proc rw,relatime 0 0",
    "/dev/vda1 / ext4 rw,relatime 0 0",
    "/dev/nvme0n1 /mnt/local ext4 rw,noatime 0 0",
    "10.77.0.11:/srv/nfs /mnt/nfs-tcp nfs4 rw,vers=4.2 0 0",
)
COUNTERS = (
    "/sys/class/net/eth0/carrier_down_count:1",
    "/sys/class/net/eth0/statistics/rx_crc_errors:0",
    "/sys/class/infiniband/rxe0/ports/1/counters/link_downed:0",
    "/sys/class/infiniband/rxe0/ports/1/counters/symbol_error:N/A (no PMA)",
    "/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_seq_err:7",
    "/sys/devices/system/edac/mc/mc0/ce_count:0",
    "/sys/devices/system/edac/mc/mc0/ue_count:0",
    "/sys/block/md127/md/degraded:0",
    "/sys/block/md127/md/raid_disks:2",
    "/sys/block/md127/md/array_state:clean",
)
SMART = '{"critical_warning": %d, "percent_used": 0, "avail_spare": 100, "spare_thresh": 10, "media_errors": %d}'
TRACKING = "0A4D000B,10.77.0.11,3,1795385382.9,%.9f,0.00001,0.00002,1.5,0.0,0.1,0.001,0.001,64.0,Normal"


@dataclass
class Machine:
    """A machine whose state a test changes between two readings. Time goes on by ten seconds at each."""

    boot: str = BOOT
    uptime_s: float = 1000.0
    ahead_s: float = 0.0
    """By which its clock is ahead."""
    running: int = 1
    processors: int = 4
    steal: int = 0
    busy: int = 100_000
    pressure: int = 0
    mounts: list[str] = field(default_factory=lambda: list(MOUNTS))
    counters: list[str] = field(default_factory=lambda: list(COUNTERS))
    messages: list[tuple[float, str]] = field(
        default_factory=lambda: [(0.0, "Linux version 6.12"), (9.5, "EXT4-fs (vda1): mounted")]
    )
    aer: list[str] = field(default_factory=list)
    devices: int = 30
    offset_s: float = 0.00001
    critical_warning: int = 0
    media_errors: int = 0
    drives: list[str] = field(default_factory=lambda: ["nvme0"])
    jobs: list[str] = field(default_factory=list)
    gpus: str = "none"
    changed: list[str] = field(default_factory=list)
    """Files that differ from their packages, as ``dpkg -V`` prints them."""
    unowned: set[str] = field(default_factory=set)
    """Programs that belong to no package."""
    built: dict[str, str] = field(default_factory=dict)
    """Programs that the deploy built: sha256 of then, by path. Each is now 64 zeros."""
    image: str = ""
    """Id of the site's container image, and its names with digests, as the runtime lists them."""
    clockless: bool = False
    """chronyd does not answer."""
    mute: bool = False
    """Its answer is cut off."""

    def count(self, path: str, value: int) -> None:
        """Set the counter whose path ends with this."""
        self.counters = [
            f"{line.rpartition(':')[0]}:{value}" if line.rpartition(":")[0].endswith(path) else line
            for line in self.counters
        ]

    def kernel(self, *texts: str) -> None:
        """Messages of now."""
        self.messages += [(self.uptime_s + number / 1000, text) for number, text in enumerate(texts)]

    def restart(self) -> None:
        self.boot, self.uptime_s = f"{int(self.boot[:8], 16) + 1:08x}{self.boot[8:]}", 20.0
        self.messages = [(0.0, "Linux version 6.12"), (3.0, "EXT4-fs (vda1): mounted")]

    def programs(self, command: str) -> str:
        """The answer to ``programs.sh``."""
        names = shlex.split(next(line for line in command.split("\n") if line.startswith("set -- ")))[2:]
        paths = {name: f"/usr/bin/{name}" for name in names if not name.startswith(TOOLS) and name != IMAGE}
        paths |= {name: name for name in names if name.startswith("/") and (name in self.built or name in paths)}
        owned = [name for name in paths if name not in self.unowned and name not in self.built]
        lines = [
            "rackproof programs 1", *(f"program {name} {paths.get(name, '')}".rstrip() for name in names),
            *([f"contained {self.image}"] if self.image and IMAGE in names else []),
            *(f"built {path} {digest} {'5' * 64}" for path, digest in self.built.items() if path in paths),
            "--", *(f"{'0' * 64}  {path}" for path in paths.values()),
            "--", *(f"{name}: {paths[name]}" for name in owned),
            "--", *(line for name in owned for line in (f"package {name}", *self.changed, "status 0")),
            "--", "end of programs",
        ]  # fmt: skip
        return "".join(f"{line}\n" for line in lines)

    def load_state(self, command: str) -> str:
        since = re.search(r"since=([\d.]+)", command)
        new = [m for m in self.messages[1:] if since and m[0] >= float(since[1])]
        shown = [self.messages[0], *new] + ([self.messages[-1]] if not new and len(self.messages) > 1 else [])
        smart = [
            line
            for name in self.drives
            for line in (f"drive {name}", SMART % (self.critical_warning, self.media_errors), "status 0")
        ]
        lines = [
            "rackproof load 1", *self.state(),
            "--", f"running {self.running}", *self.mounts,
            "--", *(_printed(seconds, text) for seconds, text in shown),
            "--", f"running {self.running}", *self.counters, *self.aer, f"devices {self.devices}",
            "--", "506 Cannot talk to daemon" if self.clockless else TRACKING % self.offset_s,
            "--", *smart, "end of smart logs",
            "--", f"running {self.running}", *self.jobs,
            "--", self.gpus, "",
            "--", "end of load",
        ]  # fmt: skip
        return "".join(f"{line}\n" for line in lines[: 5 if self.mute else None])

    def state(self) -> list[str]:
        """The answer to ``state.sh``."""
        total = int(self.uptime_s * 100 * self.processors)
        lines = [
            f"running {self.running}",
            f"boot {self.boot}",
            f"online 0-{self.processors - 1}",
            f"cpu  {total - self.steal} 0 0 0 0 0 0 {self.steal} 0 0",
            *(f"pressure {n} some avg10=0.00 avg60=0.00 total={self.pressure}" for n in ("cpu", "io", "memory")),
            f"uptime {self.uptime_s:.2f}",
            f"clock {1_790_000_000 + self.uptime_s + self.ahead_s:.9f}",
            f"uptime {self.uptime_s + 0.01:.2f}",
        ]
        self.uptime_s += 10.0
        return lines


def _printed(seconds: float, text: str) -> str:
    """``<3>text`` has a level of its own."""
    level = text[1] if re.match(r"<\d>", text) else "6"
    return f"<{level}>[{seconds:12.6f}] {re.sub('^<.>', '', text)}"


def load_answer(machines: dict[str, Machine], node: str, command: str) -> CommandResult | None:
    """The answer of ``guard.sh`` and its like; None for other commands."""
    if is_question(command):
        text = machines.setdefault(node, Machine()).programs(command)
        return CommandResult(node, command, 0, text.encode(), b"", 0.1, 60.0)
    if command == STATE:
        text = "\n".join([*machines.setdefault(node, Machine()).state(), ""])
        return CommandResult(node, command, 0, text.encode(), b"", 0.1, 10.0)
    if not is_load_command(command):
        return None
    text = machines.setdefault(node, Machine()).load_state(command)
    return CommandResult(node, command, 0, text.encode(), b"", 0.1, 60.0)
