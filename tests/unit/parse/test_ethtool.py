from __future__ import annotations

from rackproof.parse.ethtool import parse_ethtool_driver
from tests.unit.refusals import refuses

from . import tool_output

DRIVER = tool_output("ethtool-driver-mlx5.txt")


def test_driver() -> None:
    info = parse_ethtool_driver(DRIVER)
    assert (info.driver, info.version) == ("mlx5_core", "6.12.57+deb13-amd64")
    assert (info.firmware, info.bus) == ("28.44.1036 (MT_0000000834)", "0000:3b:00.0")


def test_a_driver_without_firmware() -> None:
    info = parse_ethtool_driver(tool_output("ethtool-driver-virtio.txt"))
    assert (info.driver, info.firmware, info.bus) == ("virtio_net", None, "0000:00:03.0")


test_bad_driver_raises_with_the_reason = refuses(
    parse_ethtool_driver,
    ("", "no output"),
    ("Cannot get driver information: Operation not supported\n", "unexpected line"),
    ("driver: mlx5_core\nversion: 1\n", "no driver information"),
    (DRIVER * 2, "unexpected line"),
    (DRIVER[:-2], "cut off"),
)
