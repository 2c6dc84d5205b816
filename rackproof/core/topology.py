"""Compare the NVLink connections of a node's GPUs with reference graphs.

GPUs are numbered by PCI address, and vendors route boards differently: two published matrices of the same machine
differ in most of their cells. So a matrix matches a reference if some renumbering of its GPUs makes them equal. Paths
over PCIe are ignored; another check reads them.

Through a switch every GPU reaches every other one with all of its links, so ``NV18`` between each two of eight GPUs
are 18 links of each GPU, not 126.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final

from rackproof.core.grouping import grouped
from rackproof.core.nearest import suggestion
from rackproof.core.rack import fold
from rackproof.core.wording import some
from rackproof.errors import RackproofError

Matrix = Sequence[Sequence[int]]
"""Links from each GPU (row) to each GPU (column): 18 for NV18, 0 where no NVLink joins them and on the diagonal."""

Profile = tuple[tuple[int, ...], tuple[int, ...]]
"""Links from and to a GPU, in ascending order: independent of numbering."""

_LISTED: Final = 4
"""Maximum number of differences listed."""
_NVLINK: Final = re.compile(r"NV(\d{1,3})")
_NO_NVLINK: Final = frozenset({"PIX", "PXB", "PSB", "PHB", "NODE", "SYS", "SOC"})


class NoTopology(RackproofError):
    """Unknown reference graph, or an invalid matrix."""


@dataclass(frozen=True, slots=True)
class Topology:
    """A reference graph."""

    title: str
    gpus: int
    source: str
    links: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why a matrix is not the reference's. ``str()`` is ``expected … actual …: differences``."""

    expected: str
    actual: str
    differences: tuple[str, ...]

    def __str__(self) -> str:
        listed = some(self.differences, _LISTED, "; ")
        return f"expected {self.expected}, actual {self.actual}" + (f": {listed}" if listed else "")


def _full(gpus: int, links: int, title: str, source: str) -> Topology:
    matrix = tuple(tuple(0 if i == j else links for j in range(gpus)) for i in range(gpus))
    return Topology(title, gpus, source, matrix)


_DGX1: Final = (
    (0, 2, 1, 1, 2, 0, 0, 0),
    (2, 0, 1, 2, 0, 1, 0, 0),
    (1, 1, 0, 2, 0, 0, 2, 0),
    (1, 2, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 2, 1, 1),
    (0, 1, 0, 0, 2, 0, 1, 2),
    (0, 0, 2, 0, 1, 1, 0, 2),
    (0, 0, 0, 1, 1, 2, 2, 0),
)

NAMES: Final[Mapping[str, Topology]] = MappingProxyType(
    {
        "single": _full(1, 0, "One GPU, or one that is passed through to a guest", "follows from the number"),
        "dgx1-v100": Topology(
            "Hybrid cube mesh of eight V100 with six NVLinks each (DGX-1, SXM2 boards of other makers)",
            8,
            "microsoft/msccl-tools msccl/topologies/nvidia.py dgx1(); NVIDIA/nccl#671 is a renumbering of it",
            _DGX1,
        ),
        "nvswitch-16-nv6": _full(
            16, 6,
            "Sixteen V100 behind NVSwitch (DGX-2)",
            "NVIDIA/nccl-tests#78: topo -m",
        ),
        "nvswitch-8-nv12": _full(
            8, 12,
            "Eight A100 behind NVSwitch (DGX A100, HGX A100)",
            "NVIDIA/nccl#1505: topo -m; microsoft/msccl-tools dgx_a100()",
        ),
        "nvswitch-8-nv18": _full(
            8, 18,
            "Eight H100, H200 or B200 behind NVSwitch (DGX and HGX)",
            "topo -m of H100 in stas00/ml-engineering, of B200 in vllm-project/vllm#31594; H200 has 18 links too",
        ),
        "nvswitch-4-nv18": _full(
            4, 18,
            "Four GPUs of a GB200 NVL72 compute node",
            "NVIDIA/k8s-test-infra#371: topo -m",
        ),
    }
)  # fmt: skip
"""Reference graphs by the name that ``gpu.topology`` of an architecture gives them."""


def reference(name: str) -> Topology:
    """Raises NoTopology with the nearest known name."""
    if name not in NAMES:
        raise NoTopology(f"no topology '{name}'; {suggestion(name, NAMES)}")
    return NAMES[name]


def links_between(gpus: Sequence[str], paths: Mapping[tuple[str, str], str]) -> tuple[tuple[int, ...], ...]:
    """The matrix of ``paths`` (NV18, PIX, SYS …, from row to column) between ``gpus``.

    Raises NoTopology where a path is missing or says nothing about NVLink (``N/A``).
    """

    def links(row: str, column: str) -> int:
        path = paths.get((row, column))
        if path is None:
            raise NoTopology(f"the matrix has no path from {row} to {column}")
        if row == column or path in _NO_NVLINK:
            return 0
        if match := _NVLINK.fullmatch(path):
            return int(match[1])
        raise NoTopology(f"the matrix says {path} from {row} to {column}, which is not a path")

    return tuple(tuple(links(row, column) for column in gpus) for row in gpus)


def same_topology(measured: Matrix, name: str, gpus: Sequence[str] = ()) -> Mismatch | None:
    """None where ``measured`` is the reference's graph with its GPUs in some order, else what differs.

    ``gpus`` name the rows, GPU0 … unless given. Raises NoTopology for an unknown name and for a matrix that is
    empty, not square, has negative numbers, or links from a GPU to itself.
    """
    expected_graph = reference(name)
    matrix = _checked(measured)
    names = tuple(gpus) or tuple(f"GPU{index}" for index in range(len(matrix)))
    if len(names) != len(matrix):
        raise NoTopology(f"{len(names)} names for {len(matrix)} GPUs")
    if len(matrix) != expected_graph.gpus:
        return Mismatch(f"{expected_graph.gpus} GPUs as in {name}", f"{len(matrix)}", ())
    if _isomorphic(matrix, expected_graph.links):
        return None
    expected = f"{name} ({_counted(_pairs(expected_graph.links))} between {expected_graph.gpus} GPUs)"
    actual = _counted(_pairs(matrix))
    if _pairs(matrix) == _pairs(expected_graph.links):
        actual = "as many, but connected differently"
    return Mismatch(expected, actual, tuple(_differences(matrix, expected_graph.links, names)))


def _checked(measured: Matrix) -> tuple[tuple[int, ...], ...]:
    matrix = tuple(tuple(row) for row in measured)
    if not matrix:
        raise NoTopology("the matrix is empty")
    for index, row in enumerate(matrix):
        if len(row) != len(matrix):
            raise NoTopology(f"row {index} of the matrix has {len(row)} cells for {len(matrix)} GPUs")
        if min(row) < 0 or row[index] != 0:
            raise NoTopology(f"row {index} of the matrix is not a list of link counts: {row}")
    return matrix


@lru_cache(maxsize=16)  # the nodes of a rack are alike
def _isomorphic(measured: Matrix, expected: Matrix) -> bool:
    profiles, expected_profiles = _profiles(measured), _profiles(expected)
    # First: the search would try every order of sixteen GPUs that differ in one link.
    if sorted(profiles) != sorted(expected_profiles):
        return False
    # networkx takes a quarter of a second to import, and few commands compare graphs
    import networkx

    def graph(matrix: Matrix, profiles: Sequence[Profile]) -> Any:
        # directed: only one end may report a lost link
        made = networkx.DiGraph()
        made.add_nodes_from((i, {"profile": profile}) for i, profile in enumerate(profiles))
        made.add_edges_from((i, j, {"links": n}) for i, row in enumerate(matrix) for j, n in enumerate(row) if n)
        return made

    return bool(
        networkx.is_isomorphic(
            graph(measured, profiles),
            graph(expected, expected_profiles),
            node_match=lambda a, b: a["profile"] == b["profile"],
            edge_match=lambda a, b: a["links"] == b["links"],
        )
    )


def _profiles(matrix: Matrix) -> list[Profile]:
    return [(tuple(sorted(row)), tuple(sorted(line[i] for line in matrix))) for i, row in enumerate(matrix)]


def _differences(matrix: Matrix, expected: Matrix, names: Sequence[str]) -> Iterator[str]:
    """GPUs with links unlike any GPU of the reference, and wrong pairs where they can be identified."""
    expected_rows = [_row(expected, index) for index in range(len(expected))]
    rows = [(name, _row(matrix, index)) for index, name in enumerate(names)]
    odd = grouped((_counted(row), name) for name, row in rows if row not in expected_rows)
    shape = " or ".join(sorted({_counted(row) for row in expected_rows}))
    for actual, gpus in sorted(odd.items(), key=lambda item: (len(item[1]), item[1])):
        yield f"{fold(gpus)} with {actual} instead of {shape}"
    yield from _wrong_pairs(matrix, expected, names)


def _wrong_pairs(matrix: Matrix, expected: Matrix, names: Sequence[str]) -> Iterator[str]:
    """Deviating pairs of a uniform reference; otherwise the single pair whose correction gives the reference."""
    weights = {expected[i][j] for i, j in combinations(range(len(expected)), 2)}
    if len(weights) == 1:
        (links,) = weights
        for i, j in combinations(range(len(matrix)), 2):
            if {matrix[i][j], matrix[j][i]} != {links}:
                yield _pair(matrix, i, j, links, names)
        return
    for i, j in combinations(range(len(matrix)), 2):
        for links in sorted(weights | {0}):
            if {matrix[i][j], matrix[j][i]} != {links} and _isomorphic(_with(matrix, i, j, links), expected):
                yield _pair(matrix, i, j, links, names)


def _pair(matrix: Matrix, i: int, j: int, links: int, names: Sequence[str]) -> str:
    forward, back = matrix[i][j], matrix[j][i]
    actual = _name(forward) if forward == back else f"{_name(forward)} one way and {_name(back)} the other"
    return f"{names[i]}–{names[j]} {actual} instead of {_name(links)}"


def _with(matrix: Matrix, i: int, j: int, links: int) -> Matrix:
    rows = [list(row) for row in matrix]
    rows[i][j] = rows[j][i] = links
    return tuple(map(tuple, rows))


def _row(matrix: Matrix, index: int) -> Counter[int]:
    return Counter(links for column, links in enumerate(matrix[index]) if column != index)


def _pairs(matrix: Matrix) -> Counter[int]:
    """Number of pairs by number of links; of asymmetric pairs the smaller number."""
    return Counter(min(matrix[i][j], matrix[j][i]) for i, j in combinations(range(len(matrix)), 2))


def _counted(counts: Counter[int]) -> str:
    """``8 × NV2, 8 × NV1, 12 × none``."""
    return ", ".join(f"{count} × {_name(links)}" for links, count in sorted(counts.items(), reverse=True)) or "no pair"


def _name(links: int) -> str:
    return f"NV{links}" if links else "none"
