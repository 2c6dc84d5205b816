"""The catalogue of faults, each with the check that must find it.

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
"""Prefix of keys that hold text for YAML anchors."""


def _several(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class Fault(Strict):
    """One fault on one node."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str = Field(min_length=3)
    node: str
    check: str
    """The check that must find it."""
    item: str = ""
    """The item of the check that must find it; empty: any item."""
    outcome: CheckOutcome = CheckOutcome.FAILED
    says: str = ""
    """Text that the check's message must contain."""
    live: str = ""
    """Name of the same fault for ``rackproof lab fault``."""
    change: Annotated[tuple[Change, ...], BeforeValidator(_several)] = Field(min_length=1)


class FaultFile(Strict):
    """Faults of one domain, on one rack."""

    rack: str
    faults: tuple[Fault, ...] = Field(min_length=1)


def read_catalogue(folder: Path) -> dict[str, FaultFile]:
    """Read every file of a folder, by name without suffix. Raises SelfTestError with file, fault and problem."""
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise SelfTestError(f"{folder}: no fault files (*.yaml)")
    files = {path.stem: read_faults(path) for path in paths}
    seen: dict[str, str] = {}
    for stem, file in files.items():
        for fault in file.faults:
            if fault.name in seen:
                raise SelfTestError(
                    f"{folder / stem}.yaml: {fault.name}: {seen[fault.name]}.yaml has a fault with the same name"
                )
            seen[fault.name] = stem
    return files


def read_faults(path: Path) -> FaultFile:
    """Read one file of the catalogue. Raises SelfTestError."""
    plain = load_yaml(path)
    if not isinstance(plain, dict):
        raise SelfTestError(f"{path}: expected `rack:` and `faults:`, actual {type(plain).__name__}")
    plain = {key: value for key, value in plain.items() if not str(key).startswith(_ANCHORS)}
    entries = plain.get("faults")
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        name = entry.get("name", f"fault {index + 1}") if isinstance(entry, dict) else f"fault {index + 1}"
        as_model(Fault, entry, f"{path}: {name}")
    return as_model(FaultFile, plain, str(path))
