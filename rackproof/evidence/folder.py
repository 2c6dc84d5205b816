"""Run folders: create, find, and read what a resumed or later run needs of an earlier one."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import platform
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rackproof import __version__, architectures
from rackproof.architectures import LoadedArchitecture
from rackproof.core.evidence import Kind, NodeInfo, Record, RunInfo, canonical
from rackproof.core.rack import Rack
from rackproof.core.texts import file_name
from rackproof.errors import ArchitectureError, EvidenceWriteError, RunError
from rackproof.evidence.store import EVIDENCE, LINE, read_raw, read_records, utc_now
from rackproof.kit import DATA, PACKAGE
from rackproof.read_file import opened

ANEW = "start a new run"
SAME_SECOND = 100
"""Runs of one inventory that may begin within a second."""
_DATED = re.compile("[0-9]{8}-[0-9]{6}")
"""How ``run_folder`` begins a name."""
_TIME = "%Y%m%d-%H%M%S"
_LIBRARIES = ("pyinfra", "paramiko", "fabric", "pytest-testinfra", "pytest")


def run_folder(reports: Path, inventory: str, now: dt.datetime | None = None) -> Path:
    """Folder of a run that starts now: ``reports/20261121-074500-lab``. Its name is safe in a shell."""
    moment = (now or dt.datetime.now(dt.UTC)).strftime(_TIME)
    return reports / f"{moment}-{_stem(inventory)}"


def new_folder(folder: Path) -> Path:
    """Create a run's folder, with ``-2``, ``-3`` … at its end where another run of the same second has the name.

    Raises EvidenceWriteError.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for path in (folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, SAME_SECOND + 1))):
            with suppress(FileExistsError):
                path.mkdir()
                return path
    except OSError as error:
        raise EvidenceWriteError(f"{folder}: cannot be written ({error.strerror})") from error
    raise RunError(f"{folder}: {SAME_SECOND} runs began in that second; start again")


def find_run(reports: Path, run: str) -> Path:
    """A run by path, by name under reports/, or ``latest``."""
    if run == "latest":
        runs = _runs(reports)
        if not runs:
            raise RunError(f"{reports}: no run there yet")
        return runs[-1]
    for folder in (Path(run), reports / run):
        if (folder / EVIDENCE).is_file():
            return folder
    raise RunError(f"{run}: no such run (neither a folder with {EVIDENCE} nor a name under {reports}/)")


def find_resumable(
    reports: Path, run: str, refuse: Callable[[Sequence[Record]], None], inventory: str
) -> tuple[Path, RunInfo]:
    """The run to continue; ``latest`` is the latest run of the inventory that ``refuse`` has nothing against.

    ``refuse`` raises RunError, one line, for a run that cannot be continued.
    """
    if run != "latest":
        folder = find_run(reports, run)
        records = read_records(folder)
        refuse(records)
        return folder, info_of(records)
    why: str | None = None
    for folder in runs_of(reports, inventory):
        try:
            records = read_records(folder)
            refuse(records)
        except RunError as error:
            why = why or str(error)
            continue
        return folder, info_of(records)
    reason = f" that can be continued: {why}" if why else " yet"
    raise RunError(f"{reports}: no run of {inventory}{reason}")


def runs_of(reports: Path, inventory: str) -> Iterator[Path]:
    """Folders of an inventory's runs, the latest first; one without a readable first record counts by its name."""
    ours = re.compile(rf"{_DATED.pattern}-{re.escape(_stem(inventory))}(-[0-9]+)?")
    for folder in reversed(_runs(reports)):
        named = _inventory_of(folder)
        if ours.fullmatch(folder.name) if named is None else Path(named).resolve() == Path(inventory).resolve():
            yield folder


def _stem(inventory: str) -> str:
    return file_name(Path(inventory).stem)


def _inventory_of(folder: Path) -> str | None:
    """Inventory that the first record of a run names; None without one."""
    return _first_record(folder).get("inventory")


def _first_record(folder: Path) -> dict[str, str]:
    """Its body as texts, without reading other records; empty where there is none."""
    try:
        with opened(folder / EVIDENCE) as file:
            return {key: str(value) for key, value in json.loads(file.readline(LINE))["body"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _runs(reports: Path) -> list[Path]:
    """Folders of runs, the latest last; folders of deploys are none."""
    return sorted((path.parent for path in reports.glob(f"*/{EVIDENCE}") if _is_run(path)), key=_began)


def _began(folder: Path) -> tuple[str, bool, str]:
    """Sort key: when the run began, by its folder's name. A copy with another name comes before its original."""
    own = _DATED.match(folder.name)
    time = own or _DATED.match(_first_record(folder).get("run", ""))
    return time[0] if time else "", own is not None, folder.name


def is_ahead(folder: Path) -> bool:
    """Whether a run began in the future: no later run could replace it."""
    latest = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)  # for another machine's clock
    return _began(folder)[0] > latest.strftime(_TIME)


def _is_run(path: Path) -> bool:
    with suppress(OSError), opened(path) as file:
        return b'"kind":"deploy"' not in file.readline(4096)
    return True


def run_info(
    folder: Path,
    rack: Rack,
    architecture: LoadedArchitecture,
    profile: str,
    inventory_data: dict[str, str],
    validators: str,
    own_validators: str | None,
) -> RunInfo:
    """First record of a run, without the inventory's addresses and credentials."""
    return RunInfo(
        run=folder.name,
        started=utc_now(),
        rackproof=__version__,
        inventory=rack.source,
        architecture=architecture.model.metadata.id,
        architecture_sha256=architecture.sha256,
        profile=profile,
        nodes=node_infos(rack),
        controller=_controller(),
        kit_sha256=kit_digest(),
        node_data=node_data(rack),
        inventory_data=inventory_data,
        validators=validators,
        own_validators=own_validators,
    )


@cache
def kit_digest() -> str:
    """sha256 of the kit's modules and scripts, with their names: the same for a checkout and for its wheel."""
    digest = hashlib.sha256()
    for path in sorted(path for kind in ("*.py", "*.sh", "*.yaml") for path in PACKAGE.rglob(kind)):
        if not path.is_relative_to(PACKAGE / DATA):
            digest.update(f"{path.relative_to(PACKAGE)}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _controller() -> dict[str, str]:
    facts = {"python": platform.python_version(), "kernel": platform.release(), "cpus": str(os.cpu_count() or 0)}
    return facts | {name: _version(name) for name in _LIBRARIES}


@cache
def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def info_of(records: Sequence[Record]) -> RunInfo:
    if not records or records[0].kind is not Kind.RUN:
        raise RunError("the run has no first record; it was killed before it began")
    return RunInfo.model_validate(records[0].body)


def stored_architecture(folder: Path, info: RunInfo) -> LoadedArchitecture:
    """The architecture as stored with the run. Raises RunError, ArchitectureError."""
    try:
        text = read_raw(folder, info.architecture_sha256).decode()
    except RunError as error:
        raise RunError(f"{error}; that is its architecture: name one with --architecture") from None
    return architectures.stored(text, f"{folder}/raw/{info.architecture_sha256[:12]}")


def changed_since(info: RunInfo) -> str | None:
    """One line where the architecture file has changed since the run; None where it has not."""
    try:
        now = architectures.load(info.architecture)
    except ArchitectureError:
        return None
    if now.sha256 == info.architecture_sha256:
        return None
    return f"{now.path} has changed since the run; --architecture {info.architecture} judges against it as it is now"


def check_resumable(info: RunInfo, rack: Rack, architecture: LoadedArchitecture, profile: str) -> None:
    """Raises RunError where the run began with another kit, inventory, architecture or profile."""
    if info.rackproof != __version__:
        raise RunError(f"{info.run}: recorded by rackproof {info.rackproof}, this is {__version__}; {ANEW}")
    if info.kit_sha256 != kit_digest():
        raise RunError(f"{info.run}: recorded by another build of rackproof {__version__}; {ANEW}")
    if Path(info.inventory).resolve() != Path(rack.source).resolve():
        raise RunError(f"{info.run}: it is a run of {info.inventory}, not of {rack.source}; {ANEW}")
    now = node_infos(rack)
    if [n.name for n in info.nodes] != [n.name for n in now]:
        raise RunError(f"{info.run}: {rack.source} has other nodes than when the run began; {ANEW}")
    data = node_data(rack)
    for node, before in zip(now, info.nodes, strict=True):
        if node != before or data[node.name] != info.node_data.get(node.name):
            raise RunError(f"{info.run}: {rack.source} says something else of {node.name} than when it began; {ANEW}")
    if info.architecture != (id_ := architecture.model.metadata.id):
        raise RunError(f"{info.run}: it began with architecture {info.architecture}, not {id_}; {ANEW}")
    if info.architecture_sha256 != architecture.sha256:
        raise RunError(f"{info.run}: {architecture.path} has changed since it began; {ANEW}, or judge this one again")
    if info.profile != profile:
        raise RunError(f"{info.run}: it began with profile {info.profile}, not {profile}; {ANEW}")


_LOGIN = ("ssh_user", "ssh_key", "ssh_key_password", "ssh_password", "ssh_known_hosts_file")
"""Keys of a node's data for access, which do not identify the node."""


def node_data(rack: Rack) -> dict[str, str]:
    """sha256 of each node's data in the inventory; how to log in is left out."""
    return {
        node.name: hashlib.sha256(canonical({k: v for k, v in node.data.items() if k not in _LOGIN})).hexdigest()
        for node in rack.nodes
    }


def node_infos(rack: Rack) -> tuple[NodeInfo, ...]:
    return tuple(
        NodeInfo(name=n.name, groups=n.groups, virtual=n.virtual, simulated_gpus=n.simulated_gpus) for n in rack.nodes
    )


def earlier_seconds(reports: Path, inventory: str, stages: Collection[str]) -> dict[str, float]:
    """Seconds of these stages in the latest three runs on this inventory, the newest first; some may be unknown."""
    seconds: dict[str, float] = {}
    for path in sorted(reports.glob(f"*-{_stem(inventory)}/{EVIDENCE}"), reverse=True)[:3]:
        if seconds.keys() >= set(stages):
            break
        with suppress(RunError):  # damaged: an earlier run may say it
            ends = [r.body for r in read_records(path.parent) if r.kind is Kind.STAGE and r.body["event"] == "end"]
            seconds = {end["stage"]: end["elapsed_s"] for end in ends if end["stage"] in stages} | seconds
    return seconds
