"""Memory and time of hostile files, a full disk at every write, and servers that speak no ssh: real processes."""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fuzz import inputs, servers
from tests.fuzz.conftest import Finished
from tests.fuzz.test_inputs import CONTROL
from tests.fuzz.test_signals import LIVE

pytestmark = pytest.mark.few(2)

MEMORY_KIB = 500 * 1024
CPU_S = 30
"""Limit of processor time: the host may be busy."""
MIB = 1024 * 1024
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


_MEASURE = """
import os, sys
_, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, *sys.argv[1:]]), 0)
with open(".usage", "w") as file:
    print(os.waitstatus_to_exitcode(status), usage.ru_maxrss, usage.ru_utime + usage.ru_stime, file=file)
"""
"""A small parent: the kernel counts the memory of the forking process among the highest of its child."""


class Used(NamedTuple):
    status: int
    out: str
    err: str
    memory_kib: int
    cpu_s: float


def run(folder: Path, arguments: tuple[str, ...], file_limit: int | None = None) -> Used:
    command = ["-m", "rackproof", *arguments]
    if file_limit is not None:
        limit = file_limit, file_limit
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, capture_output=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )  # fmt: skip
        return Used(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), 0, 0.0)
    with (folder / ".out").open("wb") as out, (folder / ".err").open("wb") as err:
        subprocess.run([sys.executable, "-I", "-c", _MEASURE, *command], cwd=folder, stdout=out, stderr=err, check=True)
    status, memory_kib, cpu_s = (folder / ".usage").read_text().split()
    texts = [(folder / name).read_bytes().decode(errors="replace") for name in (".out", ".err")]
    return Used(int(status), *texts, int(memory_kib), float(cpu_s))


def check(used: Used, words: str = "") -> None:
    assert "Traceback" not in used.out + used.err
    assert "internal error" not in used.err
    assert not CONTROL.search(COLOURS.sub("", used.out + used.err))
    assert len([line for line in used.err.splitlines() if line.startswith("rackproof: ")]) <= 1
    assert words in used.err
    assert used.memory_kib <= MEMORY_KIB
    assert used.cpu_s <= CPU_S


def bomb(folder: Path) -> None:
    with gzip.open(folder / "recordings/gpu-01.json.gz", "wb", compresslevel=1) as file:
        for _ in range(2000):
            file.write(bytes(MIB))


def zero(folder: Path) -> None:
    (folder / "recordings/gpu-01.json").symlink_to("/dev/zero")


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "recordings/gpu-01.json")


def values(folder: Path) -> None:
    (folder / "recordings/gpu-01.json").write_text("[" + "[],[" * 30_000_000 + "]")


def text(folder: Path) -> None:
    (folder / "recordings/gpu-01.json").write_text(json.dumps("x" * 120 * MIB))


def raw_zero(folder: Path) -> None:
    for path in (folder / "run/raw").iterdir():
        path.unlink()
        path.symlink_to("/dev/zero")


def evidence(folder: Path) -> None:
    os.truncate(folder / "run/evidence.jsonl", 10**11)


def python(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "rack.py").write_text(text) and None


CSV = "import csv; from rackproof.inventories import from_csv\ngpu = from_csv('rack.csv')['gpu']\n"


def columns(folder: Path) -> None:
    (folder / "rack.csv").write_text("name,role," + ",".join(f"c{k}" for k in range(200_000)) + "\n")
    (folder / "rack.py").write_text(CSV)


def yaml_bomb(folder: Path) -> None:
    (folder / "a.yaml").write_bytes(inputs.Damaged("a", "yaml-bomb", 0).bytes(b""))


def sparse(folder: Path) -> None:
    (folder / "a.yaml").touch()
    os.truncate(folder / "a.yaml", 10**11)


FROM = ("validate", "--from", "recordings")
MIRROR = ("mirror", "list", "rack.py")
HOSTILE: dict[str, tuple[Callable[[Path], object], tuple[str, ...], str]] = {
    "bomb": (bomb, FROM, "larger than 128 MiB"),
    "zero": (zero, FROM, "it is no regular file"),
    "fifo": (fifo, FROM, "it is no regular file"),
    "values": (values, FROM, "more than 4000000 values"),
    "text": (text, FROM, "not a recording"),
    "diff": (bomb, ("diff", "recordings", "recordings"), "larger than 128 MiB"),
    "raw": (raw_zero, ("judge", "run"), "it is no regular file"),
    "evidence": (evidence, ("judge", "run"), ""),
    "nodes": (
        python("from rackproof.inventories import nodes\ngpu = nodes('gpu[1-50000000]')\n"), MIRROR, "more than 100000",
    ),
    "expression": (
        python("from rackproof.inventories import from_netbox as f\ngpu = f('x', interfaces='y', rails='(a+)+$')\n"),
        MIRROR, "repeats a part",
    ),
    "columns": (columns, MIRROR, "200002 columns"),
    "yaml": (yaml_bomb, ("arch", "check", "a.yaml"), "aliases expand to too much"),
    "architecture": (sparse, ("arch", "check", "a.yaml"), "larger than 16 MiB"),
    "versions": (sparse, ("versions", "check", "a.yaml"), "larger than 16 MiB"),
    "rack": (sparse, ("validate", "--local", "--rack", "a.yaml"), "larger than 16 MiB"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("zero", "nodes") else pytest.mark.slow) for name in HOSTILE]
)
def test_a_hostile_file_costs_little(name: str, tmp_path: Path, finished: Finished) -> None:
    make, arguments, words = HOSTILE[name]
    (tmp_path / "recordings").mkdir()
    inputs.copied(finished.folder, tmp_path / "run")
    make(tmp_path)
    used = run(tmp_path, arguments)
    check(used, words)
    assert used.status == (2 if name == "evidence" else 3)


INVENTORIES = (
    {"ssh_port": "22; id"}, {"ssh_port": 10**30}, {"ssh_port": -1}, {"ssh_port": 2.5}, {"ssh_port": [22]},
    {"ssh_hostname": "a b"}, {"ssh_hostname": "\x1b]0;x\x07"}, {"ssh_hostname": {"a": 1}}, {"ssh_user": "x\ny"},
    {"ssh_user": 7}, {"ssh_key": ["a"]}, {"ssh_known_hosts_file": 5}, {"_sudo": "yes"}, {"_sudo_user": 0},
    {"fabric_addresses": "10.0.0.1/24"}, {"fabric_addresses": ["10.0.0.1/64"]}, {"fabric_addresses": [None]},
    {"fabric_macs": 5}, {"virtual": "no"}, {"simulated_gpus": 2}, {"architecture": 7}, {"architecture": ""},
    {"fabric_second_addresses": ["fe80::1%$(id)/64"]}, {"containers": "x"}, {"nic": 3}, {"management_address": "1; id"},
    {"ssh_key": "/dev/zero"}, {"ssh_known_hosts_file": "/dev/zero"}, {"ssh_config_file": "/dev/zero"},
)  # fmt: skip
TEXTS = (
    "", "gpu = 5", "gpu = ['x' * 5000]", "gpu = ['../../x']", "gpu = ['a\\nrackproof: CERTIFIED']",
    "gpu = ['\\x1b[2K']",
    "gpu = [('a', 5)]", "gpu = [None]", "gpu = ['a', 'a']", "raise SystemExit(0)", "raise KeyboardInterrupt",
    "raise MemoryError", "raise OSError(28, 'No space left on device', 'x\\x1b]0;y\\x07')", "import nothing_like_it",
    "raise ValueError('a\\nrackproof: CERTIFIED')", "gpu = [", "\x00", "print('{\"nodes\": []}')",
    "import os; os._exit(0)",
    "import os; os.kill(os.getpid(), 9)", "import sys; sys.setrecursionlimit(50); f = lambda: f(); f()",
    "gpu = [('a', {'x': object(), 'ssh_port': object()})]",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param(text, key, id=str(index), marks=() if index == 0 else pytest.mark.slow)
        for index, (text, key) in enumerate(
            [*((f"gpu = [('gpu-01', {data!r})]", next(iter(data))) for data in INVENTORIES), *((t, "") for t in TEXTS)]
        )
    ],
)
def test_a_wrong_inventory_is_one_line_with_the_key(text: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "rack.py").write_text(f"{text}\n")
    used = run(tmp_path, ("validate", "rack.py"))
    check(used, "rack.py")
    assert key in used.err
    assert used.status == 3
    assert len(used.err.splitlines()) == 1


WRITES: dict[str, tuple[str, ...]] = {
    "judge": ("judge", "run"),
    "junit": ("validate", "--from", inputs.RECORDINGS, "-k", "base.kernel", "--junit", "out.xml"),
    "html": ("size", "hpe-apollo6500-weka", "-w", "resnet50", "--html", "out.html"),
    "evidence": ("validate", "rack.py", "--output", "out"),
    "deploy": ("deploy", "rack.py", "--output", "out"),
    "record": ("record", "all", "-o", "out", "--inventory", "rack.py"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "html" else pytest.mark.slow) for name in WRITES]
)
def test_a_full_disk_is_status_3_and_one_line_with_the_path(name: str, tmp_path: Path, finished: Finished) -> None:
    """RLIMIT_FSIZE: a file has room for 300 bytes."""
    inputs.copied(finished.folder, tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with servers.server(servers.closed) as (port, _):
        servers.inventory(tmp_path, port)
        used = run(tmp_path, WRITES[name], file_limit=300)
    check(used)
    if name == "record":  # no node answered, so there is nothing to write
        assert used.status == 2
        return
    assert used.status == 3, used
    assert re.search(r"^rackproof: (out|run)\S*: .*File too large", used.err, re.MULTILINE), used.err
    assert {path: path.read_bytes() for path in before} == before
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("verb", "behaviour"),
    [
        pytest.param(verb, behaviour, id=f"{verb}-{behaviour.__name__}", marks=() if first else pytest.mark.slow)
        for behaviour in (servers.http, servers.nonsense, servers.closed, servers.silent)
        for verb in LIVE
        for first in [verb == "record" and behaviour is servers.nonsense]
    ],
)
def test_a_server_that_speaks_no_ssh_is_a_node_that_is_not_reached(
    verb: str, behaviour: servers.Behaviour, tmp_path: Path
) -> None:
    with servers.server(behaviour) as (port, _):
        servers.inventory(tmp_path, port)
        used = run(tmp_path, tuple(word for word in LIVE[verb] if word != "--quiet"))
    check(used)
    assert used.status in (1, 2)  # a gap, and in a validation a role without nodes
    assert "CERTIFIED" not in used.out.replace("NOT CERTIFIED", "")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["validate", "record", "bench", "versions", "plan", "preflight", "deploy"])
def test_a_node_whose_commands_print_errors_without_end_is_given_up(verb: str, tmp_path: Path) -> None:
    with servers.server(servers.flooding) as (port, _):
        servers.inventory(tmp_path, port)
        used = run(tmp_path, LIVE[verb])
    check(used)
    assert used.status in (1, 2, 3)
    assert "CERTIFIED" not in used.out.replace("NOT CERTIFIED", "")
