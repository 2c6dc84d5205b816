"""Options that commands share are declared once."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from rackproof.cli.main import cli
from rackproof.cli.options import LIMIT_HELP


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for sub in command.list_commands(context):
            subcommand = command.get_command(context, sub)
            assert subcommand is not None
            yield from commands(subcommand, f"{name} {sub}".strip())


LIMITED = [
    (name, option)
    for name, command in commands(cli, "")
    for option in command.params
    if isinstance(option, click.Option) and option.name == "limit"
]


def test_these_commands_can_be_limited_to_nodes() -> None:
    assert sorted(name for name, _ in LIMITED) == [
        "deploy", "plan", "preflight", "rollback", "validate", "versions lock",
    ]  # fmt: skip


@pytest.mark.parametrize("option", [option for _, option in LIMITED], ids=[name for name, _ in LIMITED])
def test_every_limit_is_the_one_option(option: click.Option) -> None:
    assert (option.help, option.multiple, option.metavar) == (LIMIT_HELP, True, "NODES")
