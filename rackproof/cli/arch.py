"""``rackproof arch``: reference architectures."""

from __future__ import annotations

import click

from rackproof import architectures
from rackproof.errors import EXIT_USAGE, ArchitectureError


@click.group()
def arch() -> None:
    """Reference architectures: one YAML file each, read by deploys, validators, benchmarks and judge."""


@arch.command("list")
def list_() -> None:
    """Every architecture that can be named by id."""
    for item in architectures.available():
        click.echo(f"{item.id:<28} {item.problem or item.title}")


@arch.command()
@click.argument("id_")
def show(id_: str) -> None:
    """Print an architecture's file."""
    click.echo(architectures.load(id_).text, nl=False)


@arch.command()
@click.argument("files", nargs=-1, required=True)
def check(files: tuple[str, ...]) -> None:
    """Check FILES (or ids); exit 3 when one cannot be used."""
    wrong = False
    for file in files:
        try:
            loaded = architectures.load(file)
        except ArchitectureError as error:
            click.echo(str(error), err=True)
            wrong = True
        else:
            name = f"{loaded.model.metadata.id} {loaded.model.metadata.version}"
            click.echo(f"{loaded.path}: {name}, {len(loaded.model.criteria)} criteria")
    if wrong:
        raise click.exceptions.Exit(EXIT_USAGE)
