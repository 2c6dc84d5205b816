"""``rackproof selftest``: can every check fail, and does none fail without a reason?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from rackproof.errors import EXIT_FAILED, EXIT_OK, RunError
from rackproof.selftest.detection import HEALTHY_RUNS, detect, read_material
from rackproof.selftest.table import as_json, complaints, detection_table, listing, summary
from rackproof.validation.run import validators_folder

FAULTS = Path("tests") / "faults"
DATA = "data"
FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command()
@click.option("--faults", type=FOLDER, help="The catalogue; data/ beside it has the racks.  [default: tests/faults]")
@click.option("--check", metavar="ID", help="Only this check.")
@click.option(
    "--healthy",
    type=click.IntRange(0),
    default=HEALTHY_RUNS,
    show_default=True,
    metavar="N",
    help="Runs over every healthy rack with values that vary in time.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the table to FILE.")
@click.option("--list", "list_only", is_flag=True, help="List the faults; try none.")
@click.pass_context
def selftest(
    ctx: click.Context, faults: Path | None, check: str | None, healthy: int, json_file: Path | None, list_only: bool
) -> None:
    """Prove that every check in validators/ catches its faults and raises no false alarm.

    Faults and damaged answers are put on recordings of healthy racks; no node is asked. Exit status: 0 every check
    caught its faults and nothing else was complained about, 1 not so, 3 the catalogue or a rack cannot be used.
    """
    validators = validators_folder()
    folder = faults or validators.parent / FAULTS
    if not folder.is_dir():
        raise RunError(f"{folder}: no catalogue of faults; run this in a checkout, or give --faults DIR")
    material = read_material(validators, folder, folder.parent / DATA)
    if list_only:
        click.echo("\n".join(listing(material.catalogue)))
        return
    detection = detect(material, check, healthy, lambda line: click.echo(line, err=True))
    if json_file is not None:
        try:
            json_file.write_text(json.dumps(as_json(detection), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise RunError(f"{json_file}: cannot be written: {error.strerror or error}") from None
    for lines in (detection_table(detection), complaints(detection), summary(detection)):
        if lines:
            click.echo("\n".join(lines) + "\n")
    ctx.exit(EXIT_OK if detection.good else EXIT_FAILED)
