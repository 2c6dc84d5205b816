"""``mirror list``: nothing that a plan would download is missing from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rackproof import architectures
from rackproof.cli.mirror import mirror as command
from rackproof.configure import mirror
from rackproof.configure.health_check.kit import wheels as pinned_wheels
from rackproof.configure.recorded_machines import machine_like, recorded_rack
from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node, Rack
from rackproof.core.versions.mirror import MirrorItem, merged, of_inputs
from rackproof.errors import InventoryError
from rackproof.remote.written import read_written
from rackproof.version_sets import versions_of

pytestmark = pytest.mark.few(9)

PLANS = Path(__file__).parents[2] / "data" / "plans"
RACKS = sorted(path.parent for path in PLANS.glob("*/rack.yaml"))
_URL = re.compile(r"https?://[^\s'\"`)<>\\|;]+")
LOCAL = ("http://127.0.0.1", "https://127.0.0.1", "http://localhost", "https://localhost")


def written(folder: Path) -> tuple[Rack, Architecture]:
    rack = Rack(str(folder / "rack.yaml"), read_written(folder).nodes)
    return rack, architectures.load(str(folder / "architecture.yaml")).model


def listed(folder: Path, machines: bool = True) -> tuple[MirrorItem, ...]:
    """``machines``: with what the written nodes say about their hardware."""
    rack, architecture = written(folder)
    recorded, known = recorded_rack(folder)
    items_found = mirror.items_of_rack(
        rack,
        lambda _: architecture,
        lambda node: versions_of(node, rack.source),
        lambda node: machine_like(node, recorded, known) if machines else None,
    )
    return merged(items_found)


def items(rack: Rack, architecture: Architecture, **inputs: object) -> list[MirrorItem]:
    """Items of the rack's first node with these inputs."""
    node = replace(rack.nodes[0], data={**rack.nodes[0].data, **inputs})
    return list(mirror.items_of(architecture, node, None, replace(rack, nodes=(node, *rack.nodes[1:]))))


_INSTALL = re.compile(r"(?:dnf|apt-get|apt_get)(?: -\S+| [A-Z]\w*::\S+)* install (?P<words>[^|;{}\n]*)")
_SET = re.compile(r"^[+ ]?\$ *set -- (?P<words>.*)$", re.MULTILINE)
_SHELL_WORDS = re.compile(r"[\"$(]|^-|^[./*]|/|^2?>")


def planned_packages(text: str, kernel: str) -> Iterator[str]:
    """Packages of the commands of a golden plan: ``NAME``, ``NAME=VERSION`` (apt) or ``NAME-VERSION`` (dnf)."""
    text = text.replace("$(uname -r)", kernel)
    for match in (*_INSTALL.finditer(text), *_SET.finditer(text)):
        words = match["words"].split(" 2>&1")[0].replace("'\\''", "'").replace('"$@"', "").replace('="$v"', "")
        for word in words.split():
            plain = word.strip("'\"")
            if plain and not _SHELL_WORDS.search(plain):
                yield plain


def is_listed(planned: str, items_listed: tuple[MirrorItem, ...]) -> bool:
    for item in items_listed:
        if item.kind != "package":
            continue
        version = item.version.rpartition(":")[2]
        spelled = {f"{item.name}{sign}{one}" for sign in "-=" for one in (version, item.version)}
        if item.version and ":" in item.version:  # dnf has the epoch in front of the version
            spelled.add(f"{item.name}-{item.version}")
        if planned in {item.name, *spelled}:
            return True
    return False


def urls(text: str) -> set[str]:
    return {url.rstrip(".,:/") for url in _URL.findall(text)}


@pytest.mark.parametrize("folder", RACKS, ids=lambda path: path.name)
def test_every_url_of_a_plan_is_listed(folder: Path) -> None:
    """The golden plans have every command to the letter, files that carry URLs among them."""
    planned = urls("".join(path.read_text(encoding="utf-8") for path in (folder / "golden").glob("*.txt")))
    known = {item.url.rstrip("/") for item in listed(folder)}
    missing = {url for url in planned if url not in known and not url.startswith(LOCAL)}
    assert missing == set()


@pytest.mark.parametrize("folder", RACKS, ids=lambda path: path.name)
def test_every_package_of_a_plan_is_listed(folder: Path) -> None:
    """Fails when an installation is added to a deploy but not to the list."""
    _, machines = recorded_rack(folder)
    # Clients are built for the kernel that runs, and wait for the version set's.
    versions = versions_of(written(folder)[0].nodes[0], str(folder))
    locked = next(iter(versions.platforms.values())).components.kernel if versions else None
    kernel = locked.version if locked else next(iter(machines.values())).kernel
    planned = {
        name
        for path in (folder / "golden").glob("*.txt")
        for name in planned_packages(path.read_text(encoding="utf-8"), kernel)
    }
    assert len(planned) >= 15
    mirrored = listed(folder)
    release = kernel.removesuffix(".x86_64")
    assert {name for name in planned if not is_listed(name.replace(kernel, release), mirrored)} == set()


def test_installations_are_found_in_every_spelling() -> None:
    text = """\
$ install() { dnf -q -y --setopt=install_weak_deps=False install -- chrony curl; }
$ sh -eu -c 'dnf -q -y --setopt=install_weak_deps=False install gpfs.base-5.2.3-1 gpfs.gpl'
$ sh -eu -c 'dnf -q -y install "kernel-devel-$(uname -r)"'
$ set -- "$@" nvidia-utils-570="$v"
$ set -- linux-image=6.8 'cuda=13.0*'
$ dnf -q -y install ./*client*.rpm
$ out=$(apt_get install -- "$@" 2>&1) || { printf "%s" "$out" >&2; }
"""
    assert list(planned_packages(text, "5.14.0")) == [
        "chrony", "curl", "gpfs.base-5.2.3-1", "gpfs.gpl", "kernel-devel-5.14.0", "nvidia-utils-570",
        "linux-image=6.8", "cuda=13.0*",
    ]  # fmt: skip


@pytest.mark.parametrize("folder", RACKS, ids=lambda path: path.name)
def test_what_depends_on_hardware_is_listed(folder: Path) -> None:
    without = {item.name: item for item in listed(folder, machines=False) if item.kind == "unlisted"}
    assert any("depend on PCI devices" in name for name in without)
    assert any(name.startswith("dependencies of these packages") for name in without)
    drivers = [] if folder.name != "a100-rocky9-scale" else ["nic"]  # they come with its image
    assert [item.needed_by for item in listed(folder) if item.kind == "unlisted"] == [*drivers, "packages"]


def test_packages_of_the_running_kernel_without_a_machine() -> None:
    unlisted_names = [
        item.name for item in listed(PLANS / "a100-rocky9-scale", machines=False) if item.kind == "unlisted"
    ]
    assert "kernel-devel-$(uname -r): depends on the running kernel" in unlisted_names
    assert any(name.startswith("the operating system is unknown: packages are listed") for name in unlisted_names)
    names = {(item.name, item.platform) for item in listed(PLANS / "a100-rocky9-scale", machines=False)}
    assert {("openssh-client", "debian"), ("openssh-clients", "rhel"), ("podman", "rhel")} <= names


def test_missing_gpus_are_listed_with_the_reason() -> None:
    folder = PLANS / "debian13-l40s"
    rack, architecture = written(folder)
    _, machines = recorded_rack(folder)
    bare = replace(machines["gpu-01"], pci=())
    (item,) = [
        item
        for item in mirror.items_of(architecture, rack.nodes[0], None, rack, bare)
        if item.kind == "unlisted" and item.needed_by == "gpu"
    ]
    assert "no GPU of NVIDIA on the PCI bus" in item.name


def test_the_command_takes_a_written_rack_and_says_what_it_left_out() -> None:
    folder = PLANS / "hgx-h200-ubuntu2404-roce"
    done = CliRunner().invoke(command, ["list", "--from", str(folder)])
    assert done.exit_code == 0, done.output
    assert "  slurmctld  ubuntu-24.04  distribution  (slurm)" in done.stdout.splitlines()
    assert "not listed:" in done.stdout.splitlines()
    document: dict[str, Any] = json.loads(
        CliRunner().invoke(command, ["list", f"@recording/{folder}", "--json"]).stdout
    )  # fmt: skip
    assert [item["name"] for item in document["unlisted"]] == [mirror.DEPENDENCIES]
    assert "docker.io" in {item["name"] for item in document["items"]}


def test_plans_download_something() -> None:
    """Else the test above would prove nothing."""
    texts = [path.read_text(encoding="utf-8") for folder in RACKS for path in (folder / "golden").glob("*.txt")]
    assert len({url for text in texts for url in urls(text)}) >= 10


def test_the_installer_that_a_storage_hands_out_is_listed_with_its_digest() -> None:
    (item,) = [
        candidate
        for candidate in listed(PLANS / "hgx-h100-ubuntu2204-weka")
        if "its own servers" in candidate.needed_by
    ]
    assert item.url.endswith(":14000/dist/v1/install")
    assert re.fullmatch("[0-9a-f]{64}", item.sha256)


def test_an_installer_without_a_digest_is_an_error_of_the_inventory() -> None:
    rack, architecture = written(PLANS / "hgx-h100-ubuntu2204-weka")
    with pytest.raises(InventoryError, match="install_sha256"):
        items(rack, architecture, storage_client={})


def test_wheels_of_the_health_check_are_listed_where_it_is_installed() -> None:
    rack, architecture = written(PLANS / "dgx-b200-rocky94-ib")
    assert architecture.slurm is not None

    def wheels(architecture: Architecture = architecture, **inputs: object) -> list[MirrorItem]:
        return [item for item in items(rack, architecture, health_check=inputs) if item.kind == "wheel"]

    once = {wheel.name: wheel for wheel in wheels()}
    assert {file for requirement in pinned_wheels() for file, _ in requirement.wheels} == set(once)
    assert all(re.fullmatch("[0-9a-f]{64}", wheel.sha256) for wheel in once.values())
    assert {wheel.url for wheel in wheels(index_url="https://index.example/simple")} == {"https://index.example/simple"}
    assert {wheel.repository for wheel in wheels(wheelhouse="/mnt/wheels")} == {"/mnt/wheels"}
    assert wheels(install=False) == []
    assert wheels(architecture.model_copy(update={"slurm": None})) == []


def test_firmware_images_keys_and_repositories_of_the_inputs() -> None:
    rack, architecture = written(PLANS / "hgx-h200-ubuntu2404-roce")
    images = {"MT_0000000838": {"version": "28.43.1014", "url": "https://fw.example/a.bin", "sha256": "a" * 64}}
    mirrored = items(
        rack, architecture, nic={"firmware_images": images}, containers={"image": "registry.example/check:1"}
    )
    named = {(item.kind, item.url or item.name): item.sha256 for item in mirrored}
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
    (item,) = of_inputs({"source": source}, "storage_client.x")
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
    nodes.append(Node("odd", ("gpu",), {"gpu": {"driver": "570"}}))
    assert list(mirror.items_of_rack(Rack("r", tuple(nodes)), lambda _: architecture, lambda _: None)) == []
    assert looked == ["gpu-0000", "login", "odd"]
