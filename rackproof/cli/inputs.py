"""``rackproof inputs``: the inputs of an inventory, with defaults and their sources."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict

import click

from rackproof.cli.terminal import print_document, say


@click.command("inputs")
@click.argument("keys", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def inputs(keys: tuple[str, ...], as_json: bool) -> None:
    """List every input of an inventory, its default, and the source of the default.

    KEYS limits the list to these mappings (`rackproof inputs gpu`).
    """
    from rackproof.configure.known_inputs import MODELS, described, plain_inputs
    from rackproof.core.nearest import suggestion

    for key in keys:
        if key not in MODELS:
            raise click.UsageError(f"{key}: no such mapping; {suggestion(key, MODELS)}")
    entries = [] if keys else list(plain_inputs())
    for key in keys or sorted(MODELS):
        entries += described(key)
    if as_json:
        print_document(json.dumps([asdict(entry) for entry in entries], indent=1))
        return
    for entry in entries:
        default = f" = {entry.default}" if entry.default else ""
        say(f"{entry.key}: {entry.type}{default}" if entry.type else entry.key, bold=True)
        if entry.text:
            for line in textwrap.wrap(" ".join(entry.text.split()), 112):
                say(f"    {line}")
