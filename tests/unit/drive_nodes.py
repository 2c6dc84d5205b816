"""Nodes in memory with drives, an fio that reads them, and a Ceph cluster whose OSDs measure themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from rackproof.architectures import load
from rackproof.bench.drives.listing import is_listing
from rackproof.core.architecture import Architecture, Criterion, DriveProfile, OsdProfile, Outlier, Profile
from rackproof.core.rack import Rack
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench
from tests.unit.fakes import lab_rack, reply
from tests.unit.storage_nodes import direction

_TIMES: Final = count(1_795_314_000)
"""Seconds: no two answers are equal."""
SECTOR: Final = 512
READS = DriveProfile(iodepth=4, runtime_s=5, runs=2)
WRITES = OsdProfile(bytes=67108864, block_bytes=4194304, runs=2)
ARCHITECTURES = Path(__file__).parents[2] / "architectures"


@dataclass
class Drive:
    serial: str
    sectors: int
    rate: float
    """B/s."""
    slot: str
    model: str = "QEMU NVMe Ctrl"
    state: str = "live"
    gone: bool = False
    """It answers to the listing and vanishes then."""
    other: str = ""
    """Serial number that another drive of the same name has after the listing."""
    seen: float = 1.0
    """Share of the bytes that its counters see."""
    foreign: int = 0
    """Bytes that something else reads during each run."""
    moved: list[int] = field(default_factory=lambda: [4096, 8192])


def drives_of(node: str) -> list[Drive]:
    sizes = {"rplocal": 8388608, "rpscratch0": 1048576, "rpscratch1": 1048576}
    if node.startswith("storage"):
        sizes = {"rpnfs": 8388608, "rpceph": 12582912}
    return [
        Drive(f"{node}-{name}", sectors, 900e6 + 1e6 * number, f"0000:00:{0x18 + number:02x}.0")
        for number, (name, sectors) in enumerate(sizes.items())
    ]


@dataclass
class DriveNodes:
    """``edit`` changes fio's document, ``bench`` an OSD's; ``answers`` replace what a command of a drive answers."""

    nodes: dict[str, list[Drive]] = field(default_factory=dict)
    edit: Callable[[str, dict[str, Any]], object] = lambda serial, document: None
    fio_after: str = ""
    """Printed after the document."""
    fio_status: int = 0
    hangs: str = ""
    """Serial number of a drive on which fio does not end."""
    osds: dict[int, dict[str, Any]] = field(default_factory=lambda: {0: {}})
    """Changed metadata by number."""
    up: Mapping[int, int] = field(default_factory=dict)
    bench: Callable[[int, dict[str, Any]], object] = lambda osd, document: None
    without_key: tuple[str, ...] = ()
    """Hosts of cephadm that are not admin's."""
    bench_after: str = ""
    bench_status: int = 0
    osd_rate: float = 40e6
    osd_seen: float = 1.3
    """Bytes that the drive counts for each byte of an OSD."""
    asked: list[str] = field(default_factory=list)

    def drive(self, node: str, name: str) -> Drive:
        """The drive whose serial number ends so."""
        return next(drive for drive in self.of(node) if drive.serial.endswith(name))

    def of(self, node: str) -> list[Drive]:
        return self.nodes.setdefault(node, drives_of(node))

    def answer(self, node: str, command: str) -> CommandResult | None:
        if is_listing(command):
            return reply(node, command, self.state(node, None) + self._list(node))
        if "\nfio --readonly " in command:
            return self._read(node, command)
        if node in self.without_key and "ceph --connect-timeout" in command:
            return reply(node, command, rc=1, err="unable to find a keyring\n")
        if "osd metadata" in command:
            return reply(node, command, self._osds())
        if match := re.search(r" tell osd\.(\d+) bench (\d+) (\d+) ", command):
            return self._bench(node, command, *map(int, match.groups()))
        if "end of devices" in command:
            return reply(node, command, self.state(node, _names(command)))
        return None

    def state(self, node: str, names: list[str] | None) -> str:
        lines = [f"host {node} {next(_TIMES)}.000000000"]
        for number, drive in enumerate(self.of(node)):
            name = f"nvme{number}n1"
            if names is not None and (name not in names or drive.gone):
                continue
            read, written = (moved // SECTOR for moved in drive.moved)
            lines += [f"device {name}     12  0 {read} 3   1 0 {written} 0 0 5 7 0 0 0 0"]
            lines += [f" identity {(names is not None and drive.other) or drive.serial}      "]
        return "\n".join([*lines, "end of devices", ""])

    def _list(self, node: str) -> str:
        lines = []
        for number, drive in enumerate(self.of(node)):
            lines += [f"nvme nvme{number}", " transport pcie", f" state {drive.state}", f" model {drive.model}"]
            lines += [f" serial {drive.serial}", " firmware_rev 10.0.2", f" slot {drive.slot}"]
            lines += [f" namespace nvme{number}n1 {drive.sectors}"]
        return "\n".join([*lines, "end of drives", ""])

    def _read(self, node: str, command: str) -> CommandResult:
        (line,) = re.findall(r"^fio .*$", command, re.MULTILINE)
        self.asked.append(line)
        job = dict(re.findall(r"--([\w-]+)=(\S+)", line))
        names = _names(command)
        before = self.state(node, names)
        number = int(re.findall(r"/dev/nvme(\d+)n1$", job["filename"])[0])
        drive = self.of(node)[number]
        if drive.serial == self.hangs:
            return CommandResult(node, command, None, error="not finished within 65 s")
        milliseconds, block = int(job["runtime"]) * 1000, int(job["bs"])
        blocks = int(drive.rate * milliseconds / 1000 / block)
        drive.moved[0] += int(blocks * block * drive.seen) // SECTOR * SECTOR + drive.foreign
        options = {key: value for key, value in job.items() if key not in ("eta", "output-format")}
        read = direction(blocks * block, blocks, milliseconds, int(job["iodepth"]))
        entry = {"jobname": "drive", "error": 0, "job options": options, "read": read}
        document = {
            "fio version": "fio-3.39",
            "timestamp": next(_TIMES),
            "jobs": [entry | {"write": direction(0, 0, 0, 0)}],
        }
        self.edit(drive.serial, document)
        printed = "" if self.fio_status == 127 else f"{json.dumps(document)}\n{self.fio_after}"
        error = "sh: 3: fio: not found\n" if self.fio_status == 127 else ""
        after = self.state(node, names)
        return reply(node, command, f"{before}{printed}-- fio {self.fio_status}\n{after}", err=error)

    def _osds(self) -> str:
        dump = {"osds": [{"osd": number, "up": self.up.get(number, 1), "in": 1} for number in self.osds]}
        known = [
            {"id": number, "hostname": "storage-01.rack", "devices": "nvme1n1", "bluestore_bdev_devices": "nvme1n1"}
            | own
            for number, own in self.osds.items()
        ]
        return f"\n{json.dumps(dump)}\n\n{json.dumps(known)}\n{next(_TIMES)}.000000000\n"

    def _bench(self, node: str, command: str, osd: int, size: int, block: int) -> CommandResult:
        self.asked.append(command)
        seconds = size / self.osd_rate + next(_TIMES) % 1000 / 1e6
        host = self.osds[osd].get("hostname", "storage-01").partition(".")[0]
        drive = self.drive(host, "rpceph")
        drive.moved[1] += int(size * self.osd_seen) // SECTOR * SECTOR
        document = {"bytes_written": size, "blocksize": block, "elapsed_sec": seconds, "bytes_per_sec": size / seconds,
                    "iops": size / seconds / block}  # fmt: skip
        self.bench(osd, document)
        return reply(node, command, f"{json.dumps(document, indent=4)}\n{self.bench_after}", self.bench_status)


def _names(command: str) -> list[str]:
    words = re.findall(r"^set -- (.*)$", command, re.MULTILINE)
    return str(words[0]).split()


def rack(gpu: int = 3) -> Rack:
    return lab_rack(gpu)


def architecture(**profile: Any) -> Architecture:
    """The virtual rack's entries about drives, and outliers among its six scratch drives."""
    made = load(ARCHITECTURES / "virtual-rack-storage.yaml").model
    entries = [entry for entry in made.criteria if entry.metric.startswith("drive.")]
    outlier = {**_of(entries[0]), "id": "drives.outliers", "where": {"use": "scratch"}, "rel_pct": 20}
    sizes = Profile(**{"drives": READS, "osds": WRITES, **profile})
    own: dict[str, Any] = {"criteria": tuple(entries), "curves": (), "outliers": (Outlier(**outlier),)}
    return made.model_copy(update={**own, "profiles": {**made.profiles, "depth": sizes}})


def _of(entry: Criterion) -> dict[str, Any]:
    fields = ("title", "metric", "scope", "source", "reason", "hint", "measure")
    return {name: getattr(entry, name) for name in fields}


def bench(gpu: int = 3, **profile: Any) -> Bench:
    return Bench(architecture(**profile), rack(gpu))
