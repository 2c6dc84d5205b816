"""Time of forty checks on 8, 32 and 128 hosts, compared with other tools that run the same checks.

    python benchmarks/validators.py [--hosts 8 32 128] [--repeat 3] [--others-up-to 8] [--json FILE] [--quick]

All tools run on one fleet of hosts (see fleet.py), with the same forty checks:

* floor: one ``ssh`` a host, all at the same time, with all commands of the checks as one script, whose output is not
  evaluated. No tool can be faster over ssh.
* rackproof cold and warm: a whole process, started from the shell; warm with the command list that the cold one has
  cached. ``start`` is the same process when it only collects its checks: interpreter, imports, inventory.
* testinfra ssh and paramiko: the same check files with testinfra's own backends. They run host by host, so for
  more hosts than ``--others-up-to`` their time is extrapolated and marked so.
* goss: one ``goss validate`` a host over ssh, all at the same time.

CPU and memory are the controller's; hosts and controller share this machine, whose load is printed. Bars: warm at most
3 times the floor, at most 2 times at 128 hosts, at least 30 times faster than the ssh backend, at most 300 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet import ChrootFleet, FleetError, cache_folder, chroot_fleet

HERE = Path(__file__).resolve().parent
QUESTIONS = HERE / "questions"
CHECKS = 40
BAR_FLOOR, BAR_FLOOR_128, BAR_SSH, BAR_MB = 3.0, 2.0, 30.0, 300
_ARCHITECTURE = """\
apiVersion: refarch/v1
metadata:
  {id: bench, version: 1.0.0, title: A fleet, scope: A benchmark, sources: {none: {doc: Made up, status: proposed}}}
roles: {gpu: {count: {min: 1}}}
"""


@dataclass(frozen=True)
class Figure:
    """Figures of one tool: wall time and CPU in seconds, memory of the largest process in MB."""

    hosts: int
    way: str
    wall_s: float
    cpu_s: float
    peak_mb: float
    passed: int | None
    """Number of passed checks; None where they are not counted."""
    scaled: bool = False


def timed(hosts: int, way: str, arguments: Sequence[str | Path], stdin: Path | None, env: dict[str, str]) -> Figure:
    """Run a process. Raises SystemExit when it fails."""
    with tempfile.TemporaryFile() as out, (stdin or Path(os.devnull)).open("rb") as given:
        began = time.monotonic()
        process = subprocess.Popen(list(map(str, arguments)), stdin=given, stdout=out, stderr=out, env=env, cwd=HERE)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        output = out.read().decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"{way}: exit status {process.returncode}\n{output[-2000:]}")
    passed = re.search(r"^(\d+) passed", output, re.MULTILINE)
    return Figure(
        hosts, way, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, int(passed[1]) if passed else None
    )


class Bench:
    """The commands that are timed on one fleet."""

    def __init__(self, fleet: ChrootFleet) -> None:
        self.count = len(fleet.hosts)
        self.folder = fleet.folder
        self.config = fleet.ssh_config()
        self.inventory = fleet.inventory()
        self.names = [host.name for host in fleet.hosts]
        self.architecture = self.folder / "architecture.yaml"
        self.architecture.write_text(_ARCHITECTURE)
        self.cache = self.folder / "cache"
        self.env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPYCACHEPREFIX": str(cache_folder() / "pyc"),
            "XDG_CACHE_HOME": str(self.cache),
        }

    def _pytest(self, way: str, *options: str | Path) -> Figure:
        quiet = ("-c", os.devnull, "-q", "-p", "no:cacheprovider", f"--rootdir={QUESTIONS}")
        return timed(self.count, way, [sys.executable, "-m", "pytest", *quiet, *options, QUESTIONS], None, self.env)

    def rackproof(self, way: str, *more: str) -> Figure:
        if way == "rackproof cold":
            shutil.rmtree(self.cache, ignore_errors=True)
        asked = ("--inventory", self.inventory, "--architecture", self.architecture)
        lean = ("--capture=no", "-p", "no:logging", "-p", "no:faulthandler")  # as ``rackproof validate`` runs it
        return self._pytest(way, "-p", "rackproof.validation.plugin", *lean, *asked, *more)

    def testinfra(self, backend: str) -> Figure:
        hosts = ",".join(f"{backend}://{name}" for name in self.names)
        return self._pytest(
            f"testinfra {backend}", "-p", "testinfra.plugin", f"--hosts={hosts}", f"--ssh-config={self.config}"
        )

    def everywhere(self, way: str, command: str, stdin: Path) -> Figure:
        """One ssh a host, all at once."""
        ssh = f"ssh -F {shlex.quote(str(self.config))}"
        lines = [
            f'{ssh} {name} {shlex.quote(command)} <{shlex.quote(str(stdin))} >{name}.out 2>&1 & pids="$pids $!"'
            for name in self.names
        ]
        script = self.folder / "everywhere.sh"
        end = 'for p in $pids; do wait "$p" || exit 1; done'
        script.write_text("\n".join([f"cd {shlex.quote(str(self.folder))}", *lines, end, ""]))
        return timed(self.count, way, ["sh", script], None, self.env)

    def floor(self) -> Figure:
        (kept,) = (self.cache / "rackproof" / "commands").glob("*.json")
        (commands,) = json.loads(kept.read_text())["kinds"].values()
        script = self.folder / "questions.sh"
        script.write_text("\n".join(["export LC_ALL=C", *(f"({c}) </dev/null" for c in commands), "exit 0", ""]))
        return self.everywhere("floor", "sh -s", script)

    def goss(self) -> Figure:
        return self.everywhere("goss", "goss -g - validate --format silent", QUESTIONS / "goss.yaml")


def median(figures: Sequence[Figure]) -> Figure:
    """The run with the median wall time, with the largest memory of all runs."""
    ordered = sorted(figures, key=lambda figure: figure.wall_s)
    middle = ordered[(len(ordered) - 1) // 2]
    return Figure(
        middle.hosts, middle.way, statistics.median(f.wall_s for f in figures),
        statistics.median(f.cpu_s for f in figures), max(f.peak_mb for f in figures), middle.passed,
    )  # fmt: skip


def measure(count: int, repeat: int, others: dict[str, Figure], others_up_to: int) -> list[Figure]:
    """All figures of one fleet size. ``others`` has testinfra's figures of the largest fleet measured so far."""
    with chroot_fleet(count) as fleet:
        bench = Bench(fleet)
        start = median([bench.rackproof("start", "--collect-only") for _ in range(2)])  # the first one compiles
        cold = bench.rackproof("rackproof cold")
        floors, warms = [], []
        for _ in range(repeat):
            floors.append(bench.floor())
            warms.append(bench.rackproof("rackproof warm"))
        figures = [median(floors), median(warms), cold, start, bench.goss()]
        if count <= others_up_to:
            for backend in ("ssh", "paramiko"):
                others[backend] = bench.testinfra(backend)
    for way in ("rackproof cold", "rackproof warm"):
        passed = next(figure.passed for figure in figures if figure.way == way)
        if passed != count * CHECKS:
            raise SystemExit(f"{way}: {passed} of {count * CHECKS} checks passed on {count} hosts")
    for figure in others.values():
        share = count / figure.hosts
        figures.append(
            Figure(count, figure.way, figure.wall_s * share, figure.cpu_s * share, figure.peak_mb,
                   figure.passed and round(figure.passed * share), count != figure.hosts)
        )  # fmt: skip
    return figures


def bars(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """Bars and actual values by fleet size."""
    bars = []
    for count in sorted({figure.hosts for figure in figures}):
        of = {figure.way: figure for figure in figures if figure.hosts == count}
        warm, floor = of["rackproof warm"], of["floor"]
        limit = BAR_FLOOR_128 if count >= 128 else BAR_FLOOR
        ratio = warm.wall_s / floor.wall_s
        bars.append({"bar": f"{count} hosts: warm over floor", "limit": limit, "actual": ratio, "ok": ratio <= limit})
        if "testinfra ssh" in of:
            faster = of["testinfra ssh"].wall_s / warm.wall_s
            scaled = " (scaled)" if of["testinfra ssh"].scaled else ""
            bars.append({"bar": f"{count} hosts: ssh backend over warm{scaled}", "limit": BAR_SSH, "actual": faster,
                          "ok": faster >= BAR_SSH})  # fmt: skip
        bars.append({"bar": f"{count} hosts: memory, MB", "limit": BAR_MB, "actual": warm.peak_mb,
                      "ok": warm.peak_mb <= BAR_MB})  # fmt: skip
    return bars


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks on a fleet, against other ways of asking the same.")
    parser.add_argument("--hosts", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--repeat", type=int, default=3, help="runs of floor and of warm; the median counts")
    parser.add_argument(
        "--others-up-to", type=int, default=8, metavar="HOSTS", help="run testinfra's backends up to so many hosts"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="8 hosts, once, without testinfra's own backends")
    options = parser.parse_args()
    if options.quick:
        options.hosts, options.repeat, options.others_up_to = [8], 1, 0
    load = [os.getloadavg()[0]]
    figures: list[Figure] = []
    others: dict[str, Figure] = {}
    try:
        for count in sorted(options.hosts):
            figures += measure(count, options.repeat, others, options.others_up_to)
            show([figure for figure in figures if figure.hosts == count])
    except FleetError as error:
        print(f"validators: {error}", file=sys.stderr)
        return 3
    load.append(os.getloadavg()[0])
    judged = bars(figures)
    print()
    for bar in judged:
        print(f"{'ok    ' if bar['ok'] else 'MISSED'} {bar['bar']:42} {bar['actual']:8.2f}  (bar {bar['limit']:g})")
    print(f"load of this machine: {load[0]:.1f} before, {load[1]:.1f} after, {os.cpu_count()} cores")
    if options.json:
        document = {
            "cores": os.cpu_count(),
            "load": load,
            "checks": CHECKS,
            "figures": [asdict(f) for f in figures],
            "bars": judged,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(bar["ok"] for bar in judged) else 1


def show(figures: Sequence[Figure]) -> None:
    floor = next(figure for figure in figures if figure.way == "floor").wall_s
    print(f"\n{figures[0].hosts} hosts, {CHECKS} checks   {'wall s':>9} {'CPU s':>8} {'MB':>6} {'x floor':>8}")
    for figure in figures:
        note = "  scaled" if figure.scaled else ""
        print(
            f"  {figure.way:22} {figure.wall_s:9.2f} {figure.cpu_s:8.2f} {figure.peak_mb:6.0f}"
            f" {figure.wall_s / floor:8.1f}{note}", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
