"""``rackproof lab``: the virtual rack."""

from __future__ import annotations

import os
import select
import socket
import sys
import termios
import time
import tty

import click

from rackproof.cli.terminal import say
from rackproof.core.verdict import with_item
from rackproof.core.wording import aligned
from rackproof.errors import LabError
from rackproof.lab import faults, keeper, state
from rackproof.lab.image import ensure_image
from rackproof.lab.rack import Lab, UpOptions
from rackproof.lab.recipe import releases

DETACH = b"\x1d"  # Ctrl-]


def _lab() -> Lab:
    return Lab(state.lab_folder(), lambda line: say(line, err=True))


@click.group()
def lab() -> None:
    """The virtual rack: QEMU machines of this checkout, state under .lab/."""


@lab.command()
@click.option("--gpu-nodes", type=click.IntRange(1, 16), help="Nodes with simulated GPUs.  [default: 2]")
@click.option("--storage-nodes", type=click.IntRange(1, 4), help="Storage nodes.  [default: 1]")
@click.option("--memory", type=click.IntRange(768), help="MiB of each GPU node.  [default: 1536]")
@click.option("--storage-memory", type=click.IntRange(1536), help="MiB of each storage node.  [default: 3072]")
@click.option("--rails", type=click.IntRange(1, 4), help="Fabric NICs a node.  [default: 1]")
@click.option(
    "--release",
    "release",
    multiple=True,
    metavar="[NODE=]RELEASE",
    help=f"Debian release of all nodes, or of one ({', '.join(releases())}).  [default: {releases()[0]}]",
)
@click.option(
    "--accel",
    type=click.Choice(["auto", "kvm", "tcg"]),
    default="auto",
    show_default=True,
    help="auto: KVM if it boots a kernel here.",
)
def up(
    gpu_nodes: int | None,
    storage_nodes: int | None,
    memory: int | None,
    storage_memory: int | None,
    rails: int | None,
    release: tuple[str, ...],
    accel: str,
) -> None:
    """Start the rack; nodes that already run are not touched."""
    requested = tuple(_release(value) for value in release)
    _lab().up(UpOptions(gpu_nodes, storage_nodes, memory, storage_memory, rails, accel, requested))


def _release(value: str) -> tuple[str | None, str]:
    """Node (None: all) and release of one ``--release``."""
    node, _, name = value.rpartition("=")
    if name not in releases():
        raise click.BadParameter(f"no release {name!r}; the lab has {', '.join(releases())}", param_hint="--release")
    return node or None, name


@lab.command()
@click.option("--now", is_flag=True, help="Power off at once instead of shutting down.")
def down(now: bool) -> None:
    """Shut the rack down; keep the disks."""
    _lab().down(now)


@lab.command()
def reset() -> None:
    """Delete the disks; the next `up` starts from the image."""
    _lab().reset()


@lab.command()
def status() -> None:
    """Show which nodes run."""
    lab_ = _lab()
    spec = state.read_spec(lab_.folder)
    if spec is None:
        raise LabError(f"no virtual rack in {lab_.folder}: {state.START}")
    pids = lab_.pids()
    for node in spec.nodes:
        size = f"{node.vcpus} CPUs, {node.memory_mib} MiB"
        if pid := pids.get(node.name):
            port = spec.wiring.ssh_port[node.name]
            say(f"{node.name:<12} running  {size}  pid {pid}, ssh 127.0.0.1:{port}, fabric {node.fabric_address()}")
        else:
            say(f"{node.name:<12} stopped  {size}")
    say(f"{'up' if pids else 'down'} ({spec.accel}, image {', '.join(spec.images.values())})")


@lab.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(node: str, command: tuple[str, ...]) -> None:
    """Open a shell on NODE, or run COMMAND there."""
    lab_ = _lab()
    arguments = [*lab_.ssh_command(lab_.require_node(node), node), *command]
    os.execvp(arguments[0], arguments)  # noqa: S606  (ssh takes over the terminal)


@lab.command()
@click.option("--manifest", is_flag=True, help="List the packages and their exact versions.")
@click.option("--release", type=click.Choice(releases()), default=releases()[0], show_default=True, help="Of Debian.")
def image(manifest: bool, release: str) -> None:
    """Build the disk image if it is absent, and print its path."""
    built = ensure_image(release, lambda line: say(line, err=True))
    if manifest:
        for name, version in built.manifest():
            say(f"{name} {version}")
    else:
        say(built.folder)


@lab.command()
@click.argument("node")
def console(node: str) -> None:
    """Attach to the serial console of NODE; Ctrl-] detaches."""
    lab_ = _lab()
    lab_.require_node(node)
    if not sys.stdin.isatty():
        raise LabError(f"console needs a terminal; its output so far is in {lab_.node_folder(node) / 'console.log'}")
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            keeper.connect_in(sock, lab_.node_folder(node), "console.sock")
        except OSError as error:
            raise LabError(
                f"{node}: its console does not answer ({error.strerror}); is another terminal attached?"
            ) from error
        say(f"console of {node}; press Enter for a prompt, Ctrl-] to leave", err=True)
        _attach(sock)


def _attach(sock: socket.socket) -> None:
    """Copy both directions until Ctrl-] or until the machine ends."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal)
        while True:
            ready, _, _ = select.select([sock, terminal], [], [])
            if sock in ready:
                data = sock.recv(4096)
                if not data:
                    return
                os.write(sys.stdout.fileno(), data)
            if terminal in ready:
                keys = os.read(terminal, 1024)
                if DETACH in keys:
                    return
                sock.sendall(keys)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        time.sleep(0.05)
        say("")


@lab.command()
@click.argument("name")
@click.argument("state", type=click.Choice(["on", "off"]), required=False)
@click.option("--node", help="Node to put the fault on.  [default: the fault's own]")
def fault(name: str, state: str | None, node: str | None) -> None:
    """Inject fault NAME into the running rack, or remove it; `fault list` lists them, `fault all off` removes all.

    A reboot of the node removes the fault.
    """
    lab_ = _lab()
    if name == "list":
        on = faults.active(lab_.folder)
        rows = [("FAULT", "NODE", "NOW", "NOTICED BY", "TITLE")]
        rows += [
            (f.name, on.get(f.name, f.node), "on" if f.name in on else "-", _noticed_by(f), f.title)
            for f in faults.live_faults().values()
        ]
        for line in aligned(rows):
            say(line)
    elif state is None:
        raise click.UsageError(f"on or off is missing: rackproof lab fault {name} on")
    elif name == faults.ALL:
        if state == "on":
            raise click.UsageError("faults are injected one at a time: give one name")
        removed = faults.remove_all(lab_)
        say(f"off: {', '.join(removed)}" if removed else "no fault is on")
    elif state == "on":
        where = faults.inject(lab_, name, node)
        say(f"{name} is on, on {where}; noticed by {_noticed_by(faults.live_fault(name))}")
    else:
        where_ = faults.remove(lab_, name)
        say(f"{name} is off" + (f", on {where_}" if where_ else "; it was not on"))


def _noticed_by(fault: faults.LiveFault) -> str:
    if not fault.check:
        return f"benchmark: {fault.benchmark}"
    return with_item(fault.check, fault.item) + (f" (needs {fault.needs})" if fault.needs else "")
