"""``metrics.prom``: the run for node_exporter's textfile collector."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from rackproof.core.status import Outcome
from rackproof.report.quantities import parsed
from rackproof.report.schema import Certificate, MeasurementSummary

_HELP = {
    "rackproof_certified": "1 when the last run ended CERTIFIED, 0 otherwise.",
    "rackproof_run_info": "The last run, its architecture and its outcome, as labels; always 1.",
    "rackproof_finished_timestamp_seconds": "End of the run, seconds since the epoch.",
    "rackproof_verdicts": "Verdicts by status; required ones decide the outcome.",
    "rackproof_measurement": "Median of the samples, in the unit of the label.",
    "rackproof_unmeasured": "Measurements that have no number, by metric.",
}


def render_metrics(certificate: Certificate) -> str:
    """All series with HELP and TYPE. Measurements without a number are counted."""
    absent: dict[str, int] = {}
    for m in certificate.measurements:
        absent[m.metric] = absent.get(m.metric, 0) + (m.median is None)
    counts = (("true", certificate.counts.required), ("false", certificate.counts.advisory))
    families: dict[str, Iterable[tuple[Mapping[str, str], float]]] = {
        "rackproof_certified": [({}, float(certificate.outcome is Outcome.CERTIFIED))],
        "rackproof_run_info": [(_run(certificate), 1.0)],
        "rackproof_finished_timestamp_seconds": _finished(certificate),
        "rackproof_verdicts": [
            ({"status": status.value, "required": required}, float(count))
            for required, by_status in counts
            for status, count in by_status.items()
        ],
        "rackproof_measurement": [(_labels(m), m.median) for m in certificate.measurements if m.median is not None],
        "rackproof_unmeasured": [({"metric": name}, float(count)) for name, count in absent.items()],
    }
    return "".join(line for name, series in families.items() for line in _family(name, series))


def _family(name: str, series: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    written: set[str] = set()
    for labels, value in series:
        text = ",".join(f'{key}="{_escaped(item)}"' for key, item in labels.items())
        if text in written:
            continue  # the collector rejects files with duplicate series
        if not written:
            yield f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n"
        written.add(text)
        yield f"{name}{{{text}}} {value!r}\n" if text else f"{name} {value!r}\n"


def _run(certificate: Certificate) -> dict[str, str]:
    differs = {"headline": certificate.headline} if certificate.architecture.differs else {}
    return differs | {
        "run": certificate.run,
        "architecture": certificate.architecture.id,
        "version": certificate.architecture.version,
        "profile": certificate.profile,
        "outcome": certificate.outcome.value,
        "virtual": str(any(node.virtual for node in certificate.rack.nodes)).lower(),
    }


def _labels(m: MeasurementSummary) -> dict[str, str]:
    labels = {"metric": m.metric, "subject": m.subject, "scope": m.scope.value, "unit": m.unit}
    for key, value in sorted(m.labels.items()):
        name = re.sub(r"[^a-zA-Z0-9_]", "_", key)
        labels[f"label_{name}" if name in labels or not re.match(r"[a-zA-Z]", name) else name] = value
    labels["simulated"] = str(m.simulated).lower()
    return labels


def _finished(certificate: Certificate) -> list[tuple[dict[str, str], float]]:
    time = parsed(certificate.finished)
    return [({}, time.timestamp())] if time else []


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
