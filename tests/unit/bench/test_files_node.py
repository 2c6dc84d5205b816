"""The program that makes and reads small files, on this machine's file system."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rackproof.bench.storage.commands import DROP, drop_and_state
from rackproof.core.architecture import Storage
from rackproof.parse.client_state import Tree, parse_client_state
from tests.unit.bench import node_programs

PROGRAM = node_programs.BENCH / "files_node.py"


def config(folder: Path, action: str, **changes: Any) -> dict[str, Any]:
    return {
        "job": action, "action": action, "folders": [f"{folder}/a/tree", f"{folder}/b/tree"], "files": 130,
        "file_bytes": 1000, "shards": False, "processes": 3, **changes,
    }  # fmt: skip


@pytest.fixture
def node() -> Iterator[ModuleType]:
    """The program as a module; each process is called in turn."""
    spec = importlib.util.spec_from_file_location("files_node", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before = signal.getsignal(signal.SIGTERM)
    yield module
    signal.signal(signal.SIGTERM, before)


class Sent(list[Any]):
    send = list.append


def use(node: ModuleType, folder: Path, action: str, **changes: Any) -> list[Any]:
    """Messages of all processes."""
    own, sent = config(folder, action, **changes), Sent()
    if action in ("prepare", "clear"):
        node.clear(own)
    else:
        for process in range(own["processes"]):
            node.work(own, process, time.monotonic(), sent)
    return sent


@pytest.mark.parametrize("shards", [False, True])
def test_every_file_is_used_once_by_its_process(tmp_path: Path, node: ModuleType, shards: bool) -> None:
    use(node, tmp_path, "prepare", shards=shards)
    for action in ("create", "stat", "read", "remove"):
        rows = use(node, tmp_path, action, shards=shards)
        moved = 130_000 if action in ("create", "read") else 0
        assert [row[:2] for row in rows] == [[1 if shards else 130, moved]] * 3
        assert all(0 <= row[2] < row[3] < 60 for row in rows)
        files = [path.stat().st_size for path in tmp_path.rglob("rackproof.*")]
        gone = action == "remove"
        assert files == ([] if gone else [130_000] * 3 if shards else [1000] * 390)
    use(node, tmp_path, "clear")
    assert list(tmp_path.glob("*/tree")) == []


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def exchange(path: Path) -> None:
    path.write_bytes(path.with_name("rackproof.8").read_bytes())


@pytest.mark.parametrize(
    ("harm", "action", "why"),
    [
        (shorten, "read", "rackproof.7: expected 1000 B, actual 999 B"),
        (shorten, "stat", "rackproof.7: expected 1000 B, actual 999 B"),
        (exchange, "read", "rackproof.7: it begins with other bytes than were written"),
        (Path.unlink, "read", "rackproof.7: No such file or directory"),
        (Path.unlink, "stat", "rackproof.7: No such file or directory"),
        (Path.unlink, "remove", "rackproof.7: No such file or directory"),
        (lambda path: None, "create", "File exists"),
    ],
)
def test_another_tree_than_was_created_is_an_error(
    tmp_path: Path, node: ModuleType, harm: Any, action: str, why: str
) -> None:
    use(node, tmp_path, "prepare")
    use(node, tmp_path, "create")
    harm(tmp_path / "a" / "tree" / "0" / "0" / "rackproof.7")
    assert why in use(node, tmp_path, action)[0]


def test_the_program_prints_one_document(tmp_path: Path) -> None:
    for lead_s in node_programs.LEADS_S:
        assert "processes" not in node_programs.document(PROGRAM.name, json.dumps(config(tmp_path, "prepare")))
        with node_programs.starting(["create"], lead_s) as keys:
            asked = config(tmp_path, "create") | keys
            answer = node_programs.document(PROGRAM.name, json.dumps(asked))
            told = float(Path(keys["start_file"]).read_text())
        if node_programs.LATE not in answer.get("error", ""):
            break
    assert {key: answer[key] for key in ("job", "folders", "start_file")}.items() <= asked.items()
    assert answer["start_at"] == told
    assert [row[0] for row in answer["processes"]] == [130] * 3


def test_without_a_common_start_no_file_is_touched(tmp_path: Path) -> None:
    node_programs.document(PROGRAM.name, json.dumps(config(tmp_path, "prepare")))
    start = tmp_path / "start"
    for told, why in ((f"{time.time() - 2:.3f}", "it was told of the common start"), ("not started: x", "not started")):
        start.write_text(told)
        keys = {"start_file": str(start), "start_limit_s": 1}
        answer = node_programs.document(PROGRAM.name, json.dumps(config(tmp_path, "create") | keys))
        assert why in answer["error"]
        assert (tmp_path / "start.create").read_text() == answer["error"]
    assert not [path for path in tmp_path.rglob("rackproof.*") if path.is_file()]


def test_a_tree_is_counted_by_the_shell_and_not_listed(tmp_path: Path, node: ModuleType) -> None:
    use(node, tmp_path, "prepare")
    use(node, tmp_path, "create")
    storage = Storage.model_validate(
        {"class": "nfs", "mountpoint": "/proc", "fstype": "nfs4", "source": "/srv", "server_role": "storage"}
    )
    command = drop_and_state(storage, [f"{tmp_path}/a/tree", f"{tmp_path}/b/tree"], [], tree=True)
    assert command.count(DROP) == 2
    assert command.endswith(f"echo -- end && {{ {DROP}; }}")
    text = subprocess.run(
        ["sh", "-c", command.replace(DROP, "true")], capture_output=True, check=True, timeout=60
    ).stdout.decode()
    mounts = "-- mountinfo\n1 0 254:1 / / rw - ext4 /dev/vda1 rw\n"
    state = parse_client_state(text[: text.index("-- mountinfo")] + mounts + text[text.index("-- tree") :])
    assert state.tree == Tree(390, 390_000)
    assert state.cached_bytes is None or state.cached_bytes >= 0
    assert state.files == ()
