"""A fleet of hosts without virtual machines, for benchmarks that scale with the number of hosts.

    python benchmarks/fleet.py 32          # start it, print an inventory, wait for Ctrl-C

Each host is an sshd in a chroot with mount, pid and uts namespaces of its own, on an address of its own in 127.1/16,
over one unpacked Debian root file system that is built once (mmdebstrap) and kept in the user's cache. There is one
kernel for all of them, so there are no modules, reboots or NFS mounts. Needs root.

Hosts and their mounts end with the process that started them.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SUITE = "trixie"
PACKAGES = ("openssh-server", "fio", "goss", "iproute2", "procps", "sudo", "csh", "fish", "python3", "python3-apt")
PORT = 2222
START_S = 60.0
_SSHD = f"""\
Port {PORT}
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PrintMotd no
MaxStartups 200
PerSourcePenalties no
Subsystem sftp internal-sftp
"""
_HOST = """\
set -e
hostname "$1"
mount -t overlay overlay -o "lowerdir=$3,upperdir=$4/upper,workdir=$4/work" "$4/root"
mount -t proc proc "$4/root/proc"
mount -t sysfs -o ro sysfs "$4/root/sys"
mount -t tmpfs tmpfs "$4/root/dev/shm"
mount -t tmpfs tmpfs "$4/root/run"
mkdir -m 755 "$4/root/run/sshd"
echo "$1" >"$4/root/etc/hostname"
cd "$4/root"
exec chroot . /usr/sbin/sshd -D -o ListenAddress="$2"
"""


class FleetError(Exception):
    """The fleet cannot be started, with the reason in one line."""


@dataclass(frozen=True)
class Host:
    name: str
    address: str


@dataclass(frozen=True)
class ChrootFleet:
    """A running fleet. ``folder`` has the inventory, the keys and an ssh configuration."""

    hosts: tuple[Host, ...]
    folder: Path
    key: Path
    known_hosts: Path

    def inventory(self) -> Path:
        """A pyinfra inventory with one group ``gpu``."""
        data = {
            "ssh_port": PORT,
            "ssh_user": "root",
            "ssh_key": str(self.key),
            "ssh_known_hosts_file": str(self.known_hosts),
        }
        hosts = [(host.name, {**data, "ssh_hostname": host.address}) for host in self.hosts]
        path = self.folder / "inventory.py"
        path.write_text(f"gpu = {hosts!r}\n")
        return path

    def ssh_config(self) -> Path:
        lines = [
            f"Host {host.name}\n  HostName {host.address}\n  Port {PORT}\n  User root\n"
            f"  IdentityFile {self.key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.known_hosts}\n"
            for host in self.hosts
        ]
        path = self.folder / "ssh_config"
        path.write_text("".join(lines))
        return path


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rackproof-benchmarks"


def root_folder() -> Path:
    """Folder of the unpacked root file system, built if it is absent. Raises FleetError."""
    if os.geteuid() != 0:
        raise FleetError("hosts of their own need mounts and namespaces: run this as root")
    recipe = f"{SUITE} {' '.join(PACKAGES)}\n{_SSHD}"
    folder = cache_folder() / f"{SUITE}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    if not shutil.which("mmdebstrap"):
        raise FleetError("mmdebstrap is not installed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".part-"))
    part.chmod(0o755)
    print(f"building {folder} (a minute or two)", file=sys.stderr)
    built = subprocess.run(
        ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(part)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if built.returncode:
        shutil.rmtree(part, ignore_errors=True)
        raise FleetError(f"mmdebstrap: {(built.stderr.strip().splitlines() or ['failed'])[-1]}")
    (part / "etc/ssh/sshd_config").write_text(_SSHD)
    key = cache_folder() / "id_ed25519"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    shutil.copy(key.with_suffix(".pub"), part / "etc/ssh/authorized_keys")
    part.rename(folder)
    return folder


@contextmanager
def chroot_fleet(count: int) -> Iterator[ChrootFleet]:
    """Start ``count`` hosts, and stop them at the end of the block. Raises FleetError."""
    root = root_folder()
    with (cache_folder() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FleetError("another fleet has these addresses") from None
        # SIGTERM to this process also ends the hosts.
        before = signal.signal(signal.SIGTERM, _ended)
        try:
            with _started(count, root) as fleet:
                yield fleet
        finally:
            signal.signal(signal.SIGTERM, before)


def _ended(number: int, _: object) -> None:
    raise SystemExit(128 + number)


@contextmanager
def _started(count: int, root: Path) -> Iterator[ChrootFleet]:
    host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
    hosts = tuple(Host(f"gpu-{k + 1:03d}", f"127.1.{k // 250}.{k % 250 + 1}") for k in range(count))
    folder = Path(tempfile.mkdtemp(dir=cache_folder(), prefix=".fleet-"))
    known_hosts = folder / "known_hosts"
    known_hosts.write_text("".join(f"[{host.address}]:{PORT} {' '.join(host_key)}\n" for host in hosts))
    started: list[subprocess.Popen[bytes]] = []
    try:
        for host in hosts:
            mine = folder / host.name
            for part in ("upper", "work", "root"):
                (mine / part).mkdir(parents=True)
            started.append(_start(host, root, mine))
        _wait(hosts, started)
        yield ChrootFleet(hosts, folder, cache_folder() / "id_ed25519", known_hosts)
    finally:
        for process in started:
            process.kill()  # unshare; --kill-child ends what is in it
        for process in started:
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _start(host: Host, root: Path, mine: Path) -> subprocess.Popen[bytes]:
    unshare = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child"]
    script = ["sh", "-c", _HOST, "host", host.name, host.address, str(root), str(mine)]
    with (mine / "log").open("wb") as log:
        return subprocess.Popen([*unshare, *script], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _wait(hosts: tuple[Host, ...], started: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + START_S
    for host, process in zip(hosts, started, strict=True):
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise FleetError(f"{host.name} does not answer on {host.address}:{PORT}")
            try:
                with socket.create_connection((host.address, PORT), timeout=5) as connection:
                    if connection.recv(4) == b"SSH-":
                        break
            except OSError:
                time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description="Start hosts and wait.")
    parser.add_argument("hosts", type=int)
    count = parser.parse_args().hosts
    try:
        with chroot_fleet(count) as fleet:
            print(fleet.inventory(), fleet.ssh_config(), sep="\n", flush=True)
            signal.pause()
    except FleetError as error:
        print(f"fleet: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
