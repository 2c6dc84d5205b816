"""``rackproof selftest``: prove that every check can fail, and that none fails without a fault."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rackproof.atomic_write import write_output
from rackproof.cli.runs import chosen_validators, validators_option
from rackproof.cli.terminal import say
from rackproof.errors import EXIT_FAILED, EXIT_OK, RunError
from rackproof.selftest.detection import HEALTHY_RUNS, detect, read_material
from rackproof.selftest.table import as_json, complaints, detection_table, listing, summary
from rackproof.validation.run import validators_folder

FAULTS = Path("tests") / "faults"
DATA = "data"
FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command()
@click.option("--faults", type=FOLDER, help="Catalogue; its racks are in ../data.  [default: tests/faults]")
@click.option("--check", metavar="ID", help="Only this check.")
@click.option(
    "--healthy",
    type=click.IntRange(0),
    default=HEALTHY_RUNS,
    show_default=True,
    metavar="N",
    help="Runs over every healthy rack with varied values (temperatures, counters, times).",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the table to FILE.")
@click.option("--list", "list_only", is_flag=True, help="List the faults without trying them.")
@validators_option
@click.pass_context
def selftest(
    ctx: click.Context,
    validators: Path | None,
    faults: Path | None,
    check: str | None,
    healthy: int,
    json_file: Path | None,
    list_only: bool,
) -> None:
    """Prove that every check in validators/ finds its faults and raises no false alarm.

    Applies faults and damaged outputs to recordings of healthy racks; connects to no node. Exit status: 0 every check
    found its faults without false alarms, 1 a fault was missed or there was a false alarm, 3 the catalogue or a rack
    cannot be used.
    """
    checks = validators_folder(chosen_validators(validators))
    folder = faults or checks.parent / FAULTS
    if not folder.is_dir():
        raise RunError(f"{folder}: no catalogue of faults; run this in a checkout, or give --faults DIR")
    material = read_material(checks, folder, folder.parent / DATA)
    if list_only:
        for line in listing(material.catalogue):
            say(line)
        return
    detection = detect(material, check, healthy, lambda line: say(line, err=True))
    if json_file is not None:
        write_output(json_file, json.dumps(as_json(detection), indent=1, ensure_ascii=False) + "\n", RunError)
    for lines in (detection_table(detection), complaints(detection), summary(detection)):
        for line in (*lines, "") if lines else ():
            say(line)
    ctx.exit(EXIT_OK if detection.good else EXIT_FAILED)
