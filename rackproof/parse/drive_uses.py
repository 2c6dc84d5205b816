"""Assign a machine's drives to uses, each drive to one. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackproof.core.architecture import Drives
from rackproof.parse.block import LocalDrive

SIZE_TOLERANCE = 0.03
"""Relative tolerance of a drive's size: sizes in architectures are often rounded."""


def drives_by_use(uses: Sequence[Drives], drives: Sequence[LocalDrive]) -> dict[str, tuple[LocalDrive, ...]]:
    """Drives of each use; drives that fit no use are left out.

    A drive goes to the use of its kind with the nearest size, at most three percent off. Ties: the uses that name its
    model, then the first use that is not full. Other drives go to uses without a size.
    """
    by_use: dict[str, list[LocalDrive]] = {use.use: [] for use in uses}
    for drive in drives:
        fitting = _fitting(uses, drive)
        if fitting:
            open_uses = [use for use in fitting if use.count is None or len(by_use[use.use]) < use.count]
            by_use[(open_uses or fitting)[0].use].append(drive)
    return {use: tuple(assigned) for use, assigned in by_use.items()}


def strays(uses: Sequence[Drives], drives: Sequence[LocalDrive], kind: str) -> tuple[LocalDrive, ...]:
    """Drives of this kind that fit no use."""
    taken = {drive.name for assigned in drives_by_use(uses, drives).values() for drive in assigned}
    return tuple(drive for drive in drives if drive.kind == kind and drive.name not in taken)


def is_model(use: Drives, drive: LocalDrive) -> bool:
    return use.model is None or re.search(use.model, drive.model) is not None


def _fitting(uses: Sequence[Drives], drive: LocalDrive) -> list[Drives]:
    """Uses that fit the drive equally well."""
    of_kind = [use for use in uses if use.kind == drive.kind]
    sized = [
        use
        for use in of_kind
        if use.size_tb is not None and abs(drive.size_tb - use.size_tb) <= SIZE_TOLERANCE * use.size_tb
    ]
    if sized:
        nearest = min(abs(drive.size_tb - (use.size_tb or 0)) for use in sized)
        fitting = [use for use in sized if abs(drive.size_tb - (use.size_tb or 0)) == nearest]
    else:
        fitting = [use for use in of_kind if use.size_tb is None]
    return [use for use in fitting if use.model is not None and is_model(use, drive)] or fitting
