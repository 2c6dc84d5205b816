"""Time of a converge without changes on 8 and 32 hosts, compared with ansible and plain pyinfra.

    python benchmarks/converge.py [--hosts 8 32] [--repeat 3] [--json FILE] [--quick]

The same 37 tasks (20 templates, 10 blocks in files, 5 directories, packages, a user; see ``tasks/work.py``) on one
fleet of hosts (see fleet.py), in one run:

* rackproof: the kit's operations under pyinfra's own command, ``pyinfra -y``; ``one by one`` without prefetching;
* pyinfra: an operation of pyinfra's own for every task;
* ansible: ansible-core with pipelining, as many forks as hosts, connections kept from run to run, no facts gathered.
  It is installed into the user's cache the first time.

Before the timing, all three are shown to be equivalent: pyinfra and ansible find the state complete that the kit has
made, and all three detect a file changed by hand. Round trips are commands per host over ssh. User CPU is the
controller's (for ansible without the background processes of its connections); hosts and controller share this machine.
Bar: ansible takes at least 10 times as long as the kit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fleet import ChrootFleet, FleetError, cache_folder, chroot_fleet
from tasks import work

HERE = Path(__file__).resolve().parent
ANSIBLE = "2.19.3"
BAR = 10.0


class Wrong(Exception):
    """The tools are not equivalent; one line."""


@dataclass(frozen=True)
class Figure:
    """Medians of one tool; wall time and CPU in seconds."""

    hosts: int
    way: str
    wall_s: float
    user_s: float
    round_trips: float | None
    """Commands per host; None where they are not counted."""


def ansible_folder() -> Path:
    """Folder of a virtual environment with ansible-core only."""
    folder = cache_folder() / f"ansible-core-{ANSIBLE}"
    if not (folder / "bin/ansible-playbook").exists():
        print(f"installing ansible-core {ANSIBLE} into {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin/pip"), "install", "-q", f"ansible-core=={ANSIBLE}"], check=True)
    return folder


class Bench:
    """The commands that are timed on one fleet."""

    def __init__(self, fleet: ChrootFleet) -> None:
        self.count = len(fleet.hosts)
        self.first = fleet.hosts[0].name
        self.config = fleet.ssh_config()
        self.inventory = fleet.inventory()
        self.playbook = fleet.folder / "work.json"
        self.playbook.write_text(work.playbook())
        ssh = f"-F {self.config} -o ControlMaster=auto -o ControlPersist=600s"
        names = [host.name for host in fleet.hosts]  # the ssh configuration knows the rest
        self.hosts = fleet.folder / "hosts.ini"
        self.hosts.write_text(
            "\n".join(
                ["[gpu]", *names, "[gpu:vars]", "ansible_user=root", "ansible_python_interpreter=/usr/bin/python3"]
            )
            + "\n"
        )
        self.ansible_env = {
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_FORKS": str(self.count),
            "ANSIBLE_SSH_ARGS": ssh,
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(cache_folder() / "cp"),
            "ANSIBLE_LOCAL_TEMP": str(fleet.folder / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "HOME": str(fleet.folder),
        }
        self.cache = fleet.folder / "cache"

    def command(self, way: str, *options: str) -> list[str]:
        if way == "ansible":
            return [str(ansible_folder() / "bin/ansible-playbook"), "-i", str(self.hosts), *options, str(self.playbook)]
        name = "with_pyinfra.py" if way == "pyinfra" else "with_rackproof.py"
        more = ["--data", "fact_prefetch=false"] if way.endswith("one by one") else []
        return [sys.executable, "-m", "pyinfra", *more, *options, str(self.inventory), str(HERE / "tasks" / name)]

    def run(self, way: str, *options: str) -> tuple[str, float, float]:
        """Output, wall time and user CPU. Raises Wrong when the command fails."""
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
            "PYINFRA_PROGRESS": "off",
            "PYTHONPYCACHEPREFIX": str(cache_folder() / "pyc"),
            "XDG_CACHE_HOME": str(self.cache),
        }
        if way == "ansible":
            env |= self.ansible_env
        with (self.config.parent / "said").open("w+") as output:
            began = time.monotonic()
            process = subprocess.Popen(
                self.command(way, *options), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, cwd=HERE
            )
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.monotonic() - began
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            text = output.read()
        if process.returncode:
            raise Wrong(f"{way}: exit status {process.returncode}\n{text[-3000:]}")
        return text, wall, usage.ru_utime

    def apply(self, way: str) -> int:
        """Converge. Returns the number of changed tasks over all hosts."""
        if way == "ansible":
            return _ansible_changes(self.run(way)[0], self.count)
        text, _, _ = self.run(way, "-y")
        done = len(re.findall(r"^\s*\[\S+\]\s+No changes", text, re.MULTILINE))
        changed = len(re.findall(r"^\s*\[\S+\]\s+Success", text, re.MULTILINE))
        if not done + changed:
            raise Wrong(f"{way}: no operation was run\n{text[-2000:]}")
        return changed

    def notices(self, way: str) -> int:
        """Number of tasks that would change something, from a dry run."""
        if way == "ansible":
            return _ansible_changes(self.run(way, "--check")[0], self.count)
        text, _, _ = self.run(way, "--dry", "--json")
        match = re.search(r"^\{", text, re.MULTILINE)
        if match is None:
            raise Wrong(f"{way}: no plan\n{text[-2000:]}")
        document, _ = json.JSONDecoder().raw_decode(text[match.start() :])
        plan = document["plan"]
        return sum(len(task["hosts_with_change"]) for task in plan)

    def on_first(self, command: str) -> None:
        subprocess.run(["ssh", "-F", str(self.config), self.first, command], check=True, stdin=subprocess.DEVNULL)

    def round_trips(self, way: str) -> float:
        text, _, _ = self.run(way, "-y", "--debug")
        return len(re.findall(r"Running command on gpu-\d+:", text)) / self.count


def _ansible_changes(text: str, hosts: int) -> int:
    recaps = re.findall(r"^gpu-\d+ +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", text, re.MULTILINE)
    if len(recaps) != hosts or any(int(bad) or int(failed) for _, _, bad, failed in recaps):
        raise Wrong(f"ansible did not reach every host\n{text[-2000:]}")
    return sum(int(changed) for _, changed, _, _ in recaps)


def prove_equal(bench: Bench) -> None:
    """Verify that all tools declare the same state and detect a deviation. Raises Wrong."""
    if not bench.apply("rackproof"):
        raise Wrong("rackproof: nothing had to be done on fresh hosts")
    ways = ("rackproof", "pyinfra", "ansible")
    for way in ways:
        if changed := bench.apply(way):
            raise Wrong(f"{way}: {changed} changes after the kit has converged")
    bench.on_first(f"echo x >>{work.FILES[3][0]}; sed -i s/limit/limits/ {work.BLOCKS[2][0]}")
    for way in ways:
        if (noticed := bench.notices(way)) != 2:
            raise Wrong(f"{way}: {noticed} changes planned, expected 2, after two files were changed by hand")
    if (changed := bench.apply("rackproof")) != 2:
        raise Wrong(f"rackproof: {changed} changes, expected 2")
    for way in ways:
        if changed := bench.apply(way):
            raise Wrong(f"{way}: {changed} changes after the kit has converged again")


WAYS = ("rackproof", "rackproof one by one", "pyinfra", "ansible")


def measure(count: int, repeat: int) -> list[Figure]:
    with chroot_fleet(count) as fleet:
        bench = Bench(fleet)
        prove_equal(bench)
        print(f"{count} hosts: all tools find the same state complete, and detect a change", flush=True)
        taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(repeat):
            for way in WAYS:  # in turns: the load of the machine is the same for all
                _, wall, user = bench.run(way, *([] if way == "ansible" else ["-y"]))
                taken[way].append((wall, user))
        return [
            Figure(
                count, way, statistics.median(wall for wall, _ in times), statistics.median(user for _, user in times),
                None if way == "ansible" else bench.round_trips(way),
            )
            for way, times in taken.items()
        ]  # fmt: skip


def show(figures: Sequence[Figure]) -> None:
    base = figures[0].wall_s
    head = f"\n{figures[0].hosts} hosts, {work.TASKS} tasks"
    print(f"{head:24} {'wall s':>9} {'user CPU s':>11} {'x rackproof':>12} {'round trips':>11}")
    for figure in figures:
        trips = "" if figure.round_trips is None else f"{figure.round_trips:.1f}"
        print(
            f"  {figure.way:20} {figure.wall_s:9.2f} {figure.user_s:11.2f} {figure.wall_s / base:12.1f} {trips:>11}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="A converge that changes nothing, against others.")
    parser.add_argument("--hosts", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each tool, in turns; the median counts")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="8 hosts, once")
    options = parser.parse_args()
    if options.quick:
        options.hosts, options.repeat = [8], 1
    load = [os.getloadavg()[0]]
    figures: list[Figure] = []
    try:
        for count in sorted(options.hosts):
            measured = measure(count, options.repeat)
            show(measured)
            figures += measured
    except (FleetError, Wrong) as error:
        print(f"converge: {error}", file=sys.stderr)
        return 3
    load.append(os.getloadavg()[0])
    ok = True
    print()
    for count in sorted(options.hosts):
        wall = {figure.way: figure.wall_s for figure in figures if figure.hosts == count}
        ratio = wall["ansible"] / wall["rackproof"]
        ok = ok and ratio >= BAR
        verdict = "ok    " if ratio >= BAR else "MISSED"
        print(f"{verdict} {count} hosts: ansible over rackproof {ratio:8.1f}  (bar {BAR:g})")
    print(f"load of this machine: {load[0]:.1f} before, {load[1]:.1f} after, {os.cpu_count()} cores")
    if options.json:
        document = {"cores": os.cpu_count(), "load": load, "tasks": work.TASKS, "figures": [asdict(f) for f in figures]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
