"""What a rule of a version set finds, and what rules share. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rackproof.core.versions.models import Platform


@dataclass(frozen=True, slots=True)
class Found:
    key: str
    message: str
    way_out: str
    source: str


Rule = Callable[[str, Platform], Iterator[Found]]
"""Of a platform's name and the platform."""


def is_rhel(platform_name: str) -> bool:
    return platform_name.partition("-")[0] in ("rhel", "rocky", "almalinux", "centos", "ol")
