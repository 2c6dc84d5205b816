"""Operations at a host that answers from a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rackproof.configure import facts as shared_facts
from rackproof.configure.gpu import facts, operations
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.state import GpuState
from rackproof.configure.gpu.tuning import Tuning
from rackproof.configure.package_transaction.transaction import Package
from rackproof.configure.units import SystemState, Unit, UnitState
from rackproof.parse.nvidia_driver import KernelModule
from rackproof.parse.nvidia_smi import Process
from tests.unit.configure.gpu.machines import declared_gpu, machine
from tests.unit.configure.gpu.test_further import GDSCHECK
from tests.unit.configure.gpu.test_install import EMPTY, UBUNTU, VERSION, converged, wanted
from tests.unit.configure.gpu.test_tuning import AS_THEY_ARE, FIRST, REPORT, listed
from tests.unit.configure.stub import StubHost, run

GOAL = wanted(UBUNTU)
THERE = converged(GOAL)


def at(state: GpuState | None, executing: bool = True, **further: Any) -> StubHost:
    return StubHost({facts.GpuFacts: state, **further.get("facts", {})}, executing=executing)


def driver(state: GpuState | None, target: Any = UBUNTU) -> tuple[list[str], StubHost]:
    host = at(state)
    return run(operations.driver, host, target=wanted(target), machine=target), host


def test_a_driver_that_is_in_force_is_left_alone() -> None:
    commands, host = driver(THERE)
    assert commands == []
    assert host.noops == [f"driver {VERSION} (open, cuda) is in force"]


def test_a_driver_that_waits_for_its_reboot_is_left_alone() -> None:
    mark = f"driver 570.172.08 loaded, {VERSION} installed"
    older = replace(THERE.loaded, version="570.172.08")  # type: ignore[type-var]
    commands, host = driver(replace(THERE, loaded=older, pending=frozenset({f"reboot:{mark}"})))
    assert commands == []
    assert host.noops == [f"driver {VERSION} (open, cuda) waits for a reboot: {mark}"]


def test_a_node_that_does_not_answer_is_not_touched() -> None:
    commands, host = driver(None)
    assert "could not be read" in commands[0]
    assert host.logged


def test_secure_boot_without_a_key_stops_before_anything_is_installed() -> None:
    locked_down = machine("ubuntu 24.04", "2335", switches=4, secure_boot=True)
    commands, host = driver(EMPTY, locked_down)
    assert "Secure Boot is on" in host.logged[0]
    assert "\nrp_install " not in commands[0]
    commands, _ = driver(replace(EMPTY, key_enrolled=True), locked_down)
    assert "apt-get" in commands[0]


def test_services_wait_for_the_driver() -> None:
    units = {"nvidia-fabricmanager.service": UnitState("loaded", "inactive", "disabled", False)}
    system = SystemState(units, frozenset(), {})
    asked = [Unit("nvidia-fabricmanager.service", proof="true")]

    def commands(state: GpuState, executing: bool = True) -> str:
        host = at(state, executing, facts={shared_facts.UnitStates: system})
        return "\n".join(run(operations.driver_units, host, wanted=asked, target=GOAL, machine=UBUNTU))

    assert "systemctl start -- nvidia-fabricmanager.service" in commands(THERE)
    blocked = replace(THERE, loaded=None, modules={"nouveau": ""})
    assert "systemctl enable" in commands(blocked)
    assert "systemctl start" not in commands(blocked)
    assert "systemctl start" not in commands(blocked, executing=False)
    assert "systemctl start" in commands(EMPTY, executing=False)  # the plan of a first run


NO_DMABUF = replace(THERE, dmabuf=False)
CLOSED = replace(THERE, loaded=KernelModule(VERSION, False), available=KernelModule(VERSION, False))


@pytest.mark.parametrize(
    ("state", "executing", "refused", "noop"),
    [
        (THERE, True, None, "the kernel's RDMA core has DMA-BUF, and the loaded driver is the open one"),
        (NO_DMABUF, True, "no ib_umem_dmabuf_get in /proc/kallsyms", None),
        (NO_DMABUF, False, None, "DMA-BUF is declared and not there"),
        (CLOSED, True, f"the loaded driver {VERSION} is the proprietary one", None),
        (
            replace(NO_DMABUF, pending=frozenset({"reboot:drivers of the network adapters"})),
            True,
            None,
            "is looked for when",
        ),
        (replace(EMPTY, dmabuf=False), True, None, "is looked for when"),
        (None, True, "could not be read", None),
    ],
)
def test_dma_buf_is_proven_as_far_as_the_answer_goes(
    state: GpuState | None, executing: bool, refused: str | None, noop: str | None
) -> None:
    host = at(state, executing)
    commands = run(operations.gpudirect_dmabuf, host, target=GOAL, machine=UBUNTU)
    assert [line for line in host.logged if refused and refused in line] == host.logged
    assert bool(commands) is bool(refused) is bool(host.logged)
    assert [line for line in host.noops if noop and noop in line] == host.noops
    if refused and state is not None:
        assert "or declare gpu.gpudirect: peermem" in host.logged[0]


def tuned(state: GpuState, plan: Tuning = AS_THEY_ARE, executing: bool = True) -> tuple[list[str], StubHost]:
    host = at(state, executing)
    return run(operations.tuned, host, wanted=plan, machine=UBUNTU), host


REPORTED = replace(THERE, smi=REPORT, listed=listed())


def test_settings_that_are_in_force() -> None:
    commands, host = tuned(REPORTED)
    assert commands == []
    assert host.noops == ["GPUs are set as declared"]


def test_settings_are_set_and_read_back() -> None:
    commands, host = tuned(REPORTED, Tuning(power_limit_w=650))
    assert "systemctl restart rackproof-gpu.service" in commands[0]
    # The driver still reports the old limit: that is an error, not a success.
    assert f"settings did not take effect: power limit of {FIRST}: 700 W" in host.logged[0]
    commands, host = tuned(REPORTED, Tuning(power_limit_w=650), executing=False)
    assert len(commands) == 1
    assert not host.logged


def reported(*bus_ids: str, **values: Any) -> GpuState:
    gpus = tuple(replace(gpu, **values) if gpu.bus_id in bus_ids else gpu for gpu in REPORT.gpus)
    return replace(REPORTED, smi=replace(REPORT, gpus=gpus))


def test_mig_needs_idle_gpus_and_names_who_is_in_the_way() -> None:
    commands, host = tuned(reported(FIRST, processes=(Process(4711, "python3"),)), Tuning(mig=True))
    assert f"python3 (4711) on {FIRST}" in host.logged[0]
    assert "systemctl" not in commands[0]


def test_ecc_waits_for_a_reboot_once() -> None:
    pending = reported(*(gpu.bus_id for gpu in REPORT.gpus), ecc_pending="Disabled")
    commands, _ = tuned(pending, Tuning(ecc=False))
    assert "reboot:ECC mode of GPUs changes at the next start" in commands[0]
    marked = replace(pending, pending=frozenset({"reboot:ECC mode of GPUs changes at the next start"}))
    assert tuned(marked, Tuning(ecc=False))[0] == []


def test_a_driver_that_gives_no_report() -> None:
    commands, host = tuned(replace(THERE, smi_problem="Unknown Error"))
    assert "nvidia-smi gives no report: Unknown Error" in host.logged[0]
    commands, host = tuned(EMPTY)
    assert commands == []
    assert "when the driver is loaded" in host.noops[0]


@pytest.mark.parametrize(
    ("output", "state", "executing", "refused", "noop"),
    [
        (GDSCHECK, THERE, True, None, "GPUDirect Storage works: NVMe, NFS"),
        (GDSCHECK.replace("NFS                : Supported", "NFS                : compat"), THERE, True,
         "NFS: expected Supported, actual compat", None),
        ("", THERE, True, "gdscheck is not installed", None),
        (None, THERE, True, "gdscheck does not answer", None),
        ("Segmentation fault\n", THERE, True, "gdscheck", None),
        ("", EMPTY, False, None, "gdscheck is asked when driver and GPUDirect Storage are there"),
        ("", EMPTY, True, None, "gdscheck is asked when driver and GPUDirect Storage are there"),
    ],
)  # fmt: skip
def test_gpudirect_storage_is_a_gate(
    output: str | None, state: GpuState, executing: bool, refused: str | None, noop: str | None
) -> None:
    host = at(state, executing, facts={facts.GdsCheck: output})
    run(
        operations.gpudirect_storage, host, declared=declared_gpu(8, gds=["NVMe", "NFS"]), stack=GpuInputs(),
        target=GOAL, machine=UBUNTU,
    )  # fmt: skip
    assert any(refused in line for line in host.logged) if refused else not host.logged
    assert host.noops == ([noop] if noop else [])


def test_packages_with_a_version_are_held() -> None:
    wanted_ = [Package("libnccl2", "2.28.3-1+cuda13.0"), Package("gdrcopy")]
    there = replace(EMPTY, packages={"libnccl2": "2.28.3-1+cuda13.0", "gdrcopy": "2.5"})
    host = at(there)
    commands = run(operations.installed, host, packages=wanted_, family="debian", hold=True)
    assert "\nrp_hold libnccl2\n" in commands[0]
    assert "\nrp_install " not in commands[0]
    host = at(replace(there, held=frozenset({"libnccl2"})))
    assert run(operations.installed, host, packages=wanted_, family="debian", hold=True) == []
    host = at(replace(there, packages={"gdrcopy": "2.5"}, held=frozenset({"libnccl2"})))
    commands = run(operations.installed, host, packages=wanted_, family="rhel", hold=True)
    assert "libnccl2=2.28.3-1+cuda13.0" in commands[0]
