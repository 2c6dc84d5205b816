from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.configure.nic.stack import (
    MODULES,
    StackState,
    parse_state,
    plan_drivers,
    plan_removal,
    state_command,
)
from rackproof.errors import Refused
from tests.unit.refusals import error_of
from tests.unit.shell import is_shell, sh

INBOX = "/lib/modules/6.8.0/kernel/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko"
VENDOR = "/lib/modules/6.8.0/updates/dkms/mlx5_core.ko"
BUILT = ("mlnx-ofed-kernel/25.10.OFED.25.10.1.7.1.1, 6.8.0, x86_64: installed", "iser/25.10, 6.8.0, x86_64: installed")


def state(
    ofed: str = "",
    path: str = VENDOR,
    loaded: str = "AAAA",
    installed: str = "AAAA",
    extra: Sequence[str] = (),
    dkms: Sequence[str] = (),
    pending: Sequence[str] = (),
) -> StackState:
    modules = [f"module {name} {loaded} {installed} {path}" for name in MODULES]
    lines = [f"ofed {ofed}", "kernel 6.8.0", *modules, *(f"dkms {line}" for line in dkms), *extra]
    return parse_state([*lines, "--", *pending])


MOUNTS = (
    "mount / ext4 rw",
    "mount /mnt/vast nfs rw,vers=3,proto=rdma,port=20049",
    "mount /mnt/home nfs4 rw,proto=tcp",
    "mount /lustre lustre rw,flock",
    "mount /scale gpfs rw",
    "nvme nvme4 rdma",
    "nvme nvme0 pcie",
)
USERS = ("/mnt/vast (NFS over RDMA)", "/lustre (lustre)", "/scale (gpfs)", "nvme4 (NVMe over RDMA)")


def test_what_stands_on_rdma() -> None:
    assert state(extra=MOUNTS).users == USERS


def test_another_ofed_is_only_removed_when_declared() -> None:
    with pytest.raises(Refused, match=r"OFED 5.8-4.1.5.0 is installed and OFED 25.10 declared.*remove_old: true"):
        plan_removal("doca", "25.10", state("5.8-4.1.5.0"), allowed=False)
    plan = plan_removal("doca", "25.10", state("5.8-4.1.5.0"), allowed=True)
    assert "ofed_uninstall.sh --force" in plan.script
    assert "reboot:drivers of the network adapters" in plan.script
    assert is_shell(plan.script)


def test_nothing_is_removed_under_a_mount() -> None:
    message = error_of(Refused, plan_removal, "doca", "25.10", state("5.8-4.1.5.0", extra=MOUNTS), allowed=True)
    assert all(user in message for user in USERS)
    assert "/mnt/home" not in message


@pytest.mark.parametrize(
    ("source", "version", "ofed"),
    [
        ("doca", "25.10", "25.10-1.7.1"),
        ("mlnx_ofed", "24.10-1.1.4.0", "24.10-1.1.4.0"),
        ("doca", None, "5.8"),
        ("inbox", None, ""),
    ],
)
def test_what_is_declared_stays(source: str, version: str | None, ofed: str) -> None:
    assert not plan_removal(source, version, state(ofed), allowed=False)  # type: ignore[arg-type]


def test_an_ofed_beside_the_distributions_drivers() -> None:
    with pytest.raises(Refused, match="the distribution's drivers declared"):
        plan_removal("inbox", None, state("25.10-1.7.1"), allowed=False)


def test_drivers_in_force() -> None:
    assert not plan_drivers("doca", ("mlnx-ofed-kernel",), state(dkms=BUILT), restart=False)
    assert not plan_drivers("inbox", (), state(path=INBOX), restart=False)


def test_old_modules_in_use_ask_for_one_reboot() -> None:
    old = state(loaded="BBBB", dkms=BUILT)
    assert "reboot:drivers of the network adapters" in plan_drivers("doca", (), old, restart=False).script
    pending = ("reboot:drivers of the network adapters",)
    assert not plan_drivers("doca", (), state(loaded="BBBB", dkms=BUILT, pending=pending), restart=False)


def test_openibd_is_restarted_only_without_users() -> None:
    before = state(loaded="BBBB", dkms=BUILT, extra=("openibd",))
    assert "systemctl restart openibd.service" in plan_drivers("doca", (), before, restart=True).script
    with pytest.raises(Refused, match=r"openibd cannot be restarted while /mnt/vast \(NFS over RDMA\)"):
        plan_drivers("doca", (), state(loaded="BBBB", dkms=BUILT, extra=("openibd", *MOUNTS)), restart=True)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (state(path="-"), "no module mlx5_core for kernel 6.8.0"),
        (state(path=INBOX), "none are installed: name them in the version set"),
        (state("25.10-1.7.1", path=INBOX), "is the distribution's"),
        (state(dkms=("mlnx-ofed-kernel/25.10, 6.8.0, x86_64: built",)), "mlnx-ofed-kernel (built)"),
        (state(dkms=("mlnx-ofed-kernel/25.10: added",)), "mlnx-ofed-kernel (added)"),
        (state(dkms=("nvidia/580, 6.8.0, x86_64: installed",)), "mlnx-ofed-kernel (not added)"),
        (state(dkms=(BUILT[0], "srp/25.10, 6.8.0, x86_64: built")), "srp (built)"),
    ],
)
def test_modules_that_were_not_built_for_this_kernel(state: StackState, says: str) -> None:
    assert says in error_of(Refused, plan_drivers, "doca", ("mlnx-ofed-kernel",), state, restart=False)


def test_a_stack_that_the_vendor_built_beside_a_gpu_driver_of_dkms() -> None:
    """RHEL: kmod-mlnx-ofa_kernel has no entry in DKMS, the NVIDIA driver has one."""
    gpu = "nvidia/580, 6.8.0, x86_64: installed"
    assert not plan_drivers("doca", (), state(dkms=(gpu,)), restart=False)
    broken = state(dkms=(gpu, "mlnx-ofa_kernel/25.10, 6.8.0, x86_64: built"))
    assert "mlnx-ofa_kernel (built)" in error_of(Refused, plan_drivers, "doca", (), broken, restart=False)


def test_a_difference_and_a_warning_of_dkms_is_still_installed() -> None:
    lines = ("mlnx-ofed-kernel/25.10, 6.8.0, x86_64: installed (WARNING! Diff between built and installed module!)",)
    assert not plan_drivers("doca", (), state(dkms=lines), restart=False)


def test_the_question_is_a_program() -> None:
    out = sh(state_command())
    parsed = parse_state(out.stdout.splitlines())
    assert parsed.kernel
    assert set(parsed.modules) == set(MODULES)


@given(st.lists(st.text(max_size=30), max_size=10))
def test_anything_else_is_refused(lines: list[str]) -> None:
    try:
        parse_state(lines)
    except ValueError:
        return
    pytest.fail("an answer without a kernel was taken for one")
