"""A certificate of a rack in whose place programs answer says so, and the evidence cannot lose it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rackproof.core.evidence import STAND_IN, Kind, Record
from rackproof.parse.identity import IDENTITY_COMMAND, parse_identity
from rackproof.remote.command import CommandResult
from tests.unit.certify.rack import STAND_IN_IDENTITY
from tests.unit.fakes import identity_answer
from tests.unit.false_certificates.edited import chained, write
from tests.unit.false_certificates.racks import World
from tests.unit.judging import NODES

SAYS = "No node of this rack was measured: stand-in programs print every answer and number"


def certify(world: World, *stand_ins: str) -> None:
    """The healthy world, with these nodes as stand-ins."""
    plain = world.answer

    def answer(node: str, command: str) -> CommandResult | None:
        if command == IDENTITY_COMMAND and node in stand_ins:
            return identity_answer(node, world.machines[node], world.boots[node], STAND_IN_IDENTITY)
        return plain(node, command)

    world.answer = answer  # type: ignore[method-assign]
    result = world.certify()
    assert result.exit_code == 0, result.output


def simulated(world: World) -> list[str]:
    return list(world.certificate()["simulated"])


def test_all_outputs_say_so(world: World) -> None:
    certify(world, *NODES)
    assert simulated(world)[0].startswith(SAYS)
    assert "<strong>Stand-ins</strong>" in world.page()
    assert world.page().index(SAYS) < world.page().index("<main>"), "on the first page"
    assert SAYS in " ".join(world.run("judge", str(world.runs[-1])).output.replace("│", "").split())
    assert SAYS in (world.runs[-1] / "junit.xml").read_text()
    assert 'simulated="true"' in (world.runs[-1] / "metrics.prom").read_text()
    assert all(m["simulated"] for m in world.certificate()["measurements"])


def test_some_nodes_are_named_and_the_others_numbers_are_real(world: World) -> None:
    certify(world, "gpu-02")
    assert simulated(world)[0].startswith("gpu-02: not measured: stand-in programs")
    marks = {m["subject"]: m["simulated"] for m in world.certificate()["measurements"]}
    assert marks == {name: name == "gpu-02" for name in marks}
    assert {"gpu-01", "gpu-02"} <= marks.keys()


def test_a_real_rack_says_nothing(world: World) -> None:
    certify(world)
    assert not any("stand-in" in line for line in simulated(world))
    assert "stand_ins" not in world.certificate()["rack"]


@pytest.mark.parametrize("machine", ["", "NVIDIA DGXH100"])
def test_the_label_is_not_edited_out(world: World, machine: str) -> None:
    certify(world, *NODES)

    def change(record: Record) -> dict[str, Any]:
        return record.body | {"model": machine} if record.kind is Kind.IDENTITY else record.body

    write(world.runs[-1], chained((record.kind, change(record)) for record in world.records))
    assert rejudged(world) == "INCOMPLETE"


def test_the_label_is_not_cut_out(world: World) -> None:
    certify(world, *NODES)
    write(world.runs[-1], chained((r.kind, r.body) for r in world.records if r.kind is not Kind.IDENTITY))
    assert rejudged(world) == "INCOMPLETE"


def rejudged(world: World) -> str:
    (world.runs[-1] / "certificate.json").unlink()
    world.run("judge", str(world.runs[-1]))
    return str(json.loads((world.runs[-1] / "certificate.json").read_text())["outcome"])


def test_what_stand_ins_answer_is_neither_a_machine_nor_a_virtual_one() -> None:
    machine = parse_identity(identity_answer("gpu-01", 1, more=STAND_IN_IDENTITY).stdout)
    assert (machine.model, machine.virtual) == (STAND_IN, None)
