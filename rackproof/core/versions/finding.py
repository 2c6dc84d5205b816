"""Findings of the rules on version sets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rackproof.core.versions.models import Platform


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """A contradiction in one platform of a set; ``key`` is the path below the platform."""

    key: str
    message: str
    remedy: str
    source: str


Rule = Callable[[str, Platform], Iterator[RuleFinding]]
"""Takes a platform's name and the platform."""


def is_rhel(platform_name: str) -> bool:
    return platform_name.partition("-")[0] in ("rhel", "rocky", "almalinux", "centos", "ol")
