"""Which ports an architecture means, on InfiniBand and Ethernet, named and not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.expectations import expected_checks, items_of
from rackproof.core.evidence import CheckOutcome
from rackproof.core.port_names import names_of
from rackproof.core.rack import Node, Rack
from rackproof.parse import ParseError
from rackproof.parse.answer import STATUS
from rackproof.parse.nic_ports import INTERFACES, RDMA_DEVICES, parse_ports
from rackproof.remote.collect import RecordingReader
from rackproof.remote.command import CommandResult
from rackproof.validation.context import Context
from rackproof.validation.evaluate import Case
from tests.unit.validation.checking import subjects, validators

LO = "lo/ifindex:1\nlo/type:772\nlo/mtu:65536\n"
DEVINFO = "ibv_devinfo; echo status $?"
COUNTERS = (
    "cd /sys/class/infiniband 2>/dev/null && grep -sH '' */ports/*/counters/* */ports/*/hw_counters/*; echo status $?"
)


@dataclass(frozen=True)
class Card:
    """One port of a card as the kernel shows it."""

    device: str
    slot: str
    rate: str = "400 Gb/sec (4X NDR)"
    layer: str = "InfiniBand"
    state: str = "4: ACTIVE"
    physical: str = "5: LinkUp"
    sm_lid: str = "0x1"
    interface: str = ""
    virtual: bool = False
    width: int = 16

    def rdma(self) -> str:
        lines = [
            "fw_ver:28.39.3560", f"ports/1/state:{self.state}", f"ports/1/phys_state:{self.physical}",
            f"ports/1/rate:{self.rate}", f"ports/1/link_layer:{self.layer}", "ports/1/lid:0x2a",
            f"ports/1/sm_lid:{self.sm_lid}", *self.function(),
        ]  # fmt: skip
        if self.interface:
            lines.append(f"device/net/{self.interface}/ifindex:7")
        return "".join(f"{self.device}/{line}\n" for line in lines)

    def net(self) -> str:
        speed = str(int(float(self.rate.split()[0]) * 1000))
        lines = ["ifindex:7", "type:1", "mtu:9000", "operstate:up", "carrier:1", f"speed:{speed}", *self.function()]
        return "".join(f"{self.interface}/{line}\n" for line in lines) if self.interface else ""

    def function(self) -> list[str]:
        physical = ["device/physfn/vendor:0x15b3"] if self.virtual else []
        event = [f"device/uevent:PCI_SLOT_NAME={self.slot}"] if self.slot else ["device/uevent:DRIVER=virtio_net"]
        return [
            *event,
            "device/current_link_speed:32.0 GT/s PCIe",
            f"device/current_link_width:{self.width}",
            *physical,
        ]


def dgx(**changes: Card) -> list[Card]:
    """Twelve devices of a DGX H100: eight for compute, two for storage, all NDR, and two Ethernet ports."""
    cards = [Card(f"mlx5_{k}", f"0000:{0x18 + 0x10 * k:02x}:00.0") for k in range(10)]
    cards += [
        Card("mlx5_10", "0000:f0:00.0", "100 Gb/sec (4X EDR)", "Ethernet", interface="eth0", sm_lid="0x0"),
        Card("mlx5_11", "0000:f1:00.0", "100 Gb/sec (4X EDR)", "Ethernet", interface="eth1", sm_lid="0x0"),
    ]
    return [changes.get(card.device, card) for card in cards]


NICS: list[dict[str, Any]] = [
    {"purpose": "compute", "count": 8, "speed_gbps": 400, "link_layer": "InfiniBand", "pcie_width": 16,
     "mtu": 4096, "link_flaps_max": 1},
    {"purpose": "storage", "count": 2, "speed_gbps": 400, "link_layer": "InfiniBand"},
    {"purpose": "in_band", "count": 2, "speed_gbps": 100, "link_layer": "Ethernet"},
]  # fmt: skip


def result(
    check: str, item: str, cards: Iterable[Card], nics: list[dict[str, Any]] = NICS, more: dict[str, str] | None = None,
    **data: object,
) -> tuple[str, str]:  # fmt: skip
    """Outcome and message of a check on a node with these cards."""
    cards = list(cards)
    source = {"written": {"doc": "Written for this test", "status": "proposed"}}
    document = {
        "apiVersion": "refarch/v1",
        "metadata": {"id": "dgx", "version": "1", "title": "A DGX", "scope": "This test", "sources": source},
        "roles": {"gpu": {"expect": {"nics": [{**nic, "source": "written"} for nic in nics]}}},
    }
    arch = Architecture.model_validate_json(json.dumps(document))
    answers = {
        RDMA_DEVICES: "".join(card.rdma() for card in cards if card.device) + "status 2\n",
        INTERFACES: LO + "".join(card.net() for card in cards) + "status 2\n",
    } | (more or {})
    node = Node("gpu-01", ("gpu",), data)
    known = [CommandResult("gpu-01", command, 0, text.encode()) for command, text in answers.items()]
    context = Context(Rack("test", (node,)), arch, {"gpu-01": RecordingReader("gpu-01", known=known)})
    declared, function = validators()[check]
    assert item in declared.items(arch, node, context.rack)
    check_result = context.evaluate(function, Case(declared, node, item))
    return check_result.outcome.value, check_result.message


PASSED, FAILED, UNMEASURED = (
    outcome.value for outcome in (CheckOutcome.PASSED, CheckOutcome.FAILED, CheckOutcome.UNMEASURED)
)
NAMED = [{**NICS[0], "ports": "mlx5_[0-7]"}, {**NICS[1], "ports": ["mlx5_8", "mlx5_9"]}, NICS[2]]


@pytest.mark.parametrize("nics", [NICS, NAMED], ids=["not named", "named"])
@pytest.mark.parametrize("check", ["nic.count", "nic.state", "nic.speed", "nic.link_layer"])
@pytest.mark.parametrize("item", ["compute", "storage", "in_band"])
def test_a_healthy_infiniband_node_passes(check: str, item: str, nics: list[dict[str, Any]]) -> None:
    assert result(check, item, dgx(), nics) == (PASSED, "")


BAD = {
    "polling": Card("mlx5_3", "0000:48:00.0", "10 Gb/sec (4X SDR)", state="1: DOWN", physical="2: Polling"),
    "slow": Card("mlx5_3", "0000:48:00.0", "200 Gb/sec (4X HDR)"),
    "no subnet manager": Card("mlx5_3", "0000:48:00.0", sm_lid="0x0"),
    "initialising": Card("mlx5_3", "0000:48:00.0", state="2: INIT"),
    "ethernet": Card("mlx5_3", "0000:48:00.0", layer="Ethernet", sm_lid="0x0"),
}


@pytest.mark.parametrize(
    ("card", "check", "words"),
    [
        ("polling", "nic.state", "expected up on 8 ports, actual DOWN/Polling on mlx5_3"),
        ("no subnet manager", "nic.state", "actual no subnet manager on mlx5_3"),
        ("initialising", "nic.state", "actual INIT/LinkUp on mlx5_3"),
        ("slow", "nic.speed", "expected 400 Gb/s on 8 ports, actual 200 Gb/s on mlx5_3"),
        ("ethernet", "nic.link_layer", "expected InfiniBand on 8 ports, actual Ethernet on mlx5_3"),
    ],
)
def test_a_bad_port_is_found_by_its_name(card: str, check: str, words: str) -> None:
    outcome, message = result(check, "compute", dgx(mlx5_3=BAD[card]), NAMED)
    assert (outcome, words in message) == (FAILED, True), message


@pytest.mark.parametrize("card", BAD)
def test_a_bad_unnamed_port_is_one_too_few(card: str) -> None:
    outcome, message = result("nic.count", "compute", dgx(mlx5_3=BAD[card]))
    assert outcome == FAILED
    assert message.startswith("expected 10 InfiniBand ports of 400 Gb/s that are up, actual 9")
    assert ("mlx5_3" in message) == (card != "ethernet")
    for check in ("nic.state", "nic.speed", "nic.pcie_width"):
        assert result(check, "compute", dgx(mlx5_3=BAD[card]))[0] == UNMEASURED


@pytest.mark.parametrize("speed", ["-1", "0"])
def test_a_port_of_unknown_speed_may_be_the_one_that_lacks(speed: str) -> None:
    cards = dgx()
    speeds = "".join(card.net() for card in cards).replace("eth1/speed:100000", f"eth1/speed:{speed}")
    unknown = {INTERFACES: f"{LO}{speeds}status 2\n"}
    outcome, message = result("nic.count", "in_band", cards, more=unknown)
    assert (outcome, message) == (UNMEASURED, "the kernel does not report the speed of mlx5_11")
    three = [*NICS[:2], {**NICS[2], "count": 3}]
    outcome, message = result("nic.count", "in_band", cards, three, more=unknown)
    assert (outcome, "actual 1; others: mlx5_11 of unknown speed" in message) == (FAILED, True)


def test_it_counts_candidate_ports_of_all_purposes_with_one_speed() -> None:
    narrow = {f"mlx5_{k}": Card(f"mlx5_{k}", f"0000:{0x18 + 0x10 * k:02x}:00.0", width=8) for k in range(3)}
    two = {name: card for name, card in narrow.items() if name != "mlx5_2"}
    assert result("nic.pcie_width", "compute", dgx()) == (PASSED, "")
    # Eight of ten are as compute should be: they may or may not be those for compute.
    outcome, message = result("nic.pcie_width", "compute", dgx(**two))
    assert (outcome, ": 2 of 10 candidates for 8 ports are wrong" in message) == (UNMEASURED, True)
    outcome, message = result("nic.pcie_width", "compute", dgx(**narrow))
    assert outcome == FAILED
    assert "expected 16 on 8 ports, actual 8 on mlx5_0" in message
    assert result("nic.pcie_width", "compute", dgx(**two), NAMED)[0] == FAILED


def test_the_inventory_goes_before_the_architecture() -> None:
    assert result("nic.count", "compute", dgx(), NICS, nic_ports={"compute": "mlx5_[0-7]"}) == (PASSED, "")
    outcome, message = result("nic.count", "compute", dgx(), NAMED, nic_ports={"compute": "mlx5_[0-6,20]"})
    assert (outcome, "missing: mlx5_20" in message) == (FAILED, True)
    outcome, message = result("nic.count", "compute", dgx(), NAMED, nic_ports={"compute": "mlx5_[0-6]"})
    assert (outcome, message) == (FAILED, "expected 8 compute ports, actual 7 named in the inventory")
    assert result("nic.speed", "compute", dgx(), NAMED, nic_ports={"compute": "mlx5_[0-6]"})[0] == UNMEASURED
    assert result("nic.count", "compute", dgx(), NAMED, nic_ports={"compute": 7})[0] == UNMEASURED
    assert result("nic.count", "compute", dgx(), NAMED, nic_ports="mlx5_0")[0] == UNMEASURED


def test_ports_that_the_inventory_configures_are_those_of_their_purpose() -> None:
    stack = {"ports": {f"mlx5_{k}": {"purpose": "compute"} for k in range(8)}}
    assert result("nic.count", "compute", dgx(), NICS, nic=stack) == (PASSED, "")
    stack["ports"].pop("mlx5_7")
    outcome, message = result("nic.count", "compute", dgx(), NICS, nic=stack)
    assert (outcome, message) == (FAILED, "expected 8 compute ports, actual 7 named in the inventory")


def test_one_port_under_two_names_is_one_port() -> None:
    twice = {"in_band": ["eth0", "mlx5_10"]}
    assert result("nic.count", "in_band", dgx(), NAMED, nic_ports=twice)[0] == FAILED
    assert result("nic.speed", "in_band", dgx(), NAMED, nic_ports=twice)[0] == UNMEASURED


def test_virtual_functions_and_soft_devices_are_no_ports_of_a_card() -> None:
    more = [Card("mlx5_30", "0000:18:00.1", virtual=True), Card("rxe0", "")]
    assert result("nic.count", "compute", [*dgx(), *more]) == (PASSED, "")
    outcome, message = result("nic.count", "compute", [*dgx(), Card("mlx5_30", "0000:e8:00.0")])
    assert (outcome, message) == (FAILED, "expected 10 InfiniBand ports of 400 Gb/s that are up, actual 11")


def test_the_mtu_of_infiniband_is_the_ports() -> None:
    def devinfo(mtu: int) -> str:
        return "".join(
            f"hca_id:\tmlx5_{k}\n\ttransport:\tInfiniBand (0)\n\tfw_ver:\t28.39.3560\n\tnode_guid:\ta088:c203\n"
            f"\tvendor_id:\t0x02c9\n\tvendor_part_id:\t4129\n\tphys_port_cnt:\t1\n\t\tport:\t1\n"
            f"\t\t\tstate:\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t4096 (5)\n"
            f"\t\t\tactive_mtu:\t{mtu if k == 5 else 4096} (5)\n\t\t\tlink_layer:\tInfiniBand\n\n"
            for k in range(8)
        )

    good, bad = ({DEVINFO: devinfo(mtu) + "status 0\n"} for mtu in (4096, 2048))
    assert result("nic.mtu", "compute", dgx(), NAMED, good) == (PASSED, "")
    assert result("nic.mtu", "compute", dgx(), NAMED, bad) == (
        FAILED,
        "expected 4096 on 8 ports, actual 2048 on mlx5_5",
    )
    assert result("nic.mtu", "compute", dgx(), NAMED, {DEVINFO: "status 255\n"})[0] == UNMEASURED


BOOT = "0123abcd-0123-4567-89ab-0123456789ab"
BASELINE = "cat /proc/sys/kernel/random/boot_id /var/lib/rackproof/nic/link-counters 2>/dev/null" + STATUS


def test_flaps_of_infiniband_are_the_ports_own_count() -> None:
    def counters(downs: int) -> dict[str, str]:
        lines = [f"mlx5_{k}/ports/1/counters/link_downed:{downs if k == 2 else 0}\n" for k in range(8)]
        return {COUNTERS: "".join(lines) + "status 0\n", BASELINE: f"{BOOT}\n{began}status {0 if began else 1}\n"}

    began = ""
    assert result("nic.link_flaps", "compute", dgx(), NAMED, counters(1)) == (PASSED, "")
    outcome, message = result("nic.link_flaps", "compute", dgx(), NAMED, counters(9))
    assert (outcome, "actual 9 on mlx5_2" in message) == (FAILED, True)
    assert result("nic.link_flaps", "compute", dgx(), NAMED, {**counters(1), COUNTERS: "status 1\n"})[0] == UNMEASURED
    assert result("nic.link_flaps", "compute", dgx(), NAMED, {**counters(1), BASELINE: "status 1\n"})[0] == UNMEASURED
    began = f"{BOOT}\nmlx5_2/1 8\n"
    assert result("nic.link_flaps", "compute", dgx(), NAMED, counters(9)) == (PASSED, "")
    began = f"{BOOT.replace('0', 'f')}\nmlx5_2/1 8\n"  # of another boot
    assert result("nic.link_flaps", "compute", dgx(), NAMED, counters(9))[0] == FAILED


def test_a_node_without_rdma_has_no_port() -> None:
    outcome, message = result("nic.count", "compute", [], NAMED)
    assert (outcome, message.startswith("expected 8 compute ports, actual 0")) == (FAILED, True)
    assert result("nic.speed", "compute", [], NAMED)[0] == UNMEASURED


@pytest.mark.parametrize(
    ("rdma", "interfaces"),
    [
        ("status 127\n", LO + "status 0\n"),
        ("status 2\n", "status 2\n"),
        (Card("mlx5_0", "0000:18:00.0").rdma(), LO + "status 0\n"),
        ("mlx5_0/fw_ver:1\nstatus 0\n", LO + "status 0\n"),
        (Card("mlx5_0", "somewhere").rdma() + "status 0\n", LO + "status 0\n"),
        (Card("mlx5_0", "0000:18:00.0", rate="fast").rdma() + "status 0\n", LO + "status 0\n"),
    ],
    ids=["no grep", "no loopback", "cut off", "no port", "no address", "no rate"],
)
def test_what_cannot_be_read_is_refused(rdma: str, interfaces: str) -> None:
    with pytest.raises(ParseError):
        parse_ports(rdma, interfaces)


def test_what_is_asked_for_is_what_the_checks_answer() -> None:
    rack = next(subject for subject in subjects() if subject.name == "hgx-h200-roce").context
    node = rack.rack.nodes[0]
    for check, (declared, _) in validators().items():
        if check.startswith("nic."):
            assert declared.items(rack.arch, node, rack.rack) == items_of(rack.arch, check, node.groups), check
    asked = {
        (e.check, e.item) for e in expected_checks(rack.arch) if e.check.split(".")[0] in ("nic", "pcie", "fabric")
    }
    given = {
        (check, item)
        for check, (declared, _) in validators().items()
        for item in declared.items(rack.arch, node, rack.rack)
    }
    assert len(asked) > 50
    assert asked <= given


def test_names_of_ports() -> None:
    assert names_of("mlx5_[8-11]") == ("mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11")
    assert names_of(["rail1", "rail0"]) == ("rail1", "rail0")
    for bad in ("mlx5_[0-", 7, {"a": 1}, [1]):
        with pytest.raises(ValueError, match=r"names|invalid node set"):
            names_of(bad)
