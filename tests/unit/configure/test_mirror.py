"""``mirror list``: nothing that a plan would download is missing from it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rackproof import architectures
from rackproof.configure import mirror
from rackproof.configure.health.kit import requirements
from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.core.versions.mirror import MirrorItem, merged, of_inputs
from rackproof.errors import InventoryError
from rackproof.remote.written import read_written
from rackproof.version_sets import versions_of

PLANS = Path(__file__).parents[2] / "data" / "plans"
RACKS = sorted(path.parent for path in PLANS.glob("*/rack.yaml"))
_URL = re.compile(r"https?://[^\s'\"`)<>\\|;]+")
LOCAL = ("http://127.0.0.1", "https://127.0.0.1", "http://localhost", "https://localhost")


def written(folder: Path) -> tuple[Rack, Architecture]:
    rack = Rack(str(folder / "rack.yaml"), read_written(folder).nodes)
    return rack, architectures.load(str(folder / "architecture.yaml")).model


def listed(folder: Path) -> tuple[MirrorItem, ...]:
    rack, architecture = written(folder)
    found = mirror.items_of_rack(rack, lambda _: architecture, lambda node: versions_of(node, rack.source))
    return merged(found)


def urls(text: str) -> set[str]:
    return {url.rstrip(".,:/") for url in _URL.findall(text)}


@pytest.mark.parametrize("folder", RACKS, ids=lambda path: path.name)
def test_every_url_of_a_plan_is_listed(folder: Path) -> None:
    """The golden plans have every command to the letter, files that carry URLs among them."""
    planned = urls("".join(path.read_text(encoding="utf-8") for path in (folder / "golden").glob("*.txt")))
    items = {each.url.rstrip("/") for each in listed(folder)}
    missing = {url for url in planned if url not in items and not url.startswith(LOCAL)}
    assert missing == set()


def test_plans_download_something() -> None:
    """Else the test above would prove nothing."""
    texts = [path.read_text(encoding="utf-8") for folder in RACKS for path in (folder / "golden").glob("*.txt")]
    assert len({url for text in texts for url in urls(text)}) >= 10


def test_the_installer_that_a_storage_hands_out_is_listed_with_its_digest() -> None:
    (item,) = [each for each in listed(PLANS / "hgx-h100-ubuntu2204-weka") if "its own servers" in each.needed_by]
    assert item.url.endswith(":14000/dist/v1/install")
    assert re.fullmatch("[0-9a-f]{64}", item.sha256)


def test_an_installer_without_a_digest_is_an_error_of_the_inventory() -> None:
    rack, architecture = written(PLANS / "hgx-h100-ubuntu2204-weka")
    node = replace(rack.nodes[0], data={**rack.nodes[0].data, "storage_clients": {}})
    with pytest.raises(InventoryError, match="install_sha256"):
        list(mirror.items_of(architecture, node, None, rack))


def test_wheels_of_the_health_check_are_listed_where_it_is_installed() -> None:
    rack, architecture = written(PLANS / "dgx-b200-rocky94-ib")
    assert architecture.slurm is not None
    node = rack.nodes[0]

    def wheels(architecture: Architecture = architecture, **said: object) -> dict[str, MirrorItem]:
        data = {**node.data, "health_check": said}
        items = mirror.items_of(architecture, replace(node, data=data), None, rack)
        return {each.name: each for each in items if each.kind == "wheel"}

    assert len(wheels()) == len(requirements()) > 0
    assert {each.url for each in wheels(index_url="https://index.example/simple").values()} == {
        "https://index.example/simple"
    }
    assert {each.repository for each in wheels(wheelhouse="/mnt/wheels").values()} == {"/mnt/wheels"}
    assert wheels(install=False) == {}
    assert wheels(architecture.model_copy(update={"slurm": None})) == {}


def test_firmware_images_keys_and_repositories_of_the_inputs() -> None:
    rack, architecture = written(PLANS / "hgx-h200-ubuntu2404-roce")
    data = {
        **rack.nodes[0].data,
        "nic_stack": {
            "firmware_images": {
                "MT_0000000838": {"version": "28.43.1014", "url": "https://fw.example/a.bin", "sha256": "a" * 64}
            }
        },
        "containers": {"image": "registry.example/check:1"},
    }
    items = list(mirror.items_of(architecture, replace(rack.nodes[0], data=data), None, rack))
    named = {(each.kind, each.url or each.name): each.sha256 for each in items}
    assert named["file", "https://fw.example/a.bin"] == "a" * 64
    assert ("image", "registry.example/check:1") in named


@pytest.mark.parametrize(
    ("source", "url", "suites"),
    [
        ("https://r.example/beegfs/dists/rhel9", "https://r.example/beegfs/dists/rhel9", ""),
        ("https://r.example/apt noble main", "https://r.example/apt", "noble main"),
        ("[arch=amd64] https://user:word@r.example/apt noble main", "https://r.example/apt", "noble main"),
    ],
)
def test_a_line_of_apt_is_taken_apart(source: str, url: str, suites: str) -> None:
    (item,) = of_inputs({"source": source}, "storage_clients.x")
    assert (item.kind, item.url, item.version) == ("repository", url, suites)


def test_nodes_that_say_the_same_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, architecture = written(PLANS / "debian13-l40s")
    looked: list[str] = []

    def items_of(architecture: Architecture, node: Node, *_: object) -> list[MirrorItem]:
        looked.append(node.name)
        return []

    monkeypatch.setattr(mirror, "items_of", items_of)
    nodes = [
        Node(f"gpu-{k:04}", ("gpu",), {"fabric_addresses": [f"10.0.{k // 256}.{k % 256}/16"]}) for k in range(1000)
    ]
    nodes.append(Node("login", ("login",), {}))
    nodes.append(Node("odd", ("gpu",), {"gpu_stack": {"driver": "570"}}))
    assert list(mirror.items_of_rack(Rack("r", tuple(nodes)), lambda _: architecture, lambda _: None)) == []
    assert looked == ["gpu-0000", "login", "odd"]
