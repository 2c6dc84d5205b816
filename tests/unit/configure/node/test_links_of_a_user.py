"""Links that an unprivileged user has put into the own home, met by root: with a real user."""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackproof.configure.node import users
from rackproof.configure.node.inputs import User
from rackproof.parse.accounts import accounts_command, parse_accounts
from tests.unit.shell import sh

NAME = f"rp-links-{os.getpid()}"
KEY = "ssh-ed25519 BBBB new"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root makes the user")


@pytest.fixture
def home() -> Iterator[Path]:
    _accounts("useradd", "-m", NAME)
    try:
        yield Path(pwd.getpwnam(NAME).pw_dir)
    finally:
        _accounts("userdel", "-r", NAME)


def _accounts(*command: str) -> None:
    """One test process at a time: useradd does not wait for its lock."""
    with open("/run/lock/rackproof-tests", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(command, check=True, capture_output=True)


def as_user(*command: str) -> None:
    subprocess.run(["runuser", "-u", NAME, "--", *command], check=True, cwd="/")


def added(*keys: str) -> subprocess.CompletedProcess[str]:
    """The script that adds a key to an account which has ``keys``, run as root."""
    has = users.Account(1, "/bin/bash", frozenset(), keys=keys)
    script = users.plan([User(name=NAME, ssh_keys=(KEY,))], {}, {NAME: has}).script
    return sh(script)


def test_a_key_is_added_to_the_others_and_belongs_to_its_user(home: Path) -> None:
    as_user("mkdir", "-m", "755", f"{home}/.ssh")
    as_user("sh", "-c", f"printf 'ssh-ed25519 AAAA old' >{home}/.ssh/authorized_keys")
    done = added()
    assert (done.returncode, done.stderr) == (0, "")
    file = home / ".ssh/authorized_keys"
    assert file.read_text() == f"ssh-ed25519 AAAA old\n{KEY}\n"
    uid = pwd.getpwnam(NAME).pw_uid
    assert [(path.stat().st_uid, oct(path.stat().st_mode & 0o777)) for path in (file, file.parent)] == [
        (uid, "0o600"), (uid, "0o700"),
    ]  # fmt: skip


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can look into."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_of_keys_that_is_a_link_changes_nothing_elsewhere(home: Path, open_folder: Path) -> None:
    """Before, /etc became the user's, and root's authorized_keys got the key."""
    roots = open_folder / "roots"
    roots.mkdir(mode=0o755)
    (roots / "authorized_keys").write_text("ssh-ed25519 ROOT root\n")
    before = roots.stat()
    as_user("ln", "-s", str(roots), f"{home}/.ssh")
    done = added()
    assert done.returncode != 0
    assert (roots.stat().st_uid, roots.stat().st_mode) == (before.st_uid, before.st_mode)
    assert {path.name: path.read_text() for path in roots.iterdir()} == {"authorized_keys": "ssh-ed25519 ROOT root\n"}


def test_what_is_roots_is_neither_copied_nor_read(home: Path, open_folder: Path) -> None:
    secret = open_folder / "shadow"
    secret.write_text("root:hash\n")
    secret.chmod(0o600)
    as_user("mkdir", "-m", "700", f"{home}/.ssh")
    as_user("ln", "-s", str(secret), f"{home}/.ssh/authorized_keys")
    assert added().returncode != 0
    assert not any("hash" in path.read_text() for path in (home / ".ssh").iterdir() if not path.is_symlink())
    for command in (users.state_command([NAME]), accounts_command([NAME])):
        done = sh(command, cwd="/")
        assert NAME in done.stdout
        assert "root:hash" not in done.stdout


def test_a_fifo_in_place_of_keys_does_not_block(home: Path) -> None:
    as_user("mkdir", f"{home}/.ssh")
    as_user("mkfifo", f"{home}/.ssh/authorized_keys")
    assert added().returncode == 0
    assert (home / ".ssh/authorized_keys").read_text() == f"{KEY}\n"
    as_user("rm", f"{home}/.ssh/authorized_keys")
    as_user("mkfifo", f"{home}/.ssh/authorized_keys")
    for command in (users.state_command([NAME]), accounts_command([NAME])):
        done = sh(command, cwd="/")
        assert "key " not in done.stdout


def test_a_file_of_keys_without_an_end_of_line_hides_nothing_behind_it(home: Path) -> None:
    as_user("mkdir", "-m", "700", f"{home}/.ssh")
    as_user("sh", "-c", f"printf 'ssh-ed25519 AAAA old' >{home}/.ssh/authorized_keys")
    names = (NAME, "root")
    deploy = users.parse_state(sh(users.state_command(names), cwd="/").stdout.splitlines())
    check = parse_accounts(sh(accounts_command(names), cwd="/").stdout, names).by_name
    for accounts in (deploy, check):
        own, root = (account and (account.uid, account.keys) for account in map(accounts.get, names))
        assert own == (pwd.getpwnam(NAME).pw_uid, ("ssh-ed25519 AAAA old",))
        assert root
