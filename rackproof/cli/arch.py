"""``rackproof arch``: reference architectures."""

from __future__ import annotations

import json

import click

from rackproof import architectures
from rackproof.cli.terminal import print_document, say
from rackproof.errors import EXIT_USAGE, ArchitectureError
from rackproof.read_file import read_text

LAB = "virtual-rack"
_JSON = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.group()
def arch() -> None:
    """Reference architectures: one YAML file each, read by deploys, validators, benchmarks and judge."""


@arch.command("list")
def list_() -> None:
    """List the architectures that can be named by id."""
    for item in architectures.available():
        say(f"{item.id:<28} {item.problem or item.title}")


@arch.command()
@click.argument("id_", metavar="ID")
@click.option("--merged", is_flag=True, help="With everything that it extends.")
def show(id_: str, merged: bool) -> None:
    """Print an architecture's file."""
    loaded = architectures.load(id_)
    print_document(loaded.text if merged else read_text(loaded.path), nl=False)


@arch.command()
@click.argument("files", nargs=-1, required=True)
def check(files: tuple[str, ...]) -> None:
    """Check FILES (or ids) and name every mistake; exit status 3 for an invalid one."""
    from rackproof.core.architecture.weakening import weakens
    from rackproof.report.architecture import contents
    from rackproof.report.statements import weakening_text
    from rackproof.validation.known import known_checks
    from rackproof.validation.run import validators_folder

    checks = known_checks(validators_folder())
    wrong = False
    for file in files:
        try:
            loaded = architectures.load(file, checks=checks)
        except ArchitectureError as error:
            for line in error.mistakes:
                say(line, err=True)
            wrong = True
        else:
            name = f"{loaded.model.metadata.id} {loaded.model.metadata.version}"
            say(f"{loaded.path}: {name}, {contents(loaded.model)}")
            metadata = loaded.model.metadata
            if metadata.weakened:
                say(f"{loaded.path}: {weakens(metadata.weakened, (metadata.compared_with or '').partition(' ')[0])}")
            for weakening in metadata.weakened:
                say(f"  {weakening_text(weakening)}")
    if wrong:
        raise click.exceptions.Exit(EXIT_USAGE)


@arch.command()
def schema() -> None:
    """Print the JSON Schema of refarch/v1, for editors."""
    print_document(architectures.json_schema(), nl=False)


@arch.command()
@click.argument("ids", nargs=-1)
@_JSON
def claims(ids: tuple[str, ...], as_json: bool) -> None:
    """List the claims of architectures IDS (all but scaled forms): figure, criterion, measurement, virtual rack."""
    from rich.console import Console

    from rackproof.core.architecture.claims import claim_rows
    from rackproof.core.architecture.expectations import expected_checks
    from rackproof.report.architecture import claims_json, claims_table
    from rackproof.validation.known import known_checks
    from rackproof.validation.run import validators_folder

    validators = known_checks(validators_folder())
    virtual = architectures.load(LAB).model
    lab = {expected.check for expected in expected_checks(virtual)}
    lab.update(check for checks in virtual.required_checks.values() for check in checks)
    models = {id_: architectures.load(id_).model for id_ in ids or (item.id for item in architectures.available())}
    # scaled forms have the claims of the systems that they are forms of
    selected = tuple(id_ for id_, model in models.items() if ids or model.scale is None)
    rows = [row for id_ in selected for row in claim_rows(models[id_], validators, lab)]
    if as_json:
        print_document(json.dumps(claims_json(rows), indent=2, ensure_ascii=False))
    elif rows:
        claims_table(rows, Console())
    else:
        say(f"no claims in {', '.join(selected)}")


@arch.command()
@_JSON
def metrics(as_json: bool) -> None:
    """List all metrics: name, unit, direction, scope, benchmark."""
    from rich.console import Console

    from rackproof.core.metrics import METRICS
    from rackproof.report.architecture import metric_json, metrics_table

    if as_json:
        print_document(json.dumps([metric_json(metric) for metric in METRICS.values()], indent=2, ensure_ascii=False))
    else:
        metrics_table(Console())
