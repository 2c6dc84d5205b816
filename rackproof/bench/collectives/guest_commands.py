"""Commands about a node's guest, all of them run on the node, and read back from the evidence. Pure."""

from __future__ import annotations

import shlex
from typing import Final

from rackproof.configure.collectives.inputs import GuestInputs
from rackproof.parse.gpu_list import LIST
from rackproof.parse.guest import OFF, SIDE
from rackproof.remote.command import MARK
from rackproof.shell import script

KEPT: Final = "/run/rackproof-guest.units"
"""Services that a step has stopped on the node."""
STARTED: Final = b"rackproof-guest\n"
_CALL: Final = '\ninside "$1"'
_STATE: Final = script("rackproof.bench.state", "state")


def side_command(domain: str = "") -> str:
    """Asks one side: the node about itself and its domain, or the guest about itself."""
    return f"{_STATE}\n{script(__name__, 'guest_side', domain=domain, list=LIST)}"


def inside(guest: GuestInputs, command: str, limit_s: float, user: str = "") -> str:
    """The command in the guest. ``user``: prefix that runs it as another user than root."""
    return f"{_ssh(guest, command, limit_s, user)}{_CALL}"


def wait_command(guest: GuestInputs) -> str:
    return f"{_ssh(guest, '', guest.boot_s, '')}\n{script(__name__, 'guest_wait', boot_s=guest.boot_s)}"


def _ssh(guest: GuestInputs, command: str, limit_s: float, user: str) -> str:
    return script(
        __name__, "guest_ssh", command, address=guest.address or "", port=guest.port, user=guest.user,
        key=guest.ssh_key or "", limit_s=f"{limit_s:g}", **{"as": user},
    )  # fmt: skip


def inside_of(command: str) -> str | None:
    """The guest's command in a recorded command; None for a command of the node."""
    if not command.endswith(_CALL):
        return None
    words = shlex.split(command.partition("\ninside() {")[0])
    return words[words.index("--") + 1]


def off_command(guest: GuestInputs, gpus: int) -> str:
    """Shuts the domain down and waits until the node has its GPUs again."""
    return f"{_off(guest, gpus)}\noff  # {OFF}"


def _off(guest: GuestInputs, gpus: int) -> str:
    return script(__name__, "guest_off", domain=guest.domain or "", down_s=guest.shutdown_s, gpus=gpus, kept=KEPT)


def start_command(guest: GuestInputs) -> str:
    """Starts the domain."""
    return f"virsh -c qemu:///system start {shlex.quote(guest.domain or '')}"


def keeper_command(guest: GuestInputs, gpus: int) -> str:
    """Starts the domain and keeps it while its input is open.

    Nothing that ends a command of this program reaches it: it has no mark, and a session of its own, so that a clean
    shutdown may take its time after the end of the program or its connection.
    """
    start = script(__name__, "guest_keeper", start=start_command(guest), start_s=guest.boot_s, kept=KEPT)
    text = f"{_off(guest, gpus)}\n{start}"
    return f"exec env -u {MARK} setsid -f -w sh -c {shlex.quote(text)}"


def is_side(command: str) -> bool:
    return f"echo '{SIDE}'" in command


def is_off(command: str) -> bool:
    return command.endswith(f"# {OFF}")
