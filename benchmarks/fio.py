"""The time that the kit adds to a run of fio, against the same job started by hand.

    python benchmarks/fio.py [--seconds 60] [--rounds 6] [--json FILE]

On one host of ``fleet.py``, with the same file and the same job of sequential reads, forwards and backwards by turns:

* by hand: ``ssh HOST fio JOB`` over a connection that is open;
* fio --client: the same through fio's own server, which begins a job a second after it was sent (tried with 3.33 and
  3.39), so that several clients can begin together; without the kit;
* kit: a run of the storage benchmark, which runs fio by itself on a single client, drops caches, reads the client's
  state before and after, and records every answer.

A first run of each is not counted: it opens the connection, which a step does once, as it writes the file. The figures
are medians of the rounds' ratios to each other way, with an interval of at least 95 %. Bar: 2 % more wall time
than by hand; an interval around the bar decides nothing, and more rounds are needed. The bar is for a single client:
several begin through fio's own server, whose second is 1.7 % of a run of 60 s by itself, with the kit or without it.
Exit status: 0 reached, 1 missed, 2 undecided. Needs root, as fleet.py does.
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
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from fleet import PORT, ChrootFleet, FleetError, chroot_fleet
from ingest import interval

from rackproof import architectures
from rackproof.bench.step import BenchContext
from rackproof.bench.storage.client_runs import StorageClients
from rackproof.bench.storage.commands import folders_of, own_folders
from rackproof.bench.storage.fio_launch import launches
from rackproof.bench.user import TIDY, BenchUsers
from rackproof.core.architecture import FioJob
from rackproof.core.fiojob import layout_of, render, render_layout
from rackproof.core.rack import Node, Rack
from rackproof.evidence.session import Session
from rackproof.evidence.store import EvidenceStore
from rackproof.parse.fio import parse_fio
from rackproof.remote.fleet import Fleet

BAR = 0.02
BY_HAND, SERVER, KIT = "by hand", "fio --client", "kit"
SOCKET = "/run/fio-by-hand.sock"
ARCHITECTURE = Path(__file__).parents[1] / "architectures" / "virtual-rack.yaml"


class Timed:
    """The two ways to run a job on one host."""

    def __init__(self, fleet: ChrootFleet, folder: Path, connections: Fleet, stack: ExitStack) -> None:
        model = architectures.load(ARCHITECTURE).model
        shared = ("ControlMaster=auto", f"ControlPath={folder.parent / 'ssh'}", "ControlPersist=yes")
        options = [word for option in shared for word in ("-o", option)]
        self.ssh = ["ssh", "-F", str(fleet.ssh_config()), *options, fleet.hosts[0].name]
        stack.callback(subprocess.run, [*self.ssh[:-1], "-O", "exit", self.ssh[-1]], capture_output=True)
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

    def write(self, job: FioJob) -> None:
        """The file of all runs."""
        text = render_layout("local-layout", layout_of([job]), ":".join(self.folders))
        command = [*self.ssh, "cat >layout.fio && fio layout.fio"]
        subprocess.run(command, input=text.encode(), stdout=subprocess.DEVNULL, check=True)

    def serve(self) -> None:
        """Start fio's server without the kit; it ends with the host."""
        subprocess.run([*self.ssh, f"fio --server=sock:{SOCKET} --daemonize=/run/fio-by-hand.pid"], check=True)

    def by_hand(self, job: FioJob, client: str = "") -> float:
        """Wall time in seconds, as for the other ways."""
        text = render("local-read", job, ":".join(self.folders))
        subprocess.run([*self.ssh, "cat >job.fio"], input=text.encode(), check=True)
        began = time.monotonic()
        done = subprocess.run(
            [*self.ssh, f"fio --output-format=json --eta=never {client} job.fio"], capture_output=True, check=True
        )
        took = time.monotonic() - began
        check(done.stdout, job)
        return took

    def kit(self, job: FioJob) -> float:
        began = time.monotonic()
        clients = StorageClients(self.context, "local", self.storage, layout_of([job]), [self.node])
        done = clients.run([self.node], partial(render, "local-read", job), job.runtime_s)
        took = time.monotonic() - began
        if not done:
            raise SystemExit("; ".join(clients.lost.values()))
        (launch,) = launches(clients.own)
        check(launch.answer.stdout, job)
        return took


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
        timed.serve()
        ways = {
            BY_HAND: timed.by_hand, SERVER: partial(timed.by_hand, client=f"--client=sock:{SOCKET}"), KIT: timed.kit,
        }  # fmt: skip
        timed.write(job)
        for way in ways.values():
            way(job.model_copy(update={"runtime_s": 1}))
        took: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            for name in list(ways)[:: -1 if number % 2 else 1]:
                took[name].append(round(ways[name](job), 3))
                print(f"{name:>12} {took[name][-1]:8.3f} s", file=sys.stderr)
        timed.command(TIDY)
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description="The time that the kit adds to a run of fio.")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        took = measure(options.seconds, options.rounds)
    except FleetError as error:
        print(f"fio: {error}", file=sys.stderr)
        return 3
    figures = {}
    for base in (BY_HAND, SERVER):
        ratios = [kit / other for other, kit in zip(took[base], took[KIT], strict=True)]
        median, (low, high) = statistics.median(ratios) - 1, (bound - 1 for bound in interval(ratios))
        figures[base] = {"median": median, "low": low, "high": high}
        seconds = statistics.median(took[base])
        print(f"the kit adds {median:+.2%} ({low:+.2%} to {high:+.2%}) to {seconds:.2f} s of {base}")
    low, high = figures[BY_HAND]["low"], figures[BY_HAND]["high"]
    verdict = "missed" if low > BAR else "reached" if high <= BAR else "undecided: more rounds are needed"
    print(f"bar: {BAR:.0%} over {BY_HAND}: {verdict}")
    if options.json:
        options.json.write_text(json.dumps({"seconds": took, "figures": figures, "bar": BAR}, indent=1) + "\n")
    return 1 if low > BAR else 0 if high <= BAR else 2


if __name__ == "__main__":
    sys.exit(main())
