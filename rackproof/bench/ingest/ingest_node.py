# mypy: ignore-errors
"""The input pipeline of a training job, with emulated accelerators. Runs on the nodes; needs numpy and Pillow.

Usage: python3 -I ingest_node.py CONFIG…, JSON objects:
folders (the data set below each mount point), mountpoints, data (storage, memory, synthetic, undecoded), node and nodes
(this one of so many), accelerators, workers, slots (batches that a worker may be ahead), batch, step_s, crop, warmup_s,
seconds (of the timed part; 0: one pass over the data set), preload (samples of a worker for ``memory``), seed, arrivals
(requests a second and worker; 0: as fast as they are taken), local (whether the data set is on a drive of this node),
job (its name), torch (none, or what ``real_node.py`` reads), and what ``start_node.py`` reads. Several CONFIG run at
once.

Worker processes read, decode and crop; accelerators are threads that wait for batches: emulated ones sleep for the
model's time, real ones hand the batch to a rank of PyTorch. Every error ends the run with one line in ``error``. Prints
one JSON line.
"""

import json
import math
import mmap
import multiprocessing
import os
import random
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import PIL

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # its own folder alone, not the working directory

from accelerator_node import Accelerator, Window, accelerate
from real_node import Ranks
from samples_node import pixels, stream
from start_node import Fault, common_start, report, told

LATE_S = 0.25  # how much later than the others a node may begin
AHEAD_S = 0.5  # how long before the common start the first counters are read
END_S = 20
DRIFT = 0.01  # how much a node's clock may gain or lose in a run
TOKEN = struct.Struct("<HHdd")  # worker, slot, when its request began, and since when the batch is there
SIDES = ("bytes", "samples", "drained", "read_s", "decode_s", "wait_s", "cpu_s", "first_s", "passes")


# Workers


def work(config, index, worker, sides, slots, pipe, complaints, moments, batches):
    """One worker: batches until the end. A batch is announced with a token; only real accelerators read its content."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _work(config, index, worker, sides, slots, pipe, moments, batches)
    except Fault as error:
        os.write(complaints, f"{error}\n".encode()[:4000])
        os._exit(1)
    os._exit(0)


def _work(config, index, worker, sides, slots, pipe, moments, batches):
    tally = dict.fromkeys(SIDES, 0.0)
    shape = (config["batch"], config["crop"], config["crop"], 3)
    own = [np.zeros(shape, np.uint8)] if batches is None else batches[worker]
    turn = 0
    source = random.Random(config["seed"] * 7919 + worker)  # noqa: S311
    jpegs = stream(config, index, worker, tally)
    if config["data"] == "memory":
        held = [item for item, _ in zip(jpegs, range(config["preload"]), strict=False)]
        tally = dict.fromkeys(SIDES, 0.0)
        jpegs = (item for _ in iter(int, 1) for item in held)
    start_s, end_s = moments.wait()
    cpu_s, due_s = time.process_time(), start_s
    decoded, held_back = config["data"] != "undecoded", 0
    while time.monotonic() < end_s:
        began = time.monotonic()
        free = slots.acquire(timeout=max(0.0, end_s - began))
        tally["wait_s"] += time.monotonic() - began
        if not free:
            break
        requested_s = time.monotonic()
        if config["arrivals"]:
            due_s += source.expovariate(config["arrivals"])
            requested_s = due_s  # not when it was begun: a late request has waited
            _sleep_until(min(due_s, end_s))
        slot = turn % len(own)
        batch, turn = own[slot], turn + 1
        for place in range(config["batch"]):
            item = next(jpegs, None)
            if item is None:
                break
            if time.monotonic() >= end_s:
                held_back = 1
                break
            if decoded:
                decoding = time.monotonic()
                batch[place] = pixels(*item, config["crop"], source)
                tally["decode_s"] += time.monotonic() - decoding
            tally["samples"] += 1
        else:
            tally["first_s"] = tally["first_s"] or time.monotonic() - start_s
            tally["cpu_s"] = time.process_time() - cpu_s
            _publish(sides, worker, tally)
            os.write(pipe, TOKEN.pack(worker, slot, requested_s, time.monotonic()))
            continue
        break
    tally["cpu_s"] = time.process_time() - cpu_s
    if config["data"] != "memory":
        tally["drained"] = 1  # ends the stream with its shard
        left = sum(1 for _ in jpegs)
        tally["drained"] = float(left + held_back)
    _publish(sides, worker, tally)


def _publish(sides, worker, tally):
    struct.pack_into(f"<{len(SIDES)}d", sides, worker * 8 * len(SIDES), *(tally[name] for name in SIDES))


def _sleep_until(moment_s):
    while (left := moment_s - time.monotonic()) > 0:
        time.sleep(left)


class Moments:
    """Start and end of the run by a monotonic clock, shared with workers, which wait for them."""

    def __init__(self, workers):
        context = multiprocessing.get_context("fork")
        self.workers, self.ready, self.go = workers, context.Semaphore(0), context.Event()
        self.values = context.Array("d", 2, lock=False)

    def wait(self):
        """In a worker: it is ready; both moments."""
        self.ready.release()
        self.go.wait()
        return tuple(self.values)

    def await_workers(self, check, until_s):
        """Until each worker is ready; ``check`` may raise. Raises Fault."""
        left = self.workers
        while left:
            check()
            if time.monotonic() > until_s:
                raise Fault(f"{left} of {self.workers} workers were not ready in time: the storage does not answer")
            left -= self.ready.acquire(timeout=0.5)

    def tell(self, start_s, end_s):
        self.values[:] = start_s, end_s
        self.go.set()


# Counters, once a second


def counters(config):
    """Processors (busy and all, ticks), bytes received by ports of hardware and RDMA devices, bytes read by the
    mounts; None without a counter."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    ports = _sum("/sys/class/net", "statistics/rx_bytes", beside="device")  # bonds and bridges count the same again
    words = _sum("/sys/class/infiniband", "ports/1/counters/port_rcv_data")
    rdma = None if words is None else 4 * words
    return [sum(ticks) - ticks[3] - ticks[4], sum(ticks), ports, rdma, _mounted(config)]


def _sum(folder, file, beside=""):
    """Sum of a counter over the devices in a folder that have ``beside``; None without one."""
    numbers = []
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if os.path.exists(f"{folder}/{name}/{beside}") and os.path.exists(f"{folder}/{name}/{file}"):
            with open(f"{folder}/{name}/{file}") as text:
                if (number := text.read().strip()).isdecimal():  # not the N/A of a port without this counter
                    numbers.append(int(number))
    return sum(numbers) if numbers else None


def _mounted(config):
    """Bytes that NFS mounts had from their server, or a local device read; None without such a counter."""
    if config["local"]:
        device = os.stat(config["folders"][0]).st_dev
        path = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat"
        if not os.path.exists(path):
            return None
        with open(path) as text:
            return int(text.read().split()[2]) * 512
    total, devices, counted = 0, set(), False
    with open("/proc/self/mountstats") as text:
        lines = text.read().split("\ndevice ")
    for part in lines:
        point = part.split(" mounted on ")[-1].split(" with fstype ")[0]
        numbers = next((line.split()[1:] for line in part.splitlines() if line.strip().startswith("bytes:")), None)
        if point in config["mountpoints"] and numbers:
            counted, device = True, os.stat(point).st_dev
            total += 0 if device in devices else int(numbers[4])
            devices.add(device)
    return total if counted else None


# The run


class Pipeline:
    """Workers and accelerators of this node, from their start to the end."""

    def __init__(self, config, index):
        self.config = config
        self.start_at, self.start_s = None, None
        self.window = Window(math.inf, math.inf)
        self.sides = mmap.mmap(-1, 8 * len(SIDES) * max(1, config["workers"]))
        self.latencies, self.ended_s, self.fault = [], -math.inf, None
        self.series, self.stopping = [], threading.Event()
        self.workers, self.slots, self.pipes = [], [], []
        self.complaints = os.pipe()
        workers = 0 if config["data"] == "synthetic" else config["workers"]
        self.moments = Moments(workers)
        self.ranks = Ranks(config, self.window, self._complain) if config.get("torch") else None
        batches = self.ranks.batches if self.ranks else None
        for _ in range(config["accelerators"]):
            self.pipes.append(os.pipe())
        for worker in range(workers):
            slots = multiprocessing.Semaphore(config["slots"])
            pipe = self.pipes[worker % config["accelerators"]][1]
            process = multiprocessing.get_context("fork").Process(
                target=work,
                args=(config, index, worker, self.sides, slots, pipe, self.complaints[1], self.moments, batches),
            )
            process.start()
            self.workers.append(process)
            self.slots.append(slots)
        self.accelerators = [Accelerator(config["step_s"], self.window) for _ in range(config["accelerators"])]

    def execute(self):
        until_s = time.monotonic() + self.config["start_limit_s"]
        if self.ranks:
            self.ranks.start(until_s, partial(told, self.config))
        threads = [threading.Thread(target=self._run, args=(number,)) for number in range(len(self.accelerators))]
        threads.append(threading.Thread(target=self._watch))
        counters(self.config)  # the first reading is slow: caches were dropped, its own code is on disk
        self.moments.await_workers(self._check, until_s)
        self.start_at, self.start_s = common_start(self.config, self._check)
        self.ended_s = self.start_s
        self.window.begin_s = self.start_s + self.config["warmup_s"]
        self.window.end_s = self.window.begin_s + (self.config["seconds"] or 7 * 86400)
        _sleep_until(self.start_s - AHEAD_S)
        self._read_counters()
        late = time.monotonic() - self.start_s
        if late > LATE_S:
            raise Fault(f"it began {late:.1f} s after the common start: the node is busy")
        _sleep_until(self.start_s)
        self._check()
        self.moments.tell(self.start_s, self.window.end_s)
        self.began = time.time(), time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads[:-1]:
            thread.join()
        self.ended = time.time(), time.monotonic()
        self.stopping.set()
        threads[-1].join()
        until = time.monotonic() + (0 if self.fault else END_S)
        for process in self.workers:
            process.join(max(0.0, until - time.monotonic()))
        self._find_fault()
        if self.fault is None and any(process.is_alive() for process in self.workers):
            self.fault = f"workers still read {END_S} s after the end: the storage does not answer"
        if self.fault:
            raise Fault(self.fault)

    def _run(self, number):
        """One accelerator. Without workers a batch is always there."""
        endless = not self.workers
        pipe = self.pipes[number][0]
        own = [worker for worker in range(len(self.workers)) if worker % len(self.accelerators) == number]

        def take(limit_s):
            if endless:
                return (0, 0, self.start_s, self.start_s), self.start_s
            while self.fault is None:
                left = limit_s - time.monotonic()
                if left <= 0:
                    return None
                if select.select([pipe], [], [], min(left, 0.5))[0]:
                    token = TOKEN.unpack(os.read(pipe, TOKEN.size))
                    if self.ranks is None:  # a rank copies the batch first
                        self.slots[token[0]].release()
                    return token, token[3]
                if not any(self.workers[worker].is_alive() for worker in own):
                    return None if not select.select([pipe], [], [], 0)[0] else take(limit_s)
            return None

        def done(token, end_s):
            self.ended_s = max(self.ended_s, end_s)
            if self.window.begin_s < end_s <= self.window.end_s:
                self.latencies.append(end_s - token[2])

        if self.ranks:
            fed = None if endless else take
            self.ranks.feed(number, self.accelerators[number], fed, self.slots, done, lambda: self.fault is None)
            return
        accelerate(self.accelerators[number], take, _sleep_until, done)

    def _watch(self):
        """Counters once a second, and workers that end too early."""
        ended = False
        while not ended:
            self._find_fault()
            ended = self.stopping.wait(max(0.0, 1 - (time.monotonic() - self.start_s) % 1))
            self._read_counters()

    def _read_counters(self):
        """A row of the series. The first one counts for the start: no worker reads before it."""
        row = [*counters(self.config), self._sums()["bytes"]]
        self.series.append([max(0.0, time.monotonic() - self.start_s), *row])

    def _complain(self, why):
        self.fault = self.fault or why

    def _check(self):
        """Before the start. Raises Fault."""
        self._find_fault()
        if self.fault:
            raise Fault(self.fault)
        if self.ranks:
            self.ranks.check()
        told(self.config)

    def _find_fault(self):
        early = time.monotonic() < self.window.end_s and self.config["seconds"]
        codes = [process.exitcode for process in self.workers]  # before complaints, which come before an end
        if self.fault is None and select.select([self.complaints[0]], [], [], 0)[0]:
            self.fault = os.read(self.complaints[0], 4096).decode(errors="replace").splitlines()[0]
        for number, code in enumerate(codes):
            if self.fault is None and code is not None and (code != 0 or early):
                how = f"signal {-code}" if code < 0 else f"exit status {code}"
                self.fault = f"worker {number} of {len(codes)} died: {how}"

    def _sums(self):
        rows = struct.unpack(f"<{len(self.sides) // 8}d", self.sides[:])
        columns = {name: rows[place :: len(SIDES)] for place, name in enumerate(SIDES)}
        return {name: max(values) if name in ("first_s", "passes") else sum(values) for name, values in columns.items()}

    def answer(self):
        wall_s, own_s = (self.ended[kind] - self.began[kind] for kind in (0, 1))
        if abs(wall_s - own_s) > DRIFT * own_s + 0.05:
            raise Fault(f"its clock went {wall_s - own_s:+.2f} s wrong in {own_s:.1f} s; see chrony")
        end_s = min(self.window.end_s, self.ended_s) if not self.config["seconds"] else self.window.end_s
        return {
            "node": socket.gethostname(), "start_at": self.start_at, "start_file": self.config["start_file"],
            "began_at": self.began[0], "ended_at": self.ended[0], "seconds": end_s - self.window.begin_s,
            "busy_s": [a.busy_s for a in self.accelerators],
            "steps": [a.steps for a in self.accelerators], "pipeline": self._sums(), "series": self.series,
            "latency_s": percentiles(self.latencies), "job": self.config["job"], "processors": os.cpu_count(),
            "numpy": np.__version__, "pillow": PIL.__version__, "real": self.ranks.about if self.ranks else None,
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "peak_kib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
        }  # fmt: skip

    def close(self):
        self.stopping.set()  # a thread that counts would keep the program
        if self.ranks:
            self.ranks.close()
        for process in self.workers:
            if process.is_alive():
                process.kill()


def percentiles(seconds):
    """Nearest ranks, and the count."""
    ordered = sorted(seconds)
    ranks = {f"p{q}": ordered[max(0, -(-len(ordered) * q // 100) - 1)] for q in (50, 90, 99)} if ordered else {}
    return {"count": len(ordered), **ranks, **({"max": ordered[-1]} if ordered else {})}


def main(words):
    if len(words) > 1:  # several jobs on this node, at the same time
        jobs = [subprocess.Popen([sys.executable, "-I", __file__, word]) for word in words]
        return max(abs(job.wait()) for job in jobs)  # below 0: a signal
    config = json.loads(words[0])
    pipeline = None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        path = f"{config['folders'][0]}/index.json"
        try:
            with open(path) as file:
                index = json.load(file)
        except (OSError, ValueError) as error:
            raise Fault(f"{path}: no index: {getattr(error, 'strerror', None) or error}") from None
        summary = {"index_bytes": os.path.getsize(path)} | {
            key: index[key] for key in ("format", "samples", "distinct", "copies", "bytes", "samples_sha256")
        }
        summary["files"] = index["samples"] if index["format"] == "files" else len(index["shards"])
        pipeline = Pipeline(config, index)
        pipeline.execute()
        answer = {"dataset": summary} | pipeline.answer()
    except Fault as error:
        answer = {"job": config["job"], "error": str(error)}
    finally:
        if pipeline is not None:
            pipeline.close()
    print(json.dumps({"rackproof_ingest": 1} | answer), flush=True)
    if "error" in answer:
        report(config, answer["error"])
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
