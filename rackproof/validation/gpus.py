"""Shared by the GPU validators: conditions, the driver's report, and expectations for all GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.architecture import Gpu as DeclaredGpu
from rackproof.core.rack import Node, Rack
from rackproof.core.wording import exact
from rackproof.parse.answer import STATUS
from rackproof.parse.nvidia_smi import Gpu, NvidiaSmi, parse_nvidia_smi, parse_refusal
from rackproof.remote.recording import Unmeasured
from rackproof.validation.checks import read

QUERY: Final = "nvidia-smi -q -x"
KERNEL_MODULE: Final = f"cat /proc/driver/nvidia/version{STATUS}"
DEVICES: Final = f"lspci -Dn -d 10de:{STATUS}"


def has_gpus(arch: Architecture, node: Node, rack: Rack) -> bool:
    return arch.gpu is not None and arch.gpu.count > 0


def real_gpus(arch: Architecture, node: Node, rack: Rack) -> bool:
    """False if the inventory replays nvidia-smi (``simulated_gpus``): there is no driver."""
    return has_gpus(arch, node, rack) and not node.data.get("simulated_gpus")


def sets_key(key: str) -> Callable[[Architecture, Node, Rack], bool]:
    """Condition for ``when``: the architecture sets this key, even to an empty list."""
    return lambda arch, node, rack: has_gpus(arch, node, rack) and getattr(arch.gpu, key) is not None


def has_ecc(arch: Architecture, node: Node, rack: Rack) -> bool:
    return arch.gpu is not None and has_gpus(arch, node, rack) and arch.gpu.ecc == "Enabled"


def counts_ecc(arch: Architecture, node: Node, rack: Rack) -> bool:
    """True also for an architecture without ``ecc`` that requires ``gpu.ecc_errors`` by name."""
    by_name = "gpu.ecc_errors" in {*arch.required_checks.get("gpu", ()), *arch.required_checks.get("all", ())}
    unknown = arch.gpu is not None and has_gpus(arch, node, rack) and arch.gpu.ecc is None
    return has_ecc(arch, node, rack) or (unknown and by_name)


def gpu_of(arch: Architecture) -> DeclaredGpu:
    """The expected GPUs. Raises Unmeasured without any."""
    if arch.gpu is None:
        raise Unmeasured("the architecture has no GPUs")
    return arch.gpu


def report(host: Host) -> NvidiaSmi:
    """The driver's report of all attached GPUs. Raises Unmeasured if it has none, or lacks one."""
    parsed = parse_nvidia_smi(read(host, QUERY))
    if not parsed.gpus:
        raise Unmeasured("nvidia-smi lists no GPU; see gpu.count")
    if parsed.attached_gpus != len(parsed.gpus):
        attached = "unknown" if parsed.attached_gpus is None else parsed.attached_gpus
        raise Unmeasured(f"nvidia-smi describes {len(parsed.gpus)} GPUs, attached: {attached}; see gpu.count")
    return parsed


def driver_version(host: Host) -> str:
    """Raises Unmeasured without one."""
    driver = report(host).driver
    if driver is None:
        raise Unmeasured("nvidia-smi reports no driver version")
    return driver


def refusal(host: Host) -> str | None:
    """nvidia-smi's error if the driver has no GPU, regardless of the exit status; None otherwise."""
    result = host.run(QUERY)
    return parse_refusal(f"{result.stdout}\n{result.stderr}")


def expect_each(host: Host, expected: object, value: Callable[[Gpu], object]) -> None:
    """Fail unless all GPUs have the expected value. Raises Unmeasured if a GPU reports none and no other is wrong."""
    values = {gpu.bus_id: value(gpu) for gpu in report(host).gpus}
    wrong = {bus: actual for bus, actual in values.items() if actual is not None and actual != expected}
    if wrong:
        listed = ", ".join(f"{actual} on {bus}" for bus, actual in wrong.items())
        raise AssertionError(f"expected {expected} on {len(values)} GPUs, actual {listed}")
    expect_known(values)


def expect_within(host: Host, limit: float, unit: str, value: Callable[[Gpu], float | None], *, least: bool) -> None:
    """Fail unless all GPUs have at most (``least``: at least) ``limit``; see ``expect_each``."""
    values = {gpu.bus_id: value(gpu) for gpu in report(host).gpus}
    wrong = {bus: v for bus, v in values.items() if v is not None and (v < limit if least else v > limit)}
    if wrong:
        listed = ", ".join(f"{exact(actual)}{unit} on {bus}" for bus, actual in wrong.items())
        raise AssertionError(f"expected {'at least' if least else 'at most'} {exact(limit)}{unit}, actual {listed}")
    expect_known(values)


def expect_known(values: Mapping[str, object]) -> None:
    """Raises Unmeasured for a GPU without a value."""
    silent = [bus for bus, actual in values.items() if actual is None]
    if silent:
        raise Unmeasured(f"nvidia-smi reports no value for {', '.join(silent)}")
