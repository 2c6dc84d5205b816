"""A node that joins: what it copies to itself is counted, and nothing passes without a mount of its own."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.profile_match import profile_mismatch
from rackproof.bench.reading import Reading
from rackproof.bench.step import BenchContext
from rackproof.bench.storage import join_node, steps
from rackproof.bench.storage.join_reader import read_join
from rackproof.bench.user import OWN_MOUNT
from rackproof.core.architecture import JoinProfile, Profile, StorageProfile
from rackproof.core.evidence import Measurement
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult
from tests.unit.bench import node_programs
from tests.unit.fakes import lab_rack, reply, scripted, virtual_rack
from tests.unit.own_root import in_own_root
from tests.unit.storage_nodes import StorageNodes

pytestmark = pytest.mark.few(7)

SIZES = JoinProfile(quiet_s=1)
PROFILE = StorageProfile(jobs={}, storages=("nfs-tcp",), join=SIZES)
DECLARED = "/mnt/nfs-tcp"
NODE: Any = join_node


class Clients:
    """Clients whose programs run in this process: a mount is a link to the export, drives are a folder.

    ``stages`` bytes are copied to the drives by the mount, ``writes`` by other programs in the quiet time.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, stages: int = 0, writes: int = 0) -> None:
        self.export, self.drive, self.own = folder / "export", folder / "drive", folder / "own"
        self.stages, self.writes = stages, writes
        self.nodes, self.answers = StorageNodes(virtual_rack(), name="nfs-tcp"), list[CommandResult]()
        self.kind = "nfs4"
        for part in (self.export, self.drive):
            part.mkdir()
        monkeypatch.setattr(NODE, "mounts", self._mounts)
        monkeypatch.setattr(NODE, "written", lambda: {"vda": self._on_drive()})
        monkeypatch.setattr(NODE, "used", lambda: {"/": self._on_drive() + 7})
        monkeypatch.setattr(NODE.subprocess, "run", self._run)
        monkeypatch.setattr(NODE.time, "sleep", self._sleep)

    def _on_drive(self) -> int:
        return sum(file.stat().st_size for file in self.drive.iterdir())

    def _sleep(self, seconds: float) -> None:
        (self.drive / "log").write_bytes(b"x" * self.writes)

    def _mounts(self) -> Iterator[tuple[str, str, str, str]]:
        yield str(self.export), "nfs4", "10.0.0.9:/srv/nfs", "rw,vers=4.2,addr=10.0.0.9,sec=sys"
        if (self.own / "rackproof-bench").exists():
            yield str(self.own), self.kind, "10.0.0.9:/srv/nfs", "rw"

    def _run(self, words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if words[0] == "mount":
            assert words[:5] == ["mount", "-t", "nfs4", "-o", "vers=4.2,sec=sys,nosharecache"]
            shutil.copytree(self.export, self.own, dirs_exist_ok=True)
            (self.drive / "staged").write_bytes(b"x" * self.stages)
        elif words[0] == "umount":
            shutil.rmtree(self.own)
            self.own.mkdir()
        return subprocess.CompletedProcess(words, 0, "", "")

    def answer(self, node: str, command: str) -> CommandResult | None:
        result = self._answer(node, command)
        if result is not None:
            self.answers.append(result)
        return result

    def _answer(self, node: str, command: str) -> CommandResult | None:
        if "/join_node.py" not in command:
            if "uid=990" in command:  # folders.sh
                (self.export / f"rackproof-bench/{node}").mkdir(parents=True, exist_ok=True)
                return reply(node, command)
            return self.nodes.answer(node, command)
        (config,) = node_programs.configs(command, "join_node.py")
        assert ("/run/rackproof-join/join_node.py" in command) == (config["action"] == "join")
        assert ("setpriv" in command) == (config["action"] == "plant")
        local = (
            json.dumps(config).replace(f'"{DECLARED}"', f'"{self.export}"').replace(f'"{OWN_MOUNT}"', f'"{self.own}"')
        )
        out = io.StringIO()
        with redirect_stdout(out):
            rc = NODE.main([local])
        text = out.getvalue().replace(str(self.export), DECLARED).replace(str(self.own), OWN_MOUNT)
        return reply(node, command, text, rc)


def measured(tmp_path: Path, made: Clients) -> list[Measurement]:
    with scripted(tmp_path / "run", made.answer, lab_rack(2)) as session:
        (step,) = steps.plan(virtual_rack(), PROFILE, session.rack)
        return list(step.execute(BenchContext(session, lambda line: None)))


def test_a_node_that_copies_nothing_has_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Clients(tmp_path, monkeypatch)
    results = measured(tmp_path, made)
    assert [result.samples for result in results] == [(0.0,), (0.0,)], results[0].reason
    assert [result.members for result in results] == [("gpu-01",), ("gpu-02",)]
    assert results[0].conditions["drives"] == ["vda"]
    assert results[0].conditions["first_read_s"] > 0
    assert not made.own.exists()
    own = Reading((0.0,), (), results[0].conditions)
    assert profile_mismatch(results[0], own, Profile(storage=PROFILE)) is None
    other = PROFILE.model_copy(update={"join": JoinProfile(quiet_s=9)})
    assert "quiet_s: the profile asks for 9" in (profile_mismatch(results[0], own, Profile(storage=other)) or "")


@pytest.mark.parametrize("size", [1048577, 50_000_000])
def test_what_is_staged_before_the_first_read_is_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    assert measured(tmp_path, Clients(tmp_path, monkeypatch, stages=size))[0].samples == (float(size),)


def test_other_writes_hide_no_copy_and_make_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Clients(tmp_path, monkeypatch, stages=3_000_000, writes=2_000_000)
    result = measured(tmp_path, made)[0]
    assert result.samples == ()
    assert "got 3000000 B, and 2000000 B in as long without a join" in (result.reason or "")
    made.stages = 90_000_000
    made.drive.joinpath("staged").unlink()
    assert measured(tmp_path / "again", made)[0].samples == (90_000_000.0,)


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[list[CommandResult]], list[CommandResult]]:
    def edit(answers: list[CommandResult]) -> list[CommandResult]:
        out = []
        for answer in answers:
            if "/rackproof-join/join_node.py" in answer.command:
                document = json.loads(answer.stdout)
                change(document)
                answer = replace(answer, stdout=json.dumps(document).encode())
            out.append(answer)
        return out

    return edit


def without(mark: str) -> Callable[[list[CommandResult]], list[CommandResult]]:
    return lambda answers: [answer for answer in answers if mark not in answer.command]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (edited(lambda d: d.update(sha256="0" * 64)), "another file"),
        (edited(lambda d: d.update(error="mount -t nfs4: access denied")), "access denied"),
        (edited(lambda d: d["mounts"].pop()), "no mount at"),
        (edited(lambda d: d.update(mounts=[d["mounts"][0], [OWN_MOUNT, "tmpfs", "tmpfs"]])), "expected nfs4"),
        (edited(lambda d: d.update(mounts=None)), "no mount at"),
        (edited(lambda d: d["after"]["used"].clear()), "tells what is in use"),
        (edited(lambda d: d["after"]["written"].update(vda=-1)), "below 0"),
        (edited(lambda d: d["before"]["written"].update(vda=10**12)), "ran backwards"),
        (edited(lambda d: d["before"]["written"].update(sdb=5)), "a drive is gone"),
        (edited(lambda d: d.pop("before")), "before is missing"),
        (edited(lambda d: d["after"]["used"].update({"/": float("nan")})), "not finite"),
        (without("storage-state before"), "expected one join"),
        (without("storage-state after"), "was not asked after"),
        (without("/rackproof-join/"), "expected one join"),
        (without("join_node.py"), "no run of it"),
        (lambda a: [replace(x, stdout=x.stdout[:99]) if "/rackproof-join/" in x.command else x for x in a], "cut off"),
    ],
)
def test_answers_that_prove_no_join_give_no_number(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[list[CommandResult]], list[CommandResult]],
    why: str,
) -> None:
    made = Clients(tmp_path, monkeypatch)
    measurement, storage = measured(tmp_path, made)[0], virtual_rack().storage["nfs-tcp"]
    assert read_join(made.answers, measurement, storage).samples == (0.0,)
    with pytest.raises(ParseError, match=why):
        read_join(change(made.answers), measurement, storage)


def test_local_drives_are_not_joined() -> None:
    every = StorageProfile(jobs={}, join=SIZES)
    planned = [step.id for step in steps.plan(virtual_rack(), every, lab_rack(2))]
    assert "storage/nfs-tcp/join" in planned
    assert not any("local" in id_ for id_ in planned)


OWN_ROOT = """
mkdir -p /run/bin /run/declared
{mount} -t tmpfs declared /run/declared
mkdir -p /run/declared/rackproof-bench/n
cat >/run/bin/mount <<'END'
#!/bin/sh
[ ! -e /run/stage ] || dd if=/dev/zero of=/run/staged bs=1M count=8 status=none
exec {mount} --bind /run/declared "$6"
END
chmod 755 /run/bin/mount
PATH=/run/bin:$PATH
join() {{ python3 -I {program} '{{"job": "join", "action": "'$1'", "file": "rackproof-bench/n/rackproof.join",
"seed": "a", "point": "/run/declared", "own": "{point}", "quiet_s": 0}}'; }}
join plant; join join; touch /run/stage; join join
grep -c {point} /proc/self/mounts; ls -d {point} 2>/dev/null; ls /run/declared/rackproof-bench/n
"""


def test_a_real_mount_of_its_own_goes_and_the_declared_one_stays(tmp_path: Path) -> None:
    script = OWN_ROOT.format(mount=os.path.realpath("/bin/mount"), program=NODE.__file__, point=OWN_MOUNT)
    done = in_own_root(script, tmp_path)
    lines = done.stdout.splitlines()
    documents = [json.loads(line) for line in lines[:3]]
    assert [document.get("error") for document in documents] == [None] * 3
    assert documents[1]["mounts"] == [["/run/declared", "tmpfs", "declared"], [OWN_MOUNT, "tmpfs", "declared"]]
    staged = documents[2]["after"]["used"]["/run"] - documents[2]["before"]["used"]["/run"]
    assert staged >= 8 << 20
    assert lines[3:] == ["0", "rackproof.join"]
