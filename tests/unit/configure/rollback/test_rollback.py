"""Scripts run for real, in a folder of this machine instead of a node's root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.configure import units
from rackproof.configure.files import (
    PENDING,
    Absent,
    Entry,
    FilePlan,
    RemoteDirectory,
    RemoteFile,
    apply_script,
    archive,
    parse_states,
    plan_files,
    states_command,
)
from rackproof.configure.rollback import restore
from rackproof.configure.rollback.journal import Journal, grubby_line, hold_line, unit_line, value_line
from rackproof.configure.rollback.restore_script import restore_script
from rackproof.errors import Refused
from tests.unit.shell import executable, sh

OWNER, GROUP = Path("/").owner(), Path("/").group()
MEMORY = "/dev/shm"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files their owner")
pytestmark = [pytest.mark.few(11), needs_root]


class Node:
    """A folder that stands for a node's root. Programs in ``bin`` come first on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.kept = folder / "kept"
        self.bin = folder / "bin"
        self.root.mkdir()
        self.bin.mkdir()
        self.runs = 0

    def path(self, name: str) -> str:
        return str(self.root / name)

    def journal(self, run: str | None = None, keep: int = 10) -> Journal:
        self.runs += 1
        return Journal(run or f"run-{self.runs:02d}", keep, str(self.kept))

    def sh(self, script: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        script = script.replace(PENDING, str(self.folder / "pending"))
        path = f"{self.bin}:{os.environ['PATH']}"
        done = sh(script, stdin=stdin, PATH=path, LOG=str(self.folder / "log"))
        assert not check or done.returncode == 0, done.stderr
        return done

    def states(self, paths: Sequence[str], texts: Sequence[str] = ()) -> dict[str, object]:
        return parse_states(self.sh(states_command(paths, texts)).stdout.splitlines())  # type: ignore[return-value]

    def plan(self, entries: Sequence[Entry]) -> FilePlan:
        texts = [e.path for e in entries if isinstance(e, RemoteFile) and e.block]
        return plan_files(entries, self.states([e.path for e in entries], texts))  # type: ignore[arg-type]

    def apply(self, entries: Sequence[Entry], journal: Journal | None = None) -> Journal:
        journal = journal or self.journal()
        plan = self.plan(entries)
        self.sh(apply_script(plan, journal), archive(plan))
        return journal

    def kept_runs(self) -> tuple[restore.KeptRun, ...]:
        return restore.parse_kept(self.sh(restore.kept_command(str(self.kept))).stdout.splitlines())

    def plan_back(self, target: str, force: Sequence[str] = ()) -> restore.RestorePlan:
        runs = restore.chosen(self.kept_runs(), target)
        paths, texts = restore.paths_of(runs)
        return restore.plan_restore(runs, self.states(paths, texts), force)  # type: ignore[arg-type]

    def back(self, target: str, force: Sequence[str] = ()) -> restore.RestorePlan:
        plan = self.plan_back(target, force)
        if plan:
            self.sh(restore_script(plan, self.journal()))
        return plan

    def program(self, name: str, text: str) -> None:
        executable(self.bin / name, text)

    def log(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def tree(self) -> dict[str, tuple[object, ...]]:
        states: dict[str, tuple[object, ...]] = {}
        for path in sorted(self.root.rglob("*")):
            facts = path.lstat()
            what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            states[str(path.relative_to(self.root))] = (oct(facts.st_mode), facts.st_uid, facts.st_gid, what)
        return states


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def file(node: Node, name: str, content: str, **more: object) -> RemoteFile:
    return RemoteFile(node.path(name), content, owner=OWNER, group=GROUP, **more)  # type: ignore[arg-type]


def test_files_come_back_as_they_were(node: Node) -> None:
    (node.root / "etc").mkdir()
    (node.root / "etc/old").write_text("before\n")
    (node.root / "etc/old").chmod(0o640)
    (node.root / "etc/gone").write_text("was here\n")
    (node.root / "etc/link").symlink_to("old")
    before = node.tree()
    journal = node.apply(
        [
            file(node, "etc/old", "after\n"),
            file(node, "etc/new/deep/file", "new\n", mode="600"),
            file(node, "etc/link", "no link any more\n"),
            Absent(node.path("etc/gone")),
            RemoteDirectory(node.path("var/a/b"), owner=OWNER, group=GROUP),
        ]
    )
    assert node.tree() != before
    assert node.back(journal.run)
    assert node.tree() == before
    assert not node.plan_back(journal.run)  # there is nothing left to undo


NAMES = ("a", "b", "d/a", "d/e/b", "x\\x2dy.mount", "with blank", "it's")
CONTENTS = st.text(alphabet="ab\n\\'\"$é", max_size=8)
MODES = st.sampled_from(["600", "644", "755"])


@st.composite
def trees(draw: st.DrawFn) -> dict[str, tuple[str, str]]:
    return draw(st.dictionaries(st.sampled_from(NAMES), st.tuples(CONTENTS, MODES)))


@st.composite
def inputs(draw: st.DrawFn) -> list[tuple[str, str | None, str, bool]]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    return [(name, draw(st.none() | CONTENTS), draw(MODES), draw(st.booleans())) for name in names]


@settings(max_examples=12, deadline=None)
@given(trees(), st.lists(inputs(), min_size=1, max_size=3))
def test_applied_and_undone_is_as_before(
    tree: dict[str, tuple[str, str]], runs: list[list[tuple[str, str | None, str, bool]]]
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rackproof-test-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        node = Node(folder)
        for name, (content, mode) in tree.items():
            path = node.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            path.chmod(int(mode, 8))
        before = node.tree()
        first = None
        for wanted in runs:
            entries: list[Entry] = [
                Absent(node.path(name)) if content is None else file(node, name, content, mode=mode, block=block)
                for name, content, mode, block in wanted
            ]
            try:
                plan = node.plan(entries)
            except ValueError:
                continue  # markers in a file that is no longer a block's
            journal = node.journal()
            if plan:
                node.sh(apply_script(plan, journal), archive(plan))
                first = first or journal.run
        if first:
            after = node.tree()
            node.back(first)
            assert node.tree() == before
            undone = node.kept_runs()[-1].run
            if after != before:
                node.back(undone)  # and back again
                assert node.tree() == after
    finally:
        shutil.rmtree(folder)


def test_nothing_to_do_leaves_nothing(node: Node) -> None:
    node.apply([])
    assert not node.kept.exists()


def test_what_is_kept_is_for_root_only(node: Node) -> None:
    (node.root / "key").write_text("hunter2\n")
    journal = node.apply([file(node, "key", "hunter3\n", mode="600", secret=True)])
    assert node.kept.stat().st_mode & 0o777 == 0o700
    elsewhere = Journal("r", root=str(node.folder / "lib/rollback"))
    node.sh(elsewhere.before([value_line(node.path("key"), "x")], "true"))
    assert (node.folder / "lib").stat().st_mode & 0o777 == 0o755
    for path in node.kept.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
    plan = node.plan_back(journal.run)
    assert plan.files[0].secret
    assert "hunter" not in restore_script(plan, journal) + repr(plan.changes({}))


def test_operations_of_one_run_are_one_step(node: Node) -> None:
    journal = node.journal()
    node.apply([file(node, "a", "1\n")], journal)
    node.apply([file(node, "a", "2\n"), file(node, "b", "2\n")], journal)
    (run,) = node.kept_runs()
    assert [entry.path for entry in run.entries] == [node.path(name) for name in ("a", "a", "b")]
    node.back(journal.run)
    assert node.tree() == {}


def test_older_runs_are_undone_through_the_newer_ones(node: Node) -> None:
    runs = [node.apply([file(node, "a", f"{number}\n")]).run for number in (1, 2, 3)]
    node.back(runs[1])
    assert (node.root / "a").read_text() == "1\n"


def test_a_rollback_can_be_undone(node: Node) -> None:
    (node.root / "a").write_text("0\n")
    first = node.apply([file(node, "a", "1\n")])
    node.back(first.run)
    assert (node.root / "a").read_text() == "0\n"
    node.back(node.kept_runs()[-1].run)
    assert (node.root / "a").read_text() == "1\n"


def test_a_foreign_change_is_refused_and_named(node: Node) -> None:
    journal = node.apply([file(node, "a", "1\n"), file(node, "b", "1\n")])
    (node.root / "b").write_text("mine\n")
    with pytest.raises(Refused, match=r"changed since these runs: \S+/b; .*force="):
        node.plan_back(journal.run)
    assert node.back(journal.run, [node.path("b")])
    assert node.tree() == {}


def test_a_change_between_two_runs_is_foreign(node: Node) -> None:
    first = node.apply([file(node, "a", "1\n")])
    (node.root / "a").write_text("mine\n")
    second = node.apply([file(node, "a", "2\n")])
    assert node.plan_back(second.run)
    with pytest.raises(Refused):
        node.plan_back(first.run)


def test_a_run_that_was_cut_off_after_keeping_changes_nothing_of_it(node: Node) -> None:
    (node.root / "a").write_text("0\n")
    plan = node.plan([file(node, "a", "1\n")])
    journal = node.journal()
    node.sh(apply_script(plan, journal).split("base64 -d")[0])  # the connection is lost here
    assert (node.root / "a").read_text() == "0\n"
    assert not node.plan_back(journal.run)
    healed = node.apply([file(node, "a", "1\n")])
    node.back(journal.run)
    assert (node.root / "a").read_text() == "0\n"
    assert healed.run != journal.run


def test_the_last_runs_are_kept(node: Node) -> None:
    for number in range(12):
        node.apply([file(node, "a", f"{number}\n")], node.journal(keep=3))
    assert [run.order for run in node.kept_runs()] == [10, 11, 12]
    assert len(list(node.kept.iterdir())) == 3


@pytest.mark.parametrize("cut", range(1, 9))
def test_an_archive_that_is_cut_off_replaces_nothing(node: Node, cut: int) -> None:
    """The connection is lost while the new files come."""
    for name in ("a", "b", "c"):
        (node.root / name).write_text(f"old {name}\n")
    before = node.tree()
    entries = [file(node, name, f"new {name}\n" * 600) for name in ("a", "b", "c")]
    plan = node.plan(entries)
    sent = archive(plan)
    done = node.sh(apply_script(plan, node.journal()), sent[: len(sent) * cut // 10], check=False)
    if done.returncode:  # else only the end of the archive was lost, which has nothing in it
        assert "none was replaced" in done.stderr
        assert node.tree() == before
    else:
        assert (node.root / "a").read_text().startswith("new a")
    node.apply(entries)  # the next run heals
    assert (node.root / "c").read_text().startswith("new c")


def test_a_script_that_is_killed_leaves_whole_files(node: Node) -> None:
    for name in ("a", "b"):
        (node.root / name).write_text("old\n")
    entries = [file(node, name, "new\n") for name in ("a", "b")]
    plan = node.plan(entries)
    script = apply_script(plan, node.journal())
    moves = [line for line in script.splitlines() if line.startswith("mv -fT")]
    script = script.replace(moves[1], f"kill -9 $$\n{moves[1]}")
    assert node.sh(script, archive(plan), check=False).returncode != 0
    assert [(node.root / name).read_text() for name in ("a", "b")] == ["new\n", "old\n"]
    node.apply(entries)
    assert [(node.root / name).read_text() for name in ("a", "b")] == ["new\n", "new\n"]
    assert [path.name for path in node.root.iterdir() if "rackproof" in path.name] == []


@pytest.fixture
def small(node: Node) -> Callable[[Path, int], None]:
    """Makes a folder a file system of so many KiB that is full but for what is in it."""

    def mount(folder: Path, kib: int) -> None:
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("no file system can be mounted here")
        mounted.append(folder)

    mounted: list[Path] = []
    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


def test_no_room_to_keep_means_no_change(node: Node, small: Callable[[Path, int], None]) -> None:
    small(node.kept, 64)
    (node.root / "a").write_text("x" * 200_000)
    before = node.tree()
    plan = node.plan([file(node, "a", "1\n"), file(node, "new", "1\n")])
    done = node.sh(apply_script(plan, node.journal()), archive(plan), check=False)
    assert done.returncode == 1
    assert "could not be saved for a rollback" in done.stderr.splitlines()[-1]
    assert node.tree() == before
    assert list(node.kept.iterdir()) == []


def test_no_room_for_the_new_files_means_no_change(node: Node, small: Callable[[Path, int], None]) -> None:
    small(node.root, 64)
    (node.root / "a").write_text("old\n")
    before = node.tree()
    plan = node.plan([file(node, "a", "1\n"), file(node, "new", "x" * 200_000)])
    done = node.sh(apply_script(plan, node.journal()), archive(plan), check=False)
    assert done.returncode == 1
    assert "none was replaced" in done.stderr.splitlines()[-1]
    assert node.tree() == before


def test_no_room_for_the_old_files_restores_nothing(node: Node, small: Callable[[Path, int], None]) -> None:
    small(node.root, 256)
    (node.root / "a").write_text("x" * 150_000)
    (node.root / "b").write_text("old\n")
    journal = node.apply([file(node, "b", "1\n"), file(node, "a", "1\n")])
    (node.root / "filler").write_text("x" * 200_000)
    before = node.tree()
    script = restore_script(node.plan_back(journal.run), node.journal())
    done = node.sh(script, check=False)
    assert done.returncode == 1
    assert "none was restored" in done.stderr
    assert node.tree() == before


SYSTEMCTL = """\
case $1 in
  is-enabled) cat "$STATE/enabled.$3" 2>/dev/null || echo not-found; exit ;;
  is-active) [ "$2" = --quiet ] && { grep -qx active "$STATE/active.$4" 2>/dev/null; exit; }
    cat "$STATE/active.$3" 2>/dev/null || echo inactive; exit ;;
esac
echo "systemctl $*" >>"$LOG"
"""


def test_units_go_back_to_what_they_were(node: Node) -> None:
    (node.folder / "enabled.a.service").write_text("disabled\n")
    (node.folder / "active.a.service").write_text("inactive\n")
    (node.folder / "enabled.b.timer").write_text("enabled\n")
    (node.folder / "active.b.timer").write_text("active\n")
    node.program("systemctl", SYSTEMCTL.replace("$STATE", str(node.folder)))
    journal = node.journal()
    node.sh(journal.before([unit_line("a.service"), unit_line("b.timer")], "true"))
    (node.folder / "active.a.service").write_text("active\n")
    node.back(journal.run)
    assert node.log() == [
        "systemctl stop -- a.service",
        "systemctl unmask --no-reload -- a.service",
        "systemctl disable --no-reload -- a.service",
        "systemctl unmask --no-reload -- b.timer",
        "systemctl enable --no-reload -- b.timer",
        "systemctl daemon-reload",
        "systemctl start -- b.timer",
    ]


def test_a_unit_that_cannot_be_stopped_ends_it_before_anything_is_restored(node: Node) -> None:
    (node.folder / "active.mnt.mount").write_text("inactive\n")
    stopping = SYSTEMCTL + '[ "$1" != stop ] || exit 1\n'
    node.program("systemctl", stopping.replace("$STATE", str(node.folder)))
    journal = node.journal()
    node.sh(journal.before([unit_line("mnt.mount")], "true"))
    node.apply([file(node, "a", "1\n")], journal)
    (node.folder / "active.mnt.mount").write_text("active\n")
    done = node.sh(restore_script(node.plan_back(journal.run), node.journal()), check=False)
    assert done.returncode == 1
    assert "mnt.mount could not be stopped" in done.stderr
    assert (node.root / "a").exists()


def test_running_units_see_their_old_files_and_reboots_stay_due(node: Node) -> None:
    (node.folder / "active.a.service").write_text("active\n")
    node.program("systemctl", SYSTEMCTL.replace("$STATE", str(node.folder)))
    (node.root / "a.conf").write_text("0\n")
    journal = node.apply([file(node, "a.conf", "1\n", restart=("a.service",), reboot="kernel options")])
    (node.folder / "pending/restart:a.service").unlink()
    node.back(journal.run)
    assert node.log() == ["systemctl restart -- a.service"]
    assert [path.name for path in (node.folder / "pending").iterdir()] == ["reboot:kernel options"]


def test_a_unit_that_goes_is_stopped_and_not_started_again() -> None:
    path = "/etc/systemd/system/new.service"
    plan = restore.RestorePlan(
        files=(restore.Entry("file", "absent", "-", "-", "-", "x", "-", "-", path),),
        marks=("restart:new.service", "restart:old.service"),
    )
    script = restore_script(plan, Journal("r"))
    assert script.index("back_stop_added new.service") < script.index(f"rm -f -- {path}")
    assert "back_running restart new.service" not in script
    assert "back_running restart old.service" in script


def test_values_of_the_kernel_come_back(node: Node) -> None:
    value = node.root / "rmem"
    value.write_text("4096\t131072\t6291456\n")
    journal = node.journal()
    node.sh(journal.before([value_line(str(value), "1  2 3")], f"echo 1 2 3 >{value}"))
    node.back(journal.run)
    assert value.read_text().split() == ["4096", "131072", "6291456"]
    value.write_text("7\n")
    with pytest.raises(Refused):
        node.plan_back(journal.run)


@pytest.mark.parametrize(("held", "verb"), [("other\n", "unhold"), ("nvidia-driver\nother\n", "hold")])
def test_holds_come_back(node: Node, held: str, verb: str) -> None:
    node.program("apt-mark", f'[ "$1" = showhold ] && {{ printf "{held}"; exit; }}; echo "$*" >>"$LOG"')
    journal = node.journal()
    node.sh(journal.before([hold_line("nvidia-driver", "debian")], "true"))
    node.back(journal.run)
    assert node.log() == [f"{verb} nvidia-driver"]


@pytest.mark.parametrize("held", [[], ["kmod-nvidia-3:570.1-1.*"], ["kernel-0:5.14-1.*", "kernel-0:5.14-2.*"]])
def test_version_locks_come_back_with_the_versions_that_they_had(node: Node, held: list[str]) -> None:
    package = held[0].split("-0:")[0].split("-3:")[0] if held else "kmod-nvidia"
    locks = "".join(f"{lock}\\n" for lock in [*held, "kmod-nvidia-libs-0:1-1.*"])
    node.program("dnf", f'case "$*" in *list) printf "{locks}";; *) echo "$*" >>"$LOG";; esac')
    journal = node.journal()
    node.sh(journal.before([hold_line(package, "rhel")], "true"))
    node.back(journal.run)
    assert node.log() == [
        f"-q -y versionlock delete {package}",
        *(f"-q -y versionlock add --raw {lock}" for lock in held),
    ]


def test_arguments_of_the_kernel_come_back(node: Node) -> None:
    args = node.folder / "args"
    args.write_text('args="ro quiet"\n')
    node.program("grubby", f'case $1 in --info=*) cat {args};; *) echo "$*" >>"$LOG";; esac')
    journal = node.journal()
    node.sh(journal.before([grubby_line()], "true"))
    args.write_text('args="ro quiet iommu=pt"\n')
    node.back(journal.run)
    assert node.log() == ["--update-kernel=ALL --remove-args=ro quiet iommu=pt --args=ro quiet"]


def test_a_journal_that_is_damaged_is_not_read() -> None:
    with pytest.raises(ValueError, match="not a line of a journal"):
        restore.parse_kept(["run\t/x/000001.r", "part\t1", "file\tregular"])


def test_a_path_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="tab or a line end"):
        unit_line("a\tb")


def test_plans_of_units_name_what_they_touch() -> None:
    unit = units.Unit("a.service")
    state = units.SystemState({"a.service": units.UnitState("loaded", "inactive", "disabled", False)}, frozenset(), {})
    assert units.plan_units([unit], state).kept == (unit_line("a.service"),)
