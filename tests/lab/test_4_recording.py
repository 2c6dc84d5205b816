"""Answers of the recording backend are those of testinfra's own ssh backend, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import testinfra
from testinfra.host import Host

from rackproof.core.rack import Node, Rack
from rackproof.remote.collect import RecordingReader, gather
from rackproof.remote.fleet import Fleet
from rackproof.remote.recording import Recording, Unmeasured
from rackproof.remote.testinfra_backend import host_of

NODES = ("gpu-01",)  # one: testinfra's own backend takes minutes for these questions
TYPES = "is_file is_directory is_symlink is_pipe is_socket is_executable"

QUESTIONS: dict[str, Callable[[Host], Any]] = {
    # Commands
    "run": lambda host: _result(host.run("uname -s; echo err >&2; exit 3")),
    "run, with arguments": lambda host: _result(host.run("printf '%%s|' %s %s", "a b", "it's $HOME `id`")),
    "run, without a last newline": lambda host: _result(host.run("printf 'a\\n\\nb'")),
    "run, several lines": lambda host: _result(host.run("echo one\necho two")),
    "run, not UTF-8": lambda host: host.run("printf 'a\\377b'").stdout_bytes,
    "run, large": lambda host: _result(host.run("seq 1 60000")),
    "run, reads its input": lambda host: _result(host.run("cat")),
    "run_expect": lambda host: _result(host.run_expect([0, 1], "test -e /no/such/file")),
    "run_expect, other": lambda host: _result(host.run_expect([0], "test -e /no/such/file")),
    "run_test": lambda host: _result(host.run_test("test -e /etc/passwd")),
    "check_output": lambda host: host.check_output("cat %s", "/etc/debian_version"),
    "check_output, fails": lambda host: host.check_output("false"),
    "exists": lambda host: [host.exists(name) for name in ("sh", "ip", "no-such-program")],
    "find_command": lambda host: host.find_command("ip"),
    "find_command, none": lambda host: host.find_command("no-such-program"),
    "is_superuser, user": lambda host: host.user().name,
    # Files
    "file, contents": lambda host: [host.file("/etc/passwd").content, host.file("/etc/passwd").content_string],
    "file, contains": lambda host: [host.file("/etc/passwd").contains(word) for word in ("root", "^nobody", "zzz")],
    "file, types": lambda host: [
        [getattr(host.file(path), name) for name in TYPES.split()]
        for path in ("/etc", "/etc/passwd", "/proc/self", "/dev/null", "/bin/sh", "/no/such/file")
    ],
    "file, facts": lambda host: [
        (f.exists, f.mode, f.user, f.uid, f.group, f.gid, f.size, f.mtime, f.md5sum, f.sha256sum)
        for f in map(host.file, ("/etc/passwd", "/etc/shadow", "/usr/bin/env"))
    ],
    "file, facts of none": lambda host: host.file("/no/such/file").mode,
    "file, contents of none": lambda host: host.file("/no/such/file").content,
    "file, link": lambda host: [host.file(path).linked_to for path in ("/bin/sh", "/etc/passwd", "/no/such")],
    "file, listing": lambda host: sorted(host.file("/etc/ssh").listdir()),
    "file, listing of none": lambda host: host.file("/no/such/folder").listdir(),
    "file, equal": lambda host: host.file("/etc/passwd") == "/etc/passwd",
    # Packages, services
    "package": lambda host: [
        (package.is_installed, package.version) for package in map(host.package, ("bash", "libc6"))
    ],
    "package, none": lambda host: host.package("no-such-package").is_installed,
    "package, version of none": lambda host: host.package("no-such-package").version,
    "service": lambda host: [
        (service.exists, service.is_valid, service.is_enabled, service.is_running, service.is_masked)
        for service in map(host.service, ("ssh", "systemd-journald"))
    ],
    "service, none": lambda host: [host.service("no-such").exists, host.service("no-such").is_running],
    "service, properties": lambda host: {
        key: host.service("ssh").systemd_properties.get(key) for key in ("Id", "LoadState", "UnitFileState", "Type")
    },
    # Kernel, mounts, interfaces
    "sysctl": lambda host: [host.sysctl(key) for key in ("kernel.ostype", "vm.swappiness", "net.ipv4.ip_forward")],
    "sysctl, none": lambda host: host.sysctl("no.such.key"),
    "mount_point": lambda host: [
        (m.exists, m.exists and (m.filesystem, m.device, m.options))
        for m in map(host.mount_point, ("/", "/proc", "/dev/shm", "/no/such/mount"))
    ],
    "mount_point, all": lambda host: sorted(str(mount.path) for mount in host.mount_point.get_mountpoints()),
    "interface": lambda host: [
        (i.exists, i.exists and (i.addresses, i.speed if i.name != "lo" else None, i.link))
        for i in map(host.interface, ("lo", "no-such0"))
    ],
    "interface, names": lambda host: [sorted(host.interface.names()), host.interface.default().name],
    "interface, routes": lambda host: host.interface("lo").routes(),
    "system_info": lambda host: [
        host.system_info.type,
        host.system_info.distribution,
        host.system_info.release,
        host.system_info.codename,
        host.system_info.arch,
    ],
    "kernel": lambda host: host.check_output("uname -r"),
    "block_device": lambda host: host.block_device("/dev/no-such").size,
    "environment": lambda host: host.environment().get("HOME"),
    # Users, processes, sockets
    "user": lambda host: [
        (u.exists, u.uid, u.gid, u.group, u.groups, u.gids, u.home, u.shell, u.gecos, u.password)
        for u in map(host.user, ("root", "nobody"))
    ],
    "user, none": lambda host: [host.user("no-such").exists, host.user("no-such").uid],
    "group": lambda host: [(g.exists, g.gid, g.members) for g in map(host.group, ("root", "daemon"))],
    "group, none": lambda host: [host.group("no-such").exists, host.group("no-such").gid],
    "process": lambda host: [(p.pid, p.ppid, p.user, p.comm, p.args) for p in [host.process.get(pid=1)]],
    "process, filter": lambda host: sorted(p.pid for p in host.process.filter(ppid=0)),
    "process, none": lambda host: host.process.get(comm="no-such-process"),
    "process, filter, none": lambda host: host.process.filter(comm="no-such-process"),
    "socket": lambda host: [host.socket(f"tcp://{address}").is_listening for address in ("22", "0.0.0.0:1", "::1:1")],
    "socket, unix": lambda host: host.socket("unix:///no/such/socket").is_listening,
    "addr": lambda host: [host.addr("localhost").is_resolvable, host.addr("127.0.0.1").ipv4_addresses],
}


def _result(result: Any) -> tuple[int, bytes, bytes]:
    return result.rc, result.stdout_bytes, result.stderr_bytes


def answer(host: Host, question: Callable[[Host], Any]) -> object:
    """The answer, or the class of the error, whose message names the backend's own command and is not compared."""
    try:
        return question(host)
    except Unmeasured:
        raise
    except Exception as error:
        return type(error)


def ssh_host(node: Node, folder: Path) -> Host:
    """testinfra's own."""
    data = node.data
    config = folder / f"{node.name}.ssh"
    config.write_text(
        f"Host {node.name}\n  HostName {data['ssh_hostname']}\n  Port {data['ssh_port']}\n  User {data['ssh_user']}\n"
        f"  IdentityFile {data['ssh_key']}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {data['ssh_known_hosts_file']}\n  SetEnv LC_ALL=C\n"
        # One connection, or a few hundred logins are what takes most of the time.
        f"  ControlPath {folder}/{node.name}.%p\n"
    )
    return testinfra.get_host(f"ssh://{node.name}", ssh_config=str(config), timeout=60)


@pytest.fixture(scope="module", params=NODES)
def both(request: pytest.FixtureRequest, converged: Rack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """testinfra's host of a node, the kit's own, and its reader, which has read everything beforehand."""
    node = converged.node(request.param)
    with Fleet(converged) as fleet:
        yield both_of(node, fleet, tmp_path_factory.mktemp("ssh"))


def both_of(node: Node, fleet: Fleet, folder: Path) -> tuple[Host, Callable[[], Host], RecordingReader]:
    reader = RecordingReader(node.name, fleet[node.name], timeout_s=60)
    questions = [lambda question=question: question(host_of(node.name, reader)) for question in QUESTIONS.values()]
    gather(fleet, {node.name: reader}, {node.name: questions}, rounds=100)  # questions ask one thing after the other
    return ssh_host(node, folder), lambda: host_of(node.name, reader), reader


@pytest.mark.long
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_answer_is_the_same(both: Any, name: str) -> None:
    direct, recorded, reader = both
    misses = reader.misses
    assert answer(recorded(), QUESTIONS[name]) == answer(direct, QUESTIONS[name])
    assert reader.misses == misses, "it was not among what had been read beforehand"


@pytest.mark.long
def test_the_answer_is_the_same_from_a_file(both: Any) -> None:
    """Answers from a recording file, without a connection to the node."""
    _, recorded, reader = both
    answers = {name: answer(recorded(), question) for name, question in QUESTIONS.items()}
    node = Node(reader.node, ("gpu",))
    text = Recording(node, {result.command: result for result in reader.known()}).to_json()
    again = RecordingReader(reader.node, known=Recording.from_json(text, "a file").results.values())
    for name, question in QUESTIONS.items():
        if "password" not in name and name != "user":  # secrets do not reach a file
            assert answer(host_of(reader.node, again), question) == answers[name], name


@pytest.mark.long
def test_a_missing_tool_is_no_answer(both: Any) -> None:
    """The one difference: exit status 127 is an answer to testinfra and UNMEASURED to the kit."""
    direct, recorded, _ = both
    assert direct.run("no-such-program").rc == 127
    with pytest.raises(Unmeasured, match="not found"):
        recorded().run("no-such-program")


USERS = {
    # login name: expected error of the connection; None: the login works
    "rp-noisy": None,
    "rp-nologin": "its login shell runs no commands: This account is currently not available.",
    "rp-false": "its login shell runs no commands: exit status 1",
    "rp-nosudo": "sudo is refused: ",
    "rp-unknown": "authentication failed",
}
MAKE_USERS = r"""
set -e
user() {
  useradd -m -s "$2" "$1"
  usermod -p '*' "$1"
  install -d -m 700 "/home/$1/.ssh"
  for keys in /root/.ssh/authorized_keys /etc/ssh/lab_authorized_keys; do
    [ ! -e $keys ] || cat $keys >>"/home/$1/.ssh/authorized_keys"
  done
  chown -R "$1" "/home/$1"
}
user rp-noisy /bin/bash
printf 'echo Welcome!; echo careful >&2\n' >/home/rp-noisy/.bashrc
user rp-nologin /usr/sbin/nologin
user rp-false /bin/false
user rp-nosudo /bin/sh
"""
DROP_USERS = "for u in rp-noisy rp-nologin rp-false rp-nosudo; do userdel -r $u 2>/dev/null; done; true"
ASKED = ("printf 'a\\377b'; echo warned >&2; exit 4", "test -e /no/such/file", "echo 'one!'\necho two")


@pytest.fixture(scope="module")
def users(converged: Rack) -> Iterator[Node]:
    """A node with users that no rack should have."""
    node = converged.node(NODES[0])
    with Fleet(converged) as fleet:
        fleet[node.name].run(DROP_USERS, 300)
        made = fleet[node.name].run(MAKE_USERS, 300)
        assert made.ok, made.why
        yield node
        fleet[node.name].run(DROP_USERS, 300)


@pytest.mark.parametrize("user", USERS)
def test_a_login_that_fails_gives_its_reason_and_no_answers(users: Node, user: str) -> None:
    data = {**users.data, "ssh_user": user, "_sudo": user == "rp-nosudo"}
    node = Node(users.name, users.groups, data)
    with Fleet(Rack("users", (node,))) as fleet:
        reader = RecordingReader(node.name, fleet[node.name], timeout_s=60)
        gather(fleet, {node.name: reader}, {node.name: [lambda c=c: reader.read(c) for c in ASKED]})
        results = [reader.read(command) for command in ASKED]
    reason = USERS[user]
    if reason is None:
        actual = [(result.rc, result.stdout, result.stderr) for result in results]
        assert [result.error for result in results] == [None] * len(ASKED)
        assert actual == [(4, b"a\xffb", b"warned\n"), (1, b"", b""), (0, b"one!\ntwo\n", b"")]
        assert reader.misses == 0
    else:
        assert [result.rc for result in results] == [None] * len(ASKED)
        assert all(reason in (result.error or "") for result in results)
