"""The kit for installation on nodes: its files, its stamp, and the install script."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import shlex
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rackproof import shell
from rackproof.architectures import SUMS
from rackproof.configure.health_check.inputs import HealthInputs
from rackproof.configure.health_check.requirements import KIT, Pinned, pinned, title
from rackproof.configure.settings import read_inputs
from rackproof.core.architecture import Slurm
from rackproof.core.port_names import names_by_purpose
from rackproof.core.rack import Node, Rack
from rackproof.errors import InventoryError
from rackproof.kit import DATA, LOCK, PACKAGE, folder, root

FOLDERS = ("architectures", "validators")
"""Folders that checks need beside the package; installed as in a wheel."""
SUFFIXES = (".py", ".yaml", ".yml", ".json", ".toml", ".typed", ".j2", ".css", ".conf", ".sh")
NOT_NEEDED = ("pyinfra",)
"""Dependencies that only the controller needs."""
DATA_KEYS = (
    "fabric_addresses", "fabric_second_addresses", "management_address", "nic_ports", "simulated_gpus", "virtual",
    "command_timeout_s", "containers", "scratch_drives", "storage_client",
)  # fmt: skip
"""Keys of the inventory's data that checks read. The kit copies no other keys to nodes: they may be confidential."""
PARTS: Final[Mapping[str, Sequence[str]]] = {"containers": ("user", "image"), "storage_client": ("cephfs.fsid",)}
"""Inputs of these keys that checks read; the kit copies no others."""
STAMP = "installed"
PROGRAM = "/usr/local/sbin/rackproof-health"
"""The program that Slurm runs."""
PYTHON = "/usr/bin/python3"
RHEL_PYTHON = "/usr/bin/python3.11"
"""RHEL 9's default Python is 3.9; the kit needs 3.11."""


@dataclass(frozen=True, slots=True)
class Kit:
    """The kit to install. ``archive`` is reproducible: the same files give the same bytes."""

    archive: bytes
    requirements: tuple[str, ...]
    """Lines for pip, with digests."""
    inputs: HealthInputs

    @property
    def stamp(self) -> str:
        """Digest of everything that an installation depends on."""
        content = json.dumps([hashlib.sha256(self.archive).hexdigest(), self.requirements, self.inputs.python])
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def dependencies(self) -> str:
        """Digest of what pip installs."""
        return hashlib.sha256("\n".join((*self.requirements, self.inputs.python)).encode()).hexdigest()[:16]


def applies(slurm: Slurm | None, node: Node) -> bool:
    """Whether the health check is installed on a node: its architecture declares it for Slurm, or the inventory
    has ``health_check``."""
    if slurm is None or not set(slurm.roles) & set(node.groups):
        return False
    return slurm.health_check == PROGRAM or "health_check" in node.data


def inputs_of(node: Node, virtual: bool) -> HealthInputs:
    """The inputs; on a virtual rack ``install`` is False by default. Raises InventoryError."""
    chosen = read_inputs(node, HealthInputs)
    if virtual and "install" not in chosen.model_fields_set:
        return chosen.model_copy(update={"install": False})
    return chosen


def members() -> dict[str, Path]:
    """Files by their name in the archive, sorted, without caches and hidden files."""
    roots = {KIT: PACKAGE, **{f"{KIT}/{DATA}/{name}": folder(name) for name in FOLDERS}}
    return {
        f"{name}/{path.relative_to(source)}": path
        for name, source in roots.items()
        for path in sorted(source.rglob("*"))
        if path.is_file()
        and (path.suffix in SUFFIXES or path.name == SUMS)
        and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(source).parts)
        and not (source == PACKAGE and path.is_relative_to(PACKAGE / DATA))
    }


def archive() -> bytes:
    """A compressed tar without times and owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, path in members().items():
            data = path.read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def wheels() -> tuple[Pinned, ...]:
    """Packages that checks need, with versions and digests. Raises InventoryError."""
    path = root() / LOCK
    try:
        lock = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InventoryError(f"{path}: {error.strerror or error}: the kit's packages are pinned there") from None
    return pinned(lock, without=NOT_NEEDED)


def requirements() -> tuple[str, ...]:
    """``wheels`` as lines for pip. Raises InventoryError."""
    return tuple(requirement.line for requirement in wheels())


def packages(inputs: HealthInputs, family: str) -> tuple[str, ...]:
    """The distribution's packages with Python and venv; none when the inventory names another Python."""
    if inputs.python not in (PYTHON, RHEL_PYTHON):
        return ()
    if family == "rhel":
        return ("python3.11",)
    return ("python3-venv",) if inputs.python == PYTHON else ()


def standard_input(kit: Kit) -> str:
    """Standard input of ``install_script``: the stamp, the list for pip, the archive."""
    listed = base64.b64encode("\n".join((*kit.requirements, "")).encode()).decode()
    return f"{kit.stamp}\n{listed}\n{base64.encodebytes(kit.archive).decode()}"


def state_command(directory: str) -> str:
    """Shell text that prints the stamp of the installed kit, if its program exists."""
    base = shlex.quote(directory)
    return f"[ ! -x {base}/bin/rackproof ] || cat {base}/{STAMP} 2>/dev/null; "


def install_script(kit: Kit) -> str:
    """Unpack to a temporary folder and rename it; build the environment only when dependencies have changed. Reads
    ``standard_input``. The stamp is written last, so that an interrupted installation is repeated."""
    inputs = kit.inputs
    source: tuple[str, ...] = ()
    if inputs.wheelhouse:
        source = ("--no-index", "--find-links", inputs.wheelhouse)
    elif inputs.index_url:
        source = ("--index-url", inputs.index_url)
    install = shell.script(
        __name__,
        "install",
        *source,
        base=inputs.directory,
        venv=f"{inputs.directory}/venv-{kit.dependencies}",
        python=inputs.python,
        stamp_file=f"{inputs.directory}/{STAMP}",
    )
    # Shows names and versions in plans; the digests are on standard input.
    return f"# {' '.join(title(line) for line in kit.requirements)}\n{install}"


def rack_file(rack: Rack, architecture: str) -> str:
    """``rack.yaml`` for ``validate --local``: JSON, a subset of YAML."""
    nodes = {node.name: {"groups": list(node.groups), "data": _data(node)} for node in rack.nodes}
    return json.dumps({"architecture": architecture, "nodes": nodes}, indent=1, sort_keys=True) + "\n"


def _data(node: Node) -> dict[str, Any]:
    data = {key: value for key in DATA_KEYS if key in node.data and (value := _plain(node, key)) != {}}
    try:
        names = names_by_purpose(node.data)
    except ValueError:
        return data  # checks report errors in nic_ports
    return data | ({"nic_ports": {purpose: list(ports) for purpose, ports in names.items()}} if names else {})


def _plain(node: Node, key: str) -> Any:
    value = node.data[key]
    if key in PARTS and isinstance(value, Mapping):
        value = _parts(value, PARTS[key])
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        raise InventoryError(f"{node.name}: {key}: expected plain data, actual {type(value).__name__}") from None


def _parts(inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The inputs of these dotted names, in their mappings; absent ones are left out."""
    parts: dict[str, Any] = {}
    for name in names:
        first, _, rest = name.partition(".")
        if rest and isinstance(inputs.get(first), Mapping):
            inner = _parts(inputs[first], (rest,))
            parts |= {first: inner} if inner else {}
        elif not rest and first in inputs:
            parts[first] = inputs[first]
    return parts


def check_arguments(inputs: HealthInputs) -> Sequence[str]:
    """Arguments of ``rackproof validate`` in the program."""
    words = ["--local", "--brief", "--time-limit", str(inputs.time_limit_s)]
    if inputs.tags:
        words += ["--tags", ",".join(inputs.tags)]
    if inputs.unmeasured_ok:
        words += ["--unmeasured-ok", ",".join(inputs.unmeasured_ok)]
    return words
