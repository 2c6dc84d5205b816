"""lspci, mlnx_qos, mlxconfig, mlxlink, ``ethtool -S`` and files of /sys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.parse import ParseError
from rackproof.parse.ethtool import parse_ethtool_pause, parse_ethtool_statistics
from rackproof.parse.lspci import parse_lspci
from rackproof.parse.mlnx_qos import parse_mlnx_qos
from rackproof.parse.mlxconfig import Setting, parse_mlxconfig, same_value
from rackproof.parse.mlxlink import parse_mlxlink
from rackproof.parse.sysfs import files_of
from tests.unit.refusals import refuses

from . import tool_output

FILTERED = tool_output("lspci-filtered.txt")
QOS = tool_output("mlnx-qos.txt")
EXTENDED = tool_output("mlxconfig-extended.txt")
LINK = tool_output("mlxlink-400g.txt")


def test_pci_devices_with_ids_and_domains() -> None:
    host, bridge, nic = parse_lspci(FILTERED)
    assert (host.slot, host.max_read_request, host.acs) == ("0000:00:00.0", None, None)
    assert (bridge.kind, bridge.ids) == ("PCI bridge", "1000:c030")
    assert bridge.acs == dict.fromkeys(bridge.acs_can or (), False)
    assert (nic.slot, nic.ids, nic.numa_node) == ("0000:1a:00.0", "15b3:1021", 0)
    assert nic.name == "Mellanox Technologies MT2910 Family [ConnectX-7]"
    assert (nic.max_payload, nic.max_read_request) == (256, 4096)


def test_pci_devices_of_plain_lspci() -> None:
    bridge, nic = parse_lspci(tool_output("lspci-vvv.txt"))
    assert (bridge.slot, bridge.name, bridge.ids) == ("0000:16:00.0", "Broadcom / LSI PEX890xx PCIe Gen 5 Switch", None)
    assert {name for name, on in (bridge.acs or {}).items() if on} == {
        "SrcValid",
        "ReqRedir",
        "CmpltRedir",
        "UpstreamFwd",
    }
    assert (nic.hidden, bridge.hidden, nic.max_read_request) == (True, False, None)


test_bad_lists_of_pci_devices_are_refused = refuses(
    parse_lspci,
    ("a device is missing", FILTERED.replace("devices 3", "devices 4"), "describes 3 of 4 devices"),
    ("lspci is missing", "devices 85\n", "describes 0 of 85"),
    ("another text", "pcilib: Cannot open /proc/bus/pci\n", "unexpected line"),
    ("cut off", FILTERED[:-2], "cut off"),
    ("twice", FILTERED.replace("devices 3\n", "") * 2, "twice"),
    ("flags gone", FILTERED.replace("ACSCtl:\tSrcValid-", "ACSCtl:\t"), "expected ACS functions"),
)


def test_classes_of_traffic() -> None:
    qos = parse_mlnx_qos(QOS)
    assert (qos.trust, qos.pfc) == ("dscp", frozenset({3}))
    assert {dscp: qos.dscp_priority[dscp] for dscp in (0, 26, 48, 63)} == {0: 0, 26: 3, 48: 6, 63: 7}
    assert len(qos.dscp_priority) == 64


test_bad_classes_of_traffic_are_refused = refuses(
    parse_mlnx_qos,
    ("no PFC", QOS[: QOS.index("PFC")], "no PFC configuration"),
    ("a priority is missing", QOS.replace("enabled     0   ", "enabled     "), "one column for each"),
    ("a half enabled one", QOS.replace("enabled     0", "enabled     2"), "one column for each"),
    ("two ports", QOS * 2, "more than one port"),
    ("odd trust", QOS.replace("state: dscp", "state: both"), "neither dscp nor pcp"),
    ("a mark in two classes", QOS.replace("prio:0 dscp:", "prio:0 dscp:26,"), "dscp 26 belongs to two"),
    ("no such port", "Netdevice rail9 does not exist\n", "no PFC configuration"),
)


def test_settings_of_a_firmware() -> None:
    firmware = parse_mlxconfig(EXTENDED)
    assert (firmware.device, firmware.type, firmware.part) == ("0000:4d:00.0", "ConnectX7", "MCX75310AAS-NEA_Ax")
    assert firmware.settings == {
        "LINK_TYPE_P1": Setting("IB(1)", "ETH(2)", "ETH(2)"),
        "ATS_ENABLED": Setting("False(0)", "False(0)", "True(1)"),
        "ROCE_CC_PRIO_MASK_P1": Setting("255", "255", "255"),
    }
    older = parse_mlxconfig(tool_output("mlxconfig-next-boot.txt"))
    assert older.settings["LINK_TYPE_P1"] == Setting(None, None, "ETH(2)")
    assert older.settings["HOST_CHAINING_DESCRIPTORS"].next_boot == "Array[0..7]"


def test_a_row_that_cannot_be_told_apart_does_not_cost_the_others() -> None:
    firmware = parse_mlxconfig(EXTENDED.replace("IB(1)               ETH(2)", "IB(1)"))
    assert firmware.unreadable.keys() == {"LINK_TYPE_P1"}
    assert firmware.settings.keys() == {"ATS_ENABLED", "ROCE_CC_PRIO_MASK_P1"}


def test_a_value_longer_than_its_column() -> None:
    long = "A_VALUE_LONGER_THAN_ITS_COLUMN(1)"
    whole = parse_mlxconfig(EXTENDED.replace("IB(1)               ETH(2)", f"{long} ETH(2)"))
    assert whole.settings["LINK_TYPE_P1"] == Setting(long, "ETH(2)", "ETH(2)")
    joined = parse_mlxconfig(EXTENDED.replace("IB(1)               ETH(2)", f"{long}ETH(2)"))
    assert joined.unreadable.keys() == {"LINK_TYPE_P1"}


def test_values_of_settings() -> None:
    assert all(same_value("ETH(2)", wanted) for wanted in ("ETH", "eth", "2", "ETH(2)"))
    assert not any(same_value("ETH(2)", wanted) for wanted in ("IB", "1", "ETH(1)", ""))
    assert same_value("255", "255")


test_bad_settings_are_refused = refuses(
    parse_mlxconfig,
    ("no device", "-E- Failed to open the device\n", "no settings"),
    ("two devices", EXTENDED * 2, "more than one device"),
    ("a column of its own", EXTENDED.replace("Default ", "Factory "), "unknown columns"),
)


def test_quality_of_a_link() -> None:
    link = parse_mlxlink(LINK)
    assert (link.state, link.physical_state, link.speed, link.width) == ("Active", "ETH_AN_FSM_ENABLE", "400G", "4x")
    assert link.effective_ber == 15e-255
    assert (link.status, link.firmware) == (0, "28.43.2566")
    down = parse_mlxlink(tool_output("mlxlink-no-cable.txt"))
    assert (down.state, down.speed, down.status) == ("Polling", None, 1024)
    assert down.effective_ber is None


def test_bad_reports_of_a_link_are_refused() -> None:
    for output, reason in (
        (LINK.replace("State ", "Stare "), "no state"),
        (LINK * 2, "more than one port"),
        (LINK.replace("15E-255", "15E5"), "not a rate"),
        (LINK.replace("15E-255", "few"), "not a number"),
        ("-E- Invalid device\n", "no state of a link; .*Invalid device"),
    ):
        with pytest.raises(ParseError, match=reason):
            parse_mlxlink(output)


def test_counters_of_an_interface() -> None:
    counters = parse_ethtool_statistics(tool_output("statistics-mlx5.txt"))
    assert (counters["rx_packets"], counters["rx_prio3_pause"], counters["rx_discards_phy"]) == (91234570, 1207, 0)
    for output in ("no stats available\n", "NIC statistics:\n", "NIC statistics:\n     rx: 1\n     rx: 2\n"):
        with pytest.raises(ParseError):
            parse_ethtool_statistics(output)


def test_pauses_of_an_interface() -> None:
    pause = parse_ethtool_pause(tool_output("pause-mlx5.txt"))
    assert (pause.device, pause.receive, pause.transmit) == ("rail0", True, False)
    for output in (
        "Pause parameters for rail0:\nRX:\t\ton\n",
        "RX:\t\ton\nTX:\t\ton\n",
        "Cannot get device pause settings\n",
    ):
        with pytest.raises(ParseError, match="no pause parameters"):
            parse_ethtool_pause(output)


def test_files_whose_folders_have_colons() -> None:
    assert files_of("0000:1a:00.0/uevent:PCI_SLOT_NAME=0000:1a:00.0\n0000:1a:00.0/uevent:A=/b:c\nx/y/z:\n") == {
        "0000:1a:00.0/uevent": ("PCI_SLOT_NAME=0000:1a:00.0", "A=/b:c"),
        "x/y/z": ("",),
    }
    for output in ("mtu:9000\n", "grep: x: Permission denied\n", "a/b:c"):
        with pytest.raises(ParseError):
            files_of(output)


NAME = st.from_regex(r"[a-z0-9]{1,5}(:[0-9a-f]{2}\.0)?", fullmatch=True)
FILE = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
LINE = st.text(st.characters(codec="ascii", exclude_categories=["Cc", "Zs"]), max_size=12)


@given(st.dictionaries(st.tuples(NAME, FILE), st.lists(LINE, min_size=1, max_size=3), min_size=1, max_size=5))
def test_any_files_are_read_back(files: dict[tuple[str, str], list[str]]) -> None:
    printed = "".join(f"{name}/{file}:{line}\n" for (name, file), lines in files.items() for line in lines)
    assert files_of(printed) == {f"{name}/{file}": tuple(lines) for (name, file), lines in files.items()}
