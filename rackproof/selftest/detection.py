"""The whole self-test: every fault, every damage, and healthy racks at many moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rackproof.core.evidence import CheckResult
from rackproof.core.nearest import suggestion
from rackproof.errors import SelfTestError
from rackproof.selftest.catalogue import FaultFile, read_catalogue
from rackproof.selftest.damage import DAMAGES
from rackproof.selftest.load_checks import has_load_states, load_checks
from rackproof.selftest.partial_trial import Accepted, read_accepted, try_partials, try_words
from rackproof.selftest.trial import Finding, Mishap, Subject, try_damages, try_fault, try_variants
from rackproof.selftest.validators import load_validators
from rackproof.selftest.written import open_rack, racks_below
from rackproof.validation.known import Checks

HEALTHY_RUNS = 50


@dataclass(frozen=True)
class Alarm:
    """A check that did not pass on a healthy rack. ``moment`` is None for the rack as it is on disk."""

    rack: str
    moment: int | None
    result: CheckResult


@dataclass
class Detection:
    """Results of the self-test."""

    checks: tuple[str, ...]
    """Checks under test."""
    findings: list[Finding] = field(default_factory=list)
    mishaps: list[Mishap] = field(default_factory=list)
    damaged: int = 0
    """Number of damaged answers given to checks."""
    judged: int = 0
    """Values that checks judge, each left out and made N/A."""
    words: int = 0
    """Words of answers, each made unknown."""
    needless: list[Accepted] = field(default_factory=list)
    """Accepted partial answers that no check needs any more."""
    alarms: list[Alarm] = field(default_factory=list)
    healthy_runs: int = 0
    """Runs over healthy racks: each rack as recorded, and with varied values."""
    racks: tuple[str, ...] = ()

    @property
    def missed(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.caught]

    @property
    def untried(self) -> list[str]:
        """Checks without a fault in the catalogue."""
        tried = {finding.fault.check for finding in self.findings}
        return [check for check in self.checks if check not in tried]

    @property
    def good(self) -> bool:
        """Whether every check has a fault, all faults are found, and there is no false alarm."""
        return bool(self.findings) and not (self.missed or self.mishaps or self.alarms or self.untried or self.needless)


@dataclass(frozen=True)
class Material:
    """Inputs of a self-test."""

    validators: Checks
    catalogue: dict[str, FaultFile]
    subjects: dict[str, Subject]
    accepted: tuple[Accepted, ...] = ()


def read_material(validators: Path, faults: Path, data: Path) -> Material:
    """Load everything. ``data`` holds ``written/`` and ``recordings/``. Raises RackproofError."""
    loaded = load_validators(validators)
    everything = loaded | load_checks()
    catalogue = read_catalogue(faults)
    names = racks_below(data)
    for stem, file in catalogue.items():
        if file.rack not in names:
            raise SelfTestError(
                f"{faults / stem}.yaml: rack: no {file.rack!r} below {data}; {suggestion(file.rack, names)}"
            )
    contexts = {name: open_rack(data, name) for name in names}
    subjects = {
        name: Subject(name, context, everything if has_load_states(context) else loaded)
        for name, context in contexts.items()
    }
    asked = everything if any(subject.validators is everything for subject in subjects.values()) else loaded
    return Material(asked, catalogue, subjects, read_accepted(faults))


def detect(
    material: Material,
    only: str | None = None,
    healthy: int = HEALTHY_RUNS,
    say: Callable[[str], object] = lambda line: None,
) -> Detection:
    """Try everything, or only the check ``only``. Raises SelfTestError when there is no such check."""
    if only is not None and only not in material.validators:
        raise SelfTestError(f"no check {only!r}; {suggestion(only, sorted(material.validators))}")
    wanted = tuple(material.validators) if only is None else (only,)
    subjects = list(material.subjects.values())
    if only is not None:
        subjects = [_limited(subject, wanted) for subject in subjects]
    detection = Detection(wanted, racks=tuple(material.subjects))
    for file in material.catalogue.values():
        for fault in file.faults:
            if only in (None, fault.check):
                detection.findings.append(try_fault(material.subjects[file.rack], fault))
    say(f"{len(detection.findings)} faults tried")
    for subject in subjects:
        tried, mishaps = try_damages(subject, DAMAGES)
        detection.damaged += tried
        detection.mishaps += mishaps
    used: set[Accepted] = set()
    for subject in subjects:
        partials = try_partials(subject, material.accepted)
        detection.damaged += partials.tried
        detection.judged += partials.judged
        detection.mishaps += partials.mishaps
        used |= partials.used
    for subject in material.subjects.values():
        unknown = try_words(subject, material.accepted, only)
        detection.damaged += unknown.tried
        detection.words += unknown.words
        detection.mishaps += unknown.mishaps
        used |= unknown.used
    if only is None:
        detection.needless = [reason for reason in material.accepted if reason not in used]
    say(f"{detection.damaged} damaged answers tried")
    for subject in subjects:
        detection.alarms += [Alarm(subject.name, None, result) for result in subject.false_alarms()]
        detection.alarms += [Alarm(subject.name, moment, result) for moment, result in try_variants(subject, healthy)]
        detection.healthy_runs += 1 + healthy
    say(f"{detection.healthy_runs} healthy runs")
    return detection


def _limited(subject: Subject, checks: Sequence[str]) -> Subject:
    validators = {id_: pair for id_, pair in subject.validators.items() if id_ in checks}
    return Subject(subject.name, subject.context, validators)
