"""Published claims, and the criteria and checks that cover them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, get_args

from rackproof.core.architecture.base import Model, parts_of
from rackproof.core.architecture.coverage import quantities_of
from rackproof.core.architecture.criterion import Entry
from rackproof.core.architecture.expectations import expected_checks
from rackproof.core.architecture.ingest import Format, IngestData, IngestJob
from rackproof.core.architecture.models import Architecture
from rackproof.core.architecture.problem import KeyPath, Problem, known
from rackproof.core.architecture.profiles import Algorithm, DiagnosticTest
from rackproof.core.grouping import grouped
from rackproof.core.metrics import METRICS
from rackproof.core.recipes import RECIPES

_VALUES: Final[Mapping[str, frozenset[str]]] = {
    "data": frozenset(IngestData),
    "format": frozenset(get_args(Format)),
    "beside": frozenset({"nothing", *get_args(IngestJob.model_fields["kind"].annotation)}),
    "algorithm": frozenset(get_args(Algorithm)),
    "test": frozenset(get_args(DiagnosticTest)),
}
"""All values of the labels for which benchmarks have a fixed list."""


class Standing(NamedTuple):
    """A part of the file that names a claim: an entry of a list, or a section."""

    claim: str
    path: KeyPath
    part: Model


def standings(architecture: Architecture) -> Iterator[Standing]:
    """All parts that name a claim, in the order of the file."""
    for path, part in parts_of(architecture):
        for claim in getattr(part, "claim", ()):
            yield Standing(claim, path, part)


def claim_problems(architecture: Architecture) -> Iterator[Problem]:
    """Problems of claims: each claim must be checked, or have a reason why it cannot be."""
    named: dict[str, KeyPath] = {}
    for standing in standings(architecture):
        named.setdefault(standing.claim, standing.path)
        yield from known((*standing.path, "claim"), standing.claim, architecture.claims, "claim")
    for id_, claim in architecture.claims.items():
        if claim.not_checkable is None and id_ not in named:
            yield Problem(("claims", id_), "no criterion or check names it: add one, or the reason under not_checkable")
        if claim.not_checkable is not None and id_ in named:
            where = ".".join(str(key) for key in named[id_])
            yield Problem(("claims", id_, "not_checkable"), f"{where} checks it")


class Way(NamedTuple):
    """One criterion, or a list of checks, that covers a claim."""

    what: str
    """``criterion storage.read``, ``checks gpu.count, gpu.model``."""
    how: str
    """Benchmark or validator that obtains it."""
    today: bool
    """Whether that benchmark or validator exists."""
    lab: str
    """Part that the virtual rack verifies; may be empty."""


class ClaimRow(NamedTuple):
    """One row of the table of claims."""

    claim: str
    architecture: str
    says: str
    figure: str | None
    source: str
    """The document."""
    ways: tuple[Way, ...]
    not_checkable: str | None


def claim_rows(architecture: Architecture, validators: Collection[str], lab: Collection[str]) -> list[ClaimRow]:
    """The claims of one file, each with the criteria and checks that cover it.

    ``validators``: ids of existing checks; ``lab``: those that the virtual rack answers.
    """
    entries = grouped(
        (standing.claim, _of_entry(standing.part))
        for standing in standings(architecture)
        if isinstance(standing.part, Entry)
    )
    checks = grouped((claim, expected.check) for expected in expected_checks(architecture) for claim in expected.claims)
    return [
        ClaimRow(
            id_,
            architecture.metadata.id,
            claim.says,
            claim.figure,
            architecture.metadata.sources[claim.source].doc,
            (*entries.get(id_, ()), *_of_checks(list(dict.fromkeys(checks.get(id_, ()))), validators, lab)),
            claim.not_checkable,
        )
        for id_, claim in architecture.claims.items()
    ]


def _of_entry(entry: Entry) -> Way:
    recipe = RECIPES[entry.measure].how if entry.measure else METRICS[entry.metric].meaning
    kind = type(entry).__name__.lower()
    return Way(f"{kind} {entry.id}", recipe, measured_today(entry), entry.lab or "")


def measured_today(entry: Entry) -> bool:
    """Whether the kit's benchmarks produce the number of an entry, and the number to which its bar refers."""
    return all(
        METRICS[metric].measured_today(scope, where) and all(_given(*label) for label in where.items())
        for metric, scope, where in quantities_of(entry)
    )


def _given(label: str, value: str | tuple[str, ...]) -> bool:
    """Whether benchmarks give a label these values."""
    values = {value} if isinstance(value, str) else set(value)
    return label not in _VALUES or values <= _VALUES[label]


def _of_checks(names: Sequence[str], validators: Collection[str], lab: Collection[str]) -> Iterator[Way]:
    existing = [name for name in names if name in validators]
    missing = [name for name in names if name not in validators]
    if existing:
        verified = [name for name in existing if name in lab]
        yield Way(_checks(existing), "validators", True, f"{', '.join(verified)}, on virtual nodes" if verified else "")
    if missing:
        yield Way(_checks(missing), "no validator so far", False, "")


def _checks(names: Sequence[str]) -> str:
    return f"{'checks' if len(names) > 1 else 'check'} {', '.join(names)}"
