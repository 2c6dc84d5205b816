from __future__ import annotations

import pytest

from rackproof.parse import ParseError
from rackproof.parse.pci_links import parse_pci_links, parse_pci_tree
from rackproof.validation.pci_links import degraded

# A port of the processor, a switch with a NIC and a GPU below it, and a drive beside. Slot: class, runs, can.
DEVICES = {
    "0000:15:01.0": ("0x060400", "32.0", "16", "32.0", "16"),
    "0000:16:00.0": ("0x060400", "32.0", "16", "32.0", "16"),
    "0000:17:00.0": ("0x060400", "32.0", "16", "32.0", "16"),
    "0000:17:01.0": ("0x060400", "2.5", "16", "32.0", "16"),
    "0000:1a:00.0": ("0x020000", "32.0", "16", "32.0", "16"),
    "0000:1b:00.0": ("0x030200", "2.5", "16", "32.0", "16"),
    "0000:00:0a.0": ("0x060400", "16.0", "4", "32.0", "8"),
    "0000:01:00.0": ("0x010802", "16.0", "4", "16.0", "4"),
}
ABOVE = {
    "0000:15:01.0": "pci0000:15/0000:15:01.0",
    "0000:16:00.0": "pci0000:15/0000:15:01.0/0000:16:00.0",
    "0000:17:00.0": "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0",
    "0000:17:01.0": "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0",
    "0000:1a:00.0": "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:1a:00.0",
    "0000:1b:00.0": "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1b:00.0",
    "0000:00:0a.0": "pci0000:00/0000:00:0a.0",
    "0000:01:00.0": "pci0000:00/0000:00:0a.0/0000:01:00.0",
}
TREE = "".join(f"../../../devices/{path}\n" for path in ABOVE.values())


def links(**changes: tuple[str, str, str, str, str]) -> str:
    lines = []
    for slot, known in DEVICES.items():
        kind, speed, width, speed_can, width_can = changes.get(f"bus_{slot[5:7]}", known)
        lines += [
            f"{slot}/class:{kind}",
            f"{slot}/current_link_speed:{speed} GT/s PCIe",
            f"{slot}/current_link_width:{width}",
            f"{slot}/max_link_speed:{speed_can} GT/s PCIe",
            f"{slot}/max_link_width:{width_can}",
        ]
    return "\n".join(lines) + "\nstatus 0\n"


def problems(**changes: tuple[str, str, str, str, str]) -> list[str]:
    return degraded(parse_pci_links(links(**changes)), parse_pci_tree(TREE))


def test_an_idle_gpu_and_a_port_that_can_do_more_than_its_drive_are_no_fault() -> None:
    assert problems() == []


@pytest.mark.parametrize(
    ("bus", "link", "expected"),
    [
        ("1a", ("0x020000", "16.0", "16", "32.0", "16"), "0000:1a:00.0: expected 32 GT/s, actual 16 GT/s"),
        ("1a", ("0x020000", "32.0", "8", "32.0", "16"), "0000:1a:00.0: expected x16, actual x8"),
        ("1b", ("0x030200", "2.5", "8", "32.0", "16"), "0000:1b:00.0: expected x16, actual x8"),
        ("01", ("0x010802", "8.0", "4", "16.0", "4"), "0000:01:00.0: expected 16 GT/s, actual 8 GT/s"),
        ("16", ("0x060400", "32.0", "8", "32.0", "16"), "0000:16:00.0: expected x16, actual x8"),
        ("16", ("0x060400", "16.0", "16", "32.0", "16"), "0000:16:00.0: expected 32 GT/s, actual 16 GT/s"),
    ],
)
def test_a_link_below_what_both_ends_can_do(bus: str, link: tuple[str, str, str, str, str], expected: str) -> None:
    assert problems(**{f"bus_{bus}": link}) == [expected]


def test_behind_a_volume_management_device_another_tree_begins() -> None:
    text = "0000:80:05.5/class:0x010400\n" + "".join(
        f"{slot}/class:{kind}\n{slot}/current_link_speed:16.0 GT/s PCIe\n{slot}/current_link_width:{width}\n"
        f"{slot}/max_link_speed:32.0 GT/s PCIe\n{slot}/max_link_width:{can}\n"
        for slot, kind, width, can in (("10000:00:02.0", "0x060400", 4, 16), ("10000:01:00.0", "0x010802", 2, 4))
    )
    tree = "".join(
        f"../../../devices/pci0000:80/{path}\n"
        for path in (
            "0000:80:05.5",
            "0000:80:05.5/pci10000:00/10000:00:02.0",
            "0000:80:05.5/pci10000:00/10000:00:02.0/10000:01:00.0",
        )
    )
    links = degraded(parse_pci_links(f"{text}status 2\n"), parse_pci_tree(tree))
    assert links == ["10000:01:00.0: expected x4, actual x2", "10000:01:00.0: expected 32 GT/s, actual 16 GT/s"]


def test_devices_without_a_link_are_passed_over() -> None:
    assert problems(bus_01=("0x010802", "Unknown", "0", "Unknown", "255")) == []


@pytest.mark.parametrize(
    ("of_links", "of_tree"),
    [
        (links()[:-9], TREE),
        ("status 2\n", TREE),
        (links(), TREE[:-1]),
        (links(), "".join(TREE.splitlines(keepends=True)[1:])),
        (links(), TREE.replace("../../../devices", "devices")),
        (links().replace("0000:1a:00.0/class:0x020000\n", ""), TREE),
        (links().replace("GT/s", "MT/s").replace("width:", "width:x"), TREE),
    ],
    ids=[
        "links cut",
        "no devices",
        "tree cut",
        "one is missing",
        "no links",
        "no class",
        "no sizes",
    ],
)
def test_answers_that_prove_nothing_are_refused(of_links: str, of_tree: str) -> None:
    with pytest.raises(ParseError):
        degraded(parse_pci_links(of_links), parse_pci_tree(of_tree))
