"""Which nodes share memory over NVLink: never those of another rack."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rackproof.configure.gpu.inputs import GpuStack
from rackproof.configure.gpu.plan import LARGEST_DOMAIN, imex_nodes
from rackproof.configure.settings import NodeSettings, read_inputs
from rackproof.configure.site import Site
from rackproof.core.rack import Node, Rack
from rackproof.errors import DeclarationError
from tests.unit.configure.preflight import cases

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
    return imex_nodes(where, read_inputs(where.node, GpuStack))


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
        GpuStack.model_validate({"imex": {"domain": "a", "nodes": ["10.9.0.1"]}})
