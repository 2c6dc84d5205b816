"""Parts of a rack or a run that no criterion judges: rails, storages, operations, roles, parts of a profile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rackproof.architectures import load
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.plan import plan_steps
from rackproof.cli.main import cli
from rackproof.core.architecture import Architecture, Curve, Reference
from rackproof.core.architecture.consistency import problems
from rackproof.core.architecture.coverage import unjudged
from rackproof.core.architecture.published import PUBLISHED
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.judging.judge import judge_records
from rackproof.core.rack import Node, Rack
from rackproof.core.status import Outcome, Status
from rackproof.errors import ArchitectureError
from tests.unit.judging import architecture, criterion, document, measurement, verdicts, whole
from tests.unit.refusals import error_of

pytestmark = pytest.mark.few(11)

VIRTUAL = load("virtual-rack").model
LINKS = {"rdma_duration_s": 1, "latency_iterations": 5, "tcp_duration_s": 1}
FABRIC = {"kind": "soft-roce", "mtu": 9000, "rails": 2}
NOTHING_REQUIRED: dict[str, Any] = {"fabric": FABRIC, "profiles": {"lab": {"links": LINKS}}}
TCP = {
    "metric": "link.tcp_bandwidth",
    "scope": "pair",
    "where": {"rail": [0, 1]},
    "pass": {"op": "ge", "value": 40, "unit": "Mb/s"},
}


def complaints(*criteria: dict[str, Any], **fields: Any) -> list[str]:
    made = Architecture.model_validate(document(*criteria, **fields))
    return [f"{'.'.join(map(str, problem.path))}: {problem.message}" for problem in problems(made)]


def test_a_rail_that_no_criterion_judges_is_an_error_of_the_file() -> None:
    (complaint,) = complaints(criterion(**TCP | {"where": {"rail": 0}}), **NOTHING_REQUIRED)
    assert complaint == (
        "criteria.0.where.rail: link.tcp_bandwidth of rail 1 would be judged by nothing; the fabric has 2: [0, 1]"
    )
    assert complaints(criterion(**TCP), **NOTHING_REQUIRED) == []


def test_check_of_such_a_file_ends_with_3(tmp_path: Path) -> None:
    path = tmp_path / "two-rails.yaml"
    path.write_text(
        "apiVersion: refarch/v1\nextends: virtual-rack\nmetadata: {id: two-rails, version: 1.0.0}\nfabric: {rails: 2}\n"
    )
    result = CliRunner().invoke(cli, ["arch", "check", str(path)])
    assert result.exit_code == 3
    assert "virtual-rack.yaml:" in result.stderr
    unjudged = re.findall(
        r"virtual-rack.yaml:\d+: criteria\[(link\S+)\]\.where\.rail: \S+ of rail 1 would be judged", result.stderr
    )
    assert {"link.loss", "link.round_trip", "link.tcp", "link.rdma"} <= set(unjudged)
    assert "more)" not in result.stderr


def bench(*measurements: Measurement, made: Architecture) -> Any:
    return judge_records(made, whole(made, {"stage": "bench", "event": "begin"}, *measurements))


def link(rail: int, mb_per_s: float) -> Measurement:
    return measurement(("gpu-01", "gpu-02"), mb_per_s / 1000, metric="link.tcp_bandwidth", rail=str(rail))


def two_rails() -> Architecture:
    """Without the checks that a fabric asks for."""
    made = architecture(criterion(**TCP), **NOTHING_REQUIRED)
    return made.model_copy(update={"fabric": None})


def test_a_slow_rail_above_0_fails() -> None:
    assert bench(link(0, 90), link(1, 90), made=two_rails()).outcome is Outcome.CERTIFIED
    slow = bench(link(0, 90), link(1, 5), made=two_rails())
    assert slow.outcome is Outcome.NOT_CERTIFIED
    assert verdicts(slow, "nfs.read[1]")["gpu-01|gpu-02"].status is Status.FAIL
    assert bench(link(0, 90), made=two_rails()).outcome is Outcome.INCOMPLETE


READ = {"rw": "read", "block_bytes": 4096, "file_bytes": 4096, "runtime_s": 1}
COLLECTIVES = {"engine": "mpi", "min_bytes": 8, "max_bytes": 8, "iterations": 1, "warmup": 0}


@pytest.mark.parametrize(
    ("entries", "fields", "message"),
    [
        (
            criterion(),
            {"profiles": {"lab": {"storage": {"jobs": {"read": READ}}}}},
            "storage local would be measured and judged by nothing; a profile measures [nfs, local]",
        ),
        (
            criterion(metric="collective.busbw", where={"op": "all_reduce", "bytes": 8}, scope="rack"),
            {"profiles": {"lab": {"collectives": {"ops": ["all_reduce", "alltoall"], **COLLECTIVES}}}},
            "op alltoall would be measured and judged by nothing",
        ),
    ],
)
def test_a_storage_or_an_operation_that_is_measured_and_not_judged(
    entries: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    assert any(message in complaint for complaint in complaints(entries, **fields))


def test_clients_of_a_role_without_a_criterion() -> None:
    fields = document(criterion(where={"storage": ["nfs", "local"]}))
    fields["profiles"] = {"lab": {"storage": {"jobs": {"read": READ}}}}
    fields["storage"]["nfs"]["client_roles"] = ["gpu", "storage"]
    fields["storage"]["local"]["client_roles"] = ["gpu"]
    made = Architecture.model_validate(fields)
    (problem,) = problems(made)
    assert problem.path == ("storage", "nfs", "client_roles")
    assert problem.message.startswith("storage.read_bandwidth of storage would be measured and judged by nothing")


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_check_counts_what_is_measured_and_judged_by_nothing(name: str) -> None:
    left = unjudged(load(name).model)
    assert not [what for what in left if "rail=" in what]
    printed = CliRunner().invoke(cli, ["arch", "check", name]).output
    assert ("measured, but without a criterion: " + ", ".join(left) in printed) is bool(left)


def rack(*names: str, addresses: int = 1) -> Rack:
    data = {"fabric_addresses": [f"10.0.{rail}.1/24" for rail in range(addresses)]}
    return Rack("rack.py", tuple(Node(name, ("gpu" if name.startswith("gpu") else "storage",), data) for name in names))


def test_nodes_with_more_rails_than_the_architecture_are_refused() -> None:
    assert error_of(ArchitectureError, plan_steps, VIRTUAL, "lab", rack("gpu-01", "gpu-02", "sto-01", addresses=2)) == (
        "rack.py: fabric_addresses of gpu-[01-02],sto-01: 2 rails, virtual-rack has 1 and would judge no other;"
        " extend it with fabric: {rails: 2}"
    )


class TestProfileParts:
    def gaps(self, made: Architecture, nodes: Rack, profile: str = "lab") -> list[str]:
        return plan_gaps(made, profile, nodes, plan_steps(made, profile, nodes))

    def test_a_part_without_a_step_and_its_criteria_are_named_before_the_run(self) -> None:
        lines = self.gaps(VIRTUAL, rack("gpu-01", "sto-01"))
        assert lines[0] == "profile lab: links gives no step and will be UNMEASURED: gpu has 1 node (gpu-01)"
        assert (
            "profile lab: no step measures link.tcp_bandwidth[rail=0] of pair: nfs-tcp.read, nfs-tcp.write, link.tcp"
            " and 2 more will be UNMEASURED"  # shares of it
        ) in lines
        assert self.gaps(VIRTUAL, rack("gpu-01", "gpu-02", "sto-01")) == []

    def test_links_between_nodes_of_another_group_are_measured(self) -> None:
        profile = {"lab": {"links": LINKS | {"members": "storage"}}}
        made = architecture(criterion(**TCP, members="storage"), fabric=FABRIC, profiles=profile,
                            roles={"gpu": {}, "storage": {}})  # fmt: skip
        nodes = rack("gpu-01", "sto-01", "sto-02", addresses=2)
        steps = [step for step in plan_steps(made, "lab", nodes) if step.id.startswith("links/")]
        members = {place.members for step in steps for place in step.expects}
        assert members == {("sto-01", "sto-02")}
        assert self.gaps(made, nodes) == []

    def test_criteria_of_another_group_than_the_profile_s_are_named(self) -> None:
        made = architecture(criterion(**TCP, members="storage"), roles={"gpu": {}, "storage": {}}, **NOTHING_REQUIRED)
        (line,) = self.gaps(made, rack("gpu-01", "gpu-02", "sto-01", "sto-02", addresses=2))
        assert line.startswith("profile lab: no step measures link.tcp_bandwidth[rail=0] of pair; ")
        assert line.endswith("nfs.read will be UNMEASURED")

    def test_every_point_of_a_curve_needs_a_step(self) -> None:
        where = {"storage": "nfs-tcp", "block_bytes": "1048576"}
        curve = Curve(
            id="grows", title="More clients never read less", metric="storage.read_bandwidth", where=where,
            over="clients", points=(1, 2), baseline=1, no_negative_step=True, source="design", reason="So.", hint="So.",
        )  # fmt: skip
        (line,) = self.gaps(VIRTUAL.model_copy(update={"curves": (curve,)}), rack("gpu-01", "gpu-02", "sto-01"))
        assert line.startswith("profile lab: no step measures storage.read_bandwidth[block_bytes=1048576,clients=1,")
        assert "; storage.read_bandwidth[block_bytes=1048576,clients=2," in line
        assert line.endswith(": grows will be UNMEASURED")

    def test_what_a_bar_is_a_share_of_needs_a_step(self) -> None:
        first = next(entry for entry in VIRTUAL.criteria if isinstance(entry.pass_.of, Reference))
        assert isinstance(first.pass_.of, Reference)
        of = first.pass_.of.model_copy(update={"metric": "gpu.memory_bandwidth", "where": {}, "scope": Scope.GPU})
        share = first.model_copy(update={"pass_": first.pass_.model_copy(update={"of": of})})
        made = VIRTUAL.model_copy(update={"criteria": (share,)})
        assert self.gaps(made, rack("gpu-01", "gpu-02", "sto-01")) == [
            f"profile lab: no step measures gpu.memory_bandwidth of gpu: {first.id} will be UNMEASURED"
        ]

    def test_an_unknown_group_is_an_error_of_the_file(self) -> None:
        (complaint,) = complaints(profiles={"lab": {"links": LINKS | {"members": "login"}}})
        assert complaint.startswith("profiles.lab.links.members: unknown role 'login'")

    def test_a_part_of_which_nothing_was_measured_is_unmeasured(self) -> None:
        """Also where no criterion asks for its numbers."""
        made = architecture(criterion(), profiles={"lab": {"links": LINKS}})
        reads = [measurement(name, 60) for name in ("gpu-01", "gpu-02")]
        judgement = bench(*reads, made=made)
        verdict = verdicts(judgement, "rack.profile[links]")["rack"]
        assert (verdict.status, verdict.required) == (Status.UNMEASURED, True)
        assert verdict.message == "profile lab asks for links, and none of it was measured"
        assert judgement.outcome is Outcome.INCOMPLETE
        assert bench(*reads, link(0, 90), made=made).outcome is Outcome.CERTIFIED
