"""``rackproof mirror``: what a rack downloads."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rackproof.core.architecture import Architecture
    from rackproof.core.rack import Node


@click.group()
def mirror() -> None:
    """What a rack downloads, for a site whose nodes have no way out."""


@mirror.command("list")
@click.argument("inventory")
@click.option("--architecture", help="Id or file.  [default: the inventory's own]")
@click.option("--platform", help="Only this operating system of the version set: ubuntu-24.04.")
@click.option("--json", "as_json", is_flag=True, help="As JSON (rackproof.mirror/v1).")
def list_(inventory: str, architecture: str | None, platform: str | None, as_json: bool) -> None:
    """Every package, repository, key, file and image that the nodes of INVENTORY will ask for.

    From the version set (versions_lock in the inventory), the deploys' packages, and every URL of the inventory's
    inputs. No node is asked. A package without a version is the distribution's own; a file without sha256 is pinned by
    nobody yet.

    Exit status: 0, or 3 where inventory, architecture or version set cannot be used.
    """
    from rackproof import architectures
    from rackproof.configure.mirror import items_of_rack
    from rackproof.core.nearest import suggestion
    from rackproof.core.versions.mirror import SCHEMA, merged
    from rackproof.errors import InventoryError
    from rackproof.inventory import load_rack
    from rackproof.version_sets import versions_of

    rack = load_rack(inventory)
    load = cache(lambda named: architectures.load(named).model)

    def architecture_of(node: Node) -> Architecture:
        named = architecture or node.data.get("architecture")
        if not named:
            raise InventoryError(f"{inventory}: {node.name} names no architecture; give --architecture")
        return load(str(named))

    items = merged(items_of_rack(rack, architecture_of, lambda node: versions_of(node, inventory)))
    platforms = sorted({each.platform for each in items if each.platform})
    if platform is not None:
        if platform not in platforms:
            raise InventoryError(f"--platform {platform}: {suggestion(platform, platforms)}")
        items = tuple(each for each in items if each.platform in ("", platform))
    if as_json:
        document = {"schema": SCHEMA, "inventory": inventory, "items": [each.as_json() for each in items]}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    kind = ""
    for each in items:
        if each.kind != kind:
            kind = each.kind
            click.echo(f"{kind}:")
        words = (each.name, each.version, each.platform, each.repository, each.url, _digest(each.sha256, each.kind))
        click.echo(f"  {'  '.join(word for word in words if word)}  ({each.needed_by})")
    unpinned = sum(each.kind in ("key", "file") and not each.sha256 for each in items)
    click.echo(f"{len(items)} items, {unpinned} of them without a sha256")


def _digest(sha256: str, kind: str) -> str:
    if sha256:
        return f"sha256:{sha256}"
    return "no sha256" if kind in ("key", "file") else ""
