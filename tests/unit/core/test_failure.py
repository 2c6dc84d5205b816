"""Why a program failed: the cause first, in its own words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.failure import failure, last_words
from rackproof.parse import ParseError


@pytest.mark.parametrize(
    ("tool", "status", "outputs", "expected"),
    [
        ("chronyc", 1, ("", "506 Cannot talk to daemon\n"),
         "chronyd does not run: chronyc: 506 Cannot talk to daemon (exit status 1)"),
        ("fio", 1, ("fio: /mnt/x is not a directory\n", "{\n}\n"), "fio: /mnt/x is not a directory (exit status 1)"),
        ("fio", 1, ("error: no such engine\n",), "fio: error: no such engine (exit status 1)"),
        ("fio", 1, ("", '{\n "jobs": [\n  {"error": 0}\n ]\n}\n'), "fio failed (exit status 1)"),
        ("fio", 1, ("", "fio: engine x not loadable\n{\n"), "fio: engine x not loadable (exit status 1)"),
        ("df", 2, ("", ""), "df failed (exit status 2)"),
        ("/usr/bin/df", 1, ("", "x\n"), "df: x (exit status 1)"),
        ("ip", 2, ("RTNETLINK answers: Operation not permitted\n",),
         "the login may not do this: ip: RTNETLINK answers: Operation not permitted (exit status 2)"),
        ("ceph", 1, ("[errno 13] RADOS permission denied (error connecting to the cluster)\n",),
         "Ceph refuses the node's key, or the login cannot read it: ceph: [errno 13] RADOS permission denied "
         "(error connecting to the cluster) (exit status 1)"),
        ("ceph", 13, ("Error EACCES: access denied\n",),
         "Ceph refuses the node's key, or the login cannot read it: ceph: Error EACCES: access denied "
         "(exit status 13)"),
        ("mount.ceph", 32, ("mount error 13 = Permission denied\n",),
         "Ceph refuses the node's key, or the login cannot read it: mount.ceph: mount error 13 = Permission denied "
         "(exit status 32)"),
        ("x", 127, ("sh: 1: chronyc: not found\n",), "chronyc is not installed (exit status 127)"),
        ("x", 127, ("bash: line 1: lctl: command not found\n",), "lctl is not installed (exit status 127)"),
        ("x", 127, ("timeout: failed to run command 'ceph': No such file or directory\n",),
         "ceph is not installed (exit status 127)"),
        ("x", 127, ("env: ‘fio’: No such file or directory\n",), "fio is not installed (exit status 127)"),
        ("x", 127, ("sh: 1: /usr/lpp/mmfs/bin/mmgetstate: not found\n",),
         "/usr/lpp/mmfs/bin/mmgetstate is not installed (exit status 127)"),
        ("fio", 127, ("fio: error while loading shared libraries: libaio.so.1: cannot open shared object file\n",),
         "fio: error while loading shared libraries: libaio.so.1: cannot open shared object file (exit status 127)"),
        ("fio", 127, ("",), "fio is not installed (exit status 127)"),
        ("scontrol", 127,
         ("", "2026-11-23T14:00:01\ntimeout: failed to run command 'scontrol': No such file\n2026-11-23T14:00:02\n"),
         "scontrol is not installed (exit status 127)"),
        ("x", 127, ("sh: 1: chronyc: not found\ngrep: no input\n",), "chronyc is not installed (exit status 127)"),
        ("scontrol", 1, ("", "2026-11-23T14:00:01\nslurm_load_ctl_conf error: Invalid user id\n2026-11-23T14:00:02\n"),
         "scontrol: slurm_load_ctl_conf error: Invalid user id (exit status 1)"),
        ("fio", 126, ("sh: 1: fio: Permission denied\n",),
         "fio cannot be started: sh: 1: fio: Permission denied (exit status 126)"),
        ("stat", 124, ("",), "stat did not finish in time (exit status 124)"),
        ("fio", 137, ("Killed\n",), "fio did not finish in time or was killed (exit status 137)"),
        ("fio", 139, ("Segmentation fault\n",), "fio was ended by SIGSEGV: Segmentation fault (exit status 139)"),
        ("nvidia-smi", 9, ("", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n\n"),
         "the NVIDIA driver does not run: nvidia-smi: NVIDIA-SMI has failed because it couldn't communicate with the "
         "NVIDIA driver. (exit status 9)"),
    ],
)  # fmt: skip
def test_the_cause_comes_first(tool: str, status: int, outputs: tuple[str, ...], expected: str) -> None:
    assert failure(tool, status, *outputs) == expected


def test_advice_and_locales_are_no_cause() -> None:
    text = (
        "ping: gpu-09: Name or service not known\n"
        'perl: warning: Setting locale failed.\nLC_ALL = "de_DE",\n'
        "Usage: ping [options]\nTry 'ping --help' for more information.\n}\n\nKilled\n"
    )
    assert last_words(text) == "ping: gpu-09: Name or service not known"
    assert last_words("Usage: x\n") == ""
    assert len(last_words("word " * 100)) == 160


@given(st.from_regex(r"\A[\w./-]{1,20}\Z"), st.integers(1, 255), st.text(max_size=40), st.text(max_size=40))
def test_it_is_one_line_that_never_begins_with_the_status(tool: str, status: int, err: str, out: str) -> None:
    line = failure(tool, status, err, out)
    assert len(line.splitlines()) == 1
    assert line.endswith(f"(exit status {status})")
    assert not line.startswith("exit status")


def test_a_parse_error_names_its_tool_once() -> None:
    assert str(ParseError("fio", "fio: no engine (exit status 1)")) == "fio: no engine (exit status 1)"
    assert str(ParseError("grep", "grep failed (exit status 2)")) == "grep failed (exit status 2)"
    assert str(ParseError("fio", "no output")) == "fio: no output"
