"""Architectures that are published with the kit. Any other file is a site's own, wherever it is."""

from __future__ import annotations

from typing import Final

PUBLISHED: Final = frozenset(
    {
        "dell-isilon-f800-dgx1",
        "dell-scaling-little",
        "h200-single",
        "hgx-h100-roce",
        "hitachi-v225g",
        "hpe-apollo6500-weka",
        "nvidia-dgx-a100",
        "nvidia-dgx-b200",
        "nvidia-dgx-h100",
        "nvidia-dgx-h200",
        "nvidia-gb200-nvl72",
        "virtual-rack",
        "virtual-rack-debian-12",
        "virtual-rack-ingest",
        "virtual-rack-storage",
        "weka-inference-nvme-dram",
    }
)
"""Ids, which are the names of their files."""
