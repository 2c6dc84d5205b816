"""Figures of healthy nodes of each architecture: those published for them, or a little more than their bars."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Figures:
    to_device: float
    to_host: float
    """GB/s between a GPU and its host."""
    triad: float
    product: float
    """B/s of a GPU's memory, operations a second of its BF16 products."""
    peers: float = 0.0
    """GB/s between two GPUs of a node."""
    port: float = 0.0
    """Gb/s that an adapter sends."""
    bus: dict[str, float] = field(default_factory=dict)
    """See ``RackFabric.bus``."""
    nodes: int = 4


FIGURES: Final = {
    "nvidia-dgx-h100": Figures(
        55.1, 54.9, 2.9e12, 775e12, 396.0, 392.0, {"NVLS": 480.0, "Ring": 372.0, "rack": 385.0, "rail": 48.6}
    ),
    "nvidia-dgx-h200": Figures(
        55.43, 55.06, 4.36e12, 750e12, 396.4, 392.0, {"NVLS": 482.26, "Ring": 367.61, "rack": 385.0, "rail": 48.6}
    ),
    "nvidia-dgx-b200": Figures(
        55.4, 55.0, 6.8e12, 1700e12, 780.0, 392.0, {"NVLS": 838.0, "Ring": 682.2, "rack": 377.34, "rail": 48.6}
    ),
    "nvidia-dgx-a100": Figures(
        26.0, 25.9, 1.7e12, 264e12, 276.0, 196.0, {"Ring": 235.0, "rack": 192.5, "rail": 24.3}
    ),
    "hgx-h100-roce": Figures(
        55.1, 54.9, 2.9e12, 775e12, 396.0, 392.0, {"NVLS": 480.0, "Ring": 372.0, "rack": 364.87, "rail": 48.6}
    ),
    "h200-single": Figures(55.43, 55.06, 4.36e12, 750e12, nodes=1),
    "nvidia-gb200-nvl72": Figures(
        170.0, 168.0, 6.8e12, 1790e12, 780.0, 392.0, {"NVLS": 700.0, "rack": 834.57, "rails": 45.0, "rail": 48.6},
        nodes=18,
    ),
}  # fmt: skip
