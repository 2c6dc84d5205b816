"""``certificate.html``: one self-contained page, verdict first, with a link to every raw output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.core.grouping import grouped
from rackproof.core.metrics import METRICS
from rackproof.core.starvation import CONDITIONS as CONDITIONS_OF_TIME
from rackproof.core.status import Outcome, Status
from rackproof.report import knee, plots, quantities, tables, verdict_tables
from rackproof.report.environment import environment
from rackproof.report.figures import key_figures
from rackproof.report.findings import findings
from rackproof.report.outputs import SHOWN_BYTES, OutputIndex
from rackproof.report.schema import Certificate, MeasurementSummary
from rackproof.report.sizing import curve_pictures
from rackproof.report.statements import by_area, fold_subjects
from rackproof.report.versions import CONTROLLER, is_version

FINDINGS = 100
"""Maximum number of findings on the page; certificate.json has all."""
LINES = 20
"""Maximum number of messages and ids of one finding."""
CONDITIONS = 40
"""Maximum number of sets of conditions on the page; a usual run has fewer than ten."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions shared by several measurements."""

    what: str
    metrics: str
    where: str
    items: tuple[tuple[str, str], ...]


def render_page(certificate: Certificate, raw: Mapping[str, bytes]) -> str:
    """Render the page. ``raw``: outputs by sha256; absent ones are linked, not shown."""
    return environment().get_template("page.html.j2").render(**_view(certificate, raw))


def _view(certificate: Certificate, raw: Mapping[str, bytes]) -> dict[str, Any]:
    all_findings = findings(certificate.verdicts)
    sizing = certificate.sizing
    ways = [*(way for claim in certificate.claims for way in claim.ways), *certificate.of_no_claim]
    of_nodes = verdict_tables.checks_by_node(certificate)
    return {
        "c": certificate,
        "claim_factors": {factor.name: factor for way in ways for factor in way.scaled}.values(),
        "Status": Status,
        "elapsed": quantities.between(certificate.started, certificate.finished),
        "seal": plots.rosette(certificate.evidence.chain_head),
        "mark": {
            Outcome.CERTIFIED: "check",
            Outcome.PASSED: "gap",
            Outcome.NOT_CERTIFIED: "cross",
            Outcome.INCOMPLETE: "gap",
        }[certificate.outcome],
        "kind": _kind(certificate),
        "roles": _roles(certificate),
        "key_figures": key_figures(certificate),
        "required_total": sum(certificate.counts.required.values()),
        "advisory_total": sum(certificate.counts.advisory.values()),
        "findings_required": [f for f in all_findings if f.required and f.status is not Status.WARN],
        "findings_other": [f for f in all_findings if not f.required or f.status is Status.WARN],
        "node_areas": sorted({area for _, row in of_nodes for area in row}),
        "node_checks": tables.limited(
            of_nodes,
            lambda row: max((status for _, _, status in row[1].values() if status), key=lambda s: s.rank, default=None),
        ),
        "check_table": verdict_tables.check_table(certificate.verdicts, certificate.node_names),
        "check_reads": {summary.check: summary.reads for summary in certificate.checks},
        "storage_tables": tables.storage_tables(certificate),
        "storage_plots": plots.storage_plots(certificate),
        "load_plots": (*plots.scale_plots(certificate), *knee.knee_plots(certificate)),
        "load_tables": knee.load_tables(certificate),
        "link_table": tables.link_table(certificate),
        "collective_table": tables.collective_table(certificate),
        "collective_plot": plots.collective_plot(certificate),
        "other_table": tables.other_table(certificate),
        "criteria": {
            family: [
                (area.partition(": ")[2], verdict_tables.criterion_groups(verdicts))
                for area, verdicts in by_area(certificate).items()
                if _family(area) == family
            ]
            for family in ("storage", "links", "collectives", "other")
        },
        "sizing_pictures": list(curve_pictures(sizing.latency, sizing.throughput).values()) if sizing else [],
        "conditions": _conditions(certificate.measurements),
        "cited": {v.source for v in certificate.verdicts if v.source and v.kind == "criterion"},
        "controller": CONTROLLER,
        "raws": OutputIndex(certificate, raw),
        "shown_bytes": SHOWN_BYTES,
        "findings_shown": FINDINGS,
        "lines_shown": LINES,
        "conditions_shown": CONDITIONS,
    }


def _family(area: str) -> str:
    family = area.partition(": ")[0]
    return family if family in ("checks", "storage", "links", "collectives") else "other"


def _kind(certificate: Certificate) -> str:
    """Title of the sentences about virtual and simulated parts."""
    if certificate.rack.stand_ins:
        return "Stand-ins"
    return "Virtual rack" if all(node.virtual for node in certificate.rack.nodes) else "Simulated parts"


def _roles(certificate: Certificate) -> tuple[tuple[str, str], ...]:
    """Groups of the inventory with their nodes folded; nodes without a group are in ``no role``."""
    groups = grouped((group, node.name) for node in certificate.rack.nodes for group in node.groups or ("no role",))
    return tuple((group, fold_subjects(names)) for group, names in groups.items())


def _conditions(measurements: Sequence[MeasurementSummary]) -> tuple[Conditions, ...]:
    """Conditions of the measurements, equal sets merged, without versions, which have their own table."""
    families = tuple(dict.fromkeys(name.partition(".")[0] for name in METRICS))
    order = {name: (families.index(name.partition(".")[0]), i) for i, name in enumerate(METRICS)}
    same = grouped(
        (tuple((k, _plain(v)) for k, v in sorted(m.conditions.items()) if _is_condition(k, v, m)), m)
        for m in sorted(measurements, key=lambda m: order.get(m.metric, (len(families), 0)))
    )
    return tuple(
        Conditions(
            what=", ".join(dict.fromkeys(_what(m) for m in group)),
            metrics=", ".join(dict.fromkeys(tables.short_name(m.metric) for m in group)),
            where=fold_subjects(name for m in group for name in m.members),
            items=items,
        )
        for items, group in same.items()
        if items
    )


def _is_condition(key: str, value: object, m: MeasurementSummary) -> bool:
    """Whether the page does not show it elsewhere: as a version, label, member, plot or command line."""
    elsewhere = is_version(key) or key in ("command", "curves") or key in CONDITIONS_OF_TIME
    return not elsewhere and str(value) != m.labels.get(key) and value not in m.members


def _what(m: MeasurementSummary) -> str:
    return m.labels.get("storage") or m.labels.get("op") or m.metric.partition(".")[0]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return quantities.significant(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in sorted(value.items()))
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
