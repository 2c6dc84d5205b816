"""``rackproof paths``: print the folders of the kit's files."""

from __future__ import annotations

import click

from rackproof import kit
from rackproof.cli.terminal import say


@click.command()
@click.argument("name", required=False, type=click.Choice(kit.FOLDERS))
def paths(name: str | None) -> None:
    """Print the folder NAME of the kit, or all folders, to read, to copy or to pass to pyinfra and pytest.

    \b
    pyinfra rack.py $(rackproof paths deploys)/cluster.py
    pytest $(rackproof paths validators) --inventory rack.py
    """
    if name is not None:
        say(kit.folder(name))
        return
    for name in kit.FOLDERS:
        say(f"{name:<14} {kit.folder(name)}")
