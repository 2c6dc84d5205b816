"""Forty typical testinfra checks of a host; all pass on a host of the fleet."""
# ruff: noqa: S101, S108

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rackproof.validation.checks import check

Host = Any
FILES = {
    "/etc/passwd": 0o644,
    "/etc/shadow": 0o640,
    "/etc/ssh/sshd_config": 0o644,
    "/etc/ssh/ssh_host_ed25519_key": 0o600,
    "/etc/debian_version": 0o644,
    "/etc/fstab": 0o644,
    "/usr/bin/env": 0o755,
    "/etc/host.conf": 0o644,
}
PACKAGES = ("openssh-server", "iproute2", "procps", "sudo", "bash", "coreutils", "tzdata", "libc6")
SYSCTLS = (
    "kernel.ostype",
    "vm.swappiness",
    "vm.overcommit_memory",
    "fs.file-max",
    "kernel.pid_max",
    "net.core.somaxconn",
)
MOUNTS = {"/proc": "proc", "/sys": "sysfs", "/dev/shm": "tmpfs", "/run": "tmpfs", "/": "overlay"}
USERS = {"root": 0, "sshd": None, "nobody": 65534, "daemon": 1}
COMMANDS = {
    "uname -s": "Linux",
    "cat /etc/debian_version": "13",
    "sshd -T": "passwordauthentication no",
    "getconf LONG_BIT": "64",
    "ulimit -n": "",
}


def _file(path: str, mode: int) -> Callable[[Host], None]:
    def test(host: Host) -> None:
        file = host.file(path)
        assert file.exists
        assert file.is_file
        assert file.user == "root"
        assert file.mode == mode

    return test


def _package(name: str) -> Callable[[Host], None]:
    def test(host: Host) -> None:
        package = host.package(name)
        assert package.is_installed
        assert package.version

    return test


def _sysctl(name: str) -> Callable[[Host], None]:
    def test(host: Host) -> None:
        assert str(host.sysctl(name)) != ""

    return test


def _mount(path: str, kind: str) -> Callable[[Host], None]:
    def test(host: Host) -> None:
        mount = host.mount_point(path)
        assert mount.exists
        assert mount.filesystem == kind

    return test


def _user(name: str, uid: int | None) -> Callable[[Host], None]:
    def test(host: Host) -> None:
        user = host.user(name)
        assert user.exists
        assert uid is None or user.uid == uid
        assert user.shell

    return test


def _command(command: str, words: str) -> Callable[[Host], None]:
    def test(host: Host) -> None:
        done = host.run(command)
        assert done.rc == 0
        assert words in done.stdout

    return test


def _add(kind: str, number: int, function: Callable[[Host], None]) -> None:
    name = f"test_{kind}_{number}"
    function.__name__ = function.__qualname__ = name
    declare = check(f"{kind}.{number}", reads="metadata", protects="Time.", hint="None.")
    globals()[name] = declare(function)


for _number, (_path, _mode) in enumerate(FILES.items()):
    _add("file", _number, _file(_path, _mode))
for _number, _name in enumerate(PACKAGES):
    _add("package", _number, _package(_name))
for _number, _name in enumerate(SYSCTLS):
    _add("sysctl", _number, _sysctl(_name))
for _number, (_path, _kind) in enumerate(MOUNTS.items()):
    _add("mount", _number, _mount(_path, _kind))
for _number, (_name, _uid) in enumerate(USERS.items()):
    _add("user", _number, _user(_name, _uid))
for _number, (_name, _words) in enumerate(COMMANDS.items()):
    _add("command", _number, _command(_name, _words))


@check("group.0", reads="metadata", protects="Time.", hint="None.")
def test_group(host: Host) -> None:
    assert host.group("root").exists
    assert host.group("root").gid == 0


@check("interface.0", reads="metadata", protects="Time.", hint="None.")
def test_interface(host: Host) -> None:
    assert host.interface("lo").exists
    assert "127.0.0.1" in host.interface("lo").addresses


@check("process.0", reads="metadata", protects="Time.", hint="None.")
def test_process(host: Host) -> None:
    assert host.process.filter(user="root", comm="sshd")


@check("system.0", reads="metadata", protects="Time.", hint="None.")
def test_system(host: Host) -> None:
    assert host.system_info.type == "linux"
    assert host.system_info.distribution == "debian"
