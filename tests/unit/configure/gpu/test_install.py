"""From what is there to the declared driver: plans by table, scripts by a real shell with fake programs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.configure.gpu import install, packages
from rackproof.configure.gpu.driver import Choice, choose
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.install import NOUVEAU, OPTIONS, WantedDriver, plan_driver
from rackproof.configure.gpu.scripts import script
from rackproof.configure.gpu.state import GpuState
from rackproof.configure.package_transaction.transaction import STRICT, Package
from rackproof.core.machine import Machine
from rackproof.parse.nvidia_driver import KernelModule
from tests.unit.configure.gpu.machines import declared_gpu, machine
from tests.unit.configure.gpu.node import FakeNode

pytestmark = pytest.mark.few(6)

VERSION = "580.126.20"
UBUNTU, ROCKY, DEBIAN = (
    machine("ubuntu 24.04", "2335", switches=4),
    machine("rocky 9.4", "2335"),
    machine("debian 12", "1db1"),
)
EMPTY = GpuState(
    modules={}, loaded=None, parameters={}, available=None, packages={}, held=frozenset(), stream=None, dmabuf=True,
    drivers={}, stamp="", key_enrolled=None, fabric_after_multi_user=False, pending=frozenset(), smi=None,
    smi_problem="", listed=(),
)  # fmt: skip


def wanted(target: Machine, modules: tuple[str, ...] = ("nvidia", "nvidia_uvm"), **options: str) -> WantedDriver:
    stack = GpuInputs.model_validate({} if target is DEBIAN else {"driver": VERSION})
    choice = choose(target, declared_gpu(1), stack)
    wanted = (*packages.driver(target, choice), *packages.fabric(target, choice))
    return goal_of(choice, target, wanted, modules, **options)


def goal_of(
    choice: Choice,
    target: Machine,
    wanted: Iterable[Package],
    modules: tuple[str, ...] = ("nvidia", "nvidia_uvm"),
    **options: str,
) -> WantedDriver:
    stream = packages.stream(target, choice)
    return WantedDriver(choice, tuple(wanted), stream, options, install.stamp([]), hold=True, modules=modules)


def converged(target: WantedDriver) -> GpuState:
    module = KernelModule(target.choice.version or "535.261.03", target.choice.flavour == "open")
    versioned = [package for package in target.packages if package.version]
    return replace(
        EMPTY,
        modules=dict.fromkeys(target.modules, module.version),
        loaded=module,
        available=module,
        parameters={"RmProfilingAdminOnly": "1", "EnableResizableBar": "0", "RegistryDwords": ""},
        packages={package.name: (package.version or "535.261.03-1").replace("*", "1") for package in target.packages},
        held=frozenset(package.name for package in versioned),
        stream=target.stream,
        stamp=target.stamp,
        drivers={"0000:10:00.0": "nvidia", "0000:80:00.0": "nvidia-nvswitch"},
    )


@pytest.mark.parametrize("target", [UBUNTU, ROCKY, DEBIAN], ids=lambda system: system.os_id)
def test_nothing_to_do_where_everything_is_there(target: Machine) -> None:
    goal = wanted(target, NVreg_RestrictProfilingToAdminUsers="1")
    plan = plan_driver(goal, converged(goal))
    assert not plan, plan.reasons
    assert install.in_force(goal, converged(goal))


def test_a_bare_node_gets_everything() -> None:
    goal = wanted(ROCKY)
    plan = plan_driver(goal, EMPTY)
    assert [package.name for package in plan.install] == [package.name for package in goal.packages]
    assert plan.stream == "580-open"
    assert plan.initramfs
    assert plan.load == ("nvidia", "nvidia_uvm")
    assert not install.in_force(goal, EMPTY)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"loaded": KernelModule("570.172.08", True)}, "driver 570.172.08 loaded, 580.126.20 installed"),
        ({"loaded": KernelModule(VERSION, False)}, "proprietary modules loaded, open ones installed"),
        ({"modules": {"nouveau": ""}, "loaded": None}, NOUVEAU),
        ({"drivers": {"0000:10:00.0": "nouveau"}}, NOUVEAU),
        ({"modules": {"nova_core": ""}, "loaded": None}, NOUVEAU),
        ({"parameters": {"RmProfilingAdminOnly": "1"}}, OPTIONS),
    ],
)
def test_what_only_a_reboot_brings_about(change: dict[str, object], expected: str) -> None:
    goal = wanted(UBUNTU, NVreg_RestrictProfilingToAdminUsers="0")
    there = replace(converged(goal), parameters={"RmProfilingAdminOnly": "0"})
    assert not plan_driver(goal, there)
    state = replace(there, **change)
    plan = plan_driver(goal, state)
    assert plan.marks == (expected,)
    assert not plan.load
    assert not install.in_force(goal, state)
    # Said once: the next run finds the mark and has nothing to do.
    again = plan_driver(goal, replace(state, pending=frozenset({f"reboot:{expected}"})))
    assert not again
    assert again.waiting == (expected,)


def test_another_version_is_replaced_and_holds_follow() -> None:
    goal = wanted(UBUNTU)
    there = converged(goal)
    older = {**there.packages, "nvidia-fabricmanager": "580.95.05-1"}
    plan = plan_driver(goal, replace(there, packages=older, held=frozenset()))
    assert [package.name for package in plan.install] == ["nvidia-fabricmanager"]
    assert set(plan.hold) == {package.name for package in goal.packages}
    assert "install nvidia-fabricmanager 580.126.20-* over 580.95.05-1" in plan.reasons


def test_a_changed_blacklist_rebuilds_the_initial_file_system() -> None:
    goal = wanted(UBUNTU)
    plan = plan_driver(goal, replace(converged(goal), stamp="0" * 64))
    assert plan.initramfs
    assert not plan.install


def test_options_that_the_driver_does_not_report_are_not_compared() -> None:
    different = install.options_differ({"NVreg_Foo": "1", "NVreg_EnableResizableBar": "1"}, {"EnableResizableBar": "0"})
    assert different == ("NVreg_EnableResizableBar",)


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """Ubuntu or Rocky whose package managers work; modprobe makes modules appear."""
    fake = FakeNode(tmp_path)
    fake.managers(f"* 590.48.01-1\n* {VERSION}-0ubuntu1\n")
    fake.program("systemctl")
    fake.program("update-initramfs")
    fake.program("dracut")
    fake.program("modinfo", f'case "$*" in *version*) echo {VERSION};; *) echo "Dual MIT/GPL";; esac')
    fake.program(
        "modprobe",
        'n=$(echo "$1" | tr - _); mkdir -p /sys/module/$n; '
        f"echo {VERSION} >/sys/module/$n/version; "
        f"echo 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {VERSION}  Release Build  (x)  Tue Jul  8'"
        " >/proc/driver/nvidia/version",
    )
    fake.program("nvidia-smi", "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'")
    return fake


def first_run(target: Machine) -> str:
    goal = wanted(target)
    return script(plan_driver(goal, EMPTY), goal, target, STRICT)


def test_first_installation_on_ubuntu(node: FakeNode) -> None:
    done = node.run(first_run(UBUNTU))
    assert (done.returncode, done.stderr) == (0, "")
    install_call = next(call for call in node.calls if " install " in call)
    assert f"nvidia-dkms-580-open={VERSION}-0ubuntu1" in install_call
    assert f"nvidia-fabricmanager={VERSION}-0ubuntu1" in install_call
    assert any(call.startswith("apt-mark hold -- nvidia-dkms-580-open") for call in node.calls)
    assert any(call.startswith("update-initramfs -u") for call in node.calls)
    assert (node.root / "var/lib/rackproof/gpu-initramfs").read_text().strip() == wanted(UBUNTU).stamp
    assert [call for call in node.calls if call.startswith("modprobe")] == ["modprobe nvidia", "modprobe nvidia-uvm"]
    assert node.marks == set()


def test_first_installation_on_rocky(node: FakeNode) -> None:
    done = node.run(first_run(ROCKY))
    assert (done.returncode, done.stderr) == (0, "")
    assert "dnf -y -q module enable nvidia-driver:580-open" in node.calls
    assert any("kmod-nvidia-open-dkms-580.126.20-*" in call for call in node.calls)
    assert any(call.startswith("dnf -q versionlock add --raw kmod-nvidia-open-dkms-0:580.126") for call in node.calls)
    # The kernel of the next start may be another one, whose initial file system has nouveau as well.
    assert "dracut --force --regenerate-all" in node.calls


def test_debian_takes_the_driver_from_where_main_comes_from(node: FakeNode) -> None:
    node.program("apt-cache", "exit 0")
    node.program("modinfo", 'case "$*" in *version*) echo 535.261.03;; *) echo NVIDIA;; esac')
    node.program(
        "modprobe",
        'mkdir -p /sys/module/$(echo $1 | tr - _); echo "NVRM version: x  535.261.03  R" >/proc/driver/nvidia/version',
    )
    node.file(
        "/etc/apt/sources.list.d/debian.sources",
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian.gpg\n\nTypes: deb\nURIs: http://other.example\nSuites: stable\n"
        "Components: main\n",
    )
    node.file("/etc/apt/sources.list", "deb http://mirror.example/security bookworm-security main\n")
    done = node.run(first_run(DEBIAN))
    assert (done.returncode, done.stderr) == (0, "")
    added = (node.root / "etc/apt/sources.list.d/rackproof-non-free.sources").read_text()
    assert added == (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n"
        "Components: contrib non-free non-free-firmware\nSigned-By: /usr/share/keyrings/debian.gpg\n\n"
    )
    lines = (node.root / "etc/apt/sources.list.d/rackproof-non-free.list").read_text()
    assert lines == "deb http://mirror.example/security bookworm-security contrib non-free non-free-firmware\n"


def test_nouveau_holds_the_gpus_until_a_reboot(node: FakeNode) -> None:
    (node.root / "sys/module/nouveau").mkdir()
    done = node.run(first_run(UBUNTU))
    assert done.returncode == 0
    assert node.marks == {f"reboot:{NOUVEAU}"}
    assert not [call for call in node.calls if call.startswith("modprobe")]


def test_an_older_driver_stays_loaded_until_a_reboot(node: FakeNode) -> None:
    node.file("/sys/module/nvidia/version", "570.172.08\n")
    done = node.run(first_run(UBUNTU))
    assert done.returncode == 0
    assert node.marks == {f"reboot:driver 570.172.08 loaded, {VERSION} installed"}
    assert f"reboot required: driver 570.172.08 loaded, {VERSION} installed" in done.stdout


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("program", "body", "words"),
    [
        ("apt-cache", "exit 0", "in none of the repositories of this node: libnvidia-cfg1-580=580.126.20-*"),
        ("apt-get", 'case "$*" in *update*) exit 100;; esac', "apt-get update failed"),
        ("apt-get", 'case "$*" in *install*) exit 100;; esac', "apt-get could not install"),
        (
            "apt-get",
            'case "$*" in *install*) echo "E: Unable to locate package nvidia-open" >&2; exit 100;; esac',
            "in none of the repositories of this node: nvidia-open; put them on the mirror (rackproof mirror list)",
        ),
        (
            "apt-get",
            'case "$*" in *update*) echo "E: The repository https://m is not signed." >&2; exit 100;; esac',
            "a repository is not signed with a key that this node trusts: E: The repository https://m is not signed.",
        ),
        ("dpkg-query", "exit 1", "asked for and not there afterwards: nvidia-dkms-580-open=580.126.20-* (actual: not"),
        ("update-initramfs", "exit 1", "nouveau may come back"),
        ("modinfo", "exit 1", "no module nvidia for the running kernel"),
        ("modinfo", 'case "$*" in *version*) echo 580.95.05;; esac', "is 580.95.05, declared is 580.126.20"),
        ("modinfo", f'case "$*" in *version*) echo {VERSION};; *) echo NVIDIA;; esac', "these GPUs need the open one"),
        ("modprobe", "exit 1", "nvidia cannot be loaded"),
        ("modprobe", "exit 0", "nvidia is not loaded although modprobe said nothing"),
        ("nvidia-smi", 'echo "No devices were found"', f"finds no GPU with driver {VERSION} (open): No devices were"),
    ],
)
def test_what_is_asked_for_and_absent_is_an_error(node: FakeNode, program: str, body: str, words: str) -> None:
    node.program("dpkg", "exit 0")
    node.stand_in(program, body)
    done = node.run(first_run(UBUNTU))
    assert done.returncode == 1
    assert words in done.stderr


def test_a_locked_driver_is_let_go_before_another_version_comes_and_locked_again(node: FakeNode) -> None:
    goal = wanted(ROCKY)
    there = converged(goal)
    older = {**there.packages, "nvidia-driver-cuda": "3:580.95.05-1.el9"}
    plan = plan_driver(goal, replace(there, packages=older))
    lock = "nvidia-driver-cuda-3:580.95.05-1.el9.*"
    node.file("/packages/held", f"{lock}\n")
    done = node.run(script(plan, goal, ROCKY, STRICT))
    assert (done.returncode, done.stderr) == (0, "")
    words = [call for call in node.calls if re.match("dnf .*( versionlock [ad]| -y )", call)]
    assert words == [
        "dnf -q versionlock delete -- nvidia-driver-cuda",
        "dnf --setopt=install_weak_deps=False -q -y --allowerasing install -- nvidia-driver-cuda-580.126.20-*",
        f"dnf -q versionlock add --raw {lock}",
        "dnf -q versionlock delete -- nvidia-driver-cuda",
        "dnf -q versionlock add --raw nvidia-driver-cuda-0:580.126.20-1.el9.*",
    ]
    assert (node.root / "packages/held").read_text() == "nvidia-driver-cuda-0:580.126.20-1.el9.*\n"


def test_versionlock_is_installed_where_dnf_has_none(node: FakeNode) -> None:
    plugin = node.root / "plugin"
    node.stand_in(
        "dnf",
        f'case "$*" in *install*versionlock*) touch {plugin}; exit;; *versionlock*) [ -e {plugin} ] || exit 1;; esac',
    )
    done = node.run(first_run(ROCKY))
    assert (done.returncode, done.stderr) == (0, "")
    assert plugin.exists()
    assert any(call.startswith("dnf -q versionlock add --raw kmod-nvidia-open-dkms") for call in node.calls)


def test_the_package_managers_lock_is_waited_for_before_a_stream_is_chosen() -> None:
    text = first_run(ROCKY)
    assert text.index("\nrp_wait_for_lock ") < text.index("dnf -y -q module reset")


def test_a_kernel_that_the_next_start_brings_gets_the_modules_and_nothing_is_loaded(node: FakeNode) -> None:
    release = "5.14.0-503.14.1.el9_5.x86_64"
    goal = replace(wanted(ROCKY), release=release)
    node.program(
        "modinfo",
        f'[ "$1 $2" = "-k {release}" ] && [ -e {node.root}/built ] || exit 1; '
        f'case "$*" in *version*) echo {VERSION};; *) echo "Dual MIT/GPL";; esac',
    )
    node.program("dkms", f'[ "$*" = "autoinstall -k {release}" ] && touch {node.root}/built')
    first = plan_driver(goal, EMPTY)
    assert first.install
    assert first.load == ()
    done = node.run(script(first, goal, ROCKY, STRICT))
    assert (done.returncode, done.stderr) == (0, "")
    mark = f"kernel {release} is locked and another one runs"
    assert node.marks == {f"reboot:{mark}"}
    assert not [call for call in node.calls if call.startswith(("modprobe", "nvidia-smi"))]
    # Until that start there is nothing to do any more.
    state = replace(converged(goal), loaded=None, available=None, modules={}, pending=frozenset({f"reboot:{mark}"}))
    again = plan_driver(goal, state)
    assert not again, again.reasons
    assert again.waiting == (mark,)
    assert not install.in_force(goal, state)


def test_a_kernel_that_the_next_start_brings_without_modules_is_an_error(node: FakeNode) -> None:
    node.program("modinfo", "exit 1")
    node.program("dkms", "exit 1")
    goal = replace(wanted(ROCKY), release="5.14.0-503.14.1.el9_5.x86_64")
    done = node.run(script(plan_driver(goal, EMPTY), goal, ROCKY, STRICT))
    assert done.returncode == 1
    assert "no module nvidia for kernel 5.14.0-503.14.1.el9_5.x86_64" in done.stderr


@pytest.mark.parametrize(
    ("program", "body", "words"),
    [
        (
            "dnf",
            'case "$*" in *" install "*) echo " - nothing provides dkms >= 3 needed by kmod-nvidia" >&2; exit 1;; esac',
            "in none of the repositories of this node: dkms; put them on the mirror (rackproof mirror list), declare"
            " versions that it has, or enable the repository that has them (crb or EPEL)",
        ),
        ("dnf", 'case "$*" in *enable*) exit 1;; esac', "no stream 580-open"),
        ("dnf", 'case "$*" in *install*) exit 1;; esac', "dnf could not install kmod-nvidia-open-dkms-580.126.20-*"),
        (
            "dnf",
            'case "$*" in *install*) echo "Error: Unable to find a match: nvidia-driver" >&2; exit 1;; esac',
            "in none of the repositories of this node: nvidia-driver; put them on the mirror (rackproof mirror list)",
        ),
        ("dnf", 'case "$*" in *versionlock*) exit 1;; esac', "python3-dnf-plugin-versionlock"),
        ("rpm", "exit 1", "asked for and not there afterwards: kmod-nvidia-open-dkms=580.126.20-* (actual: not"),
    ],
)
def test_the_same_on_rocky(node: FakeNode, program: str, body: str, words: str) -> None:
    node.stand_in(program, body)
    done = node.run(first_run(ROCKY))
    assert done.returncode == 1
    assert words in done.stderr


def test_peer_memory_needs_its_rdma_stack(node: FakeNode) -> None:
    node.file("/sys/module/nvidia/version", f"{VERSION}\n")
    node.program("modprobe", '[ "$1" != nvidia-peermem ]')
    node.file("/packages/installed", "".join(f"{name} {VERSION}-0ubuntu1\n" for name in FOLLOWERS))
    goal = wanted(UBUNTU, ("nvidia", "nvidia_peermem"))
    state = replace(converged(goal), modules={"nvidia": VERSION})
    done = node.run(script(plan_driver(goal, state), goal, UBUNTU))
    assert done.returncode == 1
    assert "install DOCA-OFED before the driver, or declare gpu.gpudirect: dmabuf" in done.stderr
    assert not [call for call in node.calls if call.startswith("apt-get")]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("target", "program", "name"),
    [
        (UBUNTU, "dpkg-query", "nvidia-fabricmanager"),
        (machine("rocky 9.4", "2335", switches=4), "rpm", "nvidia-fabricmanager"),
    ],
    ids=["ubuntu", "rocky"],
)
@pytest.mark.parametrize("driver", ["580", VERSION], ids=["branch", "exact"])
def test_a_fabric_manager_of_another_version_than_the_driver_is_an_error(
    node: FakeNode, target: Machine, program: str, name: str, driver: str
) -> None:
    choice = choose(target, declared_gpu(1), GpuInputs(driver=driver))
    wanted = (*packages.driver(target, choice), *packages.fabric(target, choice))
    goal = goal_of(choice, target, wanted)
    text = script(plan_driver(goal, EMPTY), goal, target, STRICT)
    question = 'case "$*" in *Upstream*|*"--qf %{VERSION} --"*)'
    node.stand_in(program, f"{question} printf 580.159.03; exit;; esac")
    done = node.run(text)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name} is 580.159.03, the module nvidia is {VERSION}: without the same version")
    assert f"gpu: {{driver: {VERSION}}}" in done.stderr
    assert not [call for call in node.calls if call.startswith("modprobe")]
    node.stand_in(program, f"{question} printf {VERSION}; exit;; esac")
    done = node.run(text)
    assert (done.returncode, done.stderr) == (0, "")


FOLLOWERS = ("nvidia-fabricmanager", "libnvidia-nscq")


@pytest.mark.parametrize("other", ["580.159.03-0ubuntu1", None])
@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_has_moved_without_its_driver_is_brought_back(name: str, other: str | None) -> None:
    choice = choose(UBUNTU, declared_gpu(1), GpuInputs(driver="580"))
    wanted = (*packages.driver(UBUNTU, choice), *packages.fabric(UBUNTU, choice))
    goal = goal_of(choice, UBUNTU, wanted)
    there = converged(replace(goal, choice=replace(choice, version=VERSION)))
    same = dict.fromkeys((package.name for package in wanted), f"{VERSION}-0ubuntu1")
    assert not plan_driver(goal, replace(there, packages=same))
    without = {key: value for key, value in same.items() if key != name}
    plan = plan_driver(goal, replace(there, packages={**without, **({name: other} if other else {})}))
    assert plan.install == (packages.Package(name, f"{VERSION}-*"),)
    assert plan.hold == ()
    assert plan.reasons == (f"install {name} {VERSION}-*" + (f" over {other}" if other else ""),)
    # Another branch than the declared one is replaced as a whole.
    plan = plan_driver(replace(goal, choice=replace(choice, branch=590)), replace(there, packages={}))
    assert {package.name for package in plan.install} == {package.name for package in wanted}


def test_a_fabric_manager_that_waits_for_itself(node: FakeNode) -> None:
    unit = node.root / "usr.service"
    unit.write_text("[Unit]\nAfter=network-online.target multi-user.target\n[Install]\nWantedBy=multi-user.target\n")
    node.program("systemctl", f'case "$*" in *FragmentPath*) echo {unit};; esac')
    node.file("/sys/module/nvidia/version", f"{VERSION}\n")
    (node.root / "sys/module/nvidia_uvm").mkdir()
    node.file("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX Open  {VERSION}  Release\n")
    node.file("/packages/installed", "".join(f"{name} {VERSION}-0ubuntu1\n" for name in FOLLOWERS))
    goal = wanted(UBUNTU)
    plan = plan_driver(goal, replace(converged(goal), fabric_after_multi_user=True))
    assert plan.fabric_unit
    done = node.run(script(plan, goal, UBUNTU, STRICT))
    assert (done.returncode, done.stderr) == (0, "")
    mended = (node.root / "etc/systemd/system/nvidia-fabricmanager.service").read_text()
    assert mended == "[Unit]\nAfter=network-online.target\n[Install]\nWantedBy=multi-user.target\n"
