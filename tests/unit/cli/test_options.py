"""Options that commands share are declared once."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from rackproof.cli.main import cli
from rackproof.cli.options import FiniteRange


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
    assert (option.help, option.multiple, option.metavar) == (LIMITED[0][1].help, True, "NODES")


RANGES = [
    pytest.param(option, id=f"{name} {option.opts[0]}")
    for name, command in commands(cli, "rackproof")
    for option in command.params
    if isinstance(option.type, click.FloatRange) or option.type is click.FLOAT
]


@pytest.mark.parametrize("option", RANGES)
def test_a_number_in_an_option_is_finite(option: click.Option) -> None:
    assert isinstance(option.type, FiniteRange)
    for word in ("nan", "inf", "-inf", "NaN", "1e999"):
        with pytest.raises(click.BadParameter):
            option.type.convert(word, option, None)
    assert option.type.convert("2.5", option, None) == 2.5
    assert RANGES


def test_a_comparison_with_no_number_as_threshold_is_refused() -> None:
    done = CliRunner().invoke(cli, ["compare", "a", "b", "--threshold", "nan"])
    assert done.exit_code != 0
    assert "nan is no finite number" in done.output
