"""The ``rackproof`` command. Subcommands are imported when they run, so that ``--help`` is fast."""

from __future__ import annotations

import importlib
import sys
import traceback

import click

from rackproof import __version__
from rackproof.errors import EXIT_INTERRUPTED, EXIT_USAGE, RackproofError
from rackproof.remote.interrupt import handle_signals

COMMANDS = {
    "lab": ("rackproof.cli.lab", "lab", "The virtual rack: up, down, status, ssh, reset, console, image."),
    "preflight": ("rackproof.cli.preflight", "preflight", "Check whether a deploy can start; change nothing."),
    "plan": ("rackproof.cli.plan", "plan", "Show what a deploy would change; change nothing."),
    "versions": ("rackproof.cli.versions", "versions", "Version sets: check a file, lock what is installed."),
    "mirror": ("rackproof.cli.mirror", "mirror", "List what a rack downloads, for a site without Internet access."),
    "deploy": ("rackproof.cli.deploy", "deploy", "Bring the nodes into the declared state (pyinfra)."),
    "rollback": ("rackproof.cli.rollback", "rollback", "Undo the last run on the nodes."),
    "validate": ("rackproof.cli.validate", "validate", "Check the declared state on every node (testinfra)."),
    "bench": ("rackproof.cli.runs", "bench", "Measure storage, links and collectives."),
    "certify": ("rackproof.cli.runs", "certify", "Deploy, validate, measure and judge; write a certificate."),
    "judge": ("rackproof.cli.runs", "judge", "Judge a finished run again, offline."),
    "compare": ("rackproof.cli.compare", "compare", "Show what got worse, better or is missing between two runs."),
    "selftest": (
        "rackproof.cli.selftest",
        "selftest",
        "Test the checks: each finds its faults and raises no false alarm.",
    ),
    "record": ("rackproof.cli.record", "record", "Record what nodes answer to the validators."),
    "diff": ("rackproof.cli.diff", "diff", "Compare recordings of nodes, or of dates."),
    "arch": ("rackproof.cli.arch", "arch", "Reference architectures: list, show, check, claims, metrics, schema."),
    "inputs": ("rackproof.cli.inputs", "inputs", "List the inputs of an inventory, with defaults and their sources."),
    "paths": ("rackproof.cli.paths", "paths", "Show where deploys, validators, templates and architectures are."),
    "size": ("rackproof.cli.size", "size", "Plan capacity: the bottleneck, and the storage and network needed."),
}


class LazyGroup(click.Group):
    """Subcommands with one line of help each; a module is imported when its command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rackproof")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def cli(debug: bool) -> None:
    """Deploy, validate and benchmark a rack of GPU servers, and certify it against a reference architecture.

    Exit status of validate, bench, certify and judge: 0 certified or all passed, 1 something failed,
    2 incomplete, 3 usage or infrastructure error.
    """


def main() -> None:
    debug = "--debug" in sys.argv[1:]
    handle_signals()
    try:
        status = cli.main(standalone_mode=False)
    except click.exceptions.Exit as error:
        status = error.exit_code
    except click.ClickException as error:
        error.show()
        status = EXIT_USAGE
    except RackproofError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"rackproof: {error}", err=True)
        status = EXIT_USAGE
    except (KeyboardInterrupt, click.Abort):
        click.echo("rackproof: interrupted", err=True)
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        status = EXIT_USAGE
    except Exception as error:
        if debug:
            traceback.print_exc()
        click.echo(f"rackproof: internal error: {type(error).__name__}: {error} (--debug shows where)", err=True)
        status = EXIT_USAGE
    sys.exit(status if isinstance(status, int) else 0)
