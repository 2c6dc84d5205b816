"""Trees of files through one protocol: every difference counts, and nothing passes that was not read."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from rackproof import architectures
from rackproof.bench.ingest import steps as ingest
from rackproof.bench.ingest import tree_node
from rackproof.bench.ingest.trees import read_tree
from rackproof.bench.profile_match import profile_mismatch
from rackproof.bench.reading import Reading
from rackproof.bench.step import BenchContext
from rackproof.core.architecture import IngestProfile, Profile, Tree
from rackproof.core.evidence import Measurement
from rackproof.core.rack import Rack
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult
from tests.unit.bench import node_programs
from tests.unit.fakes import lab_rack, reply, scripted, virtual_rack
from tests.unit.storage_nodes import StorageNodes

STORAGES = virtual_rack().storage
IN_DEPTH = architectures.load("virtual-rack-storage").model.profiles["depth"].ingest
TREE = Tree(storage="nfs-tcp", protocol="nfs", through="nfs-rdma", files=12, max_bytes=70000)
Damage = Callable[[Path], object]


def profile(tree: Tree) -> IngestProfile:
    return IngestProfile(trees={"bring": tree})


class Clients:
    """Two clients of one export, whose programs really run; ``damage`` changes the tree after it was written."""

    def __init__(
        self, folder: Path, damage: Damage = lambda tree: None, cached: tuple[str, ...] = (), tree: Tree = TREE
    ) -> None:
        self.export, self.damage, self.cached, self.tree = folder, damage, cached, tree
        self.nodes = StorageNodes(virtual_rack())
        self.spec: dict[str, Any] = {}

    def answer(self, node: str, command: str) -> CommandResult | None:
        if "/tree_node.py" not in command:
            if "uid=990" in command and "tree-" in command:  # folders.sh
                seed = command.partition("tree-")[2][:16]
                (self.export / f"rackproof-data/tree-{seed}").mkdir(parents=True)
            return self.nodes.answer(node, command)
        action = command.partition("tree_node.py ")[2].split()[0]
        local = command.partition("tree_node.py ")[2]
        for point in (point for storage in STORAGES.values() for point in storage.mountpoints):
            local = local.replace(f'"{point}/', f'"{self.export}/')
        out = io.StringIO()
        with redirect_stdout(out):
            program: Any = tree_node
            rc = program.main(shlex.split(local))
        result = reply(node, command, out.getvalue(), rc)
        trees = list(self.export.glob("rackproof-data/tree-*"))
        if action == "write":
            size = sum(path.stat().st_size for path in trees[0].rglob("*.dat"))
            self._count(node, self.tree.writer, 1, size)
            self.damage(trees[0])
        elif action == "read" and node not in self.cached:
            self._count(node, self.tree.storage, 0, sum(path.stat().st_size for path in trees[0].rglob("*.dat")))
        return result

    def _count(self, node: str, storage: str | None, place: int, size: int) -> None:
        if storage is not None:
            self.nodes.moved.setdefault((node, STORAGES[storage].mountpoints[0]), [0, 0])[place] += size


@contextmanager
def clients(tmp_path: Path, made: Clients, rack: Rack | None = None) -> Iterator[BenchContext]:
    with scripted(tmp_path / "run", made.answer, rack or lab_rack(2)) as session:
        yield BenchContext(session, lambda line: None)


def measured(tmp_path: Path, made: Clients, tree: Tree = TREE, rack: Rack | None = None) -> Measurement:
    with clients(tmp_path, made, rack) as context:
        (step,) = ingest.plan(virtual_rack(), profile(tree), context.session.rack)
        (measurement,) = step.execute(context)
    return measurement


@pytest.fixture
def export(tmp_path: Path) -> Path:
    (tmp_path / "export").mkdir()
    return tmp_path / "export"


def test_one_data_set_whatever_wrote_it(tmp_path: Path, export: Path) -> None:
    found_nothing = measured(tmp_path, Clients(export))
    assert found_nothing.samples == (0.0,), found_nothing.reason
    assert found_nothing.conditions["tree"] == {"files": 12, "max_bytes": 70000, "through": "nfs-rdma"}
    assert found_nothing.conditions["written_by"] == "gpu-01 through nfs-rdma"
    assert found_nothing.labels == {"storage": "nfs-tcp", "protocol": "nfs"}
    assert list(export.glob("rackproof-data/*")) == []  # nothing stays
    own = Reading(found_nothing.samples, (), found_nothing.conditions)
    assert profile_mismatch(found_nothing, own, Profile(ingest=profile(TREE))) is None
    more = TREE.model_copy(update={"files": 64})
    assert "asks for 64" in (profile_mismatch(found_nothing, own, Profile(ingest=profile(more))) or "")


def a_file(tree: Path, number: int = tree_node.EDGES.index(4097)) -> Path:
    """One of the tree's files: by default one that is never empty, whatever the seed."""
    (path,) = tree.rglob(f"file {number:05d}*")
    return path


def garble(tree: Path) -> None:
    path = a_file(tree)
    first, *rest = path.read_bytes()
    path.write_bytes(bytes([first ^ 1, *rest]))


@pytest.mark.parametrize(
    ("damage", "count", "why"),
    [
        (garble, 1, "other contents"),
        (lambda tree: a_file(tree).unlink(), 1, "no such file"),
        (lambda tree: a_file(tree).write_bytes(a_file(tree).read_bytes()[:-1]), 1, "other contents"),
        (lambda tree: a_file(tree, 0).unlink(), 1, "no such file"),  # an empty one
        (lambda tree: [path.unlink() for path in tree.rglob("*.dat")], 12, "no such file"),
        (lambda tree: [path.rename(path.with_name(path.name.replace(" ", "_"))) for path in tree.rglob("*.dat")], 12,
         "no such file"),
    ],
)  # fmt: skip
def test_every_difference_is_counted_and_named(
    tmp_path: Path, export: Path, damage: Damage, count: int, why: str
) -> None:
    result = measured(tmp_path, Clients(export, damage))
    assert result.samples == (float(count),), result.reason
    assert len(result.conditions["damage"]) == count
    assert all(line.startswith("/mnt/nfs-tcp/rackproof-data/tree-") for line in result.conditions["damage"])
    assert result.conditions["damage"][0].endswith(f"on gpu-01: {why}")


def test_the_virtual_rack_brings_a_tree_to_every_shared_storage() -> None:
    assert IN_DEPTH is not None
    shared = [name for name, storage in STORAGES.items() if storage.class_ != "local"]
    assert sorted(tree.storage for tree in IN_DEPTH.trees.values()) == sorted(shared)


@pytest.mark.parametrize("name", IN_DEPTH.trees if IN_DEPTH else ())
def test_a_tree_of_every_shared_storage_is_proven_and_every_difference_found(
    tmp_path: Path, export: Path, name: str
) -> None:
    assert IN_DEPTH is not None
    tree = IN_DEPTH.trees[name]
    intact = measured(tmp_path / "intact", Clients(export, tree=tree), tree)
    assert intact.samples == (0.0,), intact.reason
    garbled = measured(tmp_path / "garbled", Clients(export, garble, tree=tree), tree)
    assert garbled.samples == (1.0,), garbled.reason
    assert garbled.conditions["damage"][0].startswith(STORAGES[tree.storage].mountpoints[0])
    cached = measured(tmp_path / "cached", Clients(export, cached=("gpu-02",), tree=tree), tree)
    assert (cached.samples, cached.invalid) == ((), True)
    assert re.search("100 % of .* came from the client.s memory.*counted 0 MB", cached.reason or "")


def test_a_client_whose_cache_answers_proves_nothing(tmp_path: Path, export: Path) -> None:
    result = measured(tmp_path, Clients(export, cached=("gpu-02",)))
    assert result.samples == ()
    assert "the mount counted 0 B" in (result.reason or "")


def test_a_tree_that_was_not_written_is_no_number(tmp_path: Path, export: Path) -> None:
    made = Clients(export)
    export.chmod(0o755)
    plain = made.answer

    def full(node: str, command: str) -> CommandResult | None:
        if "tree_node.py write" in command:
            document = {"rackproof_tree": 1, "action": "write", "error": "x: No space left on device"}
            return CommandResult(node, command, 1, json.dumps(document).encode())
        return plain(node, command)

    made.answer = full  # type: ignore[method-assign]
    result = measured(tmp_path, made)
    assert result.samples == ()
    assert result.reason == "tree_node.py: gpu-01: x: No space left on device"


def test_a_dry_run_has_the_commands_of_the_run(tmp_path: Path, export: Path) -> None:
    made = Clients(export)
    with clients(tmp_path, made) as context:
        (step,) = ingest.plan(virtual_rack(), profile(TREE), context.session.rack)
        list(step.execute(context))
        asked = [command for node, command in context.session.fleet.asked if node == "gpu-01"]  # type: ignore[attr-defined]
    (seed,) = {command.partition("tree-")[2][:16] for command in asked if "tree_node.py write" in command}
    assert len(step.commands) == 3
    for command in step.commands:
        assert any(text.endswith(command.replace("SEED", seed)) for text in asked), command
    smb = Tree.model_validate({"storage": "nfs-tcp", "protocol": "smb", "files": 4})
    (step,) = ingest.plan(virtual_rack(), profile(smb), lab_rack(2))
    assert step.commands == ()  # the inventory does not describe the way
    rack = lab_rack(2)
    rack.node("gpu-01").data["ingest"] = {"smb_share": "no share"}
    (step,) = ingest.plan(virtual_rack(), profile(smb), rack)
    assert step.commands == ()  # the step says what is wrong with the inventory


@pytest.mark.parametrize(("protocol", "key"), [("smb", "ingest.smb_share"), ("hdfs", "ingest.hdfs_url")])
def test_a_protocol_that_the_inventory_does_not_describe_is_unmeasured(
    tmp_path: Path, export: Path, protocol: str, key: str
) -> None:
    tree = Tree.model_validate({"storage": "nfs-tcp", "protocol": protocol, "files": 4})
    result = measured(tmp_path, Clients(export), tree)
    assert result.samples == ()
    assert key in (result.reason or "")


def recorded(tmp_path: Path, export: Path) -> tuple[Measurement, list[CommandResult]]:
    """A healthy run, and its answers."""
    answers: list[CommandResult] = []
    made = Clients(export)
    plain = made.answer

    def keep(node: str, command: str) -> CommandResult | None:
        result = plain(node, command)
        if result is not None:
            answers.append(result)
        return result

    made.answer = keep  # type: ignore[method-assign]
    return measured(tmp_path, made), answers


def edited(answers: list[CommandResult], mark: str, change: Callable[[dict[str, Any]], object]) -> list[CommandResult]:
    """Answers of commands with ``mark``, changed."""
    out = []
    for answer in answers:
        if mark in answer.command:
            document = json.loads(answer.stdout)
            change(document)
            answer = replace(answer, stdout=json.dumps(document).encode())
        out.append(answer)
    return out


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda a: edited(a, "tree_node.py read", lambda d: d["hashes"].pop()), "expected a hash of each file"),
        (lambda a: edited(a, "tree_node.py read", lambda d: d.update(error="stale file handle")), "stale file handle"),
        (lambda a: edited(a, "tree_node.py write", lambda d: d.update(files=11)), "expected 12 files"),
        (lambda a: [x for x in a if not (x.node == "gpu-02" and "tree_node.py read" in x.command)], "gpu-02: not one"),
        (lambda a: [x for x in a if "tree_node.py write" not in x.command], "expected one tree, actual 0"),
        (lambda a: [x for x in a if "storage-state after" not in x.command], "was not asked after the run"),
        (lambda a: [replace(x, command=x.command.replace('"seed": "', '"seed": "0', 1))
                    if "tree_node.py read" in x.command else x for x in a], "was given another tree"),
        (lambda a: [replace(x, stdout=x.stdout[:40]) if "tree_node.py read" in x.command else x for x in a],
         "tree_node.py"),
    ],
)  # fmt: skip
def test_answers_that_contradict_the_tree_give_no_number(
    tmp_path: Path, export: Path, change: Callable[[list[CommandResult]], list[CommandResult]], why: str
) -> None:
    measurement, answers = recorded(tmp_path, export)
    assert read_tree(answers, measurement, virtual_rack()).samples == (0.0,)
    with pytest.raises(ParseError, match=why):
        read_tree(change(answers), measurement, virtual_rack())


@pytest.mark.parametrize(
    ("tree", "why"),
    [({"protocol": "smb", "through": "nfs-rdma"}, "smb has none"), ({"protocol": "ftp"}, "protocol")],
)
def test_trees_without_a_way_are_refused(tree: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Tree.model_validate({"storage": "nfs-tcp", **tree})


# Ways without a mount, against stand-ins


def spec(way: dict[str, Any]) -> str:
    return json.dumps({"seed": "abc", "files": 9, "max_bytes": 9000, "way": way})


def hashes(folder: Path) -> list[str]:
    own = json.dumps({"seed": "abc", "files": 9, "max_bytes": 9000, "folders": [str(folder)]})
    answer: list[str] = node_programs.document("tree_node.py", "read", own)["hashes"]
    return answer


def direct(tmp_path: Path) -> list[str]:
    (tmp_path / "direct").mkdir()
    node_programs.document("tree_node.py", "write", spec({"by": "mount", "folder": str(tmp_path / "direct")}))
    return hashes(tmp_path / "direct")


SMBCLIENT = """#!/bin/sh
# smbclient SHARE -N -c 'mkdir "a"; mkdir "a/tree-abc"; cd "a/tree-abc"; lcd "LOCAL"; prompt OFF; recurse ON; mput *'
[ "$1" = //isilon/ifs ] && [ "$2" = -N ] || { echo 'session setup failed: NT_STATUS_LOGON_FAILURE'; exit 1; }
local=$(printf %s "$4" | sed 's/.*lcd "\\([^"]*\\)".*/\\1/')
mkdir -p "$SHARE/rackproof-data/tree-abc" && cp -r "$local"/. "$SHARE/rackproof-data/tree-abc"
"""


def test_smb_puts_the_tree_with_smbclient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/smbclient").write_text(SMBCLIENT)
    (tmp_path / "bin/smbclient").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SHARE", str(tmp_path / "share"))
    way = {"by": "smb", "share": "//isilon/ifs", "folder": "rackproof-data", "login": ""}
    answer = node_programs.document("tree_node.py", "write", spec(way), cwd=tmp_path)
    assert answer["files"] == 9
    assert hashes(tmp_path / "share/rackproof-data/tree-abc") == direct(tmp_path)
    way["share"] = "//other/ifs"
    refused = node_programs.document("tree_node.py", "write", spec(way), cwd=tmp_path)
    assert "smbclient: session setup failed: NT_STATUS_LOGON_FAILURE" in refused["error"]


@pytest.fixture
def webhdfs(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A WebHDFS that names another place for the data first, as the API of Hadoop says."""
    root = tmp_path / "hdfs"

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if query["user.name"] != ["hdfs"]:
                self.send_response(401)
            elif "datanode" not in query:
                self.send_response(307)
                self.send_header("Location", f"http://{self.headers['Host']}{self.path}&datanode=1")
            else:
                path = root / unquote(parts.path).lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/webhdfs/v1", root / "webhdfs/v1"
    server.shutdown()
    server.server_close()


def test_hdfs_puts_the_tree_over_webhdfs(tmp_path: Path, webhdfs: tuple[str, Path]) -> None:
    url, root = webhdfs
    way = {"by": "hdfs", "url": url, "user": "hdfs"}
    assert node_programs.document("tree_node.py", "write", spec(way))["files"] == 9
    assert hashes(root / "tree-abc") == direct(tmp_path)
    refused = node_programs.document("tree_node.py", "write", spec({**way, "user": "other"}))
    assert "status 401" in refused["error"]
