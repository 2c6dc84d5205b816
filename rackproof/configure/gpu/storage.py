"""GPUDirect Storage: /etc/cufile.json, and what gdscheck must say. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.core.architecture import Gpu
from rackproof.parse.gdscheck import Gds

PATH: Final = "/etc/cufile.json"
P2PDMA_REGISTRY: Final = "RMForceStaticBar1=1;RmForceDisableIomapWC=1"
"""The driver's registry keys without which the kernel gets no GPU memory for peer-to-peer DMA, on x86 only. Source:
NVIDIA, GPUDirect Storage troubleshooting guide, 14.3."""
GDSCHECK: Final = 'PATH="$PATH:/usr/local/cuda/gds/tools" timeout 120 gdscheck -p'


def cufile(declared: Gpu, stack: GpuInputs, rdma_addresses: tuple[str, ...] = ()) -> str:
    """The file. By default it takes cuFile's licence to copy through host memory where GPUDirect Storage is declared:
    an error is found on the first day, a silent detour at the benchmark."""
    fallback = declared.gds_fallback if declared.gds_fallback is not None else False
    properties: dict[str, Any] = {"allow_compat_mode": fallback, "use_pci_p2pdma": by_p2pdma(declared, stack)}
    if rdma_addresses:
        properties["rdma_dev_addr_list"] = list(rdma_addresses)
    content: dict[str, Any] = {"logging": {"level": "ERROR"}, "properties": properties}
    if by_p2pdma(declared, stack):
        content["block"] = {"nvme": {"use_pci_p2pdma": True}}  # beside `fs`: below it, cuFile ignores the section
    return json.dumps(_merged(content, stack.cufile), indent=4) + "\n"


def by_p2pdma(declared: Gpu, stack: GpuInputs) -> bool:
    """Whether the kernel itself carries data between drives and GPUs."""
    return stack.gds_method == "p2pdma" and "NVMe" in declared.gds


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return merged


def problems(report: Gds, declared: Gpu, stack: GpuInputs) -> tuple[str, ...]:
    """Why a declared file system is not reached directly; empty where all are."""
    wrong = []
    for driver in declared.gds:
        name = "NVMe P2PDMA" if driver == "NVMe" and by_p2pdma(declared, stack) else driver
        actual = report.drivers.get(name, "not listed")
        if actual != "Supported":
            wrong.append(f"{name}: expected Supported, actual {actual}")
    able = sum(report.gpus.values())
    if able != declared.count:
        wrong.append(f"GPUs that support GDS: expected {declared.count}, actual {able}")
    if report.verified is not True:
        wrong.append("gdscheck did not verify the platform")
    if report.forced:
        wrong.append("cuFile copies everything through host memory (force_compat_mode)")
    if declared.gds_fallback is False and report.compat_mode is not False:
        wrong.append("cuFile may copy through host memory (allow_compat_mode)")
    return tuple(wrong)
