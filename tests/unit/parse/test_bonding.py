"""Bonds as the kernel's driver reports them (written to the format)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rackproof.parse import ParseError
from rackproof.parse.bonding import Bond, Member, parse_bonds
from tests.unit.refusals import refuses

LACP = """\
bond bond1
Ethernet Channel Bonding Driver: v6.8.0-60-generic

Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: layer3+4 (1)
MII Status: up
MII Polling Interval (ms): 100

802.3ad info
LACP active: on

Slave Interface: eth0
MII Status: up
Speed: 200000 Mbps
Duplex: full
details actor lacp pdu:
    system priority: 65535

Slave Interface: eth1
MII Status: down
Speed: Unknown
Duplex: Unknown
"""
READ = Bond(
    "bond1",
    "IEEE 802.3ad Dynamic link aggregation",
    True,
    (
        Member("eth0", True, 200000, "full"),
        Member("eth1", False, None, "Unknown"),
    ),
)


def test_members_are_read() -> None:
    assert parse_bonds(LACP) == (READ,)
    assert [bond.name for bond in parse_bonds(LACP + LACP.replace("bond1", "bond2"))] == ["bond1", "bond2"]
    assert parse_bonds("") == ()


test_what_is_no_report_is_refused = refuses(
    parse_bonds,
    "bond b0\n",
    "bond b0\ncat: /proc/net/bonding/b0: No such file or directory\n",
    LACP.replace("MII Status: down", "MII Status: asleep"),
    LACP.replace("Bonding Mode", "Mode"),
    LACP + LACP,
    "Segmentation fault\n",
    says="",
)


@given(st.text(), st.integers(0, len(LACP) - 1))
def test_nothing_else_is_raised(text: str, at: int) -> None:
    for output in (text, f"bond b\n{text}", LACP[:at] + text):
        try:
            parse_bonds(output)
        except ParseError:
            continue
