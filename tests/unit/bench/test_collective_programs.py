"""Arithmetic of the kit's own collectives: threads are the ranks, and plain numpy gives each operation's result."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

N = 4
SIZE = 4096
BUS = {"all_reduce": 2 * (N - 1) / N, "broadcast": 1.0, "reduce": 1.0, "sendrecv": 1.0}
"""Bus over algorithm bandwidth by nccl-tests' PERFORMANCE.md; (n - 1) / n for the other operations."""
OPS = {
    "torch_collectives": (
        "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv",
    ),
    "collectives": ("all_reduce", "reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"),
}  # fmt: skip
CASES = [(program, op) for program, ops in OPS.items() for op in ops]
WARMUP, CALLS = 1, 2


class World:
    """State of all ranks. ``fault``: "flip" one element of one rank's last result, or "nothing" is exchanged."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self.barrier = fault, threading.Barrier(N, timeout=60)
        self.slots: list[Any] = [None] * N
        self.calls = [0] * N

    def gather(self, me: int, value: Any) -> list[Any]:
        self.slots[me] = value
        self.barrier.wait()
        values = list(self.slots)
        self.barrier.wait()
        return values

    def exchange(self, op: str, me: int, send: Any, recv: Any) -> None:
        """The operation, by the definition of its result."""
        self.calls[me] += 1
        every = self.gather(me, np.array(send, copy=True))
        if self.fault == "nothing" or (op == "reduce" and me):
            return
        results: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: np.sum(every, axis=0),
            "reduce": lambda: np.sum(every, axis=0),
            "broadcast": lambda: every[0],
            "all_gather": lambda: np.concatenate(every),
            "reduce_scatter": lambda: np.sum(every, axis=0).reshape(N, -1)[me],
            "alltoall": lambda: np.concatenate([one.reshape(N, -1)[me] for one in every]),
            "sendrecv": lambda: every[me - 1],
        }
        recv[:] = results[op]()
        if self.fault == "flip" and me == 0 and self.calls[me] == WARMUP + CALLS:
            recv[len(recv) // 2] += 1


class Tensor(np.ndarray):
    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def float(self) -> Any:
        return self.astype(np.float32)

    def remainder(self, by: int) -> Any:
        return self % by

    remainder_ = remainder

    def numel(self) -> int:
        return int(self.size)

    def fill_(self, value: Any) -> None:
        self[:] = value


def torch_of(world: World, me: int) -> Any:
    """Parts of torch that the program uses, for one rank."""

    def all_reduce(tensor: Any, op: str = "") -> None:
        if tensor.size > 1:
            world.exchange("all_reduce", me, tensor, tensor)
        else:  # the time or the count of wrong values
            every = world.gather(me, tensor[0])
            tensor[0] = max(every) if op == "max" else sum(every)

    def pair(requests: list[tuple[str, Any, int]]) -> list[Any]:
        ((_, send, after), (_, recv, before)) = requests
        assert (after, before) == ((me + 1) % N, (me - 1) % N)
        world.exchange("sendrecv", me, send, recv)
        return []

    distributed = SimpleNamespace(
        get_world_size=lambda: N, get_rank=lambda: me, barrier=lambda: world.gather(me, None),
        ReduceOp=SimpleNamespace(MAX="max"), all_reduce=all_reduce, isend="isend", irecv="irecv",
        broadcast=lambda tensor, root: world.exchange("broadcast", me, tensor, tensor),
        reduce=lambda tensor, root: world.exchange("reduce", me, tensor, tensor),
        all_gather_into_tensor=lambda recv, send: world.exchange("all_gather", me, send, recv),
        reduce_scatter_tensor=lambda recv, send: world.exchange("reduce_scatter", me, send, recv),
        all_to_all_single=lambda recv, send: world.exchange("alltoall", me, send, recv),
        P2POp=lambda *words: words, batch_isend_irecv=pair,
    )  # fmt: skip
    return SimpleNamespace(
        distributed=distributed, float32=np.float32, float64=np.float64, int64=np.int64,
        empty=lambda count, dtype, device: np.empty(count, dtype).view(Tensor),
        arange=lambda low, high, device: np.arange(low, high).view(Tensor),
        tensor=lambda values, dtype, device: np.array(values, dtype).view(Tensor),
    )  # fmt: skip


def communicator_of(world: World, me: int) -> Any:
    """Parts of mpi4py's communicator that the program uses, for one rank."""
    return SimpleNamespace(
        Get_size=lambda: N, Get_rank=lambda: me, Barrier=lambda: world.gather(me, None),
        Allreduce=lambda send, recv, op: world.exchange("all_reduce", me, send, recv),
        Allgather=lambda send, recv: world.exchange("all_gather", me, send, recv),
        Alltoall=lambda send, recv: world.exchange("alltoall", me, send, recv),
        Reduce_scatter_block=lambda send, recv, op: world.exchange("reduce_scatter", me, send, recv),
        Sendrecv=lambda send, to, recvbuf, source: world.exchange("sendrecv", me, send, recvbuf),
        Reduce=lambda send, recv, op, root: world.exchange("reduce", me, send, recv),
        allreduce=lambda value, op: (max if op == "max" else sum)(world.gather(me, value)),
        bcast=lambda value: world.gather(me, value)[0],
    )  # fmt: skip


def measured(program: str, op: str, monkeypatch: pytest.MonkeyPatch, fault: str = "") -> dict[str, Any]:
    """The point of one message size, which is the same on all ranks but for their clocks."""
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=SimpleNamespace(MAX="max", SUM="sum")))
    text = files("rackproof.bench.collectives").joinpath(f"{program}.py").read_text()
    assert text.endswith("\nmain()\n")
    module: dict[str, Any] = {"__name__": program}
    exec(compile(text.removesuffix("main()\n"), program, "exec"), module)  # noqa: S102 - the kit's own program
    world, measure = World(fault), module["measure"]

    def rank(me: int) -> dict[str, Any]:
        if program == "collectives":
            point = measure(op, communicator_of(world, me), SIZE, CALLS, WARMUP, 0)
        else:
            device = SimpleNamespace(type="cpu")
            point = measure(torch_of(world, me), op, SIZE, CALLS, WARMUP, 0, device)
        assert isinstance(point, dict)
        return point

    with ThreadPoolExecutor(N) as pool:
        points = list(pool.map(rank, range(N)))
    assert len({point["wrong"] for point in points}) == 1
    return points[0]


@pytest.mark.parametrize(("program", "op"), CASES)
def test_every_operation_is_checked_and_counted_as_nccl_tests_does(
    program: str, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = measured(program, op, monkeypatch)
    assert point["wrong"] == 0
    assert point["bytes"] == SIZE
    assert len(point["samples_us"]) == len(point["began_s"]) == CALLS
    assert point["algbw_GBps"] == pytest.approx(SIZE / point["time_us"] / 1e3)
    assert point["busbw_GBps"] == pytest.approx(point["algbw_GBps"] * BUS.get(op, (N - 1) / N))


@pytest.mark.parametrize(("program", "op"), CASES)
def test_one_wrong_element_of_one_rank_is_counted_once(program: str, op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(program, op, monkeypatch, "flip")["wrong"] == 1


@pytest.mark.parametrize(("program", "op"), CASES)
def test_a_call_that_exchanges_nothing_is_wrong(program: str, op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(program, op, monkeypatch, "nothing")["wrong"] > 0
