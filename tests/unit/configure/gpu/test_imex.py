"""Which nodes share memory over NVLink: never those of another rack."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rackproof.configure.gpu import facts, operations
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.settings import NodeSettings
from rackproof.configure.site import Site
from rackproof.core.nvlink_domain import LARGEST_DOMAIN, Domain, declared_domains, domain_problem, imex_addresses
from rackproof.core.rack import Node, Rack
from rackproof.errors import DeclarationError
from rackproof.parse import ParseError
from rackproof.parse.nvlink_domain import DOMAIN, parse_nvlink_domains
from tests.unit.configure.preflight import cases
from tests.unit.configure.stub import StubHost, run

GPUS = 4
TRAYS = LARGEST_DOMAIN // GPUS


def site(domains: Mapping[str, str | None], named: bool = True, here: str = "tray-01") -> Site:
    """``domains``: of each node."""
    nodes = []
    for index, (name, domain) in enumerate(domains.items(), 1):
        data: dict[str, object] = {"fabric_addresses": [f"10.9.0.{index}/24"]}
        data |= {"management_address": f"192.0.2.{index}"} if named else {}
        data |= {"gpu": {"imex": {"domain": domain}}} if domain else {}
        nodes.append(Node(name, ("gpu",), data))
    model = cases.architecture()
    assert model.gpu is not None
    arch = model.model_copy(update={"gpu": model.gpu.model_copy(update={"count": GPUS})})
    rack = Rack("test", tuple(nodes))
    return Site(rack, arch, rack.node(here), NodeSettings())


def addresses(where: Site) -> tuple[str, ...]:
    return imex_addresses(where.rack, where.node, GPUS)


def trays(first: int, count: int, domain: str | None) -> dict[str, str | None]:
    return {f"tray-{n:02d}": domain for n in range(first, first + count)}


def test_two_racks_are_two_domains() -> None:
    both = trays(1, TRAYS, "rack-a") | trays(TRAYS + 1, TRAYS, "rack-b")
    first, second = addresses(site(both)), addresses(site(both, here=f"tray-{TRAYS + 1}"))
    assert (first[0], len(first)) == ("192.0.2.1", TRAYS)
    assert (second[0], len(second)) == (f"192.0.2.{TRAYS + 1}", TRAYS)
    assert not set(first) & set(second)


def test_one_rack_needs_no_name_and_two_do() -> None:
    assert len(addresses(site(trays(1, TRAYS, None)))) == TRAYS
    with pytest.raises(DeclarationError, match=r"19 GPU nodes with 76 GPUs are more than one NVLink domain \(72 at"):
        addresses(site(trays(1, TRAYS + 1, None)))
    with pytest.raises(DeclarationError, match="tray-03 has none, other GPU nodes have one: name all"):
        addresses(site(trays(1, 2, "rack-a") | trays(3, 1, None)))


def test_the_rails_carry_it_only_without_a_management_address() -> None:
    assert addresses(site(trays(1, 2, None), named=False)) == ("10.9.0.1", "10.9.0.2")
    with pytest.raises(ValueError, match="give either domain or nodes"):
        GpuInputs.model_validate({"imex": {"domain": "a", "nodes": ["10.9.0.1"]}})


def test_lists_of_addresses_are_domains_too() -> None:
    """Two racks may be declared by their addresses alone: nodes with the same list are in one domain."""
    lists = {"a": ["10.0.0.1", "10.0.0.2"], "b": ["10.0.0.2", "10.0.0.1"], "c": ["10.0.1.1"]}
    rack = Rack(
        "test", tuple(Node(name, ("gpu",), {"gpu": {"imex": {"nodes": nodes}}}) for name, nodes in lists.items())
    )
    declared = declared_domains(rack)
    assert declared["a"] == declared["b"] != declared["c"]
    assert imex_addresses(rack, rack.node("c"), GPUS) == ("10.0.1.1",)
    reported = {"a": in_domain(ONE), "b": in_domain(ONE), "c": in_domain(TWO)}
    assert all(domain_problem(name, declared, reported) is None for name in lists)


ONE, TWO = "0f1e2d3c-1111-4222-8333-444455556666", "aaaaaaaa-1111-4222-8333-444455556666"
SECTION = """\
        CliqueId                          : 32766
        ClusterUUID                       : {}
"""


def in_domain(uuid: str, clique: str = "32766") -> frozenset[Domain]:
    return frozenset({(uuid, clique)})


def test_domains_of_a_node() -> None:
    assert parse_nvlink_domains((SECTION.format(ONE) * 4).splitlines()) == in_domain(ONE)
    assert parse_nvlink_domains((SECTION.format(ONE) + SECTION.format(TWO)).splitlines()) == {
        (ONE, "32766"), (TWO, "32766"),
    }  # fmt: skip
    # GPUs whose NVLink ends in the node, and a driver that is not loaded.
    assert parse_nvlink_domains(SECTION.format("00000000-0000-0000-0000-000000000000").splitlines()) == frozenset()
    assert parse_nvlink_domains(SECTION.format("N/A").splitlines()) == frozenset()
    assert parse_nvlink_domains([]) == frozenset()
    assert "nvidia-smi -q" in DOMAIN


@pytest.mark.parametrize("text", [SECTION.format(ONE).splitlines()[:1], ["ClusterUUID"], ["State : Completed"]])
def test_a_section_that_is_cut_off(text: list[str]) -> None:
    with pytest.raises(ParseError):
        parse_nvlink_domains(text)


@pytest.mark.parametrize(
    ("declared", "reported", "problem"),
    [
        ({"a": None, "b": None}, {"a": in_domain(ONE), "b": in_domain(ONE)}, None),
        ({"a": None, "b": None}, {"a": in_domain(ONE), "b": in_domain(TWO)}, "one domain is declared for a and b"),
        ({"a": "x", "b": "x"}, {"a": in_domain(ONE), "b": in_domain(ONE, "1")}, "one domain is declared for a and b"),
        ({"a": "x", "b": "y"}, {"a": in_domain(ONE), "b": in_domain(TWO)}, None),
        ({"a": "x", "b": "y"}, {"a": in_domain(ONE), "b": in_domain(ONE)}, "a is declared in x and b in y"),
        ({"a": "x", "b": "x"}, {"a": in_domain(ONE), "b": None}, None),
        ({"a": "x", "b": "x"}, {"a": frozenset(), "b": in_domain(ONE)}, None),
        ({"a": "x"}, {"a": in_domain(ONE) | in_domain(TWO)}, "the GPUs of a are in several NVLink domains"),
    ],
)
def test_a_declared_domain_is_that_of_the_gpus(
    declared: Mapping[str, str | None], reported: Mapping[str, frozenset[Domain] | None], problem: str | None
) -> None:
    actual = domain_problem("a", declared, reported)
    assert (actual is None) is (problem is None)
    assert problem is None or problem in (actual or "")


@pytest.mark.parametrize(
    ("nodes", "outside"),
    [
        ({"a": ("x", ONE), "b": ("x", ONE), "c": ("x", ONE), "d": ("x", TWO)}, "d"),
        ({"d": ("x", TWO), "a": ("x", ONE), "b": ("x", ONE)}, "d"),
        ({"a": ("x", ONE), "b": ("x", ONE), "c": ("x", TWO), "d": ("x", TWO)}, "abcd"),
        ({"a": ("x", ONE), "b": ("x", ONE), "c": ("y", TWO), "d": ("y", TWO), "e": ("y", ONE)}, "e"),
        ({"a": ("x", ONE), "b": ("x", ONE), "c": ("y", ONE)}, "c"),
        ({"a": ("x", ONE), "b": ("x", ONE), "c": ("y", ONE), "d": ("y", ONE)}, "abcd"),
        ({"a": ("x", ONE), "b": ("x", ONE), "c": ("y", ONE), "d": ("y", TWO)}, "cd"),
    ],
)
def test_only_the_nodes_outside_the_majority_have_a_problem(nodes: dict[str, tuple[str, str]], outside: str) -> None:
    declared = {name: domain for name, (domain, _) in nodes.items()}
    reported = {name: in_domain(uuid) for name, (_, uuid) in nodes.items()}
    problems = {name: domain_problem(name, declared, reported) for name in nodes}
    assert {name for name, problem in problems.items() if problem} == set(outside)


def test_a_problem_names_the_majority_or_its_absence() -> None:
    declared = dict.fromkeys("abc", "x")
    reported = {"a": in_domain(ONE), "b": in_domain(ONE), "c": in_domain(TWO)}
    assert f"{TWO}.32766 and {ONE}.32766, where 2 of 3 nodes are" in str(domain_problem("c", declared, reported))
    reported["b"] = in_domain(ONE) | in_domain(TWO)  # has no vote
    assert "no majority of 2 nodes" in str(domain_problem("a", declared, reported))
    assert "in several NVLink domains" in str(domain_problem("b", declared, reported))


def tray(name: str, uuid: str, executing: bool = True) -> StubHost:
    return StubHost({facts.NvlinkDomains: in_domain(uuid)}, name, executing)


def test_a_node_of_another_rack_is_refused() -> None:
    declared = {"tray-01": "x", "tray-02": "x"}
    (refusal,) = run(operations.nvlink_domain, tray("tray-02", TWO), tray("tray-01", ONE), declared=declared)
    assert f"gpu.imex.domain: one domain is declared for tray-02 and tray-01, their GPUs are in {TWO}.32766" in refusal
    good = tray("tray-02", ONE)
    assert run(operations.nvlink_domain, good, tray("tray-01", ONE), declared=declared) == []
    assert good.noops == ["2 of 2 GPU nodes report their NVLink domain"]
