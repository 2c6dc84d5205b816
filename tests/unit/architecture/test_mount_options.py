"""Required mount options follow from the options and the transport of a storage; contradictions are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof import architectures
from rackproof.core.architecture import Storage
from rackproof.errors import ArchitectureError
from tests.unit.refusals import error_of

ROOT = Path(__file__).parents[3]
REQUIRED = {
    "architectures/dell-isilon-f800-dgx1.yaml": {"isilon": "hard nolock proto=tcp rsize=524288 rw vers=3 wsize=524288"},
    "architectures/dell-scaling-little.yaml": {"chassis": "hard proto=tcp rw vers=3"},
    "architectures/h200-single.yaml": {"local": "noatime rw"},
    "architectures/hgx-h100-roce.yaml": {"local": "noatime rw", "hps": "noatime rw"},
    "architectures/hitachi-v225g.yaml": {"staging": "fsc hard proto=tcp rw vers=4.2", "cache": "noatime rw"},
    "architectures/hpe-apollo6500-weka.yaml": {"matrix": "rw"},
    "architectures/nvidia-dgx-a100.yaml": {"local": "noatime rw", "hps": "noatime rw"},
    "architectures/nvidia-dgx-b200.yaml": {"local": "noatime rw", "hps": "noatime rw"},
    "architectures/nvidia-dgx-h100.yaml": {"local": "noatime rw", "hps": "noatime rw"},
    "architectures/nvidia-dgx-h200.yaml": {"local": "noatime rw", "hps": "noatime rw"},
    "architectures/nvidia-gb200-nvl72.yaml": {"local": "noatime rw", "hps": "noatime rw"},
    "architectures/virtual-rack.yaml": {
        "local": "noatime rw",
        "nfs-tcp": "hard proto=tcp rw vers=4.2",
        "nfs-rdma": "hard proto=rdma rw vers=4.1",
        "nfs-paths": "hard nolock proto=tcp rw vers=3",
        "cephfs": "noatime rw",
    },
    "architectures/virtual-rack-storage.yaml": {
        "local": "noatime rw",
        "nfs-tcp": "hard proto=tcp rw vers=4.2",
        "nfs-rdma": "hard nolock proto=rdma rw vers=3",
        "nfs-paths": "hard nolock proto=tcp rw vers=3",
        "cephfs": "noatime rw",
    },
    "architectures/weka-inference-nvme-dram-scaled.yaml": {
        "local": "noatime rw",
        "nfs-tcp": "hard proto=tcp rw vers=4.2",
        "nfs-rdma": "hard nolock proto=rdma rw vers=3",
        "nfs-paths": "hard nolock proto=tcp rw vers=3",
        "cephfs": "noatime rw",
    },
    "architectures/weka-inference-nvme-dram.yaml": {
        "matrix": "rw",
        "nvme": "noatime rw",
        "nfs": "hard proto=tcp rw vers=3",
    },
    "tests/data/plans/a100-rocky9-scale/architecture.yaml": {"scale": "", "daos": ""},
    "tests/data/plans/debian13-l40s/architecture.yaml": {"cephfs": "noatime rw", "home": "hard proto=tcp rw vers=4.2"},
    "tests/data/plans/dgx-b200-rocky94-ib/architecture.yaml": {"scratch": "", "lfs": "flock rw"},
    "tests/data/plans/dgx1-v100-debian12/architecture.yaml": {"isilon": "hard proto=tcp rw vers=3"},
    "tests/data/plans/hgx-h100-ubuntu2204-weka/architecture.yaml": {"weka": ""},
    "tests/data/plans/hgx-h200-ubuntu2404-roce/architecture.yaml": {"vast": "hard proto=rdma rw vers=3"},
    "tests/data/written/hgx-h200-roce/architecture.yaml": {
        "raid": "noatime rw",
        "isilon": "hard proto=rdma rsize=1048576 rw vers=3 wsize=1048576",
        "home": "hard proto=tcp rw vers=4.2",
        "lustre": "flock rw",
        "beegfs": "",
        "gpfs": "",
        "weka": "rw writecache",
        "daos": "rw",
    },
}
"""File, storage: what the kernel must show, sorted."""


@pytest.mark.parametrize("path", REQUIRED)
def test_required_options_of_every_file(path: str) -> None:
    storages = architectures.load(str(ROOT / path)).model.storage
    assert {name: " ".join(sorted(storage.options_required)) for name, storage in storages.items()} == REQUIRED[path]


def test_every_file_with_storage_is_listed() -> None:
    files = [*(ROOT / "architectures").glob("*.yaml"), *(ROOT / "tests/data").rglob("architecture.yaml")]
    named = {str(file.relative_to(ROOT)) for file in files if "\nstorage:" in file.read_text()}
    only_names_a_claim = {f"architectures/{name}-scaled.yaml" for name in ("dell-isilon-f800-dgx1", "hitachi-v225g")}
    assert named - only_names_a_claim <= set(REQUIRED)


def test_a_client_of_its_own_requires_nothing_by_itself() -> None:
    values = {"class": "parallel", "mountpoint": "/mnt/w", "fstype": "wekafs", "source": "w", "options": ["noatime"]}
    assert Storage.model_validate(values).options_required == ()
    assert Storage.model_validate({**values, "options_required": ["rw"]}).options_required == ("rw",)


def test_other_spellings_and_read_only() -> None:
    values = {
        "class": "nfs",
        "transport": "rdma",
        "mountpoint": "/d",
        "fstype": "nfs",
        "source": "/d",
        "options": ["nfsvers=3", "ro"],
    }
    assert Storage.model_validate(values).options_required == ("ro", "vers=3", "proto=rdma")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("options: [vers=4.2, proto=rdma]", "options.1: transport says tcp, this option says rdma"),
        ("options: [rdma]", "options.0: transport says tcp, this option says rdma"),
        ("options: [nconnect=8]", "options.0: connections says 4, this option says 8"),
        ("options: [port=20049]", "options.0: port says 2049, this option says 20049"),
        ("options_required: [rw, vers=4.1]", "options_required.1: options says vers=4.2, this option says vers=4.1"),
        ("options_required: [proto=rdma]", "options_required.0: transport says tcp, this option says rdma"),
        ("options_required: [soft]", "options_required.0: options says hard, this option says soft"),
    ],
)
def test_contradictions_are_refused_with_their_line(line: str, complaint: str, tmp_path: Path) -> None:
    lines = (ROOT / "architectures/virtual-rack.yaml").read_text().splitlines()
    start = lines.index("  nfs-tcp:")
    place = next(i for i in range(start, len(lines)) if lines[i].startswith("    options:"))
    key = line.partition(":")[0]
    lines[place : place + (key == "options")] = [f"    {line}"]
    file = tmp_path / "rack.yaml"
    file.write_text("\n".join(lines) + "\n")
    message = error_of(ArchitectureError, architectures.load, file)
    assert complaint.partition(": ")[2] in message
    assert f":{place + 1}:" in message
