"""Commands as one string for a login shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.core.failure import failure
from rackproof.core.rack import Node
from rackproof.remote.command import bounded, portable, program, script_or_program, tied
from rackproof.remote.ssh import sudo_of

NASTY = r"""printf '%s|' 'a!b' "it's" '\' "\\" '{x,y}' '~' '*' '$HOME' "$((1+1))" '^x' '%1' '#' ';' '&' `echo q`"""
SAYS = "a!b|it's|\\|\\|{x,y}|~|*|$HOME|2|^x|%1|#|;|&|q|"


def run(text: str, shell: str = "sh") -> str:
    return subprocess.run([shell, "-c", text], capture_output=True, text=True, check=True, timeout=30).stdout


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "csh", "tcsh", "fish", "zsh", "ksh"])
def test_a_command_means_the_same_in_every_login_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    assert run(bounded(NASTY, 10), shell) == SAYS
    assert run(bounded("echo one\necho two", 10), shell) == "one\ntwo\n"
    assert run(bounded(f"# 100% of it\\n\n{NASTY}\n", 10), shell) == SAYS
    long = "\n".join(f"echo 'line {k}: it'\"'\"'s \\0101 %s!'" for k in range(300))
    assert run(bounded(long, 10), shell) == run(long, "dash")
    with subprocess.Popen([shell, "-c", tied(NASTY, 10)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.read().decode() == SAYS  # it ends by itself; its input is still open


def test_nothing_of_a_tied_command_keeps_its_outputs_open() -> None:
    """sshd reports the end of a command when all of its outputs are closed."""
    command = tied("echo out; echo err >&2; exit 3", 10, mark="m")
    with subprocess.Popen(["sh", "-c", command], stdin=-1, stdout=-1, stderr=-1) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == b"out\n"
        assert process.stderr.read() == b"err\n"
        assert process.wait(10) == 3


def test_a_tied_command_ends_with_its_input() -> None:
    command = tied("echo $$; exec sleep 300", 300)
    with subprocess.Popen(["sh", "-c", command], stdin=-1, stdout=-1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        process.stdin.close()
        assert process.wait(20) != 0
        assert process.stdout.read() == b""  # sleep has closed it
    assert not Path(f"/proc/{pid}/root").exists()


STARTING = """#!/usr/bin/env python3
import os, sys
os.setpgid(0, 0)
if os.fork() == 0:
    os.execvp(sys.argv[4], sys.argv[4:])
os.wait()
"""
"""timeout(1) that dies of the signal, as GNU's does before it knows the command's process id."""


def test_a_tied_command_ends_even_if_timeout_has_only_begun_to_start_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timeout").write_text(STARTING)
    (tmp_path / "timeout").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command = tied("echo $$; exec sleep 300", 300)
    with subprocess.Popen(["sh", "-c", command], stdin=-1, stdout=-1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.stdin.close()
        assert process.wait(20) != 0
        assert process.stdout.read() == b""
    assert not Path(f"/proc/{pid}/root").exists()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=60))
@settings(max_examples=40, deadline=None)
def test_any_text_arrives_as_it_is(text: str) -> None:
    quoted = "'" + text.replace("'", "'\"'\"'") + "'"
    assert run(f"sh -c {portable(f'printf %s {quoted}')}") == text


def test_nothing_is_left_for_csh_to_take_for_history_or_for_fish_to_unescape() -> None:
    assert portable("echo 'a!b' \\") == "'echo '\"'\"'a'\\!'b'\"'\"' '\\\\"
    assert portable("") == "''"
    assert "\n" not in portable("a\nb")


def test_sudo_precedes_the_whole_command_when_the_inventory_sets_it() -> None:
    assert sudo_of(Node("a", (), {"ssh_user": "me"})) == ""
    assert sudo_of(Node("a", (), {"_sudo": True})) == "sudo -n "
    assert sudo_of(Node("a", (), {"_sudo": True, "_sudo_user": "x y"})) == "sudo -n -u 'x y' "
    assert bounded("id", 5, "sudo -n ").startswith("sudo -n env LC_ALL=C timeout ")
    assert tied("id", 5, "sudo -n ").startswith("sudo -n sh -c ")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("nvidia-smi -q -x", "nvidia-smi"),
        ("timeout -k 2 5 LC_ALL=C chronyc -n tracking", "chronyc"),
        ("cd /mnt/x && podman run --rm image true", "podman"),
        ("d=$(mktemp -d) && trap 'rm -rf \"$d\"' EXIT && printf %s '[a]\nb' > \"$d/x\" && fio --client=a,1", "fio"),
        ("timeout -k 5 100 runuser -u rackproof -- /usr/local/bin/tool -- true", "/usr/local/bin/tool"),
        ("for m in /a /b; do mountpoint -q $m || exit 1; done\nstat -c %s /a", "stat"),
        ("sync; echo 3 > /proc/sys/vm/drop_caches", "sync"),
        ("a 'quote that is not closed", "a"),
        ("cat /proc/mounts", "cat"),
        ("uname -srm; . /etc/os-release && echo \"$NAME\"; nproc", "nproc"),
        ("running() {\n  read -r x </proc/loadavg\n}\nstate() {\n  running\n  date +%s\n}\nstate\n", "date"),
        ("cd /sys/class/net 2>/dev/null && grep -sH '' */ifindex; echo status $?", "grep"),
        ("timeout -k 2 20 stat -f -c '%S %b' -- /mnt/nfs 2>&1; echo status $?", "stat"),
        ("for m in /a; do { r=$(timeout 5 stat -f \"$m\" 2>&1); echo \"$m $r\"; } & done; wait", "stat"),
        ("if command -v dpkg >/dev/null; then dpkg-query -W; else rpm -q x; fi", "dpkg-query"),
        ("! ip link show x && [ -e y ]", "ip"),
        ("for d in /sys/*; do [ ! -e \"$d\" ] || echo \"$d\"; done", "sh"),
        ("", ""),
        ("sh -c 'exec setpriv --reuid=9 env HOME=/x \"$@\"' as ib_write_bw -d mlx5_0", "ib_write_bw"),
        ("sh -c 'echo 1'", "sh"),
    ],
)  # fmt: skip
def test_a_command_is_named_by_its_program(command: str, name: str) -> None:
    assert program(command) == name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("sh -c 'exec \"$@\"' as python3 -I /run/rackproof-bench/ingest_node.py '{\"a\": 1}'", "ingest_node.py"),
        ("python3 join_node.py", "join_node.py"),
        ("python3 -c 'import x'", "python3"),
        ("fio --client=a.py", "fio"),
    ],
)
def test_a_python_program_is_named_by_its_script(command: str, name: str) -> None:
    assert script_or_program(command) == name


@given(st.text(max_size=60))
def test_every_command_has_a_name_and_none_an_error(command: str) -> None:
    assert isinstance(program(command), str)


PLAIN = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")


def test_folders_that_the_login_may_not_search_are_left_out_of_its_path(tmp_path: Path) -> None:
    """Otherwise a program that is missing "may not be started", because that folder may have it."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    path = f"{closed}:{tmp_path}/nothing::/usr/bin:/bin"
    login = PLAIN if os.geteuid() == 0 else ()
    if not login:
        closed.chmod(0)

    def answer(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*login, "sh", "-c", bounded(command, 60)], env={"PATH": path}, cwd="/", capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    assert answer('printf %s "$PATH"; [ -z "${folder-}${rackproof-}" ]').stdout == "/usr/bin:/bin:/usr/sbin:/sbin"
    for missing in ("rackproof-nothing", "timeout 5 rackproof-nothing", "env rackproof-nothing"):
        done = answer(missing)
        assert failure("x", done.returncode, done.stderr) == "rackproof-nothing is not installed (exit status 127)"
