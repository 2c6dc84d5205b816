"""Every check passes on a healthy node, and has at least one way to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from rackproof.configure import facts
from rackproof.configure import operations as common
from rackproof.configure.ceph.cluster import CephState, check_drive, is_set_up
from rackproof.configure.drives import Drive, DriveState, needs_mkfs
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.network import Link, Port
from rackproof.configure.nic.declared_ports import DeclaredPort
from rackproof.configure.nic.inputs import NicInputs, NodePort
from rackproof.configure.nic.stack import plan_removal
from rackproof.configure.node.scratch import Member, Scratch, ScratchState
from rackproof.configure.node.scratch import plan as plan_scratch
from rackproof.configure.package_transaction.transaction import Policy
from rackproof.configure.preflight import claims, operations
from rackproof.configure.preflight import node as checks
from rackproof.configure.preflight.claims import Claims
from rackproof.configure.preflight.problem import (
    CHECKS,
    FOREIGN_DRIVE,
    OTHER_DRIVERS,
    ROOM,
    PreflightInputs,
    Problem,
    check_accepted,
)
from rackproof.configure.reboot.gpu_users import Use
from rackproof.configure.run_lock import Holder
from rackproof.configure.settings import node_settings
from rackproof.configure.site import Site
from rackproof.configure.versions.install import plan_install
from rackproof.configure.versions.state import PackageState
from rackproof.core.architecture import Architecture
from rackproof.core.machine import Machine
from rackproof.core.versions import LockedPackage
from rackproof.errors import InventoryError, Refused
from rackproof.parse.mounts import Mount
from tests.unit.configure import rack
from tests.unit.configure.nic.test_stack import state as stack_state
from tests.unit.configure.preflight import cases
from tests.unit.configure.stub import StubHost, at, run
from tests.unit.refusals import error_of

GIVEN = PreflightInputs()
NFS = DesiredMount("home", "10.0.0.1:/home", "/mnt/home", "nfs", ("hard",), "nfs4", ("hard",), (), True)


def judged(problems: Iterable[Problem]) -> dict[str, str]:
    return {problem.id: problem.line for problem in problems}


def of_machine(machine: Machine, architecture: Architecture | None = None, **data: Any) -> dict[str, str]:
    architecture = architecture or cases.architecture()
    assert architecture.gpu is not None
    return judged(
        (
            *checks.os_problems(machine),
            *checks.secure_boot_problems(machine, architecture),
            *checks.gpu_problems(machine, architecture.gpu, GpuInputs(), None),
            *checks.nic_problems(machine, architecture, cases.node(**data), {}),
        )
    )


def of_state(now_s: float | None = cases.NOW, **changes: Any) -> dict[str, str]:
    return judged(checks.state_problems("gpu-01", cases.state(**changes), GIVEN, now_s))


def test_nothing_is_in_the_way_of_a_healthy_node() -> None:
    assert of_machine(cases.machine()) == {}
    assert of_state() == {}
    assert judged(checks.mount_problems([NFS], cases.state())) == {}


MACHINES: list[tuple[str, Callable[[Machine], Machine], str]] = [
    ("os.supported", lambda m: replace(m, os_version="20.04"), "actual ubuntu 20.04"),
    ("os.supported", lambda m: replace(m, os_id="arch", os_version=""), "debian 12/13, ubuntu 22.04/24.04, rhel 9"),
    ("os.supported", lambda m: replace(m, os_id="rocky", os_version="8.10"), "actual rocky 8.10"),
    ("os.supported", lambda m: replace(m, os_id="debian", os_version="1"), "actual debian 1"),
    ("os.architecture", lambda m: replace(m, arch="riscv64"), "actual riscv64"),
    ("os.kernel", lambda m: replace(m, kernel="5.4.0-200-generic"), "expected 5.14 or newer, actual 5.4.0-200-generic"),
    ("os.kernel", lambda m: replace(m, kernel="next"), "actual 'next'"),
    ("boot.secure_boot", lambda m: replace(m, secure_boot=True), "Secure Boot is on"),
    ("gpu.inventory", lambda m: replace(m, pci=cases.without(m.pci, "0000:1b:00.0")), "expected 8, actual 7"),
    ("gpu.inventory", lambda m: replace(m, pci=cases.another(m.pci, "0000:1b:00.0", "2330")), "actual 10de:2330"),
    (
        "gpu.inventory",
        lambda m: replace(m, pci=cases.without(m.pci, "0000:07:00.0")),
        "NVSwitches: expected 4, actual 3",
    ),
    ("gpu.supported", lambda m: replace(m, pci=cases.another(m.pci, "0000:1b:00.0", "ffff")), "ffff"),
    ("gpu.supported", lambda m: replace(m, pci=tuple(d for d in m.pci if d.vendor != "10de")), "no GPU of NVIDIA"),
    ("nic.rails", lambda m: replace(m, pci=cases.without(m.pci, "0000:1a:00.0")), "rail 0: 0000:1a:00.0 has no device"),
    ("nic.slots", lambda m: replace(m, pci=cases.without(m.pci, "0000:29:00.1")), "none at 0000:29:00.1"),
    ("nic.model", lambda m: replace(m, pci=cases.another(m.pci, "0000:1a:00.0", "101d")), "ConnectX-6 Dx at 0000:1a"),
    ("nic.unknown", lambda m: replace(m, pci=cases.another(m.pci, "0000:1a:00.0", "1fff")), "15b3:1fff"),
]


@pytest.mark.parametrize(("id_", "spoil", "message"), MACHINES, ids=[f"{m[0]}-{m[2]}" for m in MACHINES])
def test_a_machine_that_is_not_as_declared(id_: str, spoil: Callable[[Machine], Machine], message: str) -> None:
    problems = of_machine(spoil(cases.machine()))
    assert message in problems[id_]
    assert problems[id_].endswith(f"[{id_}]")


@pytest.mark.parametrize(
    ("expected", "actual", "efi", "message"),
    [
        (False, True, True, "expects it off, actual on"),
        (True, False, True, "expects it on, actual off"),
        (True, None, False, "expects it on, actual no EFI firmware"),
        (True, None, True, "expects it on, actual unknown"),
        (False, None, True, "expects it off, actual unknown"),
    ],
)
def test_secure_boot_is_as_declared(expected: bool, actual: bool | None, efi: bool, message: str) -> None:
    machine = cases.machine(secure_boot=actual, efi=efi)
    problems = judged(checks.secure_boot_problems(machine, cases.architecture(secure_boot=expected)))
    assert message in problems["boot.secure_boot"]


STATES: list[tuple[str, dict[str, Any], str]] = [
    ("host.name", {"name": "gpu-02"}, "expected gpu-01, actual gpu-02"),
    ("host.name", {"name": "localhost.localdomain"}, "actual localhost.localdomain"),
    ("disk.free", {"free_mib": {"/": 90000, "/var": 90000, "/boot": 12}}, "/boot: expected 128 MiB, actual 12 MiB"),
    ("disk.free", {"free_mib": {"/": 90000, "/var": 90000, "/boot": None}}, "actual unknown"),
    ("disk.free", {"free_mib": {}}, "free space at /boot: expected 128 MiB, actual unknown"),
    ("packages.broken", {"broken": ("nfs-common: half-configured",)}, "actual nfs-common: half-configured"),
    ("packages.broken", {"manager": ""}, "expected dpkg or rpm, actual neither"),
    ("packages.lock", {"lock_holder": "812 (/usr/bin/unattended-upgrade)"}, "process 812 (/usr/bin/unattended"),
    ("node.rebooting", {"system": "stopping"}, "actual stopping"),
    ("node.rebooting", {"system": "unknown"}, "actual unknown"),
    ("node.rebooting", {"shutdown": "reboot"}, "reboot is scheduled"),
    ("clock.offset", {"clock_s": int(cases.NOW) + 120}, "actual 120 s ahead"),
    ("clock.offset", {"clock_s": int(cases.NOW) - 3600}, "about 3600 s behind"),
]


@pytest.mark.parametrize(("id_", "changes", "message"), STATES, ids=[f"{s[0]}-{s[2]}" for s in STATES])
def test_a_node_that_is_not_ready_to_begin_with(id_: str, changes: dict[str, Any], message: str) -> None:
    problems = of_state(**changes)
    assert message in problems[id_]
    assert set(problems) == {id_}


def test_a_clock_of_another_day_is_not_compared() -> None:
    assert of_state(now_s=None, clock_s=0) == {}


@pytest.mark.parametrize("name", ["gpu-01.example.org", "GPU-01"])
def test_a_name_may_have_its_domain(name: str) -> None:
    assert of_state(name=name) == {}


@pytest.mark.parametrize("node", ["192.0.2.1", "fe80::1", "@fake/gpu-01"])
def test_an_address_says_nothing_about_a_name(node: str) -> None:
    assert list(checks.state_problems(node, cases.state(), GIVEN, cases.NOW)) == []


MOUNTED = {"/mnt/home": Mount("10.0.0.9:/home", "/mnt/home", "nfs4", ("rw", "soft"))}


def test_a_mount_that_must_change_and_is_in_use_stops_the_node() -> None:
    problems = judged(
        checks.mount_problems([NFS], cases.state(mounted=MOUNTED, users={"/mnt/home": ("812(python)", "813(python)")}))
    )
    assert "and used by 812(python) 813(python); end these processes" in problems["mounts.busy"]


def test_an_idle_mount_is_made_anew_without_a_word() -> None:
    assert judged(checks.mount_problems([NFS], cases.state(mounted=MOUNTED, users={"/mnt/home": ()}))) == {}


def test_another_run_at_work_stops_and_cannot_be_accepted() -> None:
    busy = cases.state(held=Holder("r1", "alice", "control01", "2026-11-21T18:00:00Z"))
    (problem,) = checks.run_problems(busy, ("r2", None))
    assert problem.id == "node.run"
    assert "run r1 of alice on control01" in problem.what
    assert problem.remedy.endswith("--data take_over=r1")
    assert list(checks.run_problems(busy, ("r1", None))) == []  # its own
    assert list(checks.run_problems(busy, ("r2", "r1"))) == []  # taken over
    assert list(checks.run_problems(cases.state(), ("r2", None))) == []
    with pytest.raises(InventoryError, match="cannot be accepted"):
        check_accepted({"node.run": "in a hurry"})


PACKAGES = (LockedPackage("cuda-toolkit-13-0", "13.0.2-1", "cuda"), LockedPackage("linux-image-1", "1", "kernel"))


@pytest.mark.parametrize(
    ("installed", "room", "message"),
    [
        ({}, {"/usr": 6143, "/var": 9000, "/boot": 900}, "/usr: 6143 MiB free, 6144 wanted"),
        ({}, {"/usr": 9000, "/var": 9000, "/boot": 613}, "/boot: 613 MiB free, 614 wanted"),
        ({"linux-image-1": ("1",)}, {"/usr": 9000, "/var": 9000, "/boot": 613}, ""),
        ({"linux-image-1": ("1",), "cuda-toolkit-13-0": ("13.0.2-1",)}, {"/usr": 1, "/var": 1, "/boot": 1}, ""),
    ],
)
def test_room_for_the_version_set_is_looked_for_before_anything_is_changed(
    installed: dict[str, tuple[str, ...]], room: dict[str, int], message: str
) -> None:
    state = PackageState(installed, frozenset(), (), room)
    problems = judged(checks.refusal(ROOM, plan_install, PACKAGES, state, "debian", Policy(free_mib=6144)))
    assert bool(problems) is bool(message)
    if message:
        assert message in problems["versions.room"]
        assert "or lower versions.free_mib [versions.room]" in problems["versions.room"]


def test_an_ofed_that_would_have_to_go_first_is_found_before_anything_is_changed() -> None:
    old = stack_state(ofed="5.8-4.1.5.0")
    line = judged(checks.refusal(OTHER_DRIVERS, plan_removal, "doca", "25.10", old, allowed=False))["nic.drivers"]
    assert line.startswith("OFED 5.8-4.1.5.0 is installed and OFED 25.10 declared: only one can be installed; set nic")
    assert judged(checks.refusal(OTHER_DRIVERS, plan_removal, "doca", "25.10", old, allowed=True)) == {}
    declared = stack_state(ofed="25.10-1.7.1")
    assert judged(checks.refusal(OTHER_DRIVERS, plan_removal, "doca", "25.10", declared, allowed=False)) == {}
    assert "nic.drivers" in judged(checks.refusal(OTHER_DRIVERS, plan_removal, "inbox", None, old, allowed=False))


DRIVE = Drive("/dev/nvme1n1", "rp-local")
BLANK = DriveState(("/dev/nvme1n1",), kind="disk", zero=True)
FOREIGN = DriveState(("/dev/nvme1n1",), kind="disk", type="ext4", label="data")
OURS = DriveState(("/dev/nvme1n1",), kind="disk", type="ext4", label="rp-local")
ARRAY = Scratch(("/dev/disk/by-id/a", "/dev/disk/by-id/b"), "/scratch")
CEPH = rack.site("storage-01").ceph_plan()
RAIL = Port("rail0", "mlx5_0", "10.61.0.1/24", 9000, mac="52:54:00:00:00:01")
CLAIMS = Claims((DRIVE,), ARRAY, CEPH)


foreign = partial(checks.refusal, FOREIGN_DRIVE)


def of_operation(operation: Any, answers: dict[type, Any], **arguments: Any) -> str:
    """The reason of its refusal."""
    host = StubHost(answers)
    (command,) = run(operation, host, **arguments)
    assert command.endswith("exit 1")
    return host.logged[0]


@pytest.mark.parametrize(
    "state",
    [FOREIGN, replace(BLANK, zero=False), replace(BLANK, holders=("/dev/md127",)), replace(BLANK, kind="part"),
     DriveState(())],
    ids=["file system", "no signature", "in use", "partition", "none"],
)  # fmt: skip
def test_a_foreign_drive_is_named_in_the_words_of_the_operation(state: DriveState) -> None:
    (problem,) = foreign(needs_mkfs, DRIVE, state)
    assert problem.id == "drives.foreign"
    assert problem.line.startswith(of_operation(common.filesystem, {facts.DriveState: state}, drive=DRIVE))


def test_drives_of_the_kits_own_and_blank_ones_are_no_problem() -> None:
    assert [*foreign(needs_mkfs, DRIVE, BLANK), *foreign(needs_mkfs, DRIVE, OURS)] == []
    assert list(foreign(check_drive, CEPH, CephState(None, None), BLANK)) == []
    assert list(foreign(is_set_up, CEPH, CephState(CEPH.fingerprint, CEPH.osd_uuid))) == []
    second = replace(BLANK, devices=("/dev/nvme2n1",))
    state = ScratchState((Member(ARRAY.drives[0], BLANK), Member(ARRAY.drives[1], second)), False)
    assert list(foreign(plan_scratch, ARRAY, state)) == []


def test_foreign_drives_of_an_array_and_of_ceph_are_named_in_the_words_of_the_operation() -> None:
    state = ScratchState((Member(ARRAY.drives[0], FOREIGN), Member(ARRAY.drives[1], BLANK)), False)
    (problem,) = foreign(plan_scratch, ARRAY, replace(state, members=(state.members[0],)))
    assert problem.line.startswith(error_of(Refused, plan_scratch, ARRAY, replace(state, members=(state.members[0],))))
    answers = {facts.CephState: CephState(None, None), facts.DriveState: FOREIGN}
    (problem,) = foreign(check_drive, CEPH, CephState(None, None), FOREIGN)
    assert problem.line.startswith(of_operation(common.ceph_cluster, answers, plan=CEPH))
    other = CephState("another", None)
    (problem,) = foreign(is_set_up, CEPH, other)
    assert problem.line.startswith(of_operation(common.ceph_cluster, {facts.CephState: other}, plan=CEPH))


def test_a_port_that_something_else_manages_is_named_with_the_file() -> None:
    (problem,) = checks.port_problems((("rail0", "/etc/netplan/50-cloud-init.yaml"),))
    assert problem.line == (
        "ports that something else manages, too (/etc/netplan/50-cloud-init.yaml: rail0): take them out there, and let"
        " this node's tool apply it [nic.foreign]"
    )
    assert list(checks.port_problems(())) == []


STOR0 = DeclaredPort(
    Port("stor0", "mlx5_stor0", "10.1.1.1/24", 9000, path="pci-0000:f0:00.0"), False, None, True, NodePort(path="p")
)
FRONT = DeclaredPort(Port("front", "", "", None, mac="a0:02"), False, None, False, NodePort(mac="a0:02"))
FRONT_LINK = Link("eno1", "a0:02", 1500, True, ("192.0.2.1/24",))


@pytest.mark.parametrize(
    ("port", "link", "messages"),
    [
        (FRONT, FRONT_LINK, {"nic.in_use": "front: eno1 is in use with 192.0.2.1/24: only a port without addresses"}),
        (FRONT, replace(FRONT_LINK, addresses=()), {}),
        (FRONT, replace(FRONT_LINK, name="front"), {}),
        (STOR0, FRONT_LINK, {"nic.ports": "stor0: 0000:f0:00.0 has no device; adapters are at 0000:1a:00.0"}),
        (replace(STOR0, port=replace(STOR0.port, path="pci-0000:1a:00.0")), FRONT_LINK, {}),
    ],
)
def test_ports_that_are_no_rails_are_looked_at_before_anything_is_changed(
    port: DeclaredPort, link: Link, messages: dict[str, str]
) -> None:
    """In the words that the operation on adapters would refuse with, in the middle of the deploy."""
    host = StubHost({claims.LinksAhead: (link,), claims.ForeignAhead: ()})
    with at(host):
        problems = judged(claims.of_ports((DeclaredPort(RAIL, False, None, False), port), cases.machine(), {}))
    assert list(problems) == list(messages)
    assert all(problems[id_].startswith(text) for id_, text in messages.items())


def test_both_are_asked_of_a_node_with_the_questions_of_the_deploy() -> None:
    architecture = cases.architecture()
    node = cases.node()
    site = Site(cases.written(), architecture, node, node_settings(node, architecture.fabric.rails))
    full = PackageState({}, frozenset(), (), {"/usr": 1, "/var": 1, "/boot": 1})
    host = StubHost({
        operations.PreflightState: cases.state(),
        operations.PackageStates: full,
        operations.StackState: stack_state(ofed="5.8-4.1.5.0"),
        claims.LinksAhead: (),
        claims.ForeignAhead: (("rail0", "/etc/netplan/50-cloud-init.yaml"),),
        claims.DriveAhead: FOREIGN,
        claims.ScratchAhead: ScratchState((Member(ARRAY.drives[0], FOREIGN), Member(ARRAY.drives[1], BLANK)), False),
        claims.CephAhead: CephState(None, None),
    })  # fmt: skip
    declared = SimpleNamespace(
        source="doca", ofed="25.10", stack=NicInputs(), drivers=True, ports=(DeclaredPort(RAIL, False, None, False),)
    )
    with (
        at(host),
        patch.object(operations, "machine_here", cases.machine),
        patch.object(operations, "platform_here", lambda: None),
        patch.object(operations, "packages_here", lambda part: PACKAGES),
        patch.object(operations, "declared_here", lambda: declared),
        patch.object(operations, "judged", lambda *given: []),
        patch.object(operations.pending, "pending_swaps", lambda *given: ()),
    ):
        problems = judged(operations.of_node(site, GIVEN, CLAIMS))
        host.facts = dict.fromkeys(host.facts)
        unread = [problem.what for problem in operations.of_node(site, GIVEN, CLAIMS)]
    assert set(problems) == {"versions.room", "nic.drivers", "nic.foreign", "drives.foreign"}
    assert [text.partition(":")[0] for text in unread] == [
        "drive /dev/nvme1n1", "scratch drives", "state of Ceph", "installed packages", "network interfaces",
        "drivers of the adapters",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("due", "use", "ids"),
    [
        ((), None, []),
        (("a 1 becomes 2",), Use(), []),
        (("a 1 becomes 2",), Use(jobs=("12",)), ["gpu.busy"]),
        (("a 1 becomes 2",), None, ["answer"]),
        (None, Use(), ["answer"]),
    ],
)
def test_who_works_is_asked_where_a_driver_is_exchanged(
    due: tuple[str, ...] | None, use: Use | None, ids: list[str]
) -> None:
    architecture, node = cases.architecture(), cases.node()
    site = Site(cases.written(), architecture, node, node_settings(node, architecture.rails))
    host = StubHost({operations.DriverUse: use, operations.StackState: stack_state()})
    declared = SimpleNamespace(source="inbox", ofed=None, stack=NicInputs(), ports=(), drivers=True)
    with (
        at(host),
        patch.object(operations, "packages_here", lambda part: ()),
        patch.object(operations, "declared_here", lambda: declared),
        patch.object(operations.pending, "pending_swaps", lambda *given: due),
    ):
        problems = operations._in_the_way(site, cases.machine(), Claims())
    assert [problem.id for problem in problems] == ids
    assert (operations.DriverUse in [fact for fact, _ in host.asked]) is bool(due)


@pytest.mark.parametrize(
    "id_",
    [
        "versions.contradiction",
        "versions.room",
        "nic.drivers",
        "drives.foreign",
        "nic.foreign",
        "nic.in_use",
        "nic.ports",
    ],
)
def test_what_the_deploy_itself_would_stop_at_cannot_be_accepted(id_: str) -> None:
    with pytest.raises(InventoryError, match=f"preflight.accept.{id_}: cannot be accepted; "):
        check_accepted({id_: "in a hurry"})


def test_every_check_of_a_node_is_tried_here() -> None:
    tried = {case[0] for case in (*MACHINES, *STATES)} | {"mounts.busy", "node.run", "versions.room", "nic.drivers"}
    tried |= {"versions.contradiction"}  # of the whole rack
    tried |= {"host.firewall", "host.selinux", "host.userns"}  # in test_security.py
    tried |= {"gpu.busy", "slurm.cgroups"}
    tried |= {"drives.foreign", "nic.foreign", "nic.in_use", "nic.ports"}
    assert tried | {"answer"} | {id_ for id_ in CHECKS if id_.startswith("inventory.")} == set(CHECKS)


@pytest.mark.parametrize(
    ("release", "locked", "arguments", "says"),
    [
        ("22.04", None, (), "21.08.5 of ubuntu 22.04 knows control groups v1 only"),
        ("22.04", "21.08.8-1", (), "21.08.8-1 of ubuntu 22.04 knows"),
        ("22.04", "24.11.5-1", (), None),
        ("22.04", "1:22.05.2-1", (), None),
        ("22.04", None, ("systemd.unified_cgroup_hierarchy=0",), None),
        ("24.04", None, (), None),
        ("24.04", "20.11.4-1", (), "20.11.4-1 of ubuntu 24.04 knows"),
    ],
)
def test_a_slurm_that_does_not_know_the_nodes_control_groups(
    release: str, locked: str | None, arguments: tuple[str, ...], says: str | None
) -> None:
    packages = [LockedPackage("slurmd", locked, "slurm", "slurm")] if locked else []
    machine = cases.machine(os_version=release, cmdline=("ro", *arguments))
    problems = judged(checks.slurm_problems(machine, cases.architecture(), packages))
    assert bool(problems) is bool(says)
    assert (says or "") in problems.get("slurm.cgroups", "")
