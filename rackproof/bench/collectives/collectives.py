# mypy: ignore-errors
"""Collectives over MPI, checked and timed as nccl-tests does. Runs on the nodes under mpirun.

Rank 0 prints one JSON line. Needs mpi4py and numpy, nothing of rackproof.
Usage: mpirun … python3 collectives.py OP MIN_BYTES MAX_BYTES FACTOR ITERATIONS WARMUP
ITERATIONS with an s at its end are seconds: calls go on until they are over.
"""

import json
import socket
import sys
import time

import numpy as np
from mpi4py import MPI


def make(op, comm, count):
    """Buffers, the call, and the expected result of this rank. Bytes are counted as in nccl-tests."""
    n, me = comm.Get_size(), comm.Get_rank()
    base = np.arange(count, dtype=np.float32) % 61
    if op == "all_reduce":
        send = base + me
        recv = np.empty(count, np.float32)
        expected = base * n + np.float32(n * (n - 1) // 2)
        return lambda: comm.Allreduce(send, recv, MPI.SUM), recv, expected
    share = count // n
    if op == "all_gather":
        send = base[:share] + me
        recv = np.empty(share * n, np.float32)
        expected = np.concatenate([base[:share] + rank for rank in range(n)])
        return lambda: comm.Allgather(send, recv), recv, expected
    if op == "alltoall":
        send = np.concatenate([base[:share] + me * n + to for to in range(n)])
        recv = np.empty(share * n, np.float32)
        expected = np.concatenate([base[:share] + source * n + me for source in range(n)])
        return lambda: comm.Alltoall(send, recv), recv, expected
    if op == "reduce_scatter":
        send = base + me
        recv = np.empty(share, np.float32)
        expected = base[me * share : (me + 1) * share] * n + np.float32(n * (n - 1) // 2)
        return lambda: comm.Reduce_scatter_block(send, recv, MPI.SUM), recv, expected
    if op == "sendrecv":
        send = base + me
        recv = np.empty(count, np.float32)
        after, before = (me + 1) % n, (me - 1) % n
        return lambda: comm.Sendrecv(send, after, recvbuf=recv, source=before), recv, base + before
    if op == "reduce":
        send = base + me
        recv = np.empty(count if me == 0 else 0, np.float32)
        expected = base[: len(recv)] * n + np.float32(n * (n - 1) // 2)
        return lambda: comm.Reduce(send, recv if me == 0 else None, MPI.SUM, 0), recv, expected
    raise SystemExit("unknown operation " + op)


def measure(op, comm, size, iterations, warmup, seconds):
    n = comm.Get_size()
    count = max(n, size // 4 // n * n)
    call, recv, expected = make(op, comm, count)
    recv.fill(np.nan)  # a call that does nothing must fail the check
    for _ in range(warmup):
        call()
    wrong, samples, moments = 0, [], []
    started, spent = time.perf_counter(), 0.0
    while len(samples) < iterations or spent < seconds:
        recv.fill(np.nan)
        comm.Barrier()
        moments.append(time.time())
        began = time.perf_counter()
        call()
        elapsed = time.perf_counter() - began
        samples.append(comm.allreduce(elapsed, MPI.MAX) * 1e6)
        wrong += int(comm.allreduce(int(np.count_nonzero(recv != expected)), MPI.SUM))
        spent = comm.bcast(time.perf_counter() - started) if seconds else 0.0
    mean = sum(samples) / len(samples)
    alg = count * 4 / mean / 1e3
    factor = {"all_reduce": 2 * (n - 1) / n, "reduce": 1, "sendrecv": 1}.get(op, (n - 1) / n)
    bus = alg * factor
    return {
        "bytes": count * 4,
        "time_us": mean,
        "algbw_GBps": alg,
        "busbw_GBps": bus,
        "wrong": wrong,
        "samples_us": samples,
        "began_s": moments,
    }


def main():
    op, (low, high, factor, count, warmup) = sys.argv[1], (int(word.rstrip("s")) for word in sys.argv[2:7])
    iterations, seconds = (1, count) if sys.argv[5].endswith("s") else (count, 0)
    comm = MPI.COMM_WORLD
    hosts = comm.gather(socket.gethostname())
    results = []
    while low <= high:
        results.append(measure(op, comm, low, iterations, warmup, seconds))
        low *= factor
    if comm.Get_rank() == 0:
        print(json.dumps({
            "rackproof_collectives": 1, "engine": "mpi", "op": op, "ranks": comm.Get_size(), "hosts": hosts,
            "dtype": "float32", "warmup": warmup,
            "mpi": MPI.Get_library_version().split("\n")[0].strip("\0 "), "results": results,
        }))  # fmt: skip


main()
