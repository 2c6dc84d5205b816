"""``rackproof selftest``: can every check fail, and does none fail without a reason?"""

from __future__ import annotations

from pathlib import Path

import click

from rackproof.errors import EXIT_FAILED, EXIT_OK
from rackproof.selftest.catalogue import read_catalogue
from rackproof.selftest.trial import Subject, load_validators, try_fault
from rackproof.selftest.written import open_rack, racks_below
from rackproof.validation.run import validators_folder

FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command()
@click.option("--faults", type=FOLDER, default=Path("tests/faults"), show_default=True, help="The catalogue.")
@click.option("--check", help="Faults of this check only.")
@click.pass_context
def selftest(ctx: click.Context, faults: Path, check: str | None) -> None:
    """Try the catalogue of faults on the current validators."""
    validators = load_validators(validators_folder())
    files = read_catalogue(faults)
    data = faults.parent / "data"
    subjects = {name: Subject(name, open_rack(data, name), validators) for name in racks_below(data)}
    wrong = 0
    for subject in subjects.values():
        for result in subject.false_alarms():
            wrong += 1
            click.echo(f"healthy {subject.name} {result.node} {result.check}[{result.item}]: {result.message}")
    for file in files.values():
        for fault in file.faults:
            if check in (None, fault.check):
                finding = try_fault(subjects[file.rack], fault)
                wrong += not finding.caught
                others = {r.check for r in finding.noticed} - {fault.check}
                click.echo(f"{fault.name}: {finding.problem or 'caught'} also {len(others)}")
    tried = {fault.check for file in files.values() for fault in file.faults}
    for missing in sorted(set(validators) - tried):
        wrong += 1
        click.echo(f"{missing}: no fault")
    ctx.exit(EXIT_FAILED if wrong else EXIT_OK)
