"""The profile ``smoke`` of every architecture: short benchmarks once, for seconds, before a night of ``full``.

It shows that tools, accounts, mounts and paths work, and a first figure of each. It never certifies.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from rackproof.core.architecture.base import Model
from rackproof.core.architecture.models import Architecture

SMOKE: Final = "smoke"
_MOST: Final = {
    "runs": 1, "copy_runs": 1, "runtime_s": 10, "ramp_s": 5, "seconds": 2, "quiet_s": 5, "rdma_duration_s": 5,
    "tcp_duration_s": 5, "latency_iterations": 1000, "iterations": 5, "warmup": 2, "files": 200,
}  # fmt: skip
"""Largest values of a profile's keys."""
_FILE_BYTES: Final = 256 << 20
"""Largest file of a process, bytes."""
_LONG: Final = {"ingest", "knee", "beside_collectives", "scale_out", "diagnoses", "guest"}
"""Keys of parts that take long however small they are."""
Part = TypeVar("Part", bound=Model)


def with_smoke(architecture: Architecture) -> Architecture:
    """The architecture with ``profiles.smoke``, unchanged if it has its own.

    It is made of ``lab``, or of ``full`` where there is none or its parts all take long.
    """
    profiles = architecture.profiles
    bases = [shortened(profiles[name]) for name in ("lab", "full") if name in profiles]
    smoke = next((base for base in bases if any(value is not None for _, value in base)), None)
    if SMOKE in profiles or smoke is None:
        return architecture
    return architecture.model_copy(update={"profiles": {**profiles, SMOKE: smoke}})


def shortened(part: Part) -> Part:
    """A part of a profile with shorter runs and smaller files."""
    changes: dict[str, Any] = {}
    for name, value in part:
        if name in _LONG:
            changes[name] = type(part).model_fields[name].get_default(call_default_factory=True)
        elif name in _MOST:
            changes[name] = min(value, _MOST[name])
        elif name == "every_pair":
            changes[name] = False
        elif name == "file_bytes" and (block := getattr(part, "block_bytes", 0)):
            changes[name] = min(value, max(block, _FILE_BYTES // block * block))
        elif isinstance(value, Model):
            changes[name] = shortened(value)
        elif isinstance(value, dict):
            changes[name] = {key: shortened(v) if isinstance(v, Model) else v for key, v in value.items()}
        elif isinstance(value, tuple):
            changes[name] = tuple(shortened(v) if isinstance(v, Model) else v for v in value)
    return part.model_copy(update=changes)
