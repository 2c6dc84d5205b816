"""The second run on a node with GPUs: what the first one left, read back through every fact's own parser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.configure.containers.daemon import containerd_toml, docker_json
from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.gpu import operations, runtimes
from rackproof.configure.gpu import plan as planning
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.install import NOUVEAU, OPTIONS
from rackproof.configure.gpu.state import STAMP
from rackproof.configure.gpu.tuning import ECC_MARK, SCRIPT, Tuning
from rackproof.configure.render import templates
from rackproof.core.architecture import Containers
from tests.unit.configure.gpu.machines import declared_gpu
from tests.unit.configure.gpu.second_run import UNIT, GpuNode, module
from tests.unit.configure.gpu.test_deploy import plan
from tests.unit.configure.gpu.test_further import GDSCHECK
from tests.unit.configure.gpu.test_install import UBUNTU, VERSION
from tests.unit.configure.loop import carried_out, left_alone

pytestmark = pytest.mark.few(2)

Change = Callable[[GpuNode], object]


@pytest.fixture(autouse=True)
def without_a_version_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "platform_here", lambda: None)


def rack(name: str, root: Path) -> tuple[GpuNode, planning.Plan, dict[str, Any]]:
    """A bare node of a written rack with the files of the deploy, and what its operations are given."""
    _, made, target, files, _ = plan(name)
    node = GpuNode(root, made.choice.version or f"{made.choice.branch}.95.05", made.choice.flavour == "open")
    for path, content in files.items():
        node.file(path, content)
    return node, made, {"target": target, "machine": made.machine}


RACKS = ("hgx-h200-ubuntu2404-roce", "dgx-b200-rocky94-ib", "debian13-l40s", "dgx1-v100-debian12")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RACKS)
def test_driver_its_services_and_its_tools(tmp_path: Path, name: str) -> None:
    node, made, given = rack(name, tmp_path)
    carried_out(operations.driver, node.run, **given)
    assert "modprobe nvidia" in "\n".join(node.calls)
    assert left_alone(operations.driver, node.run, **given) == f"{made.choice.label} is in force"

    services = {"wanted": planning.units(made), **given}
    assert carried_out(operations.driver_units, node.run, **services)
    assert left_alone(operations.driver_units, node.run, **services).endswith("units are as declared")

    packages = (*made.packages.tools, *made.packages.headers)
    node.file(
        "/packages/offered", "".join(f"{package.name} {package.version}\n" for package in packages if package.version)
    )
    tools = {"packages": packages, "family": made.machine.family, "hold": True}
    assert carried_out(operations.installed, node.run, **tools)
    assert left_alone(operations.installed, node.run, **tools) == f"all {len(packages)} packages are installed"
    for name_ in ("installed", "held"):
        without_lines(f"packages/{name_}", packages[0].name)(node)
        assert (name_ == "held" and packages[0].version is None) or carried_out(operations.installed, node.run, **tools)
        left_alone(operations.installed, node.run, **tools)


def without_lines(path: str, word: str) -> Change:
    def change(node: GpuNode) -> None:
        lines = (node.root / path).read_text().splitlines(keepends=True)
        (node.root / path).write_text("".join(line for line in lines if word not in line))

    return change


def unloaded(node: GpuNode) -> None:
    shutil.rmtree(node.root / "sys/module/nvidia_uvm")


def unit_of_the_package(node: GpuNode) -> None:
    (node.root / UNIT.lstrip("/")).unlink()


@pytest.mark.parametrize("name", ["hgx-h200-ubuntu2404-roce", "dgx-b200-rocky94-ib"])
def test_each_deviation_of_the_driver_is_mended_once(tmp_path: Path, name: str) -> None:
    node, _made, given = rack(name, tmp_path)
    carried_out(operations.driver, node.run, **given)
    changes: tuple[tuple[Change, str], ...] = (
        (without_lines("packages/held", "fabricmanager"), "\nrp_hold "),
        (without_lines("packages/installed", "fabricmanager"), "\nrp_install "),
        (unloaded, "nvidia_uvm"),
        (lambda node: node.file(STAMP, "0\n"), STAMP),
        (unit_of_the_package, "daemon-reload"),
    )
    for change, says in changes:
        left_alone(operations.driver, node.run, **given)
        change(node)
        (command,) = carried_out(operations.driver, node.run, **given)
        assert says in command
    left_alone(operations.driver, node.run, **given)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("files", "mark"),
    [
        (
            {
                "/proc/driver/nvidia/version": module("570.172.08", open_=True),
                "/sys/module/nvidia/version": "570.172.08\n",
            },
            f"driver 570.172.08 loaded, {VERSION} installed",
        ),
        (
            {"/proc/driver/nvidia/version": module(VERSION, open_=False)},
            "proprietary modules loaded, open ones installed",
        ),
        ({"/sys/module/nouveau/refcnt": "0\n"}, NOUVEAU),
        ({"/proc/driver/nvidia/params": "EnableResizableBar: 0\n"}, OPTIONS),
    ],
)
def test_what_only_a_reboot_mends_is_asked_for_once(tmp_path: Path, files: dict[str, str], mark: str) -> None:
    node, _, given = rack("hgx-h200-ubuntu2404-roce", tmp_path)
    given["target"] = replace(given["target"], options={"NVreg_EnableResizableBar": "1"})
    carried_out(operations.driver, node.run, **given)
    before = {path: node.root / path.lstrip("/") for path in files}
    kept = {path: file.read_text() if file.exists() else None for path, file in before.items()}
    for path, text in files.items():
        node.file(path, text)
    assert carried_out(operations.driver, node.run, **given)
    assert node.marks == {f"reboot:{mark}"}
    assert left_alone(operations.driver, node.run, **given).endswith(f"waits for a reboot: {mark}")
    for path, text_ in kept.items():
        shutil.rmtree(before[path].parent) if text_ is None else before[path].write_text(text_)
    assert left_alone(operations.driver, node.run, **given).endswith("is in force")


def test_gpus_that_have_left_the_fabric_start_its_manager_again(tmp_path: Path) -> None:
    node, made, given = rack("hgx-h200-ubuntu2404-roce", tmp_path)
    carried_out(operations.driver, node.run, **given)
    services = {"wanted": planning.units(made), **given}
    carried_out(operations.driver_units, node.run, **services)
    for name in ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm"):
        active = node.root / f"units/{name}.service/active"
        active.unlink()
        with pytest.raises(AssertionError, match=f"start -- {name}"):
            left_alone(operations.driver_units, node.run, **services)
        active.touch()
    node.file("/smi/fabric", "In Progress\n")
    with pytest.raises(AssertionError, match=r"restart -- nvidia-fabricmanager\.service"):
        left_alone(operations.driver_units, node.run, **services)


ALL = Tuning(650, (3201, 1500), None, (3201,), ecc=True, mig=True, mig_profiles=("3g.71gb", "1g.18gb"))


def folder(root: Path, name: str) -> Path:
    (root / name).mkdir()
    return root / name


def tuned_node(root: Path, wanted: Tuning) -> GpuNode:
    node = GpuNode(root, VERSION, open_=True)
    node.program("true")
    node.file("/etc/modprobe.d/rackproof-nvidia.conf", "")
    node.run("modprobe nvidia")
    script = node.rooted(templates.text(SCRIPT, tuning=wanted))
    (node.root / "units/rackproof-gpu.start").write_text(script)
    return node


def test_limits_clocks_ecc_and_mig(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = tuned_node(tmp_path, ALL)
    given = {"wanted": ALL, "machine": UBUNTU}
    caplog.set_level("DEBUG", logger="pyinfra")
    for kept, value, says in (
        ("power", "700.00", "power limit"),
        ("power", "500.00", "power limit"),
        ("clocks", "3201,1980", "application clocks"),
        ("mig", "Disabled", "MIG of"),
        ("parts", "1g.18gb", "partitions of"),
    ):
        node.file(f"/smi/{kept}", f"{value}\n")
        caplog.clear()
        (command,) = carried_out(operations.tuned, node.run, **given)
        assert "systemctl restart rackproof-gpu.service" in command
        assert says in caplog.text
        assert left_alone(operations.tuned, node.run, **given) == "GPUs are set as declared"


def test_ecc_that_waits_for_its_reset(tmp_path: Path) -> None:
    wanted = Tuning(ecc=True)
    given = {"wanted": wanted, "machine": UBUNTU}
    node = tuned_node(tmp_path, wanted)
    node.file("/smi/ecc_now", "Disabled\n")
    node.file("/smi/ecc", "Disabled\n")
    commands = carried_out(operations.tuned, node.run, **given)
    assert len(commands) == 2
    assert node.marks == {f"reboot:{ECC_MARK}"}
    assert left_alone(operations.tuned, node.run, **given) == f"waits for a reboot: {ECC_MARK}"
    node.file("/smi/ecc_now", "Enabled\n")
    assert left_alone(operations.tuned, node.run, **given) == "GPUs are set as declared"


def test_gpus_without_partitions_stay_as_they_are(tmp_path: Path) -> None:
    wanted = Tuning(power_limit_w=700, ecc=True, mig=False)
    given = {"wanted": wanted, "machine": UBUNTU}
    node = tuned_node(tmp_path, wanted)
    assert left_alone(operations.tuned, node.run, **given) == "GPUs are set as declared"
    node.file("/smi/mig", "Enabled\n")
    assert carried_out(operations.tuned, node.run, **given)
    assert left_alone(operations.tuned, node.run, **given) == "GPUs are set as declared"


@pytest.mark.parametrize("name", RACKS)
def test_the_script_at_boot_sets_what_the_driver_then_reports(tmp_path: Path, name: str) -> None:
    _, made, given = rack(name, folder(tmp_path, "rack"))
    node = tuned_node(folder(tmp_path, "node"), made.tuning)
    if made.tuning.power_limit_w:
        node.file("/smi/power", "200.00\n")
        assert carried_out(operations.tuned, node.run, wanted=made.tuning, machine=given["machine"])
    assert left_alone(operations.tuned, node.run, wanted=made.tuning, machine=given["machine"])


def test_gpudirect_storage_that_works_loads_nothing(tmp_path: Path) -> None:
    node, _, given = rack("hgx-h200-ubuntu2404-roce", tmp_path)
    carried_out(operations.driver, node.run, **given)
    node.file("/said", GDSCHECK)
    # Without nvidia-fs the tool says Unsupported of every file system, as it does in the field.
    node.program(
        "gdscheck",
        f"[ -d /sys/module/nvidia_fs ] && cat {node.root}/said || sed 's/: Supported/: Unsupported/' {node.root}/said",
    )
    asked = {"declared": declared_gpu(8, gds=["NVMe", "NFS"], gds_fallback=False), "stack": GpuInputs(), **given}
    (command,) = carried_out(operations.gpudirect_storage, node.run, **asked)
    assert "modprobe nvidia-fs" in command
    assert left_alone(operations.gpudirect_storage, node.run, **asked) == "GPUDirect Storage works: NVMe, NFS"
    node.file("/said", GDSCHECK.replace("compat_mode : false", "compat_mode : true"))
    with pytest.raises(AssertionError, match="may copy through host memory"):
        left_alone(operations.gpudirect_storage, node.run, **asked)


CDI = """\
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{version}
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{version}
kind: nvidia.com/gpu
"""
CRI = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.'
"""Table of containerd 1.7; 2.x has other words and other quotes, see ``NEWER``."""
NEWER = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes."


def containers(root: Path, section: str, options: str) -> GpuNode:
    """Docker and containerd, which show what their files say, and a toolkit that writes as much as it knows."""
    node = GpuNode(root, VERSION, open_=True)
    node.file("/sys/module/nvidia/version", f"{VERSION}\n")
    node.file("/etc/containerd/config.toml", "version = 2\n")
    node.file("/etc/docker/daemon.json", "{}\n")
    node.file("/spec", CDI.format(version=VERSION))
    added = f'{section}nvidia]\n  runtime_type = "io.containerd.runc.v2"\n  {section}nvidia.options]\n'
    node.file("/added", f'{added}    BinaryName = "/usr/bin/nvidia-container-runtime"\n{options}')
    node.file("/units/rackproof-cdi.start", f"mkdir -p {root}/etc/cdi; cp {root}/spec {root}/etc/cdi/nvidia.yaml")
    # A value that is not set is shown with its default.
    runc = f"  {section}runc]\n  {section}runc.options]\n    SystemdCgroup = false\n"
    node.file("/defaults", runc)
    node.program("containerd", f"cat /etc/containerd/config.toml {root}/defaults")
    node.program(
        "docker", 'case "$*" in *Runtimes*) tr -d "\\n" </etc/docker/daemon.json; echo;; *) echo systemd;; esac'
    )
    node.program(
        "nvidia-ctk",
        'case "$*" in *docker*) echo \'{"io.containerd.runc.v2":{"path":"runc"},"nvidia":{"path":"x"}}\''
        f" >/etc/docker/daemon.json;; *) cat {root}/added >>/etc/containerd/config.toml;; esac",
    )
    return node


@pytest.mark.parametrize("section", [CRI, NEWER])
@pytest.mark.parametrize("options", ["", "    SystemdCgroup = false\n", "    SystemdCgroup = true\n"])
def test_container_runtimes_and_the_specification_of_the_driver_in_force(
    tmp_path: Path, section: str, options: str
) -> None:
    node = containers(tmp_path, section, options)
    given = {"wanted": ("docker", "containerd", "podman"), "owned": ()}
    carried_out(operations.runtimes, node.run, **given)
    assert left_alone(operations.runtimes, node.run, **given) == "container runtimes hand out GPUs"
    conf = node.root / "etc/containerd/config.toml"
    assert conf.read_text().count("SystemdCgroup = true") == 1
    for path, old, new in (
        ("etc/containerd/config.toml", "SystemdCgroup = true", "SystemdCgroup = false"),
        ("etc/docker/daemon.json", "nvidia", "crun"),
        ("sys/module/nvidia/version", VERSION, "580.142"),
    ):
        text = (node.root / path).read_text()
        (node.root / path).write_text(text.replace(old, new))
        with pytest.raises(AssertionError, match=r"systemctl restart (docker|containerd|rackproof-cdi)"):
            left_alone(operations.runtimes, node.run, **given)
        (node.root / path).write_text(text)


def test_the_runtime_whose_file_the_deploy_of_containers_writes_needs_no_restart_again(tmp_path: Path) -> None:
    node = containers(tmp_path, CRI, "")
    declared = Containers.model_validate({"runtime": "containerd", "roles": ["gpu"], "nvidia_runtime": True})
    node.file("/etc/containerd/config.toml", containerd_toml(declared, ContainerInputs()))
    given = {"wanted": ("containerd",), "owned": ("containerd",)}
    (command,) = carried_out(operations.runtimes, node.run, **given)
    assert "nvidia-ctk" not in command.replace("nvidia-ctk cdi generate failed", "")
    assert left_alone(operations.runtimes, node.run, **given) == "container runtimes hand out GPUs"


@pytest.mark.parametrize(
    ("declared", "needs"), [({"cdi": True}, ()), ({"cdi": True, "nvidia_runtime": True}, ("docker",))]
)
def test_a_runtime_that_is_declared_with_cdi_alone_is_not_restarted_for_want_of_another(
    tmp_path: Path, declared: dict[str, object], needs: tuple[str, ...]
) -> None:
    node = containers(tmp_path, CRI, "")
    setting = Containers.model_validate({"runtime": "docker", "roles": ["gpu"], **declared})
    node.file("/etc/docker/daemon.json", docker_json(setting, ContainerInputs()))
    # Docker says which it has, and the file which those are.
    known = {"runc": {"path": "runc"}, **json.loads(docker_json(setting, ContainerInputs())).get("runtimes", {})}
    node.file("/known", json.dumps(known) + "\n")
    node.program("docker", f'case "$*" in *Runtimes*) cat {node.root}/known;; *) echo systemd;; esac')
    own = runtimes.owned(setting, ("gpu",))
    wanted = runtimes.with_runtime(setting, runtimes.handing_out(setting, ("gpu",), GpuInputs()), own)
    assert wanted == needs
    given = {"wanted": wanted, "owned": own}
    (command,) = carried_out(operations.runtimes, node.run, **given)
    assert "rackproof-cdi.service" in command
    assert left_alone(operations.runtimes, node.run, **given) == "container runtimes hand out GPUs"
