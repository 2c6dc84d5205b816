"""Bandwidths of collective operations, as nccl-tests defines them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_PER_RANK: Final = ("all_gather", "alltoall", "gather", "reduce_scatter", "scatter")
_UNITY: Final = ("broadcast", "reduce", "sendrecv")

OPS: Final = tuple(sorted(("all_reduce", *_PER_RANK, *_UNITY)))
"""Operations whose factor is known, named as nccl-tests names its programs without ``_perf``."""
IN_PLACE: Final = ("all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter")
"""Operations that NCCL can do in place (its user guide, "In-place Operations")."""

ABSENT: Final = {"mpi": ("broadcast", "gather", "scatter"), "torch": ("gather", "scatter"), "nccl-tests": ()}
"""Operations that an engine's program does not have."""


def check_operations(engine: str, asked: Mapping[str, Iterable[str]]) -> None:
    """Raises ValueError, one line, for operations that the engine does not have. ``asked``: operations by key."""
    for key, ops in asked.items():
        if absent := [op for op in ops if op in ABSENT[engine]]:
            raise ValueError(f"{key}: the engine {engine} has no {', '.join(absent)}; nccl-tests has")


def busbw_factor(op: str, ranks: int) -> float:
    """Bus bandwidth divided by algorithm bandwidth (bytes / time) of an operation over ``ranks`` ranks.

    all_reduce ``2(n-1)/n``; all_gather, reduce_scatter, alltoall, gather and scatter ``(n-1)/n``; broadcast, reduce
    and sendrecv 1. Source: nccl-tests, doc/PERFORMANCE.md, and for gather, scatter and sendrecv its programs of those
    names. ``bytes`` is the whole array, of which each rank holds 1/n where the operation divides it.

    Raises ValueError for an operation that is not in ``OPS`` and for less than one rank.
    """
    if ranks < 1:
        raise ValueError(f"a collective needs at least one rank, not {ranks}")
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if op in _PER_RANK:
        return (ranks - 1) / ranks
    if op in _UNITY:
        return 1.0
    raise ValueError(f"no bus bandwidth is defined for {op!r}; known: {', '.join(OPS)}")


def least_received(op: str, size: int, nodes: int, ranks_per_node: int) -> int:
    """Bytes that each node must receive from others for one operation of ``size`` bytes, whatever the algorithm.

    all_reduce: a result of ``size`` bytes that the node does not have; all_gather: the other nodes' parts; alltoall:
    what ranks elsewhere send to each of its ranks; reduce_scatter: its part of the result, at least; sendrecv: what the
    last rank of the node before sends. 0 where a node needs nothing from others (the root of a broadcast, every node
    but the root of a reduction).
    """
    if nodes < 2:
        return 0
    elsewhere = size * (nodes - 1) // nodes
    return {
        "all_reduce": size,
        "all_gather": elsewhere,
        "alltoall": elsewhere * ranks_per_node,
        "reduce_scatter": size // nodes,
        "sendrecv": size,
    }.get(op, 0)
