"""The engines ``torch`` (gloo) and ``mpi`` side by side: processes of this machine, equal sizes, one after the other.

    python benchmarks/collectives.py [--python PYTHON] [--mpirun MPIRUN] [--ranks 4] [--rounds 3] [--ops all_reduce …]

PYTHON needs torch, mpi4py and numpy; MPIRUN is Open MPI's. Each figure is the median over rounds of the bus bandwidth
at a size; an engine that gives a wrong element ends the comparison.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

from rackproof.bench.collectives.command import sizes
from rackproof.bench.collectives.engines import ENGINES
from rackproof.parse.mpi_collectives import MpiCollectives, parse_mpi_collectives

LOW, HIGH, FACTOR, ITERATIONS, WARMUP = 1024, 4 << 20, 64, 10, 2
LIMIT_S = 300


def run(command: list[str], folder: str) -> MpiCollectives:
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{command[0]}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return parse_mpi_collectives(done.stdout)


def commands(python: str, mpirun: str, ranks: int, op: str) -> dict[str, list[str]]:
    """By engine."""
    numbers = [op, *map(str, (LOW, HIGH, FACTOR, ITERATIONS, WARMUP))]
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rackproof", "bench", "collectives")
    own = {name: os.path.join(folder, ENGINES[name].source) for name in ("mpi", "torch")}
    local = [mpirun, "-n", str(ranks), "--oversubscribe", "--bind-to", "none", "--mca", "btl", "tcp,self"]
    return {
        "mpi": [*local, "--mca", "pml", "ob1", python, "-I", own["mpi"], *numbers],
        "torch": [python, "-I", own["torch"], *numbers, "gloo", "127.0.0.1:29555", "here", str(ranks), "0"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ops", nargs="+", default=["all_reduce", "all_gather", "reduce_scatter", "alltoall"])
    options = parser.parse_args()
    print(
        f"{options.ranks} processes, {ITERATIONS} iterations, median of {options.rounds} rounds, bus bandwidth in MB/s"
    )
    print(f"{'operation':15} {'bytes':>9} {'mpi':>10} {'torch':>10} {'torch/mpi':>10}")
    for op in options.ops:
        lines = commands(options.python, options.mpirun, options.ranks, op)
        figures: dict[tuple[str, int], list[float]] = {}
        for _ in range(options.rounds):
            for engine, command in lines.items():
                for point in run(command, os.path.dirname(options.mpirun)).points:
                    if point.wrong:
                        sys.exit(f"{engine}: {op} of {point.bytes} B: {point.wrong} wrong elements")
                    figures.setdefault((engine, point.bytes), []).append(point.busbw_gb_per_s * 1e3)
        for size in sizes(LOW, HIGH, FACTOR):
            mpi, torch = (statistics.median(figures[engine, size]) for engine in ("mpi", "torch"))
            print(f"{op:15} {size:9} {mpi:10.2f} {torch:10.2f} {torch / mpi:10.2f}", flush=True)


if __name__ == "__main__":
    main()
