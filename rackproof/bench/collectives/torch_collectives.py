# mypy: ignore-errors
"""Collectives of torch.distributed, checked and timed as nccl-tests does. Runs on the nodes.

Rank 0 prints one JSON line. Needs torch, nothing of rackproof. One command a node starts its ranks:

    python3 torch_collectives.py OP MIN_BYTES MAX_BYTES FACTOR ITERATIONS WARMUP BACKEND ADDRESS:PORT HOSTS RANKS NODE

ITERATIONS with an s at its end are seconds: calls go on until they are over.

HOSTS are the nodes' names with commas, RANKS the processes of each, NODE this node's place among HOSTS. Without these
three, mpirun or srun has started the process and says its rank. Every call is timed by itself, after a barrier, until
its result is there; the slowest rank counts. all_reduce, broadcast and reduce work in place, as torch does.
"""

import datetime
import json
import os
import signal
import socket
import subprocess
import sys
import time

PIECE = 1 << 24
"""Elements that are compared at once: a large message and its expected result would not fit into memory together."""
RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
TIMEOUT_S = 300


def number(names):
    for name in names:
        if name in os.environ:
            return int(os.environ[name])
    raise SystemExit("none of " + ", ".join(names) + " is set: no launcher has started this process")


def start(hosts, ranks, node):
    """Run one process a rank of this node, and end all of them as soon as one fails."""
    processes = []
    for local in range(ranks):
        own = {"RANK": node * ranks + local, "WORLD_SIZE": len(hosts) * ranks, "LOCAL_RANK": local}
        environment = {**os.environ, **{name: str(value) for name, value in own.items()}}
        processes.append(subprocess.Popen([sys.executable, "-I", __file__, *sys.argv[1:9]], env=environment))

    def end(*_):
        for process in processes:
            if process.poll() is None:
                process.kill()

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda *_: (end(), sys.exit(143)))
    first = 0
    while any(process.poll() is None for process in processes) or not first:
        first = first or next((process.returncode for process in processes if process.poll()), 0)
        if first:  # the others are killed: their status says nothing
            end()
        elif all(process.poll() == 0 for process in processes):
            break
        time.sleep(0.05)
    return first if first >= 0 else 128 - first


class Operation:
    """One message size of one operation. Bytes are counted as in nccl-tests: of the whole array."""

    def __init__(self, torch, op, size, device):
        self.torch, self.dist, self.op = torch, torch.distributed, op
        self.n, self.me = self.dist.get_world_size(), self.dist.get_rank()
        self.count = max(self.n, size // 4 // self.n * self.n)
        share = self.count // self.n
        sent = {"all_gather": share}.get(op, self.count)
        received = {"reduce_scatter": share}.get(op, self.count)
        self.send = torch.empty(sent, dtype=torch.float32, device=device)
        self.recv = self.send
        if op not in ("all_reduce", "broadcast", "reduce"):
            self.recv = torch.empty(received, dtype=torch.float32, device=device)
        self.share = share

    def base(self, low, high):
        return self.torch.arange(low, high, device=self.send.device).remainder_(61).float()

    def pieces(self, total):
        return ((low, min(low + PIECE, total)) for low in range(0, total, PIECE))

    def fill(self):
        """Fill the send buffer; a separate receive buffer gets NaN, which stays there if a call does nothing."""
        for low, high in self.pieces(self.send.numel()):
            self.send[low:high] = self.base(low, high) + self.me
            if self.op == "broadcast" and self.me:
                self.send[low:high] = float("nan")
        if self.recv is not self.send:
            self.recv.fill_(float("nan"))

    def call(self):
        dist, op = self.dist, self.op
        if op == "all_reduce":
            dist.all_reduce(self.send)
        elif op == "broadcast":
            dist.broadcast(self.send, 0)
        elif op == "reduce":
            dist.reduce(self.send, 0)
        elif op == "all_gather":
            dist.all_gather_into_tensor(self.recv, self.send)
        elif op == "reduce_scatter":
            dist.reduce_scatter_tensor(self.recv, self.send)
        elif op == "alltoall":
            dist.all_to_all_single(self.recv, self.send)
        elif op == "sendrecv":
            after, before = (self.me + 1) % self.n, (self.me - 1) % self.n
            pair = [dist.P2POp(dist.isend, self.send, after), dist.P2POp(dist.irecv, self.recv, before)]
            for request in dist.batch_isend_irecv(pair):
                request.wait()
        else:
            raise SystemExit("unknown operation " + op)

    def expected(self, low, high):
        """Elements low to high of this rank's result; None where it has none."""
        n, me, total = self.n, self.me, self.n * (self.n - 1) // 2
        if self.op == "all_reduce":
            return self.base(low, high) * n + total
        if self.op == "reduce":
            return None if me else self.base(low, high) * n + total
        if self.op == "broadcast":
            return self.base(low, high)
        if self.op == "sendrecv":
            return self.base(low, high) + (me - 1) % n
        if self.op == "reduce_scatter":
            return self.base(me * self.share + low, me * self.share + high) * n + total
        places = self.torch.arange(low, high, device=self.send.device)
        source, place = places // self.share, places % self.share
        if self.op == "all_gather":
            return place.remainder(61).float() + source
        return (me * self.share + place).remainder(61).float() + source

    def wrong(self):
        count = 0
        for low, high in self.pieces(self.recv.numel()):
            expected = self.expected(low, high)
            if expected is not None:
                count += int((self.recv[low:high] != expected).sum())
        return count


def measure(torch, op, size, iterations, warmup, seconds, device):
    dist = torch.distributed
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    operation = Operation(torch, op, size, device)
    n, wrong, samples, moments, turn = operation.n, 0, [], [], 0
    started, spent = time.perf_counter(), 0.0
    while turn < warmup + iterations or spent < seconds:
        operation.fill()
        wait()
        dist.barrier()
        wait()
        moment, began = time.time(), time.perf_counter()
        operation.call()
        wait()
        elapsed = torch.tensor([time.perf_counter() - began], dtype=torch.float64, device=device)
        dist.all_reduce(elapsed, dist.ReduceOp.MAX)
        if turn >= warmup:
            samples.append(float(elapsed) * 1e6)
            moments.append(moment)
            count = torch.tensor([operation.wrong()], dtype=torch.int64, device=device)
            dist.all_reduce(count)
            wrong += int(count)
        else:
            started = time.perf_counter()
        if seconds:
            elapsed[0] = time.perf_counter() - started
            dist.all_reduce(elapsed, dist.ReduceOp.MAX)
            spent = float(elapsed)
        turn += 1
    mean = sum(samples) / len(samples)
    alg = operation.count * 4 / mean / 1e3
    factor = {"all_reduce": 2 * (n - 1) / n, "broadcast": 1, "reduce": 1, "sendrecv": 1}.get(op, (n - 1) / n)
    return {
        "bytes": operation.count * 4,
        "time_us": mean,
        "algbw_GBps": alg,
        "busbw_GBps": alg * factor,
        "wrong": wrong,
        "samples_us": samples,
        "began_s": moments,
    }


def main():
    op, (low, high, factor, calls, warmup), backend, address = (
        sys.argv[1], (int(word.rstrip("s")) for word in sys.argv[2:7]), sys.argv[7], sys.argv[8]
    )  # fmt: skip
    iterations, seconds = (1, calls) if sys.argv[5].endswith("s") else (calls, 0)
    if len(sys.argv) > 9:
        sys.exit(start(sys.argv[9].split(","), int(sys.argv[10]), int(sys.argv[11])))
    import torch

    rank, world, local = number(RANK), number(WORLD), number(LOCAL)
    device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    torch.distributed.init_process_group(
        backend, init_method="tcp://" + address, rank=rank, world_size=world,
        timeout=datetime.timedelta(seconds=TIMEOUT_S),
    )  # fmt: skip
    hosts = [None] * world
    torch.distributed.all_gather_object(hosts, socket.gethostname())
    results = []
    while low <= high:
        results.append(measure(torch, op, low, iterations, warmup, seconds, device))
        low *= factor
    if rank == 0:
        print(json.dumps({
            "rackproof_collectives": 1, "engine": "torch", "backend": backend, "op": op, "ranks": world,
            "hosts": hosts, "dtype": "float32", "warmup": warmup, "torch": torch.__version__, "results": results,
        }), flush=True)  # fmt: skip
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
