from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rackproof.configure.nic import ports
from rackproof.configure.nic.infiniband import partitions, subnet_manager_units
from rackproof.configure.nic.inputs import NicInputs, Partition
from rackproof.core.architecture import Fabric, Lossless, Nic
from rackproof.errors import DeclarationError
from tests.unit.refusals import refuses
from tests.unit.shell import is_shell

pytestmark = pytest.mark.few(9)

ROCE = Fabric(
    kind="roce",
    mtu=9000,
    lossless=Lossless(pfc_priority=3, ecn=True, trust="dscp", dscp_priority={48: 6, 26: 3}, traffic_class=106),
)
NIC = Nic(purpose="compute", count=1, speed_gbps=400, link_layer="Ethernet", max_read_request=4096, source="x")


def test_roce_settings_come_in_an_order_that_works() -> None:
    values = ports.roce_settings(ROCE, NicInputs(relaxed_ordering=True), NIC, nvidia=True)
    assert list(values.items()) == [
        ("trust", "dscp"), ("dscp.26", "3"), ("dscp.48", "6"), ("pfc", "0,0,0,1,0,0,0,0"),
        ("ecn.rp.3", "1"), ("ecn.np.3", "1"), ("traffic_class", "106"), ("max_read_request", "4096"),
        ("relaxed_ordering", "1"),
    ]  # fmt: skip


def test_ecn_off_is_off_for_every_class() -> None:
    values = ports.roce_settings(Fabric(kind="roce", mtu=9000, lossless=Lossless(ecn=False)), NicInputs(), None, True)
    assert len([key for key, value in values.items() if key.startswith("ecn.") and value == "0"]) == 16


@pytest.mark.parametrize(
    ("lossless", "stack", "says"),
    [
        (Lossless(ecn=True), NicInputs(), "fabric.lossless.ecn: the distribution's driver has no switch"),
        (Lossless(traffic_class=106), NicInputs(), "fabric.lossless.traffic_class: only NVIDIA's driver packages"),
        (Lossless(), NicInputs(buffer_size=(1,) * 8), "nic.buffer_size: needs mlnx_qos"),
        (Lossless(), NicInputs(prio2buffer=(0,) * 8), "nic.prio2buffer: needs mlnx_qos.*put DOCA into"),
    ],
)
def test_what_the_distributions_driver_cannot_do(lossless: Lossless, stack: NicInputs, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        ports.roce_settings(Fabric(kind="roce", mtu=9000, lossless=lossless), stack, None, nvidia=False)


def test_ecn_may_be_left_to_the_firmware() -> None:
    fabric = Fabric(kind="roce", mtu=9000, lossless=Lossless(ecn=True, pfc_priority=3))
    values = ports.roce_settings(fabric, NicInputs(ecn_by_firmware=True), None, nvidia=False)
    assert values == {"pfc": "0,0,0,1,0,0,0,0"}


@pytest.mark.parametrize(
    ("mtu", "mode", "nvidia", "says"),
    [
        (9000, "datagram", True, "IPoIB in datagram mode carries 4092 bytes at most"),
        (65520, "connected", False, "ConnectX-4 and later are in datagram mode only"),
    ],
)
def test_ipoib_that_cannot_be(mtu: int, mode: str, nvidia: bool, says: str) -> None:
    stack = NicInputs.model_validate({"ipoib_mode": mode})
    with pytest.raises(DeclarationError, match=says):
        ports.infiniband_settings(Fabric(kind="infiniband", mtu=mtu), stack, None, nvidia)


def test_infiniband_settings() -> None:
    stack = NicInputs.model_validate({"ipoib_mode": "connected", "pkeys": [{"pkey": 1}]})
    values = ports.infiniband_settings(Fabric(kind="infiniband", mtu=65520), stack, NIC, nvidia=True)
    assert values == {"ipoib_mode": "connected", "mtu": "65520", "child.8001": "yes", "max_read_request": "4096"}


def test_partitions_keep_the_default_one_full() -> None:
    text = partitions(
        {"storage": Partition(pkey=0x20, members=("0x0002c9030045f121",)), "quiet": Partition(pkey=3, ipoib=False)}
    )
    assert text.splitlines()[1:] == [
        "Default=0x7fff, ipoib, mtu=5, defmember=full : ALL=full, SELF=full ;",
        "storage=0x0020, ipoib, mtu=5, defmember=full : 0x0002c9030045f121=full, SELF=full ;",
        "quiet=0x0003, defmember=full : ALL=full, SELF=full ;",
    ]


def test_an_undeclared_subnet_manager_cannot_start() -> None:
    assert {unit.name for unit in subnet_manager_units(False, True) if unit.masked} == {
        "opensm.service",
        "opensmd.service",
    }
    (unit,) = subnet_manager_units(True, False)
    assert (unit.name, unit.masked, unit.running) == ("opensm.service", False, True)


test_inputs_that_contradict_themselves = refuses(
    NicInputs.model_validate,
    {"partitions": {"a": {"pkey": 1}}},
    {"subnet_manager": True, "partitions": {"a": {"pkey": 1}, "b": {"pkey": 1}}},
    {"subnet_manager": True, "partitions": {"a": {"pkey": 0x8001}}},
    {"bonds": {"b": {"paths": ["one"]}}},
    {"bonds": {"b": {"paths": ["a", "b"], "macs": ["00:01", "00:02"]}}},
    {
        "bonds": {"b": {"paths": ["a", "b"], "mtu": 1500}},
        "vlans": {"v": {"parent": "b", "id": 4, "address": "1.1.1.1/8", "mtu": 9000}},
    },
    {"adapters": {"8086:1563": "x"}},
    {"firmware_images": {"MT_0000000838": {"version": "1", "url": "ftp://x", "sha256": "0" * 64}}},
    {"buffer_size": [1, 2]},
    {"nonsense": 1},
    error=ValidationError,
    says="",
)


def test_differences_are_for_people() -> None:
    state = {"trust": "pcp"}
    assert ports.differences("rail0", {"trust": "dscp", "tos": "106"}, state) == [
        "rail0: trust: expected dscp, actual pcp",
        "rail0: tos: expected 106, actual nothing",
    ]
    assert ports.differences("rail0", {}, None) == ["rail0: there is no such port"]


def test_units_of_ports_are_spelled_as_systemd_does() -> None:
    assert ports.unit_of("rail0", False) == "rackproof-roce@rail0.service"
    assert ports.unit_of("ens-1", True) == "rackproof-ipoib@ens\\x2d1.service"


def test_scripts_are_programs() -> None:
    for text in (*map(ports.script, ("port", "rdma-names", "acs")), ports.apply_script(["rail0", "a-b"], False)):
        assert is_shell(text)


KEYS = st.from_regex(r"[a-z_0-9]{1,8}(\.[a-z0-9]{1,3}){0,2}", fullmatch=True)
VALUES = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), max_size=10)


@given(st.dictionaries(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), st.dictionaries(KEYS, VALUES)))
def test_states_survive(declared: dict[str, dict[str, str]]) -> None:
    lines = [
        line for port, values in declared.items() for line in (f"port {port}", *(f"{k}={v}" for k, v in values.items()))
    ]
    assert {name: dict(state) for name, state in ports.parse_states(lines).items()} == declared


@pytest.mark.parametrize("lines", [["trust=dscp"], ["port a", "trust"], ["port a", "port a"], ["port a", "Trust=x"]])
def test_other_answers_are_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r"setting of a port|reported twice|unexpected line"):
        ports.parse_states(lines)
