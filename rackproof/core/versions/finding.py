"""Findings of the rules on version sets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rackproof.core.versions.models import Platform


class Contradiction(NamedTuple):
    """Two values of a set that exclude each other; ``contradictions`` adds the rule and the platform."""

    key: str
    """Path of the second value below the platform, ``components.fabric_manager.version``."""
    message: str
    """One line: the expected value, and why."""
    remedy: str
    source: str
    id: str = ""
    platform: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.platform}: {self.key}: {self.message}; {self.remedy}"


Rule = Callable[[str, Platform], Iterator[Contradiction]]
"""Takes a platform's name and the platform."""


def is_rhel(platform_name: str) -> bool:
    return platform_name.partition("-")[0] in ("rhel", "rocky", "almalinux", "centos", "ol")
