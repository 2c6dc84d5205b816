"""Evidence that tests of wrong certificates edit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rackproof.bench.readers import reader_of
from rackproof.core.evidence import Kind, Record, canonical
from rackproof.remote.recording_folder import read_folder
from tests.unit.false_certificates.edited import Body, copy, edited, example

RECORDINGS = Path(__file__).parents[2] / "data/recordings/virtual-rack"

PROOFS = ["checks", "readers"]
"""The example's commands read no counters of ports."""


@pytest.fixture(scope="session")
def recorded_inventory(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """The example as a run that recorded its inventory's data and readers, with validators of another version."""
    folder = copy(tmp_path_factory.mktemp("runs") / "inventory", example())
    names = {}
    for recording in read_folder(RECORDINGS):
        data = canonical(recording.node.data)
        names[recording.node.name] = hashlib.sha256(data).hexdigest()
        (folder / "raw" / names[recording.node.name]).write_bytes(data)
    info = {"inventory_data": names, "validators": "0" * 64, "proofs": PROOFS}

    def proven(record: Record) -> Body | None:
        if record.kind is Kind.RUN:
            return record.body | info
        if record.kind is Kind.MEASUREMENT:
            return record.body | {"reader": reader_of(record.body["metric"], PROOFS)}
        return None

    return folder, edited(proven)
