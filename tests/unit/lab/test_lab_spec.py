"""Parts of the virtual rack, and the command lines that make it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.lab.image import boot_loader_defaults
from rackproof.lab.recipe import read_recipe, releases
from rackproof.lab.spec import SCRATCH, NodeSpec, RackSpec, Wiring, multicast_group, plan_nodes, qemu_command
from rackproof.lab.state import host_data


def rack(rails: int = 1) -> RackSpec:
    nodes = plan_nodes(2, 1, 1536, 3072, rails, lambda name: "bookworm" if name == "gpu-02" else "trixie")
    images = {"trixie": "trixie-0", "bookworm": "bookworm-0"}
    return RackSpec(nodes, "tcg", images, Wiring({n.name: 2200 + k for k, n in enumerate(nodes)}, 5000))


def command(node: NodeSpec, of: RackSpec) -> str:
    return " ".join(qemu_command(node, of, "/somewhere/.lab", Path("/image/vmlinuz"), "initrd.img", ["root=/dev/vda"]))


def test_storage_is_started_before_its_clients() -> None:
    assert [n.name for n in rack().nodes] == ["storage-01", "gpu-01", "gpu-02"]


def test_a_rack_survives_its_way_through_json() -> None:
    assert RackSpec.from_json(json.loads(json.dumps(rack(2).to_json()))) == rack(2)


def test_the_rack_of_an_older_kit_has_one_release() -> None:
    old = rack().to_json()
    nodes = [{key: value for key, value in node.items() if key != "release"} for node in old["nodes"]]
    del old["images"]
    read = RackSpec.from_json({**old, "version": 1, "image": "trixie-5", "nodes": nodes})
    assert read.images == {"trixie": "trixie-5"}
    assert {node.release for node in read.nodes} == {"trixie"}


def test_no_two_network_cards_of_a_rack_share_an_address() -> None:
    of = rack(4)
    macs = [n.mac("mgmt") for n in of.nodes] + [n.mac("fabric", rail) for n in of.nodes for rail in range(4)]
    addresses = [n.fabric_address(rail) for n in of.nodes for rail in range(4)]
    assert len(set(macs)) == len(macs)
    assert len(set(addresses)) == len(addresses)


def test_a_gpu_node_has_two_numa_nodes_that_share_all_its_memory() -> None:
    text = command(replace(rack().nodes[1], memory_mib=1537), rack())
    assert "node,nodeid=0,memdev=mem0,cpus=0-0" in text
    assert "node,nodeid=1,memdev=mem1,cpus=1-1" in text
    assert "id=mem0,size=768M" in text
    assert "id=mem1,size=769M" in text


def test_only_the_loopback_interface_is_used() -> None:
    of = rack(2)
    for node in of.nodes:
        text = command(node, of)
        assert text.count("hostfwd=tcp:127.0.0.1:") == 1
        assert text.count("localaddr=127.0.0.1") == 2


def test_every_rail_is_a_network_of_its_own() -> None:
    groups = {multicast_group("/a/.lab", rail) for rail in range(4)}
    assert len(groups) == 4


def test_two_checkouts_use_different_multicast_groups() -> None:
    assert multicast_group("/a/.lab", 0) != multicast_group("/b/.lab", 0)


@pytest.mark.parametrize("rails", [1, 2])
def test_fabric_cards_sit_in_pinned_slots(rails: int) -> None:
    text = command(rack(rails).nodes[1], rack(rails))
    for rail in range(rails):
        assert f"netdev=fabric{rail},mac=52:54:77:2{rail}:00:0b,addr={0x10 + rail:#x}" in text


def test_drives_carry_the_serials_that_the_inventory_names() -> None:
    storage, gpu = rack().nodes[0], rack().nodes[1]
    assert "serial=rpnfs" in command(storage, rack())
    assert "serial=rpceph" in command(storage, rack())
    assert "serial=rplocal" in command(gpu, rack())


def test_a_gpu_node_has_drives_for_an_array_and_the_inventory_names_them() -> None:
    gpu = next(node for node in rack().nodes if node.role == "gpu")
    data = host_data(Path("/lab"), rack(), gpu)
    assert [path.rpartition("_")[2] for path in data["scratch_drives"]] == [drive.serial for drive in SCRATCH]
    assert all(f"serial={drive.serial}" in command(gpu, rack()) for drive in SCRATCH)


def test_a_storage_node_has_a_second_address_a_rail_that_no_other_node_has() -> None:
    nodes = rack().nodes
    first = {node.fabric_address(rail) for node in nodes for rail in range(node.rails)}
    for node in nodes:
        if node.role == "storage":
            second = host_data(Path("/lab"), rack(), node)["fabric_second_addresses"]
            assert len(second) == node.rails
            assert not first & set(second)


def test_the_guests_boot_loader_starts_from_the_arguments_that_the_guest_is_started_with() -> None:
    text = boot_loader_defaults(["root=/dev/vda", "rw", "audit=0", "panic=5"])
    assert 'GRUB_CMDLINE_LINUX="audit=0 panic=5"\n' in text


def test_every_release_has_an_image_of_its_own_without_what_it_lacks() -> None:
    recipes = {release: read_recipe(release) for release in releases()}
    assert len({name for _, name in recipes.values()}) == len(releases())
    assert all(name.startswith(f"{release}-") for release, (_, name) in recipes.items())
    newer = "netavark-dhcp-proxy.socket"
    assert newer in recipes["trixie"][0]["disabled_units"]
    assert newer not in recipes["bookworm"][0]["disabled_units"]


@pytest.mark.parametrize("name", ["/usr/local/lib/rackproof/initramfs-init", "/usr/local/sbin/rackproof-initramfs"])
def test_the_images_scripts_are_shell(name: str) -> None:
    recipe, _ = read_recipe("trixie")
    checked = subprocess.run(["sh", "-n"], input=recipe["files"][name], text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_nodes_return_to_slurm_after_the_rack_was_down() -> None:
    for node in rack().nodes:
        assert SlurmInputs.model_validate(host_data(Path(), rack(), node)["slurm"]).return_to_service == 2


def test_a_rack_of_debian_12_is_held_against_its_own_architecture() -> None:
    of = rack()
    old = replace(of, nodes=tuple(replace(node, release="bookworm") for node in of.nodes))
    assert host_data(Path(), old, old.nodes[0])["architecture"] == "virtual-rack-debian-12"
    assert "architecture" not in host_data(Path(), of, of.nodes[0])
