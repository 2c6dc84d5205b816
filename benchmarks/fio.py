"""The time that the kit adds to a run of fio, against the same job started by hand.

    python benchmarks/fio.py [--seconds 60] [--rounds 3] [--json FILE]

On one host of ``fleet.py``, in turn, with the same file and the same job of sequential reads:

* by hand: ``ssh HOST fio JOB``;
* run: fio in client/server mode as the storage benchmark starts it, with its output recorded;
* whole: the same with the caches dropped and the client's state read before and after.

The first run starts fio's server, which a step does once; it is not counted. Figures are medians of the rounds' wall
times. Bar: 2 % more than by hand for the whole. Needs root, as fleet.py does.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fleet import PORT, ChrootFleet, FleetError, chroot_fleet

from rackproof import architectures
from rackproof.bench.step import BenchContext
from rackproof.bench.storage.client_runs import StorageClients
from rackproof.bench.storage.commands import folders_of, own_folders
from rackproof.bench.storage.fio_clients import FioClients
from rackproof.bench.user import TIDY, BenchUsers
from rackproof.core.architecture import FioJob
from rackproof.core.fiojob import layout_of, render
from rackproof.core.rack import Node, Rack
from rackproof.evidence.session import Session
from rackproof.evidence.store import EvidenceStore
from rackproof.parse.fio import parse_fio
from rackproof.remote.fleet import Fleet

BAR = 0.02
ARCHITECTURE = Path(__file__).parents[1] / "architectures" / "virtual-rack.yaml"


class Timed:
    """The three ways to run a job on one host."""

    def __init__(self, fleet: ChrootFleet, folder: Path, connections: Fleet, stack: ExitStack) -> None:
        model = architectures.load(ARCHITECTURE).model
        self.ssh = ["ssh", "-F", str(fleet.ssh_config()), fleet.hosts[0].name]
        self.node = fleet.hosts[0].name
        self.storage = model.storage["local"]
        store = stack.enter_context(EvidenceStore(folder))
        self.session = Session(connections.rack, model, connections, store)
        self.context = BenchContext(self.session, lambda line: print(line, file=sys.stderr), stack)
        self.folders = folders_of(self.storage, self.node)

    def prepare(self) -> None:
        """The account, a mount point and the folders."""
        point = shlex.quote(self.storage.mountpoint)
        self.command(f"mkdir -p {point} && mount --bind {point} {point}")
        if lost := BenchUsers.of(self.context).ready([self.node]):
            raise SystemExit("; ".join(lost.values()))
        self.command(own_folders(self.storage, self.folders, BenchUsers.of(self.context)[self.node]))

    def command(self, text: str) -> None:
        answer = self.session.run_on(self.node, text, 60)
        if not answer.ok:
            raise SystemExit(f"{self.node}: {answer.why}")

    def by_hand(self, job: FioJob) -> None:
        text = render("local-read", job, ":".join(self.folders))
        subprocess.run([*self.ssh, "cat >job.fio"], input=text.encode(), check=True)
        began = time.monotonic()
        done = subprocess.run(
            [*self.ssh, "fio --output-format=json --eta=never job.fio"], capture_output=True, check=True
        )
        self.took = time.monotonic() - began
        check(done.stdout, job)

    def run(self, job: FioJob) -> None:
        began = time.monotonic()
        clients = FioClients(self.context)
        for why in clients.servers.ensure([self.node]).values():
            if why is not None:
                raise SystemExit(why)
        text = render("local-read", job, ":".join(self.folders))
        answer = clients.launch([self.node], lambda node: text, job.runtime_s + 120.0)
        self.took = time.monotonic() - began
        check(answer.stdout, job)

    def whole(self, job: FioJob) -> None:
        began = time.monotonic()
        clients = StorageClients(self.context, "local", self.storage, layout_of([job]), [self.node])
        done = clients.run([self.node], lambda _, folders: render("local-read", job, folders), job.runtime_s)
        self.took = time.monotonic() - began
        if not done:
            raise SystemExit("; ".join(clients.lost.values()))


def check(output: bytes, job: FioJob) -> None:
    """Ends where fio did not read for as long as asked."""
    (entry,) = parse_fio(output).jobs
    if entry.error or entry.read is None or entry.read.runtime_ms < 980 * job.runtime_s:
        raise SystemExit(f"fio read for less than {job.runtime_s} s, error {entry.error}")


def measure(seconds: int, rounds: int) -> dict[str, list[float]]:
    """Wall times in seconds by way."""
    job = FioJob(rw="read", block_bytes=1 << 20, iodepth=4, file_bytes=256 << 20, runtime_s=seconds)
    with chroot_fleet(1) as hosts, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data = {
            "ssh_hostname": hosts.hosts[0].address, "ssh_port": PORT, "ssh_user": "root", "ssh_key": str(hosts.key),
            "ssh_known_hosts_file": str(hosts.known_hosts),
        }  # fmt: skip
        rack = Rack("benchmark", (Node(hosts.hosts[0].name, ("gpu",), data),))
        timed = Timed(hosts, Path(folder) / "run", stack.enter_context(Fleet(rack)), stack)
        timed.prepare()
        timed.run(job.model_copy(update={"runtime_s": 1}))
        ways: dict[str, Callable[[FioJob], None]] = {"by hand": timed.by_hand, "run": timed.run, "whole": timed.whole}
        took: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            order = list(ways)[number % 3 :] + list(ways)[: number % 3]
            for name in order:
                ways[name](job)
                took[name].append(round(timed.took, 3))
                print(f"{name:>8} {timed.took:8.3f} s", file=sys.stderr)
        timed.command(TIDY)
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description="The time that the kit adds to a run of fio.")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        took = measure(options.seconds, options.rounds)
    except FleetError as error:
        print(f"fio: {error}", file=sys.stderr)
        return 3
    by_hand = statistics.median(took["by hand"])
    added = {name: statistics.median(times) / by_hand - 1 for name, times in took.items() if name != "by hand"}
    for name, share in added.items():
        print(f"{name}: {100 * share:+.2f} % of {by_hand:.2f} s by hand (bar {100 * BAR:g} %)")
    if options.json:
        options.json.write_text(json.dumps({"seconds": took, "added": added, "bar": BAR}, indent=1) + "\n")
    return 0 if added["whole"] <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
