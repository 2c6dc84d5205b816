"""Kit and files of the health check."""

from __future__ import annotations

from functools import lru_cache

from rackproof import architectures
from rackproof.configure.files import Entry, RemoteDirectory, RemoteFile
from rackproof.configure.health_check import kit
from rackproof.configure.health_check.inputs import HealthInputs
from rackproof.configure.shared_files import rendered
from rackproof.configure.site import Site

PROGRAM = kit.PROGRAM
SERVICE = "rackproof-health.service"
ARCHITECTURE = "architecture.yaml"


def why_nothing(site: Site) -> str | None:
    return None if kit.applies(site.architecture.slurm, site.node) else "Slurm calls no health check here"


def with_python_of(inputs: HealthInputs, family: str) -> HealthInputs:
    """The inputs with the distribution's own Python where the inventory names no other."""
    if inputs.python == kit.PYTHON and family == "rhel":
        return inputs.model_copy(update={"python": kit.RHEL_PYTHON})
    return inputs


def files(site: Site, chosen: HealthInputs, architecture: str) -> tuple[Entry, ...]:
    unit = f"/etc/systemd/system/{SERVICE}"
    return (
        RemoteDirectory("/etc/rackproof"),
        RemoteFile("/etc/rackproof/rack.yaml", kit.rack_file(site.rack, ARCHITECTURE)),
        RemoteFile(f"/etc/rackproof/{ARCHITECTURE}", architecture),
        rendered(
            PROGRAM,
            mode="755",
            node=site.node.name,
            directory=chosen.directory,
            time_limit=chosen.time_limit_s,
            arguments=kit.check_arguments(chosen),
            drain_on=chosen.drain_on,
        ),
        rendered(unit, time_limit=chosen.time_limit_s),
    )


@lru_cache(maxsize=4)
def wanted_kit(chosen: HealthInputs) -> kit.Kit:
    return kit.Kit(kit.archive(), kit.requirements(), chosen)


@lru_cache(maxsize=4)
def architecture_text(identifier: str) -> str:
    """The architecture with everything that it extends, as one file."""
    return architectures.of_run(identifier).text
