from __future__ import annotations

import pytest

from rackproof.parse.device_log import driver_troubles, pcie_troubles
from rackproof.parse.kernel_log import Message

PCIE = [
    "pcieport 0000:17:02.0: AER: Corrected error received: 0000:1a:00.0",
    "pcieport 0000:17:02.0: AER: Multiple Uncorrected (Non-Fatal) error message received from 0000:1a:00.0",
    "mlx5_core 0000:1a:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
    "{1}[Hardware Error]:   section_type: PCIe error",
    "pcieport 0000:17:02.0: DPC: containment event, status:0x1f01 source:0x0000",
    "pcieport 0000:17:02.0: broken device, retraining non-functional downstream link at 2.5GT/s",
    "pcieport 0000:17:02.0: pciehp: Slot(12-1): Link Down",
]
DRIVER = [
    "mlx5_core 0000:1a:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
    "mlx5_core 0000:1a:00.0: mlx5_cmd_out_err:816:(pid 912): ACCESS_REG(0x805) op_mod(0x1) failed, syndrome 0x15c356",
    "mlx5_core 0000:1a:00.0: wait_func:1193:(pid 77): 2RST_QP(0x50a) timeout. Will cause a leak of a command resource",
    "mlx5_core 0000:1a:00.0: mlx5_pcie_event:299:(pid 8): Detected insufficient power on the PCIe slot (25W).",
    "mlx5_core 0000:1a:00.0 rail0: TX timeout detected",
    "infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe",
    "mlx5_core 0000:1a:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)",
]
HARMLESS = [
    "pcieport 0000:17:02.0: AER: enabled with IRQ 44",
    "pcieport 0000:17:02.0: pciehp: Slot #12 AttnBtn- PwrCtrl-",
    "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME AER PCIeCapability LTR]",
    "mlx5_core 0000:1a:00.0: firmware version: 28.43.2566",
    "mlx5_core 0000:1a:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
    "mlx5_core 0000:1a:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:1a:00.0 rail0: Link up",
]
NAMES = ("0000:1a:00.0", "mlx5_0", "rail0")


@pytest.mark.parametrize("text", PCIE)
def test_errors_of_pcie(text: str) -> None:
    assert pcie_troubles([Message(1.0, text)])


@pytest.mark.parametrize("text", DRIVER)
def test_complaints_of_the_driver(text: str) -> None:
    assert driver_troubles([Message(1.0, text)], NAMES)
    assert not driver_troubles([Message(1.0, text)], ("0000:1a:00.1", "mlx5_01", "rail01", ""))


@pytest.mark.parametrize("text", HARMLESS)
def test_messages_of_a_healthy_start(text: str) -> None:
    assert not pcie_troubles([Message(1.0, text)])
    assert not driver_troubles([Message(1.0, text)], NAMES)
