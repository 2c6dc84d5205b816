"""Bring the virtual rack up and down."""

from __future__ import annotations

import fcntl
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rackproof.atomic_write import replace_file
from rackproof.errors import LabError
from rackproof.lab import keeper, monitor, seed, state
from rackproof.lab.accel import choose
from rackproof.lab.image import Image, ensure_image
from rackproof.lab.recipe import releases
from rackproof.lab.spec import NodeSpec, RackSpec, Wiring, plan_nodes, qemu_command

BOOT_TIMEOUT_S = {"tcg": 900.0, "kvm": 120.0}
POWEROFF_S = 60.0
SSH_PROBE_S = 20
_QEMU_TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "ssh": "openssh-client",
               "ssh-keygen": "openssh-client", "cpio": "cpio"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Options of ``lab up``; None keeps the rack's value, or takes the default for a new rack."""

    gpu_nodes: int | None = None
    storage_nodes: int | None = None
    gpu_memory_mib: int | None = None
    storage_memory_mib: int | None = None
    rails: int | None = None
    accel: str = "auto"
    releases: tuple[tuple[str | None, str], ...] = ()
    """Node (None: all) and release; a later pair replaces an earlier one."""


class Lab:
    """The virtual rack of one checkout. ``say`` receives lines of progress."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda line: None) -> None:
        self.folder = folder
        self.say = say

    # -- up --------------------------------------------------------------------------------------------------

    def up(self, options: UpOptions) -> RackSpec:
        """Start the nodes that do not run, and wait until they answer over ssh."""
        _need(_QEMU_TOOLS)
        state.private_folder(self.folder)
        with self.lock():
            spec, images = self._spec(options)
            running = self.pids()
            absent = [node for node in spec.nodes if node.name not in running]
            if not absent:
                self.say(f"the rack is already up: {len(spec.nodes)} nodes ({spec.accel})")
                return spec
            if not running:
                (self.folder / state.FAULTS).unlink(missing_ok=True)  # no fault outlives a boot
            self._prepare(spec, images)
            if not state.keeper_alive(self.folder):
                keeper.spawn(self.folder)
                self._await_keeper()
            began = time.monotonic()
            with keeper.KeeperClient(self.folder) as client:
                client.request("hold")
                for node in absent:
                    console = self.node_folder(node.name) / "console.log"
                    console.write_bytes(b"")
                    image = images[node.release]
                    command = qemu_command(
                        node, spec, self._seed(), image.kernel, "initrd.img", image.recipe["kernel_arguments"]
                    )
                    client.request("start", node=node.name, command=command)
                self._await_ssh(spec, absent, began, client)
                client.request("commit")
            self.say(f"the rack is up: {len(spec.nodes)} nodes in {time.monotonic() - began:.0f} s ({spec.accel})")
            return spec

    def _spec(self, options: UpOptions) -> tuple[RackSpec, dict[str, Image]]:
        old = state.read_spec(self.folder)
        counts = {role: sum(n.role == role for n in old.nodes) if old else None for role in ("gpu", "storage")}
        first = {n.role: n for n in old.nodes} if old else {}

        def value(requested: int | None, kept: int | None, default: int) -> int:
            return requested if requested is not None else kept if kept is not None else default

        nodes = plan_nodes(
            value(options.gpu_nodes, counts["gpu"], 2),
            value(options.storage_nodes, counts["storage"], 1),
            value(options.gpu_memory_mib, first["gpu"].memory_mib if "gpu" in first else None, 1536),
            value(options.storage_memory_mib, first["storage"].memory_mib if "storage" in first else None, 3072),
            value(options.rails, old.nodes[0].rails if old else None, 1),
            lambda name: _release(name, options.releases, old),
        )
        unknown = {name for name, _ in options.releases if name is not None} - {node.name for node in nodes}
        if unknown:
            names = ", ".join(node.name for node in nodes)
            raise LabError(f"--release: no node {', '.join(sorted(unknown))} in the rack; it has {names}")
        built = {release: ensure_image(release, self.say) for release in sorted({node.release for node in nodes})}
        images = {release: image.name for release, image in built.items()}
        same = old is not None and (old.images, old.nodes) == (images, nodes) and options.accel in ("auto", old.accel)
        if self.pids():
            if old is None or not same:
                raise LabError("the rack is up with other settings; run `rackproof lab down` first")
            return old, built
        if old and any(_image(old, node.name) not in (None, images[node.release]) for node in nodes):
            self.say("the disks are of another image: making new ones")
            self._wipe()
        accel = choose(options.accel, built[nodes[0].release], self.say)
        spec = RackSpec(nodes, accel, images, self._wiring(nodes, old.wiring if old else None))
        state.write_spec(self.folder, spec)
        return spec, built

    def _wiring(self, nodes: tuple[NodeSpec, ...], old: Wiring | None) -> Wiring:
        """Keep the former ports if they are free: known_hosts and open terminals stay valid."""
        ports: dict[str, int] = {}
        for node in nodes:
            kept = old.ssh_port.get(node.name) if old else None
            ports[node.name] = kept if kept and _free(kept, socket.SOCK_STREAM) else _any_port(socket.SOCK_STREAM)
        fabric = old.fabric_port if old and _free(old.fabric_port, socket.SOCK_DGRAM) else _any_port(socket.SOCK_DGRAM)
        return Wiring(ports, fabric)

    def _seed(self) -> str:
        return str(self.folder.resolve())

    def _prepare(self, spec: RackSpec, images: dict[str, Image]) -> None:
        authorized = seed.make_key(self.folder / "id_ed25519", "rackproof-lab")
        host_keys = []
        for node in spec.nodes:
            folder = self.node_folder(node.name)
            folder.mkdir(parents=True, exist_ok=True)
            image = images[node.release]
            key = seed.make_key(folder / "ssh_host_ed25519_key", node.name)
            host_keys.append(f"[127.0.0.1]:{spec.wiring.ssh_port[node.name]} {key}")
            seed.write_initrd(folder / "initrd.img", image.initrd, node, folder / "ssh_host_ed25519_key", authorized)
            if not (folder / "root.qcow2").exists():
                _overlay(folder / "root.qcow2", image.disk)
            for drive in node.drives:
                raw = folder / f"{drive.serial}.raw"
                if not raw.exists():
                    with raw.open("wb") as handle:
                        handle.truncate(int(drive.gib * 2**30))
        replace_file(self.folder / "known_hosts", "\n".join(host_keys) + "\n")

    def _await_keeper(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                with keeper.KeeperClient(self.folder):
                    return
            except LabError:
                time.sleep(0.1)
        raise LabError(f"the lab's keeper did not start; see {self.folder / keeper.LOG}")

    def _await_ssh(self, spec: RackSpec, absent: list[NodeSpec], began: float, client: keeper.KeeperClient) -> None:
        limit = BOOT_TIMEOUT_S[spec.accel]
        waiting = [node.name for node in absent]
        self.say(f"booting {len(waiting)} nodes ({spec.accel}); under plain emulation this takes one to two minutes")
        reported = 0.0
        while waiting:
            for name in list(waiting):
                if self._answers(spec, name):
                    waiting.remove(name)
                    self.say(f"  {name} answers after {time.monotonic() - began:.0f} s")
            elapsed = time.monotonic() - began
            alive = client.request("status")
            dead = [name for name in waiting if name not in alive]
            if dead or (waiting and elapsed > limit):
                name = dead[0] if dead else waiting[0]
                why = "QEMU ended" if dead else f"no answer within {limit:.0f} s"
                raise LabError(f"{name}: {why}; {self._tail(name)}")
            if waiting and elapsed - reported >= 15:
                reported = elapsed
                self.say(f"  {elapsed:3.0f} s, waiting for {', '.join(waiting)}: {self._last_line(waiting[0])}")
            if waiting:
                time.sleep(1)

    def _answers(self, spec: RackSpec, name: str) -> bool:
        """Whether a login works; the ssh banner is tried first, because it is cheap."""
        port = spec.wiring.ssh_port[name]
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as probe:
                probe.settimeout(2)
                if not probe.recv(8).startswith(b"SSH-"):
                    return False
        except OSError:
            return False
        try:
            completed = subprocess.run(
                [*self.ssh_command(spec, name), "true"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SSH_PROBE_S + 10,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False  # sshd has just started on a busy machine: try again
        return completed.returncode == 0

    def _tail(self, name: str) -> str:
        folder = self.node_folder(name)
        text = b"".join((folder / log).read_bytes() for log in ("qemu.log", "console.log") if (folder / log).exists())
        lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()][-8:]
        return "the end of its console:\n  " + "\n  ".join(lines) if lines else "its console is silent"

    def _last_line(self, name: str) -> str:
        console = self.node_folder(name) / "console.log"
        lines = console.read_bytes()[-400:].decode(errors="replace").split("\n") if console.exists() else []
        printable = ["".join(c for c in line if c.isprintable()) for line in lines if line.strip()]
        return printable[-1][:80] if printable else "(silent)"

    # -- down ------------------------------------------------------------------------------------------------

    def down(self, now: bool = False) -> None:
        """Shut all nodes down, clients before storage; ``now`` kills QEMU instead."""
        with self.lock():
            spec = state.read_spec(self.folder)
            if spec is None or not state.keeper_alive(self.folder):
                (self.folder / state.FAULTS).unlink(missing_ok=True)
                self.say("the rack is already down")
                return
            with keeper.KeeperClient(self.folder) as client:
                if not now:
                    for role in ("gpu", "storage"):
                        self._power_off([n.name for n in spec.nodes if n.role == role], client)
                client.request("shutdown")
            deadline = time.monotonic() + 30
            while state.keeper_alive(self.folder) and time.monotonic() < deadline:
                time.sleep(0.1)
            if state.keeper_alive(self.folder):
                raise LabError(f"the lab's keeper did not end within 30 s; see {self.folder / keeper.LOG}")
            (self.folder / state.FAULTS).unlink(missing_ok=True)  # no fault outlives a boot
            self.say("the rack is down")

    def _power_off(self, names: list[str], client: keeper.KeeperClient) -> None:
        waiting = [name for name in names if name in client.request("status")]
        for name in waiting:
            try:
                monitor.ask(self.node_folder(name), {"execute": "system_powerdown"})
            except LabError as error:
                self.say(f"  {error}")
        deadline = time.monotonic() + POWEROFF_S
        while waiting and time.monotonic() < deadline:
            time.sleep(0.5)
            alive = client.request("status")
            waiting = [name for name in waiting if name in alive]
        for name in waiting:
            self.say(f"  {name} did not power off within {POWEROFF_S:.0f} s: killing QEMU")
            client.request("stop", node=name)

    def kill(self, name: str) -> None:
        """Kill one node's QEMU."""
        with keeper.KeeperClient(self.folder) as client:
            client.request("stop", node=name)

    def reset(self) -> None:
        """Delete all disks; the next ``up`` starts from the image."""
        with self.lock():
            if self.pids():
                raise LabError("the rack is up; run `rackproof lab down` first")
            self._wipe()
            self.say("disks deleted; the next `rackproof lab up` makes new ones")

    def _wipe(self) -> None:
        nodes = self.folder / "nodes"
        if nodes.exists():
            shutil.rmtree(nodes)

    # -- questions -------------------------------------------------------------------------------------------

    def pids(self) -> dict[str, int]:
        """Running nodes and the process ids of their QEMUs; empty when the rack is down."""
        if not state.keeper_alive(self.folder):
            return {}
        with keeper.KeeperClient(self.folder) as client:
            return client.request("status")

    def node_folder(self, name: str) -> Path:
        return self.folder / "nodes" / name

    def require_node(self, name: str) -> RackSpec:
        spec = state.read_spec(self.folder)
        if spec is None or not state.keeper_alive(self.folder):
            raise LabError(f"the virtual rack is down: {state.START}")
        if spec.node(name) is None:
            raise LabError(f"no node {name!r} in the rack; it has {', '.join(n.name for n in spec.nodes)}")
        return spec

    def require_running(self, name: str) -> None:
        """Raises LabError if the node does not exist or does not run."""
        self.require_node(name)
        if name not in self.pids():
            raise LabError(f"{name} is not running: {state.START}")

    def ssh_command(self, spec: RackSpec, name: str) -> list[str]:
        """ssh with strict host key checking, without the user's configuration."""
        return [
            "ssh", "-F", "none", "-i", str(self.folder / "id_ed25519"), "-o", "IdentitiesOnly=yes",
            "-o", f"UserKnownHostsFile={self.folder / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes",
            "-o", f"ConnectTimeout={SSH_PROBE_S}", "-o", "LogLevel=ERROR",
            "-p", str(spec.wiring.ssh_port[name]), "root@127.0.0.1",
        ]  # fmt: skip

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One ``lab`` command at a time; the kernel releases the lock when the process ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LabError("another `rackproof lab` command runs in this checkout; wait for its end") from None
            yield


def _need(tools: dict[str, str]) -> None:
    missing = sorted({package for tool, package in tools.items() if shutil.which(tool) is None})
    if missing:
        raise LabError(f"the virtual rack needs {' '.join(missing)}: install with apt-get, or run `make setup`")


def _overlay(path: Path, base: Path) -> None:
    completed = subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), str(path)],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    if completed.returncode != 0:
        raise LabError(f"{path}: qemu-img failed: {completed.stderr.decode(errors='replace').strip()}")


def _free(port: int, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, kind) as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _any_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _release(name: str, requested: tuple[tuple[str | None, str], ...], old: RackSpec | None) -> str:
    """Release of a node: the last request for it, that for all nodes, what it has, the default."""
    by_name = dict(requested)
    kept = old.node(name) if old else None
    return by_name.get(name) or by_name.get(None) or (kept.release if kept else releases()[0])


def _image(spec: RackSpec, name: str) -> str | None:
    """Name of the image of a node's disk; None for a node that the rack lacks."""
    node = spec.node(name)
    return spec.images[node.release] if node else None
