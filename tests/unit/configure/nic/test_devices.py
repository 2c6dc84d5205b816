from __future__ import annotations

import pytest

from rackproof.configure.nic.devices import KINDS, Adapter, adapters, missing_rails
from rackproof.core.machine import Machine, Pci
from rackproof.errors import Refused
from rackproof.parse import ParseError
from rackproof.parse.udev import parse_id_path, slot_of_id_path


def machine(*devices: tuple[str, str]) -> Machine:
    pci = tuple(Pci(address, *ids.split(":"), "020000") for address, ids in devices)
    return Machine("ubuntu", "24.04", "noble", "6.8.0", "x86_64", (), pci, True, False, "GenuineIntel", 1)


def test_every_kind_is_found_and_virtual_functions_are_not_adapters() -> None:
    devices = [(f"0000:{k:02x}:00.0", f"15b3:{ids}") for k, ids in enumerate(KINDS)]
    nics = adapters(machine(*devices, ("0000:ff:00.1", "15b3:101e"), ("0000:fe:00.0", "8086:1563")), {})
    assert {adapter.kind for adapter in nics} == set(KINDS.values())


def test_an_unknown_adapter_is_named_with_the_way_out() -> None:
    here = machine(("0000:1a:00.0", "15b3:1031"))
    with pytest.raises(Refused, match=r"0000:1a:00.0: unknown network adapter 15b3:1031; .*adapters: \{'15b3:1031'"):
        adapters(here, {})
    assert adapters(here, {"15b3:1031": "ConnectX-10"}) == (Adapter("0000:1a:00.0", "ConnectX-10"),)


def test_an_adapter_that_no_package_drives_any_more() -> None:
    with pytest.raises(Refused, match="older than ConnectX-4"):
        adapters(machine(("0000:1a:00.0", "15b3:1003")), {})


@pytest.mark.parametrize(
    ("path", "slot"),
    [
        ("pci-0000:3b:00.0", "0000:3b:00.0"),
        ("pci-0000:3b:00.1-vfabc", "0000:3b:00.1"),
        ("platform-vmd-pci-0000:3b:00.0", None),
        ("pci-0000:3b:00", None),
    ],
)
def test_slot_of_path(path: str, slot: str | None) -> None:
    assert slot_of_id_path(path) == slot


def test_rails_that_are_no_adapters() -> None:
    here = machine(("0000:1a:00.0", "15b3:1021"), ("0000:02:00.0", "8086:1563"))
    nics = adapters(here, {})
    assert missing_rails(["pci-0000:1a:00.0"], here, nics) is None
    problem = missing_rails(["pci-0000:1a:00.0", "pci-0000:02:00.0", "pci-0000:3c:00.0"], here, nics)
    assert problem == (
        "rail 1: 0000:02:00.0 is 8086:1563, no adapter of NVIDIA's; rail 2: 0000:3c:00.0 has no device;"
        " adapters are at 0000:1a:00.0: correct fabric_paths"
    )


PROPERTIES = "DEVPATH=/devices/pci0000:3a/net/rail0\nID_PATH_TAG=pci-0000_3b_00_0\nID_PATH=pci-0000:3b:00.0\nTAGS=:x:\n"


def test_the_path_among_the_properties_of_a_port() -> None:
    assert parse_id_path(PROPERTIES) == "pci-0000:3b:00.0"
    for end in range(PROPERTIES.index("0\nTAGS") + 1):
        with pytest.raises(ParseError):
            parse_id_path(PROPERTIES[:end])
