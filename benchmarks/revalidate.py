"""Time and memory of validating the stored recordings of a rack of 1,000 nodes.

    python benchmarks/revalidate.py [--nodes 1000] [--from DIR] [--architecture ID] [--json FILE] [--profile]

The recordings are copies of one from a virtual rack, under other names; every check of the kit runs on each of them.
Bar: 60 s for 1,000 on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rackproof.core.rack import Node
from rackproof.evidence.recordings import read_recordings
from rackproof.remote.recording import Recording
from rackproof.remote.recording_folder import write_recordings

ROOT = Path(__file__).resolve().parent.parent
RECORDINGS = ROOT / "tests" / "data" / "recordings" / "virtual-rack"
BAR_S, BAR_NODES = 60.0, 1000


def copies(source: Path, name: str, count: int, folder: Path) -> None:
    """``count`` copies of the recording of ``name``, each for its own node, with the name replaced in the output."""
    original = next(recording for recording in read_recordings(source) if recording.node.name == name)

    def copy(number: int) -> Recording:
        new = f"copy-{number:04d}"

        def renamed(data: bytes) -> bytes:
            return data.replace(name.encode(), new.encode())

        results = [
            replace(result, node=new, stdout=renamed(result.stdout), stderr=renamed(result.stderr))
            for result in original.results.values()
        ]
        node = Node(new, original.node.groups, original.node.data)
        return Recording(node, {result.command: result for result in results})

    write_recordings(folder, map(copy, range(count)))


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge stored recordings again.")
    parser.add_argument("--nodes", type=int, default=BAR_NODES)
    parser.add_argument("--from", dest="source", type=Path, default=RECORDINGS, metavar="DIR")
    parser.add_argument("--node", default="gpu-01", help="node whose recording is copied")
    parser.add_argument("--architecture", default="virtual-rack")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="write a cProfile there; times are longer then")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="revalidate-") as folder:
        copies(options.source, options.node, options.nodes, Path(folder))
        profiled = ["-m", "cProfile", "-o", str(options.profile)] if options.profile else []
        command = [sys.executable, *profiled, "-m", "rackproof", "validate", "--from", folder, "--json"]
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, "--architecture", options.architecture], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        with process.stdout or sys.stdin as stdout:
            output = stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 2):
        return 3
    counts = json.loads(output)["counts"]
    figures = {
        "nodes": options.nodes, "results": sum(counts.values()), "counts": counts, "wall_s": round(wall, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2), "peak_mb": round(usage.ru_maxrss / 1024),
        "cores": os.cpu_count(), "load_before": load,
    }  # fmt: skip
    print(json.dumps(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    limit = BAR_S * options.nodes / BAR_NODES
    print(f"{'ok    ' if wall <= limit else 'MISSED'} {wall:.1f} s (bar {limit:g} s for {options.nodes} recordings)")
    return 0 if wall <= limit else 1


if __name__ == "__main__":
    sys.exit(main())
