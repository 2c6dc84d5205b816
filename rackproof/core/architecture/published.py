"""Architectures that are published with the kit. Any other file is a site's own, wherever it is."""

from __future__ import annotations

from typing import Final

PUBLISHED: Final = frozenset(
    {
        "dell-isilon-f800-dgx1",
        "dell-isilon-f800-dgx1-scaled",
        "dell-scaling-little",
        "dell-scaling-little-scaled",
        "h200-single",
        "hgx-h100-roce",
        "hitachi-v225g",
        "hitachi-v225g-scaled",
        "hpe-apollo6500-weka",
        "hpe-apollo6500-weka-scaled",
        "nvidia-dgx-a100",
        "nvidia-dgx-b200",
        "nvidia-dgx-h100",
        "nvidia-dgx-h200",
        "nvidia-gb200-nvl72",
        "virtual-rack",
        "virtual-rack-claims",
        "virtual-rack-debian-12",
        "virtual-rack-ingest",
        "virtual-rack-storage",
        "weka-inference-nvme-dram",
        "weka-inference-nvme-dram-scaled",
    }
)
"""Ids, which are the names of their files."""
