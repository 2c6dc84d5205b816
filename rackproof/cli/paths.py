"""``rackproof paths``: where the kit's own files are."""

from __future__ import annotations

import click

from rackproof import kit


@click.command()
@click.argument("name", required=False, type=click.Choice(kit.FOLDERS))
def paths(name: str | None) -> None:
    """Print the folder NAME of the kit, or all of them: to read, to copy, and for pyinfra and pytest.

    \b
    pyinfra rack.py $(rackproof paths deploys)/cluster.py
    pytest $(rackproof paths validators) --inventory rack.py
    """
    if name is not None:
        click.echo(kit.folder(name))
        return
    for name in kit.FOLDERS:
        click.echo(f"{name:<14} {kit.folder(name)}")
