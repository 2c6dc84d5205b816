"""``rackproof compare``."""

from __future__ import annotations

from pathlib import Path

import click

from rackproof import architectures
from rackproof.cli.options import FiniteRange, output_option
from rackproof.cli.terminal import print_document
from rackproof.core.compare import compare as compared
from rackproof.core.evidence import Record
from rackproof.core.noise import ONE_SAMPLE_PCT, THRESHOLD_PCT
from rackproof.core.wording import and_more
from rackproof.errors import RunError
from rackproof.evidence.folder import find_run, info_of, stored_architecture
from rackproof.evidence.store import EVIDENCE, lost_outputs, read_trusted
from rackproof.report.comparison import show, to_json


@click.command()
@click.argument("run_a")
@click.argument("run_b")
@click.option("--architecture", help="Judge both against this id or file.  [default: what RUN_A was made for]")
@click.option(
    "--threshold",
    type=FiniteRange(min=0, max=1000),
    metavar="PERCENT",
    help="Ignore changes below this, even when they exceed the noise."
    f"  [default: {THRESHOLD_PCT:g}, or {ONE_SAMPLE_PCT:g} where a run has one sample only]",
)
@click.option("--all", "everything", is_flag=True, help="Print all numbers, not only one line per criterion.")
@output_option
@click.option("--json", "as_json", is_flag=True, help="The comparison as JSON on stdout.")
def compare(
    run_a: str,
    run_b: str,
    architecture: str | None,
    threshold: float | None,
    everything: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Show what got worse, better or is missing in RUN_B since RUN_A (paths, names under reports/, or `latest`).

    A number has changed if the medians differ by more than the samples' noise and by more than the threshold, a
    percentage of the better one. If a criterion computes a value from several numbers (a share, a spread, a curve),
    that value is compared. Exit status: 0 no regression, 1 a number or a required verdict got worse, 2 a required item
    cannot be compared, 3 usage.
    """
    folder, other = find_run(output, run_a), find_run(output, run_b)
    (before, warnings), (after, more) = _read("A", folder), _read("B", other)
    reference = architectures.load(architecture) if architecture else stored_architecture(folder, info_of(before))
    comparison = compared(reference.model, before, after, threshold, (*warnings, *more))
    if as_json:
        print_document(to_json(comparison).decode(), nl=False)
    else:
        from rich.console import Console

        show(comparison, Console(), everything)
    raise click.exceptions.Exit(comparison.exit_status)


def _read(side: str, folder: Path) -> tuple[list[Record], list[str]]:
    """The evidence of one run, and warnings. Raises RunError for damaged evidence."""
    trusted = read_trusted(folder)
    if trusted.broken is not None:
        raise RunError(f"{folder / EVIDENCE}: {trusted.broken}; damaged evidence cannot be compared")
    warnings = []
    if trusted.cut_off:
        warnings.append(f"{side}: the last line of the evidence is incomplete and was left out")
    if lost := lost_outputs(folder, trusted.records):
        warnings.append(f"{side}: {lost[0]}{and_more(len(lost) - 1)}")
    return trusted.records, warnings
