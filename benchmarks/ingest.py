"""The input pipeline's own overhead, against bare loops over the same files.

    python benchmarks/ingest.py [--samples 48] [--copies 192] [--workers 2] [--rounds 120] [--folder DIR] [--json FILE]

Data sets of JPEG files of 115 kB, made first, with copies. A round has four passes, engine, loop, loop, engine or the
other way round by turns, caches of the files dropped before each; its ratio is that of the sums. A drive that spends a
burst gives a later pass up to a fifth less than the one before (seen on a virtual drive); so each way has both places.

* reads: the engine reads every file once and decodes nothing, against a loop that only reads the same files;
* decoded: the engine reads, decodes and crops a sixth of the copies into batches, against a loop that does the same;
  in every eighth round, since these passes take five times as long and vary less.

Both have the same number of processes. Wall time is from the first read to the last; processor time is that of the
processes in their loop. The figures are medians of the rounds' ratios, with an interval of at least 95 % (order
statistics). Bar: 5 % more wall time for reads, and 5 % more processor time for decoded samples; an interval around the
bar decides nothing, and more rounds are needed. Exit status: 0 reached, 1 missed, 2 undecided. Read from memory the
ratio of reads is meaningless: nothing is left of the storage.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

BENCH = Path(__file__).resolve().parents[1] / "rackproof" / "bench"
PROGRAMS = [*(BENCH / "ingest").glob("*_node.py"), BENCH / "start_node.py"]
LEAD_S = 1.0
BAR = 0.05
BATCH, CROP = 128, 224
"""Samples of a batch: the smallest of the five published systems. Pixels."""
ORDER = (True, False, False, True)
"""Whether a pass of a round is the engine's."""
SELDOM = 8
"""Every so many rounds have decoded passes."""
JOB = "overhead"


def program(home: Path, name: str, *words: str, start: Path | None = None) -> dict[str, Any]:
    """Answer of a program in ``home``; with ``start`` it is told to begin when it is ready."""
    command = [sys.executable, "-I", home / name, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if start is not None:
            while process.poll() is None and not start.with_name(f"{start.name}.{JOB}").exists():
                time.sleep(0.02)
            start.with_name("told").write_text(f"{time.time() + LEAD_S:.3f}")
            start.with_name("told").rename(start)
        out, complaint = process.communicate()
    answer: dict[str, Any] = json.loads(out) if out else {"error": complaint.decode()[-500:]}
    if error := answer.get("error"):
        raise SystemExit(f"{name}: {error}")
    return answer


def make(home: Path, folder: Path, samples: int, copies: int) -> list[Path]:
    """The data set's files."""
    spec = {
        "folder": str(folder), "format": "files", "samples": samples, "copies": copies, "per_shard": 16,
        "mean_bytes": 115154, "large": False, "seed": 1,
    }  # fmt: skip
    for action, *more in (("state",), ("distinct", "0", "1", "0"), ("copies", "0", "1", "0"), ("seal",)):
        program(home, "dataset_node.py", action, json.dumps(spec), *more)
    return sorted(folder.glob("shard-*/*.jpg"))


def drop(files: list[Path]) -> None:
    """Take the files out of the page cache."""
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def engine(home: Path, folder: Path, workers: int, data: str) -> tuple[float, float]:
    """Wall and processor seconds of one pass."""
    start = Path(tempfile.mkdtemp(dir=home)) / "start"
    config = {
        "job": JOB, "folders": [str(folder)], "mountpoints": [], "data": data, "node": 0, "nodes": 1,
        "accelerators": 1, "workers": workers, "slots": 4, "batch": BATCH, "step_s": 1e-6, "crop": CROP,
        "warmup_s": 0, "seconds": 0, "preload": 0, "seed": 1, "arrivals": 0,
        "local": False, "start_file": str(start), "start_limit_s": 60,
    }  # fmt: skip
    answer = program(home, "ingest_node.py", json.dumps(config), start=start)
    return answer["seconds"], answer["pipeline"]["cpu_s"]


def _loop(files: list[Path], decode: bool, start: Any, results: Any) -> None:
    sys.path.insert(0, str(BENCH / "ingest"))
    from samples_node import pixels

    source = random.Random(1)  # noqa: S311
    batch = np.zeros((BATCH, CROP, CROP, 3), np.uint8)
    start.wait()
    began, cpu_s = time.monotonic(), time.process_time()
    for number, file in enumerate(files):
        descriptor = os.open(file, os.O_RDONLY)
        parts = []
        while part := os.read(descriptor, 1 << 20):
            parts.append(part)
        os.close(descriptor)
        if decode:
            batch[number % BATCH] = pixels(str(file), b"".join(parts), CROP, source)
    results.put((began, time.monotonic(), time.process_time() - cpu_s))


def bare(files: list[Path], workers: int, decode: bool) -> tuple[float, float]:
    """The same for processes without anything else."""
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(workers + 1), context.SimpleQueue()
    mixed = random.sample(files, len(files))  # the engine mixes them, too
    shares = [mixed[worker::workers] for worker in range(workers)]
    processes = [context.Process(target=_loop, args=(share, decode, start, results)) for share in shares]
    for process in processes:
        process.start()
    start.wait()
    every = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return max(end for _, end, _ in every) - min(begin for begin, _, _ in every), sum(cpu for _, _, cpu in every)


def interval(ratios: list[float]) -> tuple[float, float]:
    """Around the median, of at least 95 %, whatever the distribution; from 0 to infinity for fewer than 6 rounds."""
    ordered, count = sorted(ratios), len(ratios)
    outside, cut = 0.0, 0
    while (outside := outside + 2 * math.comb(count, cut) / 2**count) <= 0.05:
        cut += 1
    return (ordered[cut - 1], ordered[-cut]) if cut else (0.0, math.inf)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--samples", type=int, default=48)
    parser.add_argument("--copies", type=int, default=192)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        home = Path(folder) / "home"
        home.mkdir()
        for source in PROGRAMS:  # side by side, as on nodes
            (home / source.name).symlink_to(source)
        copies = {"reads": options.copies, "decoded": max(1, options.copies // 6)}
        files = {name: make(home, Path(folder) / name, options.samples, count) for name, count in copies.items()}
        if any(len(every) % (options.workers * BATCH) for every in files.values()):
            parser.error(f"samples and copies have to give each worker whole batches of {BATCH}")
        rounds: dict[str, list[tuple[float, float]]] = {"reads": [], "decoded": []}
        for number in range(options.rounds):
            for name, data in (("reads", "undecoded"), ("decoded", "storage"))[: 1 if number % SELDOM else 2]:
                sums = {True: [0.0, 0.0], False: [0.0, 0.0]}
                for place in ORDER:
                    ours = place is not bool(number // SELDOM % 2)
                    drop(files[name])
                    if ours:
                        took = engine(home, Path(folder) / name, options.workers, data)
                    else:
                        took = bare(files[name], options.workers, data == "storage")
                    sums[ours] = [have + more for have, more in zip(sums[ours], took, strict=True)]
                rounds[name].append((sums[True][0] / sums[False][0], sums[True][1] / sums[False][1]))
    figures = {
        name: {
            kind: {"median": statistics.median(ratios), "interval": interval(ratios)}
            for kind, ratios in zip(("wall", "processor"), map(list, zip(*own, strict=True)), strict=True)
        }
        for name, own in rounds.items()
    }
    for name, own in figures.items():
        texts = [f"{kind} time {f['median']:.3f} ({f['interval'][0]:.3f} to {f['interval'][1]:.3f})"
                 for kind, f in own.items()]  # fmt: skip
        print(f"{name:8} engine over bare loop: {', '.join(texts)}")
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "rounds": rounds}, indent=1) + "\n")
    judged = [figures["reads"]["wall"]["interval"], figures["decoded"]["processor"]["interval"]]
    missed, reached = any(low > 1 + BAR for low, _ in judged), all(high <= 1 + BAR for _, high in judged)
    verdict = "missed" if missed else "reached" if reached else "undecided: more rounds are needed"
    print(f"bar: {BAR:.0%}: {verdict}")
    return 1 if missed else 0 if reached else 2


if __name__ == "__main__":
    raise SystemExit(main())
