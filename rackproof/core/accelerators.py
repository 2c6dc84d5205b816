"""Rates of accelerators that do not wait for data, for the emulation: samples a second of one of them, by model.

A published rate of a model that is not here goes into the job of the profile, with its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Emulated:
    """One model on one accelerator."""

    rate: float
    """Samples a second."""
    source: str


_STORAGE: Final = "MLPerf Storage v1.0, computation_time of its workload files"
_ISILON: Final = "Dell EMC and NVIDIA, Isilon F800 and DGX-1: bytes a second over bytes of a sample and 72 GPUs"

RATES: Final[dict[tuple[str, str], Emulated]] = {
    ("v100", "resnet50"): Emulated(5907e6 / 115154 / 72, f"{_ISILON}; 5907 MB/s"),
    ("v100", "inception4-large"): Emulated(19895e6 / 1350932 / 72, f"{_ISILON}; 19895 MB/s"),
    ("a100", "resnet50"): Emulated(400 / 0.435, f"{_STORAGE}: batch 400 in 0.435 s"),
    ("a100", "unet3d"): Emulated(7 / 0.636, f"{_STORAGE}: batch 7 in 0.636 s"),
    ("a100", "cosmoflow"): Emulated(1 / 0.00551, f"{_STORAGE}: batch 1 in 0.00551 s"),
    ("h100", "resnet50"): Emulated(400 / 0.224, f"{_STORAGE}: batch 400 in 0.224 s"),
    ("h100", "unet3d"): Emulated(7 / 0.323, f"{_STORAGE}: batch 7 in 0.323 s"),
    ("h100", "cosmoflow"): Emulated(1 / 0.0035, f"{_STORAGE}: batch 1 in 0.0035 s"),
    ("h200", "resnet50"): Emulated(400 / 0.224, f"{_STORAGE}, of an H100, whose processor the H200 has"),
    ("b200", "retinanet"): Emulated(24 / 0.04755, "MLPerf Storage, B200: batch 24 in 0.04755 s"),
}
"""By accelerator and model, in lower case."""
