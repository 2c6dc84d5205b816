"""``rackproof mirror``: list what a rack downloads."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackproof.cli.options import architecture_option
from rackproof.cli.terminal import print_document, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from rackproof.core.architecture import Architecture
    from rackproof.core.machine import Machine
    from rackproof.core.rack import Node, Rack


@click.group()
def mirror() -> None:
    """List what a rack downloads, for a site whose nodes have no Internet access."""


@mirror.command("list")
@click.argument("inventory", required=False)
@click.option("--from", "source", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Recordings of the nodes or of nodes in the same groups, or a written rack: source of operating"
                   " system, kernel and PCI devices, and without INVENTORY of the nodes, as @recording/DIR.",
)  # fmt: skip
@architecture_option
@click.option("--platform", help="Only this operating system: ubuntu-24.04.")
@click.option("--json", "as_json", is_flag=True, help="As JSON (rackproof.mirror/v1).")
def list_(
    inventory: str | None, source: Path | None, architecture: str | None, platform: str | None, as_json: bool
) -> None:
    """List every package, repository, key, file and image that a deploy on INVENTORY downloads.

    Sources are the version set (versions_lock in the inventory), the deploys' packages and all URLs in the inventory's
    inputs. No node is contacted: items that depend on hardware or kernel need recordings (--from); without them they
    are counted as not listed. A package without a version is installed in the repository's current one; a file
    without sha256 is not pinned yet.

    Exit status: 0, or 3 if inventory, architecture or version set is invalid.
    """
    from rackproof import architectures
    from rackproof.configure.mirror import items_of_rack
    from rackproof.core.nearest import suggestion
    from rackproof.core.versions.mirror import SCHEMA, merged
    from rackproof.errors import InventoryError
    from rackproof.version_sets import versions_of

    rack, machine_of = _racks(inventory, source)
    inventory = rack.source
    load = cache(lambda named: architectures.load(named).model)

    def architecture_of(node: Node) -> Architecture:
        named = architecture or node.data.get("architecture")
        if not named:
            raise InventoryError(f"{inventory}: {node.name} names no architecture; give --architecture")
        return load(str(named))

    items = merged(items_of_rack(rack, architecture_of, lambda node: versions_of(node, rack.source), machine_of))
    platforms = sorted({item.platform for item in items if item.platform})
    if platform is not None:
        if platform not in platforms:
            raise InventoryError(f"--platform {platform}: {suggestion(platform, platforms)}")
        items = tuple(item for item in items if item.platform in ("", platform))
    listed = [item for item in items if item.kind != "unlisted"]
    unlisted = [item for item in items if item.kind == "unlisted"]
    if as_json:
        document = {
            "schema": SCHEMA,
            "inventory": inventory,
            "items": [item.as_json() for item in listed],
            "unlisted": [item.as_json() for item in unlisted],
        }
        print_document(json.dumps(document, indent=2, ensure_ascii=False))
        return
    kind = ""
    for item in listed:
        if item.kind != kind:
            kind = item.kind
            say(f"{kind}:")
        words = (item.name, item.version, item.platform, item.repository, item.url, _digest(item.sha256, item.kind))
        say(f"  {'  '.join(word for word in words if word)}  ({item.needed_by})")
    if unlisted:
        say("not listed:")
    for item in unlisted:
        say(f"  {item.name}{f'  {item.platform}' if item.platform else ''}  ({item.needed_by})")
    unpinned = sum(item.kind in ("key", "file") and not item.sha256 for item in listed)
    say(f"{len(listed)} items, {unpinned} of them without a sha256; not listed: {len(unlisted)}")


def _racks(inventory: str | None, source: Path | None) -> tuple[Rack, Callable[[Node], Machine | None]]:
    """The rack, and a function that returns the recorded machine of a node."""
    from rackproof.configure.recorded_machines import PREFIX, machine_like, recorded_rack
    from rackproof.inventory import load_rack

    if inventory and inventory.startswith(PREFIX):
        if source is not None:
            raise click.UsageError("give @recording/DIR or --from DIR, not both")
        source, inventory = Path(inventory.removeprefix(PREFIX)), None
    if source is not None:
        recorded, machines = recorded_rack(source)
        rack = load_rack(inventory) if inventory else recorded
        return rack, lambda node: machine_like(node, recorded, machines)
    if inventory is None:
        raise click.UsageError("give an inventory, @recording/DIR or --from DIR")
    return load_rack(inventory), lambda _: None


def _digest(sha256: str, kind: str) -> str:
    if sha256:
        return f"sha256:{sha256}"
    return "no sha256" if kind in ("key", "file") else ""
