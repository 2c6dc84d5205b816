"""``rackproof.sizing/v1``: a capacity plan as JSON. All numbers are finite; unknown ones are null with a reason."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rackproof.core.sizing.answer import Answer
from rackproof.core.sizing.answers import Memo
from rackproof.core.sizing.curves import latency_against_load, throughput_against_gpus
from rackproof.core.sizing.inputs import Inputs
from rackproof.core.sizing.model import Phase
from rackproof.core.sizing.values import Origin

SCHEMA = "rackproof.sizing/v1"


def document(memo: Memo) -> dict[str, Any]:
    """The plan in SI units: bytes, bytes per second, seconds, shares of one."""
    inputs, view = memo.inputs, memo.view
    return {
        "schema": SCHEMA,
        "architecture": inputs.architecture,
        "workloads": [
            {"name": t.name, "title": t.title, "kind": t.kind.value, "nodes": t.share * inputs.system.nodes}
            for t in inputs.tenants
        ],
        "inputs": {name: _input(inputs, name) for name in inputs.names if name.rpartition(".")[2] != "share"},
        "phases": [_phase(phase) for phase in view.phases],
        "answers": [_answer(a) for a in memo.answers],
        "pointers": [{"id": a.id, "question": a.question, "says": list(a.says)} for a in memo.pointers],
        "curves": {
            "latency_against_load": asdict(latency_against_load(view)),
            "throughput_against_gpus": asdict(throughput_against_gpus(inputs)),
        },
    }


def to_json(memo: Memo) -> str:
    return json.dumps(document(memo), indent=2, ensure_ascii=False, allow_nan=False)


def _input(inputs: Inputs, name: str) -> dict[str, Any]:
    origin: Origin = inputs.origins[name]
    entry: dict[str, Any] = {"value": inputs.value(name), "unit": inputs.spec(name).unit, "source": origin.source}
    if origin.status is not None:
        entry["status"] = origin.status.value
    if origin.note:
        entry["note"] = origin.note
    return entry


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name.value,
        "samples_per_s": phase.samples_per_s,
        "storage_read_bytes_per_s": phase.storage_read,
        "reads_per_s": phase.requests,
        "binding": [s.key for s in phase.binding],
        "flows": [
            {
                "workload": f.tenant,
                "client_hit": f.hit,
                "samples_per_s": f.samples_per_s,
                "ingest_bytes_per_s": f.ingest,
                "storage_read_bytes_per_s": f.storage_read,
                "reads_per_s": f.requests,
            }
            for f in phase.flows
        ],
        "stages": [
            {
                "name": s.name.value,
                "workload": s.tenant,
                "capacity_samples_per_s": s.capacity,
                "ceiling": s.ceiling,
                "utilisation": s.utilisation,
                "unknown": list(s.missing),
                "unused": s.unused,
            }
            for s in phase.stages
        ],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "id": answer.id,
        "question": answer.question,
        "says": list(answer.says),
        "figures": dict(answer.figures),
        "headline": list(answer.headline),
        "hangs_on": [asdict(d) for d in answer.depends_on],
        "unknown": list(dict.fromkeys(answer.unknown)),
    }
