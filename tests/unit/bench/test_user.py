"""The account that measures: what it may not do, and what a stranger on the node cannot make it do."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

import pytest

from rackproof import bench
from rackproof.bench.plan import plan_steps
from rackproof.bench.runner import run_steps
from rackproof.bench.user import HOME, JOIN_HOME, OWN_MOUNT, SETUP, TIDY, USER, Account, with_imports
from rackproof.core.evidence import Kind
from rackproof.core.programs import programs_of
from rackproof.evidence.store import read_records
from rackproof.remote.command import CommandResult, bounded, program
from rackproof.shell import script
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import lab_rack, reply, scripted, virtual_rack
from tests.unit.own_root import STRANGER, in_own_root
from tests.unit.storage_nodes import StorageNodes

pytestmark = pytest.mark.few(9)

BENCH = Path(bench.__file__).parent
PROGRAMS = sorted(BENCH.rglob("*_node.py"))
OWN = 61500
"""User id of the account in tests of folders."""
FOLDER = "/mnt/point/rackproof-bench/gpu-01"


def test_the_account_is_made_once_and_has_an_empty_home_that_no_other_user_enters(tmp_path: Path) -> None:
    again = f"touch {HOME}/old; echo a >/run/x; ln -s /run/x {HOME}/link"
    look = f"ls -A {HOME}; stat -c '%a %U' {HOME}; getent passwd {USER}; cat /run/x; stranger ls {HOME}"
    done = in_own_root(f"{SETUP}\n{again}\n({SETUP})\n{look}", tmp_path)
    first, second, mode, passwd, kept = done.stdout.splitlines()
    assert first == second
    assert Account(*(int(word) for word in first.split()[1::2])).uid > 0
    assert mode == f"700 {USER}"
    assert passwd.endswith(f":{HOME}:/bin/sh")
    assert kept == "a"
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize("removed_by", [f"({SETUP})", TIDY])
def test_shared_memory_of_killed_ranks_is_removed_and_no_other(tmp_path: Path, removed_by: str) -> None:
    """NCCL leaves its segments where its ranks are killed before all of them have opened these."""
    before = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm; mkdir /dev/shm/folder; touch /dev/shm/folder/x /dev/shm/mine"
    left = f"touch /dev/shm/nccl-a; chown -R {USER} /dev/shm/nccl-a /dev/shm/folder; stranger touch /dev/shm/nccl-b"
    done = in_own_root(f"{before}\n({SETUP})\n{left}\n{removed_by}\nls /dev/shm", tmp_path)
    assert done.stdout.splitlines()[-3:] == ["folder", "mine", "nccl-b"], done.stderr


def test_a_mount_that_a_killed_program_left_is_removed_and_what_is_mounted_is_kept(tmp_path: Path) -> None:
    neighbour = f"{OWN_MOUNT}-other"
    left = f"mkdir -p {OWN_MOUNT} {OWN_MOUNT}1 {OWN_MOUNT}16 {neighbour} {JOIN_HOME} /run/kept"
    left += f"; touch /run/kept/a {JOIN_HOME}/b"
    left += "".join(f"; mount --bind /run/kept {place}" for place in (f"{OWN_MOUNT}1", f"{OWN_MOUNT}16", neighbour))
    look = "ls -d /run/rackproof-*; ls /run/kept; grep -o ' /run/rackproof-[^ ]*' /proc/self/mounts"
    done = in_own_root(f"{left}\n{TIDY}\n{look}", tmp_path)
    assert done.stdout.split() == [neighbour, "a", neighbour], done.stderr


def test_a_node_without_the_account_is_tidied_without_a_word(tmp_path: Path) -> None:
    done = in_own_root(f"mkdir {HOME}; {TIDY}; ls -d {HOME}", tmp_path)
    assert "find" not in done.stderr


@pytest.mark.parametrize(
    "entry", [f"{USER}:x:0:0::{HOME}:/bin/sh", f"{USER}:x:1000:1000:A person:/home/person:/bin/sh"]
)
def test_an_account_of_another_use_is_refused(tmp_path: Path, entry: str) -> None:
    alone = f"sed -i '/^{USER}:/d' /etc/passwd; echo {shlex.quote(entry)} >>/etc/passwd"
    done = in_own_root(f"{alone}\n({SETUP})\necho rc $?; ls -d {HOME}", tmp_path)
    assert done.stdout == "rc 1\n"
    assert f"the account {USER} is not the kit's" in done.stderr


def test_a_command_of_the_account_has_no_rights_and_gains_none(tmp_path: Path) -> None:
    ask = "id -u; id -g; id -G; pwd; echo $HOME; dirname $(mktemp); grep -E 'CapEff|NoNewPrivs' /proc/self/status"
    ask += "; touch /etc/x /run/x; touch y"
    command = bounded(ask, 20, user=Account(OWN, OWN + 1).prefix)
    done = in_own_root(f"mkdir -m 700 {HOME}; chown {OWN}:{OWN + 1} {HOME}; {command}; stat -c %u {HOME}/y", tmp_path)
    assert done.stdout.split() == [
        str(OWN), str(OWN + 1), str(OWN + 1), HOME, HOME, HOME, "CapEff:", "0" * 16, "NoNewPrivs:", "1", str(OWN),
    ]  # fmt: skip
    assert done.stderr.count("Permission denied") == 2


def folders(before: str, after: str, folder: Path) -> tuple[int, str, str]:
    """Status, output of ``after`` and complaints of the script that makes the folder, on a mount that all may write."""
    made = script("rackproof.bench.storage.commands", "folders", FOLDER, uid=OWN, gid=OWN, user=USER, stem="rackproof")
    secret = "mkdir -m 755 /mnt/secret; echo secret >/mnt/secret/rackproof.0"
    done = in_own_root(f"mkdir -m 1777 /mnt/point; {secret}\n{before}\n({made})\necho $?\n{after}", folder)
    status, _, rest = done.stdout.partition("\n")
    return int(status), rest, done.stderr


KEPT = "stat -c '%u %n' /mnt/secret /mnt/secret/*; cat /mnt/secret/rackproof.0"
UNTOUCHED = "0 /mnt/secret\n0 /mnt/secret/rackproof.0\nsecret\n"


def test_a_folder_belongs_to_the_account_and_is_empty(tmp_path: Path) -> None:
    link = f"ln -s /mnt/secret/rackproof.0 {FOLDER}/rackproof.1"
    before = f"mkdir -p {FOLDER}; touch {FOLDER}/rackproof.0 {FOLDER}/other; {link}"
    status, shown, complaint = folders(before, f"stat -c '%u %F' {FOLDER}; ls {FOLDER}; {KEPT}", tmp_path)
    assert (status, complaint) == (0, "")
    assert shown == f"{OWN} directory\nother\n{UNTOUCHED}"


def test_on_a_mount_that_squashes_root_the_account_makes_its_folder_itself(tmp_path: Path) -> None:
    as_own = f"setpriv --reuid={OWN + 1} --regid={OWN} --clear-groups -- mkdir -m 1777 /mnt/point/rackproof-bench"
    assert folders(as_own, f"stat -c '%u %a' {FOLDER}", tmp_path)[:2] == (0, f"{OWN} 755\n")


def test_a_folder_above_that_another_run_removes_while_it_is_empty_is_made_again(tmp_path: Path) -> None:
    taken = """mkdir() {
      command mkdir "$@"; made=$?
      [ "$2" = /mnt/point/rackproof-bench ] && [ ! -e /run/once ] && touch /run/once && rmdir "$2"
      return $made
    }"""
    after = f"ls /run/once; stat -c '%u %F' {FOLDER}"
    assert folders(taken, after, tmp_path) == (0, f"/run/once\n{OWN} directory\n", "")


@pytest.mark.parametrize(
    "planted",
    [
        "stranger ln -s /mnt/secret /mnt/point/rackproof-bench; mkdir /mnt/secret/gpu-01",
        "stranger ln -s /mnt/secret /mnt/point/rackproof-bench",
        "mkdir -m 1777 /mnt/open; stranger ln -s /mnt/open /mnt/point/rackproof-bench",
        f"stranger mkdir -m 755 /mnt/point/rackproof-bench; stranger ln -s /mnt/secret {FOLDER}",
        f"stranger mkdir -m 777 /mnt/point/rackproof-bench; stranger mkdir -m 777 {FOLDER}",
        f"stranger mkdir -m 777 /mnt/point/rackproof-bench; stranger mkfifo {FOLDER}",
        "stranger touch /mnt/point/rackproof-bench",
        f"mkdir /mnt/point/rackproof-bench; ln -s /mnt/secret {FOLDER}",
    ],
)
def test_what_a_stranger_has_planted_is_refused_and_nothing_behind_it_changes(tmp_path: Path, planted: str) -> None:
    status, shown, complaint = folders(planted, f"rmdir /mnt/secret/gpu-01 2>/dev/null; {KEPT}", tmp_path)
    assert status == 1
    assert f"{FOLDER}: expected a directory of user {OWN} ({USER}), actual" in complaint
    assert shown == UNTOUCHED
    assert STRANGER != OWN


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_program_takes_along_what_it_imports(path: Path) -> None:
    package = ".".join(path.relative_to(BENCH.parents[1]).parent.parts)
    sources = with_imports(package, (path.name,))
    own = {program.stem for program in PROGRAMS}
    for source in sources.values():
        trees = list(ast.walk(ast.parse(source)))
        modules = {tree.module for tree in trees if isinstance(tree, ast.ImportFrom)}
        modules |= {alias.name for tree in trees if isinstance(tree, ast.Import) for alias in tree.names}
        assert {f"{module}.py" for module in modules & own} <= sources.keys()
    assert path.name in sources


def test_no_program_that_measures_runs_as_root(tmp_path: Path) -> None:
    storage, fabric = StorageNodes(virtual_rack()), FabricNodes()

    def answer(node: str, command: str) -> CommandResult | None:
        return storage.answer(node, command) or fabric.answer(node, command)

    steps = [step for step in plan_steps(virtual_rack(), "lab", lab_rack()) if not step.id.startswith("container/")]
    with scripted(tmp_path, answer) as session:
        run_steps(session, steps, set(), lambda text: None)
        ran = session.fleet.users  # type: ignore[attr-defined]
    measuring = {name for step in steps for place in step.expects for name in programs_of(place.metric, place.labels)}
    prefixes = {(program(command), prefix) for _, command, prefix in ran if program(command) in measuring}
    assert {name for name, _ in prefixes} == measuring >= {"fio", "ib_write_bw", "ib_write_lat", "iperf3", "mpirun"}
    assert {prefix for _, prefix in prefixes} == {Account(990, 991).prefix}


def test_without_the_account_nothing_is_measured_and_the_cause_stands_beside_every_number(tmp_path: Path) -> None:
    def answer(node: str, command: str) -> CommandResult | None:
        if command == SETUP and node == "gpu-02":
            return reply(node, command, rc=1, err="useradd: cannot lock /etc/passwd; try again later.")
        return None

    steps = [step for step in plan_steps(virtual_rack(), "lab", lab_rack()) if step.id.startswith(("links/", "coll"))]
    with scripted(tmp_path, answer) as session:
        run_steps(session, steps, set(), lambda text: None)
    reasons = {str(r.body["reason"]) for r in read_records(tmp_path) if r.kind is Kind.MEASUREMENT}
    assert len(reasons) == 1
    assert f"gpu-02: no account {USER} to measure with: useradd: cannot lock /etc/passwd" in reasons.pop()
