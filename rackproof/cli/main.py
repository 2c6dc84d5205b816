"""The ``rackproof`` command. Subcommands are imported when they run, so that ``--help`` is fast."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
import threading
import traceback

import click

from rackproof import __version__
from rackproof.cli.interrupted import Interrupted
from rackproof.cli.terminal import OutputError, drop, flush, guarded, say
from rackproof.errors import EXIT_CLOSED, EXIT_OK, EXIT_USAGE, RackproofError
from rackproof.remote import interrupt
from rackproof.remote.interrupt import STOPPING, end_now, handle_signals

COMMANDS = {
    "lab": ("rackproof.cli.lab", "lab", "The virtual rack: up, down, status, ssh, console, fault, reset, image."),
    "preflight": ("rackproof.cli.preflight", "preflight", "Check whether a deploy can start; change nothing."),
    "plan": ("rackproof.cli.plan", "plan", "Show what a deploy would change; change nothing."),
    "versions": ("rackproof.cli.versions", "versions", "Version sets: check a file, lock what is installed."),
    "mirror": ("rackproof.cli.mirror", "mirror", "List what a rack downloads, for a site without Internet access."),
    "deploy": ("rackproof.cli.deploy", "deploy", "Bring the nodes into the declared state (pyinfra)."),
    "rollback": ("rackproof.cli.rollback", "rollback", "Undo the last run on the nodes."),
    "validate": ("rackproof.cli.validate", "validate", "Check the declared state on every node (testinfra)."),
    "dataset": ("rackproof.cli.dataset", "dataset", "Data sets of the ingest benchmark: make, check."),
    "bench": ("rackproof.cli.runs", "bench", "Measure storage, drives, links, collectives, GPUs, ingest, containers."),
    "certify": ("rackproof.cli.runs", "certify", "Deploy, validate, measure and judge; write a certificate."),
    "judge": ("rackproof.cli.runs", "judge", "Judge a finished run again, offline."),
    "overview": ("rackproof.cli.overview", "overview", "Several certificates of one rack on one page."),
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
    """Run the command and exit with its status. Every error is one line here, whatever raised it."""
    debug = "--debug" in sys.argv[1:]
    handle_signals(lambda: Interrupted(interrupt.again()).show())
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _of_a_thread
    gc.set_threshold(50_000, 50)  # models and parsed answers are many objects without cycles
    with guarded():
        try:
            status = _status(debug)
        except OutputError as error:  # an error that cannot be printed
            drop()
            status = EXIT_CLOSED if error.errno == errno.EPIPE else EXIT_USAGE
        if STOPPING.is_set():
            end_now()
    sys.exit(status)


def _status(debug: bool) -> int:
    try:
        flush()
        status = _called()
        flush()
        return status
    except (Interrupted, KeyboardInterrupt, click.Abort) as error:
        (error if isinstance(error, Interrupted) else Interrupted(interrupt.again())).show()
        return interrupt.status()
    except click.ClickException as error:
        say(f"rackproof: {error.format_message()}", err=True)
        return EXIT_USAGE
    except OutputError as error:
        if error.errno != errno.EPIPE:
            say(f"rackproof: {error.filename}: {error.strerror}", err=True)
        drop()
        return EXIT_CLOSED if error.errno == errno.EPIPE else EXIT_USAGE
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        if debug:
            traceback.print_exc()
        say(f"rackproof: {_sentence(error)}", err=True)
        return EXIT_USAGE


def _called() -> int:
    if "_RACKPROOF_COMPLETE" in os.environ:  # a shell asks for completions
        cli.main(prog_name="rackproof")
    try:
        # not cli.main(): there a closed pipe is exit status 1, which is that of a failed check
        with cli.make_context("rackproof", sys.argv[1:]) as context:
            result = cli.invoke(context)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "rackproof"
        raise click.ClickException(f"{error.format_message()} ({command} --help)") from error
    return result if isinstance(result, int) else EXIT_OK


def _sentence(error: BaseException) -> str:
    if isinstance(error, RackproofError):
        return str(error)
    if isinstance(error, MemoryError):
        return "this machine has no memory left"
    if isinstance(error, FileNotFoundError) and not error.filename and not _has_folder():
        return f"{os.environ.get('PWD', '.')}: the working directory was removed; change to one that exists"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"internal error: {type(error).__name__}: {error} (--debug shows where)"


def _has_folder() -> bool:
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False


def _of_a_thread(info: threading.ExceptHookArgs) -> None:
    if info.exc_value is not None and not STOPPING.is_set():
        say(f"rackproof: in a thread: {_sentence(info.exc_value)}", err=True)
