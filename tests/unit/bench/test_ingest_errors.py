"""Faults while data sets are made and read: an error by name, never a number. File systems are real ones."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackproof.parse import ParseError
from tests.unit.bench import node_programs
from tests.unit.bench.test_ingest import answers, value
from tests.unit.bench.test_ingest_node import SPEC, dataset, ran
from tests.unit.fakes import virtual_rack
from tests.unit.own_root import in_own_root
from tests.unit.storage_nodes import StorageNodes

pytestmark = pytest.mark.few(3)


def command(program: str, *words: str) -> str:
    return shlex.join([sys.executable, "-I", str(node_programs.BENCH / program), *words])


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        ("mount -o remount,ro /mnt/set", "Read-only file system"),
        ("dd if=/dev/zero of=/mnt/set/ballast bs=1k 2>/dev/null", "No space left on device"),
    ],
)
def test_a_file_system_that_turns_is_named_and_leaves_no_part(tmp_path: Path, turns: str, why: str) -> None:
    made = {**SPEC, "folder": "/mnt/set/photos"}
    tree = {"seed": "1", "files": 9, "max_bytes": 9000, "way": {"by": "mount", "folder": "/mnt/set/tree"}}
    script = f"""
mkdir /mnt/set && mount -t tmpfs -o size=300k tmpfs /mnt/set && mkdir /mnt/set/tree
{command("dataset_node.py", "state", json.dumps(made))}
{turns}
{command("dataset_node.py", "distinct", json.dumps(made), "0", "1", "1")}
{command("tree_node.py", "write", json.dumps(tree))}
find /mnt/set -name '*.part' -o -name index.json
"""
    done = in_own_root(script, tmp_path)
    state, distinct, write, *parts = done.stdout.splitlines()
    assert "error" not in json.loads(state), done.stderr
    for line in (distinct, write):
        answer = json.loads(line)
        assert why in answer["error"]
        assert not {"done", "files", "bytes"} & set(answer)
    assert parts == []


@pytest.mark.parametrize("form", ["tfrecord", "tar", "tfrecord-gz"])
def test_a_shard_that_was_cut_before_it_was_indexed_is_named(tmp_path: Path, form: str) -> None:
    folder = dataset(tmp_path / form, form)
    index = json.loads((folder / "index.json").read_text())
    for entry in index["shards"]:
        path = folder / entry["name"]
        path.write_bytes(path.read_bytes()[: -entry["bytes"] // 3])
        entry |= {"bytes": path.stat().st_size, "newest_ns": path.stat().st_mtime_ns}
    (folder / "index.json").write_text(json.dumps(index))
    answer = ran(folder)
    assert set(answer) == {"rackproof_ingest", "job", "error"}
    assert "rackproof.00000" in answer["error"]
    assert any(word in answer["error"] for word in ("truncated", "cut off", "end-of-stream", "unexpected end"))


def test_one_corrupt_jpeg_among_whole_ones_is_named(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "files", "files")
    path = sorted(folder.glob("shard-*/*.jpg"))[5]
    whole, status = path.read_bytes(), path.stat()
    path.write_bytes(whole[:200] + bytes(len(whole) - 200))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    answer = ran(folder, seconds=0)
    assert set(answer) == {"rackproof_ingest", "job", "error"}
    assert path.name in answer["error"]
    assert "not a JPEG that can be decoded" in answer["error"]


def test_a_mount_that_turns_read_only_during_a_run_gives_no_number() -> None:
    def read_only(text: str) -> str:
        return text.replace(" rw - nfs4", " ro - nfs4")

    nodes = StorageNodes(virtual_rack(), mountinfo_after=read_only)
    with pytest.raises(ParseError, match=r"after the run: .*ro"):
        value("ingest.samples_rate", answers(nodes=nodes))


@pytest.mark.parametrize(("wall_s", "why"), [(12.0, r"its clock went \+2\.00 s wrong"), (8.0, r"went -2\.00 s wrong")])
def test_a_clock_that_is_set_during_a_run_gives_no_number(
    monkeypatch: pytest.MonkeyPatch, wall_s: float, why: str
) -> None:
    monkeypatch.syspath_prepend(str(node_programs.BENCH))
    import ingest_node  # type: ignore[import-not-found]

    answer: Callable[[Any], Any] = ingest_node.Pipeline.answer
    with pytest.raises(ingest_node.Fault, match=why):
        answer(SimpleNamespace(began=(1000.0, 5.0), ended=(1000.0 + wall_s, 15.0)))


def test_only_what_is_hardware_counts_the_bytes_of_the_ports(tmp_path: Path) -> None:
    """Each byte of a port is also one of the bond and of the bridge above it."""
    asked = "import ingest_node as n; print(n.counters({'local': False, 'mountpoints': []})[2:])"
    program = shlex.join([sys.executable, "-c", asked])
    script = f"""
mount -t tmpfs tmpfs /sys/class
export PYTHONPATH={shlex.quote(str(node_programs.BENCH))}
{program}
for port in eth0:7 eth1:5 bond0:12 lo:9; do
    mkdir -p /sys/class/net/${{port%:*}}/statistics; echo ${{port#*:}} >/sys/class/net/${{port%:*}}/statistics/rx_bytes
done
mkdir /sys/class/net/eth0/device /sys/class/net/eth1/device
for device in mlx5_0 rxe0; do mkdir -p /sys/class/infiniband/$device/ports/1/counters; done
echo 'N/A (no PMA)' >/sys/class/infiniband/rxe0/ports/1/counters/port_rcv_data
{program}
echo 25 >/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data
{program}
"""
    done = in_own_root(script, tmp_path)
    assert done.stdout.splitlines() == ["[None, None, None]", "[12, None, None]", "[12, 100, None]"], done.stderr
