"""The catalogue of faults: what goes wrong on machines, and the check that must notice.

One YAML file a domain::

    rack: hgx-h200-roce
    faults:
      - name: gpu-lost
        title: One GPU has fallen off the bus
        node: gpu-01
        check: gpu.count
        says: expected 8, actual 7
        change:
          - {command: nvidia-smi -q -x, replace: [old, new]}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from rackproof.core.evidence import CheckOutcome
from rackproof.errors import SelfTestError
from rackproof.remote.document import Strict, as_model, load_yaml
from rackproof.selftest.mutation import Change

_ANCHORS = "x-"
"""Keys of a file that begin with it hold text for YAML's anchors."""


def _several(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class Fault(Strict):
    """One thing that goes wrong on one node."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str = Field(min_length=3)
    node: str
    check: str
    """The check that must catch it."""
    item: str = ""
    """Of a check that has items: the one that must; empty where any may."""
    outcome: CheckOutcome = CheckOutcome.FAILED
    says: str = ""
    """Words of the check's message."""
    live: str = ""
    """Name of the same fault for ``rackproof lab fault``."""
    change: Annotated[tuple[Change, ...], BeforeValidator(_several)] = Field(min_length=1)


class FaultFile(Strict):
    """Faults of one domain, on one rack."""

    rack: str
    faults: tuple[Fault, ...] = Field(min_length=1)


def read_catalogue(folder: Path) -> dict[str, FaultFile]:
    """Every file of a folder by its name without suffix. Raises SelfTestError: file, fault, what is wrong."""
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise SelfTestError(f"{folder}: no faults there (*.yaml)")
    files = {path.stem: read_faults(path) for path in paths}
    seen: dict[str, str] = {}
    for stem, file in files.items():
        for fault in file.faults:
            if fault.name in seen:
                raise SelfTestError(
                    f"{folder / stem}.yaml: {fault.name}: {seen[fault.name]}.yaml has a fault of that name"
                )
            seen[fault.name] = stem
    return files


def read_faults(path: Path) -> FaultFile:
    """One file of the catalogue. Raises SelfTestError, one line."""
    plain = load_yaml(path)
    if not isinstance(plain, dict):
        raise SelfTestError(f"{path}: expected `rack:` and `faults:`, actual {type(plain).__name__}")
    plain = {key: value for key, value in plain.items() if not str(key).startswith(_ANCHORS)}
    entries = plain.get("faults")
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        name = entry.get("name", f"fault {index + 1}") if isinstance(entry, dict) else f"fault {index + 1}"
        as_model(Fault, entry, f"{path}: {name}")
    return as_model(FaultFile, plain, str(path))
