"""The site's container image, in which jobs of real accelerators run where the inventory names one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rackproof.bench.user import HOME, USER, Account
from rackproof.configure.ingest.inputs import IngestInputs
from rackproof.configure.settings import read_inputs
from rackproof.core.architecture import Architecture
from rackproof.core.rack import Rack
from rackproof.core.texts import SHA256
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.containers import parse_image_id
from rackproof.remote.command import MARK, CommandResult
from rackproof.shell import script

RUNTIMES: Final = ("docker", "podman")
"""Runtimes that start a container for root, as another user, with the network of the node."""
LABEL: Final = "rackproof-bench"
"""Label of containers that a step starts."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image on every node; ``id`` is the sha256 of its configuration, in hexadecimal digits."""

    engine: str
    name: str
    id: str

    def prefix(self, account: Account, mountpoints: Sequence[str], gpus: bool, limit_s: float) -> str:
        """Prefix of a command of root's that runs in a container as ``account``, ``limit_s`` seconds at most."""
        text = script(
            __name__, "in_image", engine=self.engine, image=self.id, user=f"{account.uid}:{account.gid}", account=USER,
            home=HOME, mark=MARK, label=LABEL, limit_s=f"{limit_s:g}", mountpoints=" ".join(mountpoints),
            gpus=int(gpus),
        )  # fmt: skip
        return f"sh -c {shlex.quote(text)} in-image "

    @property
    def sweep(self) -> str:
        """Command that removes containers of the kit: a killed client may leave one that it had created, and not yet
        started, which no limit ends."""
        left = f"left=$(timeout 60 {self.engine} ps -a -q --filter label={LABEL})"
        return f'{left} && {{ [ -z "$left" ] || timeout 60 {self.engine} rm -f $left >/dev/null; }}'

    @property
    def config(self) -> dict[str, str]:
        """The image's entry in the program's configuration."""
        return {"name": self.name, "id": self.id}


def image_of(
    architecture: Architecture, rack: Rack, nodes: Sequence[str], ask: Callable[[str], Mapping[str, CommandResult]]
) -> Image | None:
    """The image that the inventory names; None without one. ``ask`` runs a command on all nodes.

    Raises ParseError if nodes name different ones or have it not, InventoryError for invalid inputs.
    """
    names = {node: read_inputs(rack.node(node), IngestInputs).image for node in nodes}
    name = names[nodes[0]]
    if other := next((node for node, own in names.items() if own != name), None):
        raise ParseError("inventory", f"ingest.image of {other} differs from that of {nodes[0]}")
    if name is None:
        return None
    engine = architecture.containers.runtime if architecture.containers else "none"
    if engine not in RUNTIMES:
        raise ParseError("inventory", f"ingest.image needs docker or podman; containers.runtime is {engine}")
    ids: dict[str, str] = {}
    for node, answer in ask(f"{engine} image inspect --format '{{{{.Id}}}}' {shlex.quote(name)}").items():
        image_id = parse_image_id(answer.text)
        if not answer.ok or image_id is None:
            raise ParseError(engine, f"{node}: no image {name}: {answer.why}")
        ids[node] = image_id
    if other := next((node for node, own in ids.items() if own != ids[nodes[0]]), None):
        raise Mismatch(engine, f"{name} is another image on {other} than on {nodes[0]}")
    return Image(engine, name, ids[nodes[0]])


def check_image(node: str, asked: Mapping[str, str] | None, command: str) -> None:
    """The command ran in the image that its configuration names, or in none. Raises Mismatch."""
    inside = re.search(f" image=({SHA256}) .* in-image python3 -I ", command, re.DOTALL)
    wanted, actual = (asked or {}).get("id"), inside[1] if inside else None
    if wanted != actual:
        names = [f"the image {id_[:12]}" if id_ else "no image" for id_ in (wanted, actual)]
        raise Mismatch("ingest_node.py", f"{node}: expected {names[0]}, actual {names[1]}")
