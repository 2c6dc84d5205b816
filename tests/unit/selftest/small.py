"""A small rack, catalogue and validator, which show the self-test's result for each mistake."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from rackproof.selftest.detection import Detection, Material, detect, read_material

ARCHITECTURE = """
    apiVersion: refarch/v1
    metadata:
      id: small
      version: 1.0.0
      title: A small rack
      scope: Tests only.
      sources: {written: {doc: Written for the tests, edition: none, status: proposed}}
    roles:
      gpu: {count: {min: 1}, source: written}
"""
RACK = "architecture: architecture.yaml\nnodes:\n  n1: {groups: [gpu]}\n  n2: {groups: [gpu], like: n1}\n"
ANSWERS = '- {match: uptime, stdout: "up 4 days\\n"}\n- {match: count, stdout: "ports 8 of n1\\n"}\n'
GOOD = """
    from rackproof.parse import ParseError
    from rackproof.validation import check, expect, read

    @check("port.count", reads="system", protects="A test.", hint="None.")
    def test_ports(host):
        text = read(host, "count --ports")
        words = text.split("ports ")[-1].split()
        if not text.endswith("\\n") or len(words) != 3 or words[1] != "of" or not words[0].isdigit():
            raise ParseError("count", "no number of ports")
        expect(int(words[0]), 8, "ports")
"""
FAULT = """
    rack: small
    faults:
      - name: port-lost
        title: One port is gone
        node: n1
        check: port.count
        says: expected 8, actual 7
        change: {command: count, replace: [ports 8, ports 7]}
"""


def write(folder: Path, validator: str = GOOD, faults: str = FAULT, answers: str = ANSWERS) -> None:
    files = {
        "validators/test_port.py": "from __future__ import annotations\n" + dedent(validator),
        "tests/faults/port.yaml": dedent(faults),
        "tests/data/written/small/rack.yaml": RACK,
        "tests/data/written/small/architecture.yaml": dedent(ARCHITECTURE),
        "tests/data/written/small/n1/port.yaml": answers,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def material(folder: Path) -> Material:
    return read_material(folder / "validators", folder / "tests" / "faults", folder / "tests" / "data")


def tried(folder: Path, validator: str = GOOD, faults: str = FAULT, answers: str = ANSWERS) -> Detection:
    write(folder, validator, faults, answers)
    return detect(material(folder), healthy=3)
