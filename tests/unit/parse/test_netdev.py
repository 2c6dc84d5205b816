from __future__ import annotations

from rackproof.parse.netdev import parse_ip
from tests.unit.refusals import refuses

from . import tool_output

LINK = tool_output("ip-link.json")


def test_links() -> None:
    loopback, fabric, down = parse_ip(LINK)
    assert (loopback.name, loopback.kind, loopback.state) == ("lo", "loopback", "UNKNOWN")
    assert (fabric.index, fabric.name, fabric.mtu_bytes, fabric.state) == (3, "fabric0", 9000, "UP")
    assert (fabric.kind, fabric.mac, fabric.carrier) == ("ether", "52:54:00:77:00:11", True)
    assert (down.state, down.carrier) == ("DOWN", False)
    assert fabric.addresses is None, "ip link shows none, which is not an empty list"


def test_addresses() -> None:
    loopback, fabric, down = parse_ip(tool_output("ip-addr.json"))
    assert loopback.addresses is not None
    assert [address.address for address in loopback.addresses] == ["127.0.0.1", "::1"]
    assert fabric.addresses is not None
    (address,) = fabric.addresses
    assert (address.family, address.address, address.prefix_length, address.scope) == (
        "inet",
        "10.77.0.11",
        24,
        "global",
    )
    assert down.addresses == ()


def test_devices_that_a_filter_hides_are_skipped() -> None:
    assert [device.name for device in parse_ip(tool_output("ip-addr-filtered.json"))] == ["fabric0"]


def test_one_family_only_leaves_the_kind_out() -> None:
    devices = parse_ip(tool_output("ip-addr.json").replace('"link_type":"ether",', ""))
    assert [device.kind for device in devices] == ["loopback", None, None]


test_bad_output_raises_with_the_reason = refuses(
    parse_ip,
    ("", "no output"),
    ('Device "fabric0" does not exist.\n', "no JSON document"),
    ("[]", "no device listed"),
    ("[{},{}]", "no device listed"),
    ("[3]", "is not an object"),
    (LINK[:-3], "cut off or damaged"),
    (LINK.replace('"mtu":9000', '"mtu":"9000"'), r"devices\[1\].mtu is not an integer"),
    (LINK.replace('"operstate":"UP",', ""), "operstate is missing"),
    (tool_output("ip-addr.json").replace('"prefixlen":24', '"prefix":24'), "prefixlen is missing"),
)
