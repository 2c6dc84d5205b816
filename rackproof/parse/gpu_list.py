"""GPUs of a node in the order of their PCI addresses, by ``nvidia-smi --query-gpu``."""

from __future__ import annotations

from typing import Final, NamedTuple

from rackproof.parse.errors import ParseError
from rackproof.parse.text import UUID, excerpt, matched, whole_lines

LIST: Final = "timeout 60 nvidia-smi --query-gpu=index,uuid,pci.bus_id,name --format=csv,noheader"
_TOOL: Final = "nvidia-smi"
_LINE: Final = rf"(\d{{1,3}}), (GPU-{UUID}), ([0-9A-Fa-f]{{8}}:[0-9A-Fa-f]{{2}}:[0-9A-Fa-f]{{2}})\.\d, (\S.*)"


class ListedGpu(NamedTuple):
    uuid: str
    bus_id: str
    """``00000000:18:00``, without the function."""
    name: str


def parse_gpu_list(output: str | bytes) -> tuple[ListedGpu, ...]:
    """By index. Raises ParseError for a gap, a repeated GPU or another order than that of the addresses."""
    gpus = []
    for number, line in enumerate(whole_lines(_TOOL, output)):
        match = matched(_TOOL, _LINE, line, "a GPU")
        if int(match[1]) != number:
            raise ParseError(_TOOL, f"expected GPU {number}, got {excerpt(line)}")
        gpus.append(ListedGpu(match[2], match[3].upper(), match[4].strip()))
    if len({gpu.uuid for gpu in gpus}) != len(gpus) or sorted({gpu.bus_id for gpu in gpus}) != [
        gpu.bus_id for gpu in gpus
    ]:
        raise ParseError(_TOOL, "its GPUs are repeated, or not in the order of their addresses")
    return tuple(gpus)
