from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.configure.files import (
    BEGIN,
    END,
    Absent,
    FileState,
    RemoteDirectory,
    RemoteFile,
    apply_script,
    archive,
    block_of,
    changes,
    merge_block,
    parse_states,
    plan_files,
    reboot_mark,
    states_command,
)
from rackproof.errors import Refused
from tests.unit.shell import sh


def state(content: str, mode: str = "644", owner: str = "root", text: bool = False) -> FileState:
    digest = hashlib.sha256(content.encode()).hexdigest()
    return FileState("regular file", mode, owner, "root", digest, content if text else None)


def test_equal_files_need_nothing() -> None:
    plan = plan_files([RemoteFile("/etc/a", "x\n")], {"/etc/a": state("x\n")})
    assert not plan
    assert changes(plan, {}) == []


def test_missing_changed_and_badly_owned_files_are_told_apart() -> None:
    plan = plan_files(
        [RemoteFile("/etc/a", "x\n"), RemoteFile("/etc/b", "x\n"), RemoteFile("/etc/c", "x\n", mode="600")],
        {"/etc/b": state("y\n"), "/etc/c": state("x\n", mode="644")},
    )
    assert [file.path for file, _ in plan.writes] == ["/etc/a", "/etc/b"]
    assert [file.path for file in plan.attributes] == ["/etc/c"]


def test_wrong_owner_alone_does_not_write_the_content_again() -> None:
    plan = plan_files([RemoteFile("/etc/a", "x\n")], {"/etc/a": state("x\n", owner="ceph")})
    assert not plan.writes
    assert "chown root:root -- /etc/a && chmod 644 -- /etc/a" in apply_script(plan)


def test_a_symbolic_link_is_replaced_by_a_file() -> None:
    link = FileState("symbolic link", "777", "root", "root", hashlib.sha256(b"x\n").hexdigest())
    assert plan_files([RemoteFile("/etc/a", "x\n")], {"/etc/a": link}).writes


def test_what_is_no_file_is_not_overwritten() -> None:
    with pytest.raises(Refused, match="/etc/a: expected a file, actual directory"):
        plan_files([RemoteFile("/etc/a", "x")], {"/etc/a": FileState("directory", "755", "root", "root")})
    with pytest.raises(Refused, match="/etc/a: expected a directory, actual regular file"):
        plan_files([RemoteDirectory("/etc/a")], {"/etc/a": state("x")})


def test_two_writers_for_one_file_are_refused() -> None:
    with pytest.raises(Refused, match="/etc/a: declared twice"):
        plan_files([RemoteFile("/etc/a", "x"), Absent("/etc/a")], {})


def test_units_are_marked_before_their_file_is_replaced() -> None:
    plan = plan_files(
        [
            RemoteFile("/etc/nfs.conf", "x", restart=("nfs-server.service",)),
            RemoteFile("/etc/exports", "x", reload=("nfs-server.service",)),
            RemoteFile("/etc/systemd/system/a.mount", "x"),
            RemoteFile("/etc/same", "x", restart=("other.service",)),
        ],
        {"/etc/same": state("x")},
    )
    assert plan.pending == ("restart:nfs-server.service", "reload:nfs-server.service", "daemon-reload")
    script = apply_script(plan)
    assert script.index("restart:nfs-server.service") < script.index("tar -x")


def test_an_absent_file_is_removed_and_its_unit_marked() -> None:
    plan = plan_files([Absent("/etc/a", restart=("a.service",))], {"/etc/a": state("x")})
    assert plan.pending == ("restart:a.service",)
    assert "rm -f -- /etc/a" in apply_script(plan)
    assert not plan_files([Absent("/etc/a")], {})


def test_a_secret_is_neither_shown_nor_part_of_the_script() -> None:
    file = RemoteFile("/etc/secret", "hunter2", mode="600", secret=True)
    plan = plan_files([file], {})
    (change,) = changes(plan, {}, shown=True)
    assert "hunter2" not in "\n".join([apply_script(plan), repr(file), repr(change)])
    assert change.difference == ("/etc/secret: changed (secret, not shown)",)


def test_differences_are_unified() -> None:
    before = {"/etc/a": state("one\ntwo\n", text=True)}
    plan = plan_files([RemoteFile("/etc/a", "one\nthree\n")], before)
    (change,) = changes(plan, before, shown=True)
    assert change.difference[-2:] == ("-two", "+three")
    assert changes(plan, before)[0].difference == ()


def test_changes_name_path_reason_and_reboot() -> None:
    before = {"/etc/b": state("y\n"), "/etc/c": state("x\n", mode="644"), "/etc/d": state("x\n")}
    entries = [
        Absent("/etc/d", reboot="d is read at boot"),
        RemoteFile("/etc/b", "x\n", reboot="b is read at boot"),
        RemoteFile("/etc/a", "x\n"),
        RemoteFile("/etc/c", "x\n", mode="600", reboot="unused: its content stays"),
        RemoteDirectory("/etc/e"),
    ]
    assert [(c.line, c.reboot) for c in changes(plan_files(entries, before), before)] == [
        ("/etc/a: new", None),
        ("/etc/b: content", "b is read at boot"),
        ("/etc/c: mode 600, owner root:root", None),
        ("/etc/d: removed", "d is read at boot"),
        ("/etc/e: mode 755, owner root:root", None),
    ]


def test_archive_holds_new_files_beside_their_targets() -> None:
    plan = plan_files([RemoteFile("/etc/ssh/a", "päth\n", mode="600", owner="ceph", group="ceph")], {})
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive(plan)))) as tar:
        (member,) = tar.getmembers()
        content = tar.extractfile(member)
        assert content is not None
        assert content.read().decode() == "päth\n"
    assert (member.name, member.mode, member.uname) == ("etc/ssh/.a.rackproof-new", 0o600, "ceph")


def test_command_and_parser_agree_on_a_real_machine(tmp_path: Path) -> None:
    plain, odd, gone = tmp_path / "plain", tmp_path / "mnt-nfs\\x2dtcp.mount", tmp_path / "gone"
    plain.write_text("one\ntwo\n")
    odd.write_text("odd\n")
    odd.chmod(0o600)
    paths = [str(plain), str(odd), str(gone), str(tmp_path)]
    done = sh(states_command(paths, [str(plain), str(gone)]))
    states = parse_states(done.stdout.splitlines())
    assert set(states) == {str(plain), str(odd), str(tmp_path)}
    assert states[str(plain)].text == "one\ntwo\n"
    assert states[str(odd)].sha256 == hashlib.sha256(b"odd\n").hexdigest()
    assert states[str(odd)].mode == "600"
    assert states[str(tmp_path)].kind == "directory"


def test_script_and_archive_carry_a_plan_out(tmp_path: Path) -> None:
    """On a folder of this machine instead of a node's root."""
    old, new = tmp_path / "etc/old", tmp_path / "etc/deep/new"
    old.parent.mkdir()
    old.write_text("before\n")
    owner = old.owner()
    files = [RemoteFile(f"/etc/{name}", "after\n", mode="640", owner=owner) for name in ("old", "deep/new")]
    plan = plan_files(files, {"/etc/old": state("before\n")})
    script = apply_script(plan).replace(" -C /", f" -C {tmp_path}").replace("/etc/", f"{tmp_path}/etc/")
    sh(script, stdin=archive(plan), check=True)
    assert old.read_text() == new.read_text() == "after\n"
    assert new.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in old.parent.iterdir()) == ["deep", "old"]


def test_a_cut_off_answer_is_no_answer() -> None:
    with pytest.raises(ValueError, match="expected 3 sections"):
        parse_states(["/etc/a|regular file|644|root|root"])


def test_block_is_added_replaced_and_read_back() -> None:
    first = merge_block("127.0.0.1 localhost", "10.0.0.1 a\n")
    assert first == f"127.0.0.1 localhost\n{BEGIN}\n10.0.0.1 a\n{END}\n"
    second = merge_block(first + "tail\n", "10.0.0.2 b\n")
    assert second == f"127.0.0.1 localhost\n{BEGIN}\n10.0.0.2 b\n{END}\ntail\n"
    assert block_of(second) == "10.0.0.2 b\n"


@pytest.mark.parametrize("text", [BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}\n{BEGIN}\n{END}"])
def test_broken_markers_are_not_guessed_at(text: str) -> None:
    with pytest.raises(Refused, match="repair them by hand"):
        merge_block(text, "x\n")
    with pytest.raises(Refused, match="/etc/hosts"):
        plan_files([RemoteFile("/etc/hosts", "x\n", block=True)], {"/etc/hosts": state(text, text=True)})


_line = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), max_size=20)


@given(st.lists(_line), st.lists(_line))
def test_merging_twice_changes_nothing_more(existing: list[str], block: list[str]) -> None:
    body = "".join(f"{line}\n" for line in block)
    once = merge_block("\n".join(existing), body)
    assert merge_block(once, body) == once
    assert plan_files([RemoteFile("/f", body, block=True)], {"/f": state(once, text=True)}).writes == ()


def test_a_changed_file_that_needs_a_reboot_leaves_the_reason() -> None:
    entry = RemoteFile("/etc/default/grub.d/x.cfg", "a", reboot="kernel command line")
    assert plan_files([entry], {}).pending == ("reboot:kernel command line",)
    assert plan_files(
        [Absent("/x", reboot="driver")], {"/x": FileState("regular file", "644", "root", "root")}
    ).pending == ("reboot:driver",)
    assert reboot_mark("new driver").endswith("'/run/rackproof/pending/reboot:new driver'")
    with pytest.raises(ValueError, match="no /"):
        reboot_mark("a/b")
