from __future__ import annotations

import pytest

from rackproof.parse import ParseError
from rackproof.parse.ethtool import parse_ethtool, parse_ethtool_driver

from . import tool_output

PORT = tool_output("ethtool-400g.txt")
DRIVER = tool_output("ethtool-driver-mlx5.txt")


def test_a_fast_port() -> None:
    port = parse_ethtool(PORT)
    assert (port.device, port.link_detected, port.speed_mbps, port.lanes) == ("ens1f0np0", True, 400000, 4)
    assert (port.duplex, port.autonegotiation, port.port) == ("Full", True, "Direct Attach Copper")
    assert port.supported_modes == ("100000baseCR4/Full", "200000baseCR4/Full", "400000baseCR4/Full")
    assert port.advertised_modes == ("400000baseCR4/Full",)


def test_a_virtual_port_has_a_link_but_no_speed() -> None:
    port = parse_ethtool(tool_output("ethtool-virtio.txt"))
    assert (port.link_detected, port.speed_mbps, port.duplex, port.autonegotiation) == (True, None, None, False)
    assert port.supported_modes == ()


def test_a_port_without_cable() -> None:
    port = parse_ethtool(tool_output("ethtool-no-link.txt"))
    assert (port.link_detected, port.speed_mbps) == (False, None)


def test_the_loopback_reports_its_link_only() -> None:
    port = parse_ethtool("Settings for lo:\n\tLink detected: yes\n")
    assert (port.link_detected, port.autonegotiation, port.port) == (True, None, None)


BAD: list[tuple[str, str, str]] = [
    ("empty", "", "no output"),
    ("no such device", "No data available\n", "no settings of a port; .*No data available"),
    ("cut off", PORT[:-6], "cut off"),
    ("link missing", PORT[: PORT.index("\tLink detected")], "no settings of a port"),
    ("two ports", PORT * 2, "more than one port"),
    ("speed in another unit", PORT.replace("400000Mb/s", "400Gb/s"), "speed is not in Mb/s"),
    ("odd link", PORT.replace("Link detected: yes", "Link detected: maybe"), "neither yes nor no"),
    ("odd lanes", PORT.replace("Lanes: 4", "Lanes: four"), "lanes is no integer"),
    ("key twice", PORT.replace("\tLanes: 4", "\tDuplex: Half"), "reported twice"),
]


@pytest.mark.parametrize(("output", "reason"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_output_raises_with_the_reason(output: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse_ethtool(output)


def test_driver() -> None:
    info = parse_ethtool_driver(DRIVER)
    assert (info.driver, info.version) == ("mlx5_core", "6.12.57+deb13-amd64")
    assert (info.firmware, info.bus) == ("28.44.1036 (MT_0000000834)", "0000:3b:00.0")


def test_a_driver_without_firmware() -> None:
    info = parse_ethtool_driver(tool_output("ethtool-driver-virtio.txt"))
    assert (info.driver, info.firmware, info.bus) == ("virtio_net", None, "0000:00:03.0")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "no output"),
        ("Cannot get driver information: Operation not supported\n", "unexpected line"),
        ("driver: mlx5_core\nversion: 1\n", "no driver information"),
        (DRIVER * 2, "unexpected line"),
        (DRIVER[:-2], "cut off"),
    ],
)
def test_bad_driver_raises_with_the_reason(output: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse_ethtool_driver(output)
