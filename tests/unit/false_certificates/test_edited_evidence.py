"""Ways to a certificate with evidence that was edited and whose hash chain was made anew."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rackproof import __version__
from rackproof.bench.containers.reader import JOB
from rackproof.bench.storage.fio_launch import is_launch
from rackproof.core.evidence import Kind, Record, canonical
from rackproof.core.status import Outcome
from tests.unit.false_certificates.edited import Body, certificate, chained, copy, edited, example, headline

pytestmark = pytest.mark.few(3)

Evidence = tuple[Path, list[Record]]
Edit = Callable[[Record], Body | None]

CONTAINER = ("container.host_read_bandwidth", "container.read_bandwidth", "container.read_over_host")
STREAMS = ("stdout", "stdout_bytes")


def put(folder: Path, data: bytes) -> str:
    """Store an output; its name."""
    name = hashlib.sha256(data).hexdigest()
    (folder / "raw" / name).write_bytes(data)
    return name


def in_run(records: Sequence[Record], **fields: object) -> list[Record]:
    return edited(lambda record: record.body | fields if record.kind is Kind.RUN else None, records)


def container_runs(records: Sequence[Record], node: str) -> list[Record]:
    """Commands of one node: on the node, then inside a container."""
    commands = [record for record in records if record.kind is Kind.COMMAND and record.body["node"] == node]
    return [record for record in commands if f" --name={JOB} " in record.body["command"]]


def measured(records: Sequence[Record], step: str) -> dict[tuple[str, tuple[str, ...]], Record]:
    measured = [record for record in records if record.kind is Kind.MEASUREMENT and record.body["step"] == step]
    return {(record.body["metric"], tuple(record.body["members"])): record for record in measured}


def launch(records: Sequence[Record], step: str) -> Record:
    """The last run of fio before the step's first measurement."""
    first = min(record.seq for record in measured(records, step).values())
    runs = [r for r in records[:first] if r.kind is Kind.COMMAND and is_launch(r.body["command"])]
    return runs[-1]


def streams(record: Record) -> Body:
    return {name: record.body[name] for name in STREAMS}


def another_profile(folder: Path, records: list[Record]) -> list[Record]:
    return in_run(records, profile="full")


def real_hardware(folder: Path, records: list[Record]) -> list[Record]:
    nodes = [node | {"virtual": False, "simulated_gpus": False} for node in records[0].body["nodes"]]
    return in_run(records, nodes=nodes)


def another_architecture(folder: Path, records: list[Record]) -> list[Record]:
    return in_run(records, architecture="nvidia-dgx-h100")


def no_inventory(folder: Path, records: list[Record]) -> list[Record]:
    return in_run(records, inventory_data={})


def a_node_less(folder: Path, records: list[Record]) -> list[Record]:
    """Everything that names gpu-02 is gone, except what its neighbours did with it."""

    def of_it(record: Record) -> bool:
        members = record.body.get("members", [record.body.get("node")])
        return record.kind in (Kind.COMMAND, Kind.CHECK, Kind.MEASUREMENT) and "gpu-02" in members

    def without(record: Record) -> Body | None:
        if record.kind is Kind.RUN:
            nodes = [node for node in record.body["nodes"] if node["name"] != "gpu-02"]
            names = ("node_data", "inventory_data")
            data = {name: {k: v for k, v in record.body[name].items() if k != "gpu-02"} for name in names}
            return record.body | {"nodes": nodes} | data
        if record.kind is Kind.DEPLOY:
            return record.body | {"nodes": [node for node in record.body["nodes"] if node["node"] != "gpu-02"]}
        return None

    return edited(without, chained((r.kind, r.body) for r in records if not of_it(r)))


def node_and_container_exchanged(folder: Path, records: list[Record]) -> list[Record]:
    """The outputs of both runs change places, and so do the numbers: the ratio is its inverse."""
    host, inside = container_runs(records, "gpu-01")
    numbers = measured(records, "container/nfs-tcp/read")
    first, second, ratio = (numbers[metric, ("gpu-01",)] for metric in CONTAINER)
    changes = {
        host.seq: streams(inside),
        inside.seq: streams(host),
        first.seq: {"samples": second.body["samples"]},
        second.seq: {"samples": first.body["samples"]},
        ratio.seq: {"samples": [1 / ratio.body["samples"][0]]},
    }
    return edited(lambda record: record.body | changes[record.seq] if record.seq in changes else None, records)


def outputs_of_a_better_node(folder: Path, records: list[Record]) -> list[Record]:
    """gpu-02 gets the outputs and numbers of gpu-01."""
    numbers = measured(records, "container/nfs-tcp/read")
    pairs = zip(container_runs(records, "gpu-02"), container_runs(records, "gpu-01"), strict=True)
    changes = {bad.seq: streams(good) for bad, good in pairs}
    for metric in CONTAINER:
        good = numbers[metric, ("gpu-01",)].body
        changes[numbers[metric, ("gpu-02",)].seq] = {key: good[key] for key in ("samples", "raw")}
    return edited(lambda record: record.body | changes[record.seq] if record.seq in changes else None, records)


def outputs_of_a_faster_storage(folder: Path, records: list[Record]) -> list[Record]:
    """NFS gets the output and the numbers of the local drive."""
    slow, fast = "storage/nfs-tcp/read", "storage/local/read"
    changes = {launch(records, slow).seq: streams(launch(records, fast))}
    for place, record in measured(records, slow).items():
        good = measured(records, fast)[place].body
        changes[record.seq] = {key: good[key] for key in ("samples", "raw", "companions")}
    return edited(lambda record: record.body | changes[record.seq] if record.seq in changes else None, records)


def a_faster_output(folder: Path, records: list[Record]) -> list[Record]:
    """An output with ten times the bandwidth, and numbers that follow from it."""
    step = "storage/nfs-tcp/read"
    run = launch(records, step)
    text = (folder / "raw" / run.body["stdout"]).read_text()
    faster = re.sub(r'"bw_bytes": (\d+)', lambda match: f'"bw_bytes": {int(match[1]) * 10}', text)
    assert faster != text
    name = put(folder, faster.encode())
    changes: dict[int, Body] = {run.seq: {"stdout": name, "stdout_bytes": len(faster)}}
    for record in measured(records, step).values():
        changes[record.seq] = {"samples": [10 * sample for sample in record.body["samples"]], "raw": [name]}
    return edited(lambda record: record.body | changes[record.seq] if record.seq in changes else None, records)


def a_tool_that_failed(folder: Path, records: list[Record]) -> list[Record]:
    run = launch(records, "storage/nfs-tcp/read").seq
    return edited(lambda record: record.body | {"rc": 1} if record.seq == run else None, records)


def a_companion_more(folder: Path, records: list[Record]) -> list[Record]:
    """A gate has another way to pass where the bytes that were read are known."""
    (number,) = [r for place, r in measured(records, "storage/local/read").items() if place[1] == ("gpu-01",)]
    more = number.body["companions"] | {"bytes_read": [1.0]}
    return edited(lambda record: record.body | {"companions": more} if record.seq == number.seq else None, records)


def a_condition_more(folder: Path, records: list[Record]) -> list[Record]:
    (number,) = [r for place, r in measured(records, "storage/local/read").items() if place[1] == ("gpu-01",)]
    more = number.body["conditions"] | {"gpus": 72}
    return edited(lambda record: record.body | {"conditions": more} if record.seq == number.seq else None, records)


def no_commands(folder: Path, records: list[Record]) -> list[Record]:
    bench = next(r.seq for r in records if r.kind is Kind.STAGE and r.body["stage"] == "bench")
    return chained((r.kind, r.body) for r in records if r.kind is not Kind.COMMAND or r.seq < bench)


def no_deploys(folder: Path, records: list[Record]) -> list[Record]:
    return chained((r.kind, r.body) for r in records if r.kind is not Kind.DEPLOY)


def answers_gone_and_other_validators(folder: Path, records: list[Record]) -> list[Record]:
    """Without its answer a passed check cannot be evaluated, as if other validators had asked something else."""
    first = next(r for r in records if r.kind is Kind.CHECK and r.body["check"] == "gpu.count")
    kept = [r for r in records if r.kind is not Kind.COMMAND or r.body["stdout"] not in first.body["raw"]]
    return in_run(chained((r.kind, r.body) for r in kept), validators="ab" * 32)


def advisory_checks(folder: Path, records: list[Record]) -> list[Record]:
    return edited(lambda record: record.body | {"required": False} if record.kind is Kind.CHECK else None, records)


EDITS = [
    another_profile,
    real_hardware,
    another_architecture,
    no_inventory,
    a_node_less,
    node_and_container_exchanged,
    outputs_of_a_better_node,
    outputs_of_a_faster_storage,
    a_faster_output,
    a_tool_that_failed,
    a_companion_more,
    a_condition_more,
    no_commands,
    no_deploys,
    answers_gone_and_other_validators,
    advisory_checks,
]


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return copy(tmp_path / "run", example()), list(example())


def test_the_evidence_that_is_edited_is_certified(evidence: Evidence) -> None:
    folder, records = evidence
    assert certificate(records, folder).outcome is Outcome.CERTIFIED


@pytest.mark.few(3)
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_edited_evidence_is_not_certified(
    evidence: Evidence, edit: Callable[[Path, list[Record]], list[Record]]
) -> None:
    folder, records = evidence
    made = certificate(edit(folder, records), folder)
    assert made.outcome is not Outcome.CERTIFIED
    assert headline(made).message


@pytest.mark.parametrize(
    "data",
    [{"containers": "x"}, {"gpu": [1]}, {"fabric_addresses": 5}, {"fabric_addresses": ["x;id"]}, {"nic_ports": [1]}],
)
def test_what_no_inventory_has_is_named(evidence: Evidence, data: dict[str, object]) -> None:
    folder, records = evidence
    names = records[0].body["inventory_data"]
    recorded = json.loads((folder / "raw" / names["gpu-01"]).read_bytes())
    name = put(folder, canonical(recorded | {"data": recorded["data"] | data}))
    made = certificate(in_run(records, inventory_data=names | {"gpu-01": name}), folder)
    assert made.outcome is Outcome.INCOMPLETE
    assert f"the inventory's data of gpu-01 cannot be read: {next(iter(data))}: expected" in headline(made).message


@pytest.mark.parametrize("content", [b"[]", b'{"groups": ["gpu"], "data": [1]}', b'{"groups": [5], "data": {}}', b"{"])
def test_unreadable_data_of_an_inventory_is_named(evidence: Evidence, content: bytes) -> None:
    folder, records = evidence
    names = records[0].body["inventory_data"] | {"gpu-01": put(folder, content)}
    made = certificate(in_run(records, inventory_data=names), folder)
    assert made.outcome is Outcome.INCOMPLETE
    assert "the inventory's data of gpu-01 cannot be read" in headline(made).message


def test_what_other_validators_answered_says_how_to_judge_it(evidence: Evidence) -> None:
    folder, records = evidence
    gone = in_run(answers_gone_and_other_validators(folder, records), kit_sha256="cd" * 32)
    way_out = "the run used other validators than these: judge it with "
    assert f"{way_out}rackproof {__version__}" in headline(certificate(gone, folder)).message
    own = in_run(gone, own_validators="checks/")
    assert f"{way_out}--validators checks/" in headline(certificate(own, folder)).message


def test_a_stored_architecture_that_was_exchanged_for_one_that_demands_less_is_named(evidence: Evidence) -> None:
    folder, records = evidence
    text = (folder / "raw" / records[0].body["architecture_sha256"]).read_text()
    weaker = re.sub(r"(pass: \{op: ge, value: )[\d.]+", r"\g<1>0.0001", text)
    assert weaker != text
    made = certificate(in_run(records, architecture_sha256=put(folder, weaker.encode())), folder)
    assert re.match(
        r"INCOMPLETE against virtual-rack, which weakens \d+ criteria (and 1 other key )?of virtual-rack", made.headline
    )
    assert "recorded with parameters" in headline(made).message
    assert made.architecture.weakened


def test_validators_that_are_not_the_kits_are_named_on_the_certificate(evidence: Evidence) -> None:
    folder, records = evidence
    made = certificate(in_run(records, own_validators="checks/", validators="ab" * 32), folder)
    assert made.simulated[-1] == (
        f"Checked by the site's validators in checks/ (sha256 {'ab' * 32}), not by the kit's."
    )
