"""Health check: the kit on the node, and the program that Slurm calls.

What it costs: all checks of an idle GPU node take about 10 s of one core at lowest priority, once in the interval
(``slurm.health_check_interval_s``, 300 s: 3 %). On an emulated node they take a minute or two, and installing takes
several: there ``install`` is off unless the inventory turns it on.
"""

from __future__ import annotations

from functools import lru_cache

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError

from deploys import templates
from rackproof import architectures
from rackproof.configure import operations
from rackproof.configure.files import Entry, RemoteDirectory, RemoteFile
from rackproof.configure.health import kit
from rackproof.configure.health import operations as health_operations
from rackproof.configure.health.inputs import HealthInputs
from rackproof.configure.machine import family_here
from rackproof.configure.site import Site, here
from rackproof.errors import RackproofError

PROGRAM = kit.PROGRAM
SERVICE = "rackproof-health.service"
ARCHITECTURE = "architecture.yaml"


@deploy("Health check")
def health_check() -> None:
    site = here()
    if not applies(site):
        return
    chosen = inputs_here(site)
    if chosen.install:
        family = family_here()
        if chosen.python == kit.PYTHON and family == "rhel":
            chosen = chosen.model_copy(update={"python": kit.RHEL_PYTHON})
        if needed := kit.packages(chosen, family):
            operations.packages(name="Packages", names=needed, family=family)
        health_operations.kit(name="Kit", wanted=_kit(chosen))
    operations.files(name="Files", entries=files(site, chosen, _text(_identifier(site))))


def applies(site: Site) -> bool:
    return kit.applies(site.architecture.slurm, site.node)


def inputs_here(site: Site) -> HealthInputs:
    """Raises DeployError."""
    try:
        return kit.inputs_of(site.node, site.settings.virtual)
    except RackproofError as error:
        raise DeployError(str(error)) from None


def files(site: Site, chosen: HealthInputs, architecture: str) -> tuple[Entry, ...]:
    unit = f"/etc/systemd/system/{SERVICE}"
    try:
        rack = kit.rack_file(site.rack, ARCHITECTURE)
    except RackproofError as error:
        raise DeployError(str(error)) from None
    program = templates.text(
        PROGRAM,
        node=site.node.name,
        directory=chosen.directory,
        time_limit=chosen.time_limit_s,
        arguments=kit.check_arguments(chosen),
        drain_on=chosen.drain_on,
    )
    return (
        RemoteDirectory("/etc/rackproof"),
        RemoteFile("/etc/rackproof/rack.yaml", rack),
        RemoteFile(f"/etc/rackproof/{ARCHITECTURE}", architecture),
        RemoteFile(PROGRAM, program, mode="755"),
        RemoteFile(unit, templates.text(unit, time_limit=chosen.time_limit_s)),
    )


@lru_cache(maxsize=4)
def _kit(chosen: HealthInputs) -> kit.Kit:
    try:
        return kit.Kit(kit.archive(kit.checkout()), kit.requirements(), chosen)
    except RackproofError as error:
        raise DeployError(str(error)) from None


def _identifier(site: Site) -> str:
    return str(site.node.data.get("architecture") or site.architecture.metadata.id)


@lru_cache(maxsize=4)
def _text(identifier: str) -> str:
    """All of the architecture in one file: what it extends is not on the node."""
    try:
        return architectures.load(identifier).text
    except RackproofError as error:
        raise DeployError(str(error)) from None
