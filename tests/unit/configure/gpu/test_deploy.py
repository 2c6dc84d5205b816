"""The deploy on the written racks: a first installation, and nothing the second time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploys import gpu
from rackproof import architectures
from rackproof.configure.files import Absent, RemoteFile
from rackproof.configure.gpu import install, runtimes
from rackproof.configure.gpu import plan as planning
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.state import GpuState, parse_state, state_command
from rackproof.configure.settings import node_settings, read_inputs
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site
from rackproof.core.architecture import Containers, GpuProfile, Profile
from rackproof.core.gpu_generations import UnsupportedGpu
from rackproof.core.machine import Machine
from rackproof.core.rack import Rack
from rackproof.core.versions.models import Component, Components, Driver, Kernel, LockedRepository, Platform
from rackproof.core.versions.select import LockedPackage
from rackproof.errors import InventoryError
from rackproof.parse.machine import MACHINE_COMMAND, parse_machine
from rackproof.remote.written import read_written
from tests.unit.configure.gpu.node import FakeNode
from tests.unit.configure.gpu.test_install import converged
from tests.unit.configure.versions import real_apt

PLANS = Path(__file__).parents[3] / "data/plans"
RACKS = (
    "a100-rocky9-scale",
    "debian13-l40s",
    "dgx-b200-rocky94-ib",
    "dgx1-v100-debian12",
    "hgx-h100-ubuntu2204-weka",
    "hgx-h200-ubuntu2404-roce",
)


OPERATIONS = (
    "installed",
    "driver",
    "gpudirect_dmabuf",
    "driver_units",
    "tuned",
    "gpudirect_storage",
    "built",
)


@pytest.fixture(autouse=True)
def without_a_version_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "platform_here", lambda: None)


def written(name: str, **data: object) -> tuple[Site, Machine, GpuState]:
    written_rack = read_written(PLANS / name)
    architecture = architectures.load(str(written_rack.architecture)).model
    nodes = written_rack.nodes
    if data:
        nodes = (type(nodes[0])(nodes[0].name, nodes[0].groups, {**nodes[0].data, **data}), *nodes[1:])
    answers = written_rack.answers["gpu-01"]

    def ask(command: str) -> list[str]:
        lines = answers.run(f"{command}; echo rackproof-end", 1).stdout.decode().splitlines()
        assert lines[-1] == "rackproof-end"
        return lines[:-1]

    machine = parse_machine(ask(MACHINE_COMMAND))
    state = parse_state(ask(state_command((), machine.family, smi=True)), (), machine.family)
    return Site(Rack(name, nodes), architecture, nodes[0], node_settings(nodes[0], architecture.rails)), machine, state


def plan(name: str, **data: object) -> tuple[Site, planning.Plan, install.WantedDriver, dict[str, str], GpuState]:
    site, machine, state = written(name, **data)
    made = planning.plan_of(site, machine)
    entries = planning.files(site, made)
    contents = {entry.path: entry.content for entry in entries if isinstance(entry, RemoteFile)}
    assert len(contents) + sum(isinstance(entry, Absent) for entry in entries) == len(entries)
    return site, made, planning.wanted(made, entries), contents, state


@pytest.mark.parametrize("name", RACKS)
def test_first_installation_and_then_nothing(name: str) -> None:
    _, _, target, _, bare = plan(name)
    first = install.plan_driver(target, bare)
    assert [package.name for package in first.install] == [package.name for package in target.packages]
    assert first.initramfs
    second = install.plan_driver(target, converged(target))
    assert not second, second.reasons


@pytest.mark.parametrize(
    ("name", "label", "units"),
    [
        ("a100-rocky9-scale", "driver 580.126.20 (open, cuda)",
         ["nvidia-persistenced", "nvidia-fabricmanager", "rackproof-gpu"]),
        ("debian13-l40s", "driver 550 (proprietary, distribution)", ["nvidia-persistenced", "rackproof-gpu"]),
        ("dgx-b200-rocky94-ib", "driver 580.126.20 (open, cuda)",
         ["nvidia-persistenced", "nvidia-fabricmanager", "rackproof-gpu"]),
        ("dgx1-v100-debian12", "driver 535 (proprietary, distribution)", ["nvidia-persistenced", "rackproof-gpu"]),
        ("hgx-h100-ubuntu2204-weka", "driver 570.158.01 (open, cuda)",
         ["nvidia-persistenced", "nvidia-fabricmanager", "rackproof-gpu"]),
        ("hgx-h200-ubuntu2404-roce", "driver 580.126.20 (open, cuda)",
         ["nvidia-persistenced", "nvidia-fabricmanager", "rackproof-gpu", "nvidia-dcgm"]),
    ],
)  # fmt: skip
def test_drivers_and_services(name: str, label: str, units: list[str]) -> None:
    _, made, _, _, _ = plan(name)
    assert made.choice.label == label
    assert [unit.name.removesuffix(".service") for unit in planning.units(made)] == units


@pytest.mark.parametrize(
    ("states", "status"), [(("Completed",) * 8, 0), (("Completed", "In Progress"), 1), (("Not Started",), 1), ((), 1)]
)
def test_every_gpu_has_to_be_registered_with_the_fabric(tmp_path: Path, states: tuple[str, ...], status: int) -> None:
    _, made, _, _, _ = plan("hgx-h200-ubuntu2404-roce")
    (proof,) = [unit.proof for unit in planning.units(made) if unit.name == "nvidia-fabricmanager.service"]
    assert proof is not None
    report = "".join(
        f"    Fabric\n        State                             : {fabric_state}\n" for fabric_state in states
    )
    node = FakeNode(tmp_path)
    (node.root / "report").write_text(report)
    node.program("nvidia-smi", f"cat {node.root}/report")
    assert node.run(proof).returncode == status


def test_files_of_a_node_with_everything() -> None:
    _, _, target, files, _ = plan("hgx-h200-ubuntu2404-roce")
    assert "blacklist nouveau\n" in files["/etc/modprobe.d/rackproof-nvidia.conf"]
    assert files["/etc/modules-load.d/rackproof-gpu.conf"].split()[-3:] == ["nvidia", "nvidia-uvm", "nvidia-fs"]
    assert "NCCL_IB_TC=106\n" in files["/etc/nccl.conf"]
    assert '"allow_compat_mode": false' in files["/etc/cufile.json"]
    assert "ConditionPathExistsGlob=/dev/nvidia-nvswitch*" in files[
        "/etc/systemd/system/nvidia-fabricmanager.service.d/rackproof.conf"
    ]  # fmt: skip
    assert "Pin: release o=Ubuntu\nPin-Priority: -1" in files["/etc/apt/preferences.d/60-rackproof-nvidia"]
    pins = files["/etc/apt/preferences.d/60-rackproof-nvidia"].split("\n\n")
    # The first record that fits counts: Ubuntu's build of the same version stays away.
    assert pins[1].endswith("Pin: version 580.126.20-*\nPin-Priority: 1001")
    assert "Package: nvidia-* libnvidia-* libcuda1 firmware-nvidia-* cuda-drivers* nvlink5*\n" in pins[1]
    assert "Signed-By: /etc/apt/keyrings/rackproof-cuda.asc" in files["/etc/apt/sources.list.d/rackproof-cuda.sources"]
    assert "smi -pl 700" in files["/usr/local/sbin/rackproof-gpu"]
    assert target.modules == ("nvidia", "nvidia_uvm")


def test_files_of_others() -> None:
    _, _, target, files, _ = plan("dgx1-v100-debian12")
    assert target.modules == ("nvidia", "nvidia_uvm", "nvidia_peermem")
    assert "/etc/cufile.json" not in files
    assert "Pin: release l=NVIDIA CUDA\nPin-Priority: -1" in files["/etc/apt/preferences.d/60-rackproof-nvidia"]
    assert "Pin: version" not in files["/etc/apt/preferences.d/60-rackproof-nvidia"]
    _, _, target, files, _ = plan("dgx-b200-rocky94-ib")
    # NVLSM and the fabric manager reach these switches with InfiniBand's datagrams only.
    assert target.modules == ("ib_umad", "nvidia", "nvidia_uvm")
    assert "ib-umad\n" in files["/etc/modules-load.d/rackproof-gpu.conf"]
    assert "gpgkey=file:///etc/pki/rpm-gpg/rackproof-cuda.asc" in files["/etc/yum.repos.d/rackproof-cuda.repo"]
    assert "ConditionPathExistsGlob" not in files["/etc/systemd/system/nvidia-fabricmanager.service.d/rackproof.conf"]
    _, _, _, files, _ = plan("a100-rocky9-scale")
    assert '"10.64.7.1"' in files["/etc/cufile.json"]


VENDOR = {
    "url": "https://mirror.example/cuda",
    "key_url": "https://mirror.example/cuda/key.pub",
    "key_sha256": "a" * 64,
}
SOURCES, PINS = "/etc/apt/sources.list.d/rackproof-cuda.sources", "/etc/apt/preferences.d/60-rackproof-nvidia"


@pytest.mark.parametrize(
    ("name", "stack", "written_"),
    [
        ("debian13-l40s", {"dcgm": True}, True),
        ("debian13-l40s", {"runtimes": ["docker"]}, True),
        ("debian13-l40s", {"container_toolkit": "latest"}, True),
        ("debian13-l40s", {}, False),  # nothing comes from it
        ("debian13-l40s", {"dcgm": True, "repository": None}, False),
        ("hgx-h200-ubuntu2404-roce", {"precompiled": True, "driver": "580.126.20"}, True),
    ],
)
def test_the_vendors_repository_beside_the_distributions_driver(
    monkeypatch: pytest.MonkeyPatch, name: str, stack: dict[str, Any], written_: bool
) -> None:
    inputs = {"source": "distribution", "repository": VENDOR, **stack}
    site, made, _, files, _ = plan(name, gpu=inputs)
    assert made.choice.source == "distribution"
    assert (SOURCES in files) is written_
    assert ("Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 100\n" in files[PINS]) is written_
    called: list[str] = []
    monkeypatch.setattr(gpu, "here", lambda: site)
    monkeypatch.setattr(gpu, "required_machine", lambda: made.machine)
    monkeypatch.setattr(planning, "warnings", lambda plan: ())
    for operation in OPERATIONS:
        monkeypatch.setattr(gpu.operations, operation, lambda operation=operation, **_: called.append(operation))
    monkeypatch.setattr(gpu, "repository_key", lambda *_: called.append("key"))
    monkeypatch.setattr(gpu.common, "files", lambda **_: called.append("files"))
    gpu.gpu_driver._inner()
    assert ("key" in called) is written_


def index(root: Path, label: str, packages: dict[str, str]) -> str:
    """A repository that has only lists, and its line for apt."""
    folder = root / label.replace(" ", "-")
    folder.mkdir()
    text = "\n".join(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n"
        f"Filename: ./{name}.deb\nSize: 1\nSHA256: {'0' * 64}\n"
        for name, version in packages.items()
    )
    (folder / "Packages").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    release = f"Origin: {label}\nLabel: {label}\nSHA256:\n {digest} {len(text.encode())} Packages\n"
    (folder / "Release").write_text(release)
    return f"deb [trusted=yes] file:{folder} ./\n"


@pytest.mark.skipif(not real_apt.AVAILABLE, reason="apt and dpkg are not here")
def test_apt_takes_no_part_of_the_driver_from_the_vendor_beside_the_distributions_own(tmp_path: Path) -> None:
    _, made, _, files, _ = plan(
        "debian13-l40s", gpu={"source": "distribution", "repository": VENDOR, "dcgm": True, "driver": "550.163.01"}
    )
    driver = [package.name for package in made.packages.driver]
    further = ["libnvidia-ptxjitcompiler1", "nvidia-kernel-support", "firmware-nvidia-gsp", "libc6"]
    apt = real_apt.RealApt(tmp_path)
    own = index(tmp_path, "Debian", dict.fromkeys((*driver, *further), "550.163.01-1"))
    tools = ["datacenter-gpu-manager-4-cuda12", "nvidia-container-toolkit", "libnvidia-container1", "nvidia-fs-dkms"]
    theirs = index(tmp_path, "NVIDIA CUDA", dict.fromkeys((*driver, *further, *tools), "580.126.20-1"))
    (tmp_path / "etc/apt/sources.list").write_text(own + theirs)

    def candidates(pins: str) -> dict[str, str]:
        (tmp_path / "etc/apt/preferences.d/60-rackproof-nvidia").write_text(pins)
        answer = apt.run(
            f"apt-get -q update >/dev/null && apt-cache policy {' '.join((*driver, *further, *tools))}"
        ).stdout
        return dict(re.findall(r"^(\S+):\n.*\n  Candidate: (\S+)$", answer, re.MULTILINE))

    chosen = candidates(files[PINS])
    assert {chosen[name] for name in (*driver, *further)} == {"550.163.01-1"}
    assert {chosen[name] for name in tools} == {"580.126.20-1"}
    assert candidates("")["nvidia-smi"] == "580.126.20-1"  # what the pins are for
    # Not even of a version that both have.
    for folder in ("Debian", "NVIDIA-CUDA"):
        path = tmp_path / folder / "Packages"
        text = path.read_text().replace("580.126.20-1", "550.163.01-2")
        path.write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        release = re.sub(
            r"^ .* Packages$", f" {digest} {len(text)} Packages", (path.parent / "Release").read_text(), flags=re.M
        )
        (path.parent / "Release").write_text(release)
    chosen = candidates(files[PINS])
    assert {chosen[name] for name in driver} == {"550.163.01-1"}


def test_a_locked_kernel_that_does_not_run_yet_needs_no_headers_of_the_one_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository = LockedRepository.model_validate(
        {"kind": "apt", "url": "https://x.example/cuda", "suites": ["/"], "key": {"url": "https://x.example/key"}}
    )
    for release, waited_for in (("6.8.0-87-generic", "6.8.0-87-generic"), ("6.8.0-51-generic", None)):
        kernel = Kernel(version=release, repository="cuda")
        platform = Platform(repositories={"cuda": repository}, components=Components(kernel=kernel))
        monkeypatch.setattr(planning, "platform_here", lambda platform=platform: platform)
        _, made, target, _, _ = plan("hgx-h200-ubuntu2404-roce")
        assert target.release == waited_for
        headers = [package.name for package in made.packages.headers]
        assert headers == ([] if waited_for else ["linux-headers-6.8.0-51-generic"])


def test_options_of_the_driver_follow_the_architecture() -> None:
    site, machine, _ = written("debian13-l40s")
    assert site.architecture.gpu is not None
    declared = site.architecture.gpu.model_copy(update={"parameters": {"RmProfilingAdminOnly": "0"}})
    made = planning.plan_of(site, machine)
    stack = made.stack.model_copy(update={"module_options": {"NVreg_EnableResizableBar": "1"}})
    assert planning.module_options(declared, stack, made.choice, "x86_64") == {
        "NVreg_EnableResizableBar": "1",
        "NVreg_RestrictProfilingToAdminUsers": "0",
    }


def test_peer_to_peer_dma_of_the_kernel_needs_static_bar1() -> None:
    """Without it the driver offers the kernel no memory, and cuFile copies through the host."""
    site, machine, _ = written("debian13-l40s")
    made = planning.plan_of(site, machine)
    stack = made.stack.model_copy(update={"gds_method": "p2pdma"})
    declared = made.declared.model_copy(update={"gds": ("NVMe",)})
    options = planning.module_options(declared, stack, made.choice, "x86_64")
    assert options == {"NVreg_RegistryDwords": "RMForceStaticBar1=1;RmForceDisableIomapWC=1"}
    path = "/etc/modprobe.d/rackproof-nvidia.conf"
    for method, multipath in (("p2pdma", True), ("nvidia-fs", False)):
        plan_ = replace(made, stack=stack.model_copy(update={"gds_method": method}), declared=declared)
        entry = next(entry for entry in planning.files(site, plan_) if entry.path == path)
        assert isinstance(entry, RemoteFile)
        assert ("\noptions nvme_core multipath=N\n" in entry.content) is multipath
    assert planning.module_options(declared, stack, made.choice, "aarch64") == {}
    assert planning.module_options(declared.model_copy(update={"gds": ("NFS",)}), stack, made.choice, "x86_64") == {}


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"locked_clocks": [1, 2]}, "gpu.locked_clocks: no such input; did you mean 'locked_clocks_mhz'"),
        ({"driver": "newest"}, "gpu.driver"),
        ("580", "expected a mapping"),
    ],
)
def test_contradictions_stop_the_run(inputs: object, words: str) -> None:
    site, machine, _ = written("debian13-l40s", gpu=inputs)
    with pytest.raises(InventoryError, match=words):
        planning.plan_of(site, machine)


def test_warnings() -> None:
    _, made, _, _, _ = plan("debian13-l40s")
    assert any("adapters cannot reach GPU memory" in warning for warning in planning.warnings(made))
    _, made, _, _, _ = plan("hgx-h200-ubuntu2404-roce")
    assert planning.warnings(made) == ()


def test_an_exporter_is_in_the_way_of_every_diagnosis() -> None:
    """Validators run the one of ``gpu.dcgm_level``, benchmarks those of a profile."""
    site, machine, _ = written("hgx-h200-ubuntu2404-roce", gpu={"dcgm_exporter": "dcgm-exporter.service"})
    sizes = GpuProfile(copy_runs=1, runs=1, seconds=1, diagnoses={"memtest": 60})
    elsewhere = sizes.model_copy(update={"members": "storage"})
    assert site.architecture.gpu is not None

    def diagnosed(level: int | None, **profiles: GpuProfile) -> tuple[tuple[str, ...], bool]:
        """Keys, and whether a warning names all of them."""
        own = {
            "gpu": site.architecture.gpu.model_copy(update={"dcgm_level": level}) if site.architecture.gpu else None,
            "profiles": {name: Profile(gpu=profile) for name, profile in profiles.items()},
        }
        changed = replace(site, architecture=site.architecture.model_copy(update=own))
        made = planning.plan_of(changed, machine)
        warning = "".join(planning.warnings(made))
        return made.diagnosed, "dcgm-exporter.service profiles" in warning and ", ".join(made.diagnosed) in warning

    assert diagnosed(1) == (("gpu.dcgm_level",), True)
    assert diagnosed(None, full=sizes) == (("profiles.full.gpu.diagnoses",), True)
    assert diagnosed(1, full=sizes) == (("gpu.dcgm_level", "profiles.full.gpu.diagnoses"), True)
    assert diagnosed(None, full=elsewhere) == ((), False)
    assert diagnosed(None) == ((), False)


def test_gpudirect_storage_is_proven_once_and_where_the_clients_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """BeeGFS is built against the driver's sources, so its client comes after the driver and before the proof."""
    site, machine, _ = written("hgx-h200-ubuntu2404-roce")
    called: list[str] = []
    monkeypatch.setattr(gpu, "here", lambda: site)
    for name in ("machine_here", "required_machine"):
        monkeypatch.setattr(gpu, name, lambda: machine)

    def note(operation: str) -> Callable[..., None]:
        return lambda **_: called.append(operation)

    for operation in OPERATIONS:
        monkeypatch.setattr(gpu.operations, operation, note(operation))
    monkeypatch.setattr(gpu, "repository_key", lambda *_: called.append("key"))
    monkeypatch.setattr(gpu.common, "files", note("files"))
    gpu.gpu_driver._inner()
    # A repository whose key is not there yet would stop every other installation, too.
    assert called.index("key") < called.index("files") < called.index("driver")
    assert "gpudirect_storage" not in called
    assert called.index("driver") < called.index("gpudirect_dmabuf")
    called.clear()
    gpu.gpudirect_storage._inner()
    assert called == ["gpudirect_storage"]


def test_only_programs_that_cannot_be_built_let_the_deploy_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose operation fails without ``_ignore_errors`` has no further one, and so no reboot."""
    site, machine, _ = written("hgx-h200-ubuntu2404-roce")
    going_on: dict[str, bool] = {}
    monkeypatch.setattr(gpu, "here", lambda: site)
    monkeypatch.setattr(gpu, "required_machine", lambda: machine)
    monkeypatch.setattr(gpu, "repository_key", lambda *_: None)

    def note(name: str, _ignore_errors: bool = False, **_: object) -> None:
        going_on[name] = _ignore_errors

    for module, operation in ((gpu.common, "files"), *((gpu.operations, name) for name in OPERATIONS)):
        monkeypatch.setattr(module, operation, note)
    gpu.gpu_driver._inner()
    builds = {f"Build {name}" for name in ("openmpi", "mpi4py", "nvbandwidth", "nccl_tests")}
    assert {name for name, goes_on in going_on.items() if goes_on} == builds
    assert "Driver" in going_on


def test_which_runtimes_hand_out_gpus() -> None:
    site, _, _ = written("dgx-b200-rocky94-ib")
    stack = read_inputs(site.node, GpuInputs)
    assert runtimes.handing_out(site.architecture.containers, site.node.groups, stack) == ("podman",)
    assert "nvidia-ctk cdi generate" in rendered(f"/etc/systemd/system/{runtimes.CDI_SERVICE}").content


def test_a_runtime_without_gpus_has_one_writer() -> None:
    declared = Containers(roles=("gpu",), runtime="docker")
    stack = GpuInputs(runtimes=("docker",))
    with pytest.raises(InventoryError, match=r"^gpu\.runtimes: docker: .*declare containers\.nvidia_runtime"):
        runtimes.handing_out(declared, ("gpu",), stack)
    assert runtimes.handing_out(declared, ("login",), stack) == ("docker",)
    assert runtimes.handing_out(declared.model_copy(update={"cdi": True}), ("gpu",), stack) == ("docker",)


def test_a_version_set_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {
        "driver": Driver(version="580.126.20", flavour="open", repository="cuda"),
        "fabric_manager": Component(version="580.126.20", repository="cuda"),
        "nvlsm": Component(version="2025.10", repository="cuda"),
    }
    repository = LockedRepository.model_validate(
        {"kind": "apt", "url": "https://x.example/cuda", "suites": ["/"], "key": {"url": "https://x.example/key"}}
    )
    platform = Platform(repositories={"cuda": repository}, components=Components(**parts))  # type: ignore[arg-type]
    packages = {
        "driver": [
            LockedPackage("nvidia-dkms-580-open", "580.126.20-0ubuntu1", "driver", "cuda"),
            LockedPackage("nvidia-fabricmanager", "580.126.20-1", "fabric_manager", "cuda"),
            LockedPackage("nvlsm", "2025.10-1", "nvlsm", "cuda"),
        ],
        "gpu": [LockedPackage("libnccl2", "2.28.3-1+cuda13.0", "nccl", "cuda")],
        "gds": [LockedPackage("nvidia-gds-13-0", "13.0.2-1", "gds", "cuda")],
    }
    monkeypatch.setattr(planning, "platform_here", lambda: platform)
    monkeypatch.setattr(planning, "packages_here", lambda part: tuple(packages[part]))
    _, made, target, files, _ = plan("hgx-h200-ubuntu2404-roce")
    # Its packages are installed as the set's own stage, with its rules about downgrades, removals and free space.
    assert target.packages == ()
    assert not target.hold
    # The set's repositories are made with module_hotfixes: no stream is chosen on RHEL, where a mirror may have none.
    assert target.stream is None
    assert "/etc/apt/sources.list.d/rackproof-cuda.sources" not in files
    assert not {"libnccl2", "nvidia-gds-13-0"} & {package.name for package in made.packages.tools}
    packages["driver"][0] = LockedPackage("nvidia-dkms-580-open", "580.126.21-0ubuntu1", "driver", "cuda")
    assert plan("hgx-h200-ubuntu2404-roce")[2].stamp != target.stamp, "another driver: another initial file system"
    packages["driver"] = packages["driver"][:1]
    site, machine, _ = written("hgx-h200-ubuntu2404-roce")
    with pytest.raises(UnsupportedGpu, match=r"nothing about fabric_manager, which these GPUs need \(4 NVSwitches"):
        planning.plan_of(site, machine)
