"""``rackproof inputs``: what an inventory can say, with every default and its source."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict

import click


@click.command("inputs")
@click.argument("keys", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def inputs(keys: tuple[str, ...], as_json: bool) -> None:
    """Say what an inventory can say: every input, its default, and where the default comes from.

    KEYS: some of the mappings only (`rackproof inputs gpu_stack`).
    """
    from rackproof.configure.known_inputs import MODELS, described, plain_inputs
    from rackproof.core.nearest import suggestion

    for key in keys:
        if key not in MODELS:
            raise click.UsageError(f"{key}: no such mapping; {suggestion(key, MODELS)}")
    found = [] if keys else list(plain_inputs())
    for key in keys or sorted(MODELS):
        found += described(key)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=1))
        return
    for each in found:
        default = f" = {each.default}" if each.default else ""
        click.secho(f"{each.key}: {each.type}{default}" if each.type else each.key, bold=True)
        if each.text:
            click.echo(textwrap.indent(textwrap.fill(" ".join(each.text.split()), 112), "    "))
