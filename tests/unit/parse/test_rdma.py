from __future__ import annotations

import pytest

from rackproof.parse import ParseError
from rackproof.parse.rdma import parse_ibv_devinfo, parse_rdma_link
from tests.unit.refusals import refuses

from . import tool_output

DEVINFO = tool_output("ibv-devinfo.txt")


def test_text_and_json_of_rdma_link_say_the_same() -> None:
    links = parse_rdma_link(tool_output("rdma-link.json"))
    assert links == parse_rdma_link(tool_output("rdma-link.txt"))
    first, second = links
    assert (first.device, first.port, first.state, first.physical_state) == ("rdma0", 1, "ACTIVE", "LINK_UP")
    assert (first.netdev, first.up) == ("fabric0", True)
    assert (second.device, second.netdev, second.up) == ("mlx5_1", None, False)


def test_older_spellings_of_rdma_link() -> None:
    (link,) = parse_rdma_link("1/1: mlx5_0/1: state ACTIVE physical_state LINK_UP netdev ens1\n    caps: <CM, IP>\n")
    assert (link.device, link.port, link.netdev) == ("mlx5_0", 1, "ens1")
    (link,) = parse_rdma_link('[{"ifname":"mlx5_0/2","state":"DOWN","physical_state":"DISABLED"}]')
    assert (link.device, link.port, link.up) == ("mlx5_0", 2, False)


def test_a_node_without_links_says_so_in_json_only() -> None:
    assert parse_rdma_link("[ ]\n") == ()
    with pytest.raises(ParseError, match="no output"):
        parse_rdma_link("")


test_bad_links_raise_with_the_reason = refuses(
    parse_rdma_link,
    ("Failed to open NETLINK_RDMA socket\n", "unexpected line"),
    ("link rdma0/1 state ACTIVE physical_state LINK_UP netdev fab", "cut off"),
    ("link rdma0/1 state ACTIVE physical_state\n", "unexpected line"),
    ("link rdma0/1 netdev fabric0\n", "expected a state"),
    (tool_output("rdma-link.json")[:60], "cut off or damaged"),
    ('[{"ifname":"rdma0","port":1}]', "state is missing"),
    ('[{"ifname":"rdma0","state":"ACTIVE","physical_state":"LINK_UP"}]', "port is missing"),
    ("[1]", "is not an object"),
)


def test_ibv_devinfo() -> None:
    soft, hard = parse_ibv_devinfo(DEVINFO)
    assert (soft.name, soft.transport, soft.firmware) == ("rdma0", "InfiniBand", "0.0.0")
    (port,) = soft.ports
    assert (port.number, port.state, port.active_mtu_bytes) == (1, "PORT_ACTIVE", 4096)
    assert port.link_layer == "Ethernet"
    assert hard.name == "mlx4_0"
    assert [(p.state, p.active_mtu_bytes, p.link_layer) for p in hard.ports] == [
        ("PORT_INIT", 2048, "InfiniBand"),
        ("PORT_DOWN", 1024, "Ethernet"),
    ]


test_bad_devices_raise_with_the_reason = refuses(
    parse_ibv_devinfo,
    ("", "no output"),
    ("No IB devices found\n", "no device; .*No IB devices found"),
    (DEVINFO[: DEVINFO.index("\t\tport:\t2")], "mlx4_0 reports 2 ports but lists 1"),
    (DEVINFO[: DEVINFO.index("\t\t\tlink_layer")], "has no link_layer"),
    (DEVINFO[: DEVINFO.index("Ethernet") + 4], "cut off"),
    (DEVINFO.replace("4096 (5)", "big"), "active_mtu is not an integer"),
    (DEVINFO.replace("phys_port_cnt:", "ports:"), "has no phys_port_cnt"),
)
