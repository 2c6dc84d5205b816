"""``rackproof dataset``: make and check the data sets of the ingest benchmark."""

from __future__ import annotations

import click

from rackproof.architectures import LoadedArchitecture, architecture_of
from rackproof.bench.ingest.datasets import DataSets
from rackproof.cli.options import architecture_option, options
from rackproof.cli.runs import default_profile
from rackproof.cli.terminal import say
from rackproof.cli.unrecorded import unrecorded
from rackproof.core.architecture import DataSet, IngestProfile
from rackproof.core.nearest import suggestion
from rackproof.core.rack import Rack
from rackproof.errors import EXIT_FAILED, ArchitectureError, DataSetError
from rackproof.inventory import load_rack


@click.group()
def dataset() -> None:
    """Make and check data sets of JPEG samples, which a profile of the architecture describes under `ingest`."""


_options = options(
    click.argument("inventory"),
    click.argument("names", nargs=-1),
    architecture_option,
    click.option("--profile", help="Profile with the data sets.  [default: lab on a virtual rack, else full]"),
)


@dataset.command()
@_options
def make(inventory: str, names: tuple[str, ...], architecture: str | None, profile: str | None) -> None:
    """Write the data sets NAMES (default: all) from all nodes at once; continue what was interrupted.

    Refuses without the space. Nothing is written twice: a second call finds the shards complete.
    """
    rack, loaded, part = _described(inventory, architecture, profile)
    chosen = _chosen(part, names)
    with unrecorded(rack, loaded, "dataset make") as context:
        nodes = [node.name for node in rack.group(part.members)]
        for name, described in chosen.items():
            made, _ = DataSets.of(context).make(name, described, nodes)
            say(f"{name} on {described.storage}: {made.text(described.storage)}")


@dataset.command()
@_options
@click.pass_context
def check(
    ctx: click.Context, inventory: str, names: tuple[str, ...], architecture: str | None, profile: str | None
) -> None:
    """Read the data sets NAMES (default: all) completely and compare them with their indexes.

    Exit status: 0 nothing changed, 1 a shard is missing, cut off or changed.
    """
    rack, loaded, part = _described(inventory, architecture, profile)
    chosen = _chosen(part, names)
    damaged = False
    with unrecorded(rack, loaded, "dataset check") as context:
        nodes = [node.name for node in rack.group(part.members)]
        for name, described in chosen.items():
            faults = DataSets.of(context).check(name, described, nodes)
            damaged |= bool(faults)
            for fault in faults:
                say(f"{name}: {fault}")
            if not faults:
                say(f"{name} on {described.storage}: unchanged since it was indexed")
    ctx.exit(EXIT_FAILED if damaged else 0)


def _described(
    inventory: str, architecture: str | None, profile: str | None
) -> tuple[Rack, LoadedArchitecture, IngestProfile]:
    """Rack, architecture, and the profile's data sets."""
    rack = load_rack(inventory)
    loaded = architecture_of(rack, architecture)
    name = profile or default_profile(rack)
    if name not in loaded.model.profiles:
        known = suggestion(name, loaded.model.profiles)
        raise ArchitectureError(f"{loaded.model.metadata.id}: no profile {name!r}; {known}")
    part = loaded.model.profiles[name].ingest
    if part is None or not part.datasets:
        raise ArchitectureError(
            f"{loaded.model.metadata.id}: profile {name} has no data sets: it needs ingest.datasets"
        )
    if not rack.group(part.members):
        raise DataSetError(f"{rack.source}: no node in {part.members}, whose nodes write the data sets")
    return rack, loaded, part


def _chosen(part: IngestProfile, names: tuple[str, ...]) -> dict[str, DataSet]:
    for name in names:
        if name not in part.datasets:
            raise DataSetError(f"no data set {name!r}; {suggestion(name, part.datasets)}")
    return {name: part.datasets[name] for name in names or part.datasets}
