"""Bonds that look healthy and are not."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.parse.bonding import Bond, parse_bonds
from rackproof.validation.bonds import Declared, bond_gaps, bond_problems

MEMBER = """
Slave Interface: {name}
MII Status: up
Speed: 100000 Mbps
Duplex: full
Link Failure Count: 0
Permanent HW addr: 0c:42:a1:00:00:0{number}
Slave queue ID: 0
Aggregator ID: 1
Actor Churn State: none
Partner Churn State: none
Actor Churned Count: 0
Partner Churned Count: 0
details actor lacp pdu:
    system priority: 65535
    system mac address: 0c:42:a1:00:00:01
    port key: 21
    port priority: 255
    port number: {number}
    port state: 63
details partner lacp pdu:
    system priority: 127
    system mac address: 44:38:39:00:00:10
    oper key: 1
    port priority: 127
    port number: {number}
    port state: 61
"""
HEALTHY = (
    """\
bond bond1
Ethernet Channel Bonding Driver: v6.8.0-60-generic

Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: layer3+4 (1)
MII Status: up
MII Polling Interval (ms): 100

802.3ad info
LACP active: on
LACP rate: fast
Min links: 0
Aggregator selection policy (ad_select): stable
System priority: 65535
System MAC address: 0c:42:a1:00:00:01
Active Aggregator Info:
\tAggregator ID: 1
\tNumber of ports: 2
\tActor Key: 21
\tPartner Key: 1
\tPartner Mac Address: 44:38:39:00:00:10
"""
    + MEMBER.format(name="eth0", number=1)
    + MEMBER.format(name="eth1", number=2)
)


def bond(*changes: tuple[str, str]) -> Bond:
    text = HEALTHY
    for old, new in changes:
        assert old in text
        before, after = text.rsplit(old, 1)
        text = before + new + after
    return parse_bonds(text)[0]


def test_a_bond_that_negotiated_is_healthy() -> None:
    assert list(bond_problems(bond())) == list(bond_gaps(bond())) == []


NO_PARTNER = (
    ("Partner Mac Address: 44:38:39:00:00:10", "Partner Mac Address: 00:00:00:00:00:00"),
    ("Number of ports: 2", "Number of ports: 1"),
    ("Aggregator ID: 1", "Aggregator ID: 2"),
)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (NO_PARTNER, "bond1: expected an LACP partner, actual none (partner's MAC address is 00:00:00:00:00:00)"),
        (NO_PARTNER, "bond1: expected every member in one aggregator, actual eth0 in 1, eth1 in 2"),
        (NO_PARTNER, "bond1: expected 2 ports in the active aggregator, actual 1"),
        ((("port state: 63", "port state: 7"),),
         "bond1: expected eth1 to carry traffic, actual no synchronisation, no collecting, no distributing"),
        ((("port state: 63", "port state: 127"),), "bond1: expected eth1 to carry traffic, actual defaulted"),
        ((("port state: 61", "port state: 5"),),
         "bond1: expected eth1's partner to carry traffic, actual no synchronisation, no collecting, no distributing"),
        ((("Partner Churn State: none", "Partner Churn State: churned"),),
         "bond1: expected no churn, actual churned on eth1's partner"),
        ((("Actor Churn State: none", "Actor Churn State: brandnew"),),
         "bond1: expected no churn, actual brandnew on eth1"),
        ((("Duplex: full", "Duplex: half"),), "bond1: expected full duplex, actual half on eth1"),
    ],
)  # fmt: skip
def test_a_bond_that_did_not_negotiate_fails(changes: tuple[tuple[str, str], ...], says: str) -> None:
    assert says in list(bond_problems(bond(*changes)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Partner Mac Address: 44:38:39:00:00:10", "bond1 has no active aggregator"),
        ("port state: 61", "oper state: 61"),
        ("Speed: 100000 Mbps", "Speed: Unknown"),
        ("Duplex: full", "Duplex: Unknown"),
        ("Aggregator ID: 1", "Aggregator: 1"),
    ],
)
def test_what_the_driver_does_not_report_is_a_gap(old: str, new: str) -> None:
    assert list(bond_gaps(bond((old, new))))


def declared(**settings: Any) -> Declared:
    return Declared(2, "802.3ad", "layer3+4", "fast")._replace(**settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, []),
        ({"members": 3}, ["expected 3 members, actual eth0, eth1"]),
        ({"mode": "active-backup"}, ["expected mode active-backup, actual IEEE 802.3ad Dynamic link aggregation"]),
        ({"mode": "balance-xor"}, ["expected mode balance-xor, actual IEEE 802.3ad Dynamic link aggregation"]),
        ({"hash_policy": "layer2"}, ["expected Transmit Hash Policy layer2, actual layer3+4 (1)"]),
        ({"lacp_rate": "slow"}, ["expected LACP rate slow, actual fast"]),
    ],
)
def test_a_bond_is_the_one_that_the_inventory_declares(settings: dict[str, Any], says: list[str]) -> None:
    assert list(bond_problems(bond(), declared(**settings))) == [f"bond1: {text}" for text in says]


@pytest.mark.parametrize(
    "mode", ["fault-tolerance (active-backup)\nCurrently Active Slave: eth0", "load balancing (round-robin)"]
)
def test_another_mode_than_lacp_fails_although_every_member_is_up(mode: str) -> None:
    other = bond(("IEEE 802.3ad Dynamic link aggregation", mode))
    assert list(bond_problems(other)) == []
    (problem,) = bond_problems(other, declared())
    assert problem.startswith("bond1: expected mode 802.3ad, actual ")


def test_settings_that_the_driver_does_not_report_are_a_gap() -> None:
    silent = bond(("LACP rate: fast", "LACP rates: fast"), ("Transmit Hash Policy: ", "Policy: "))
    assert list(bond_problems(silent, declared())) == []
    assert list(bond_gaps(silent, declared())) == ["bond1: the driver does not report Transmit Hash Policy, LACP rate"]


def test_an_active_backup_bond_has_an_active_member() -> None:
    mode = ("IEEE 802.3ad Dynamic link aggregation", "fault-tolerance (active-backup)\nCurrently Active Slave: None")
    assert list(bond_problems(bond(mode))) == ["bond1: expected an active member that is up, actual None"]
