"""A healthy node and its declaration, to be spoilt one value at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rackproof import architectures
from rackproof.configure.preflight.state import NodeState
from rackproof.core.architecture import Architecture
from rackproof.core.machine import Machine, Pci
from rackproof.core.rack import Node, Rack
from rackproof.parse.machine import parse_machine
from rackproof.remote.written import read_written

RACKS = Path(__file__).resolve().parents[3] / "data" / "plans"
NOW = 1785931200.0


def architecture(name: str = "hgx-h200-ubuntu2404-roce", **system: Any) -> Architecture:
    model = architectures.load(str(RACKS / name / "architecture.yaml")).model
    return model.model_copy(update={"system": model.system.model_copy(update=system)}) if system else model


def written(name: str = "hgx-h200-ubuntu2404-roce") -> Rack:
    return Rack("rack.yaml", read_written(RACKS / name).nodes)


def machine(name: str = "hgx-h200-ubuntu2404-roce", **changes: Any) -> Machine:
    answer = read_written(RACKS / name).answers["gpu-01"].run("ls /sys/bus/pci/devices", 1.0)
    machine = parse_machine(answer.stdout.decode().splitlines()[:-1])
    return replace(machine, **changes)


def without(pci: tuple[Pci, ...], address: str) -> tuple[Pci, ...]:
    return tuple(device for device in pci if device.address != address)


def another(pci: tuple[Pci, ...], address: str, device: str) -> tuple[Pci, ...]:
    return tuple(
        replace(device_entry, device=device) if device_entry.address == address else device_entry
        for device_entry in pci
    )


def state(**changes: Any) -> NodeState:
    healthy = NodeState(
        name="gpu-01", clock_s=int(NOW), free_mib={"/": 90000, "/var": 90000, "/boot": 700}, lock_holder="",
        manager="dpkg", broken=(), system="running", shutdown="", mounted={}, users={},
    )  # fmt: skip
    return replace(healthy, **changes)


def node(name: str = "gpu-01", **data: Any) -> Node:
    return Node(name, ("gpu",), {**written().node("gpu-01").data, **data})
