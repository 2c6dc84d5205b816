"""Measuring programs, and whether they are unchanged since their package was installed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rackproof.core.evidence import CheckOutcome
from rackproof.core.metrics import BESIDE_METRICS
from rackproof.core.wording import some

CHECK: Final = "bench.programs"
"""The item is the program's name."""
_DIGEST: Final = "@sha256:"
_LOCAL: Final = "localhost/"
"""Podman's prefix of the names of images that were built on the node."""
TOOLS: Final = "/opt/rackproof/tools"
"""Folder of the programs that the deploy builds on a node."""
PERFTEST: Final = f"{TOOLS}/perftest/bin"
"""perftest with CUDA. Packages have programs of these names, so they are started, and checked, by their paths."""
MPI: Final = f"{TOOLS}/openmpi"
"""Open MPI, where the inventory has an archive of it."""
PROTECTS: Final = "A program that is not what its package installed measures whatever it likes."
HINT: Final = (
    "Install its package again, or let the deploy build it again; remove other programs of this name from the PATH of"
    " root."
)

IMAGE: Final = "ingest.image"
"""Asks for the site's image, in which jobs of real accelerators run where the inventory names one."""
_PYTHON: Final = "python3"
_ON_NODE: Final = ("ingest.dataset_bytes_per_sample", "ingest.dataset_over_caches")
"""Figures of data sets, whose files and index the node's own Python makes, also beside jobs in an image."""

_BY_METRIC: Final = {
    "storage": ("fio",),
    "storage.small_file_read_bandwidth": ("python3",),
    "storage.shard_read_bandwidth": ("python3",),
    "storage.metadata_rate": ("python3",),
    "storage.gds_read_bandwidth": ("python3",),
    "drive.read_bandwidth": ("fio",),
    "drive.osd_write_bandwidth": ("ceph-osd",),
    "container": ("fio",),
    "ingest": ("python3",),
    "inference": ("python3",),
    "mixed": ("python3",),
    "sizing": ("python3",),
    "link.rdma_write_bandwidth": ("ib_write_bw",),
    "link.rdma_write_bandwidth_gpu": (f"{PERFTEST}/ib_write_bw", "numactl"),
    "link.rdma_write_bandwidth_gpu_both": (f"{PERFTEST}/ib_write_bw", "numactl"),
    "link.rdma_write_bandwidth_all_rails": ("ib_write_bw", "numactl"),
    "link.rdma_write_bandwidth_gpu_all_rails": (f"{PERFTEST}/ib_write_bw", "numactl"),
    "link.rdma_write_bandwidth_both_all_rails": ("ib_write_bw", "numactl"),
    "link.rdma_write_bandwidth_gpu_both_all_rails": (f"{PERFTEST}/ib_write_bw", "numactl"),
    "link.rdma_read_latency_all_rails": ("ib_read_lat", "numactl"),
    "link.rdma_read_latency_gpu": (f"{PERFTEST}/ib_read_lat", "numactl"),
    "link.rdma_read_latency_gpu_all_rails": (f"{PERFTEST}/ib_read_lat", "numactl"),
    "link.rdma_write_bandwidth_both": ("ib_write_bw",),
    "link.rdma_write_latency": ("ib_write_lat",),
    "link.rdma_read_latency": ("ib_read_lat",),
    "link.tcp_bandwidth": ("iperf3",),
    "link.tcp_bandwidth_to_storage": ("iperf3",),
    "gpu.host_to_device_bandwidth": ("nvbandwidth",),
    "gpu.device_to_host_bandwidth": ("nvbandwidth",),
    "gpu.peer_read_bandwidth": ("nvbandwidth",),
    "gpu.diagnosed_faults": ("dcgmi",),
    "gpu": ("python3",),
    "gpu.utilisation": ("python3", "nvidia-smi"),
}
PACKAGED: Final = frozenset(
    [
        "ceph-osd",
        "dcgmi",
        "fio",
        "ib_read_lat",
        "ib_write_bw",
        "ib_write_lat",
        "ibstat",
        "ibv_devinfo",
        "iperf3",
        "mpirun",
        "numactl",
        "nvidia-smi",
        "python3",
    ]
)
"""Programs that distributions and vendors ship as packages. Others are compiled by the deploy or the site: nccl-tests
and nvbandwidth exist as sources only (their READMEs)."""


OFF_PATH: Final[Mapping[str, tuple[str, ...]]] = {"mpirun": (f"{MPI}/bin/mpirun", "/usr/lib64/openmpi/bin/mpirun")}
"""Programs outside PATH: those that the deploy builds beside packaged namesakes, and RHEL's openmpi, which leaves it to
environment modules."""


def programs_of(metric: str, labels: Mapping[str, str], launcher: str = "mpirun") -> tuple[str, ...]:
    """Programs that a measurement runs on each of its nodes, by name or path. ``launcher``: of a collective, see
    ``launcher_in``. The packaged program takes the place of one below ``PERFTEST`` that the node does not have."""
    family = metric.partition(".")[0]
    if metric in BESIDE_METRICS:
        return ("fio", "python3") if launcher == "ssh" else ("fio", launcher, "python3")
    if family in ("collective", "group", "guest"):
        own = f"{labels.get('op', '')}_perf" if labels.get("engine") == "nccl-tests" else "python3"
        return (own,) if launcher == "ssh" else (launcher, own)
    return _BY_METRIC.get(metric, _BY_METRIC.get(family, ()))


def launcher_in(command: str | None) -> str:
    """Launcher of a collective: ``mpirun`` or its path, ``srun``, or ``ssh`` for programs that ran by themselves."""
    words = [word.strip("'") for word in command.split()] if command else ["mpirun"]
    return next((word for name in ("mpirun", "srun") for word in words if word.rpartition("/")[2] == name), "ssh")


def used_programs(
    metric: str, labels: Mapping[str, str], command: str | None, image: str | None = None
) -> tuple[str, ...]:
    """Programs that a measurement ran on each of its nodes, by its recorded command and the id of its image."""
    words = command.split() if command else []
    names = [packaged(name) for name in programs_of(metric, labels, launcher_in(command))]
    if image:
        names = list(measured_inside(metric, tuple(names), in_image(image)))
    return tuple(built if (built := f"{PERFTEST}/{name}") in words else name for name in names)


def in_image(id_: str) -> str:
    """Item of the Python of a container image; ``id_``: sha256 of its configuration, which contains all its files'."""
    return f"{_PYTHON} in image {id_[:12]}"


def measured_inside(metric: str, names: tuple[str, ...], python: str) -> tuple[str, ...]:
    """The programs of a measurement whose Python is the one of an image, which ``python`` stands for."""
    return names if metric in _ON_NODE else tuple(python if name == _PYTHON else name for name in names)


def packaged(name: str) -> str:
    """Name of the packaged program that is used where a node has no built one."""
    return name.removeprefix(f"{PERFTEST}/")


def checked_as(name: str) -> tuple[str, ...]:
    """Items of a program's check: older kits looked for any mpirun on the PATH, whatever the path of the one in use."""
    return (name, "mpirun") if name.endswith("/mpirun") else (name,)


@dataclass(frozen=True, slots=True)
class Program:
    """A program of a node."""

    path: str
    """Path without symbolic links."""
    sha256: str
    packages: tuple[str, ...] = ()
    """Packages that own it."""
    built: str = ""
    """sha256 that it had when the deploy built it; empty for other programs."""
    sources: str = ""
    """sha256 of the archive that the deploy built it from."""


@dataclass(frozen=True, slots=True)
class Installed:
    programs: Mapping[str, Program | None]
    """Programs by name or path, as they were asked for; None if absent."""
    changed: Mapping[str, tuple[str, ...]]
    """Changed or missing files by package, without configuration and documentation."""
    images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Images of cephadm's containers that run a program, by program; of the site's image its names with digests."""


def judge_program(name: str, installed: Installed) -> tuple[CheckOutcome, str, bool]:
    """Outcome, message, and whether the result is required."""
    if name == IMAGE:
        return CheckOutcome.UNMEASURED, "no image that ingest.image names", True
    if name.startswith(in_image("")) and name in installed.images:
        published = [one for one in installed.images[name] if not one.startswith(_LOCAL)]
        if not published:
            way = "push it to a registry, and pull it from there on every node"
            return (
                CheckOutcome.UNMEASURED,
                f"the image {name.split()[-1]} is of no registry, and may hold any: {way}",
                True,
            )
        return CheckOutcome.PASSED, f"{_PYTHON} in container image {published[0]}", True
    if images := installed.images.get(name):
        if loose := next((image for image in images if _DIGEST not in image), None):
            way = "let cephadm use digests (ceph config set mgr mgr/cephadm/use_repo_digest true)"
            return CheckOutcome.UNMEASURED, f"{name} is in container image {loose}, which may be any: {way}", True
        return CheckOutcome.PASSED, f"{name} in container image {', '.join(images)}", True
    program = installed.programs.get(name)
    if program is None:
        return CheckOutcome.UNMEASURED, f"{name} is not installed", True
    if program.built and not program.packages:
        if program.sha256 != program.built:
            text = f"expected {program.path} as the deploy built it, sha256 {program.built}, actual {program.sha256}"
            return CheckOutcome.FAILED, text, True
        return CheckOutcome.PASSED, f"{program.path}, as built from sources with sha256 {program.sources}", True
    if not program.packages:
        text = f"{program.path} belongs to no package; its sha256 is {program.sha256}"
        if name.rpartition("/")[2] in PACKAGED:
            return CheckOutcome.UNMEASURED, text, True
        return CheckOutcome.FAILED, text, False
    changed = [path for package in program.packages for path in installed.changed.get(package, ())]
    owners = ", ".join(program.packages)
    if changed:
        files = some(sorted(changed), 3)
        return CheckOutcome.FAILED, f"expected {name} as {owners} installed it, actual changed: {files}", True
    return CheckOutcome.PASSED, f"{program.path} of {owners}, as installed", True
