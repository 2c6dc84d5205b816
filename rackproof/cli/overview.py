"""``rackproof overview``: several certificates of one rack on one page, and what remains to be run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from rackproof import architectures
from rackproof.architectures import LoadedArchitecture
from rackproof.atomic_write import write_output
from rackproof.bench.forecast import total_s, unknown_bytes, writings
from rackproof.bench.plan import plan_steps
from rackproof.cli.earlier import Earlier, earlier_run
from rackproof.cli.options import output_option, profile_option
from rackproof.cli.outputs import PAGE
from rackproof.cli.progress import clock
from rackproof.cli.runs import default_profile
from rackproof.cli.terminal import say
from rackproof.core.rack import Rack
from rackproof.core.wording import counted, scaled
from rackproof.errors import EvidenceWriteError
from rackproof.inventory import load_rack
from rackproof.report.overview import Row, outcome_of_all, render_overview

OVERVIEW = "overview.html"


@click.command()
@click.argument("inventory")
@click.argument("ids", nargs=-1, required=True, metavar="ARCHITECTURE…")
@output_option
@profile_option
@click.option("--forecast", is_flag=True, help="Only print what remains to be run, and how long it takes.")
def overview(inventory: str, ids: tuple[str, ...], output: Path, profile: str | None, forecast: bool) -> None:
    """Write one page of the certificates of INVENTORY against each ARCHITECTURE; connect to no node."""
    rack = load_rack(inventory)
    size = profile or default_profile(rack)
    references = [architectures.load(id_) for id_ in ids]
    runs = [earlier_run(output, rack, reference, size) for reference in references]
    if forecast:
        _forecast(rack, size, references, runs)
        return
    rows = [
        Row(id_, run.certificate if run else None, f"{run.folder.name}/{PAGE}" if run else "", run.why if run else "")
        for id_, run in zip(ids, runs, strict=True)
    ]
    with suppress(OSError):  # writing the page says why
        output.mkdir(parents=True, exist_ok=True)
    write_output(output / OVERVIEW, render_overview(rows), EvidenceWriteError)
    for row in rows:
        say(f"{row.architecture:<34} {row.result}: {row.counts}")
    outcome = outcome_of_all(rows)
    say(f"{outcome}: {output / OVERVIEW}")
    raise click.exceptions.Exit(outcome.exit_status)


def _forecast(
    rack: Rack, profile: str, references: Sequence[LoadedArchitecture], runs: Sequence[Earlier | None]
) -> None:
    """One line for each architecture, and the sum."""
    whole_s, unknown = 0.0, 0
    for reference, run in zip(references, runs, strict=True):
        name, todo = reference.model.metadata.id, run.next if run else "anew"
        if todo == "nothing":
            say(f"{'done':>8}  {name}: certified by {run.folder if run else ''}")
            continue
        steps = plan_steps(reference.model, profile, rack)
        files = list(writings(reference.model, profile, rack, steps))
        seconds = total_s(steps, files)
        whole_s += seconds
        unknown += unknown_bytes(files)
        say(f"{clock(seconds):>8}  {name}{f', what is missing in {run.folder}' if run and todo == 'resume' else ''}")
    count = counted(len(references), "architecture")
    more = f", validate and write {scaled(unknown, 'B')} of files" if unknown else " and validate"
    say(f"{clock(whole_s):>8}  at most to measure {count}, and the time to deploy{more}")
