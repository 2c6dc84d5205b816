"""Names of RDMA devices and PCIe access control, on a /sys in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.configure.network import Port
from rackproof.configure.nic import ports
from tests.unit.configure.nic.tree import RDMA, SETPCI, Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.program("rdma", RDMA)
    tree.program("setpci", SETPCI)
    return tree


def device(tree: Tree, interface: str) -> list[str]:
    return sorted(path.name for path in (tree.root / f"sys/class/net/{interface}/device/infiniband").iterdir())


def declare(tree: Tree, *rails: str) -> None:
    declared = [Port(rail, f"mlx5_{k}", f"10.0.{k}.1/24", 9000, path="x") for k, rail in enumerate(rails)]
    tree.write("/etc/rackproof/rdma-names", ports.rdma_names(declared))


def test_names_are_exchanged_and_the_others_get_what_is_left(tree: Tree) -> None:
    # The storage adapter answered first, and the rails in another order than that of their slots.
    for interface, slot, name in (
        ("ens41f0np0", "0000:29:00.0", "mlx5_0"), ("ens41f1np1", "0000:29:00.1", "mlx5_1"),
        ("rail1", "0000:3c:00.0", "mlx5_2"), ("rail0", "0000:1a:00.0", "mlx5_3"), ("rail2", "0000:4d:00.0", "mlx5_4"),
    ):  # fmt: skip
        tree.port(interface, slot, name)
    declare(tree, "rail0", "rail1", "rail2")
    before = tree.run("rdma-names", "check")
    assert before.returncode == 1
    assert "rail0: expected RDMA device mlx5_0, actual mlx5_3" in before.stderr
    applied = tree.run("rdma-names", "apply")
    assert (applied.returncode, applied.stderr) == (0, "")
    assert [device(tree, f"rail{k}") for k in range(3)] == [["mlx5_0"], ["mlx5_1"], ["mlx5_2"]]
    assert [device(tree, name) for name in ("ens41f0np0", "ens41f1np1")] == [["mlx5_3"], ["mlx5_4"]]
    tree.program("rdma", "exit 1")
    assert tree.run("rdma-names", "apply").returncode == 0  # nothing is left to do


def test_two_rails_with_each_others_names(tree: Tree) -> None:
    tree.port("rail0", "0000:1a:00.0", "mlx5_1")
    tree.port("rail1", "0000:3c:00.0", "mlx5_0")
    declare(tree, "rail0", "rail1")
    assert tree.run("rdma-names", "apply").returncode == 0
    assert (device(tree, "rail0"), device(tree, "rail1")) == (["mlx5_0"], ["mlx5_1"])


def test_a_rail_without_a_device_is_named(tree: Tree) -> None:
    tree.port("rail0", "0000:1a:00.0", "mlx5_0")
    declare(tree, "rail0", "rail1")
    result = tree.run("rdma-names", "apply")
    assert (result.returncode, result.stderr) == (1, "rail1: expected RDMA device mlx5_1, actual none\n")


def bridge(tree: Tree, slot: str, control: str | None) -> None:
    (tree.root / f"sys/bus/pci/devices/{slot}").mkdir(parents=True)
    if control:
        tree.write(f"/pci/{slot}-ECAP_ACS_6.w", f"{control}\n")


@pytest.mark.parametrize(("wanted", "after"), [("disabled", "0000"), ("no_redirect", "0011")])
def test_access_control_is_taken_away(tree: Tree, wanted: str, after: str) -> None:
    bridge(tree, "0000:00:01.0", "001d")
    bridge(tree, "0000:10:00.0", None)
    assert tree.run("acs", "check", wanted).stderr == "access control is still on: 0000:00:01.0\n"
    assert tree.run("acs", "apply", wanted).returncode == 0
    assert tree.read("/pci/0000:00:01.0-ECAP_ACS_6.w") == after
    assert tree.run("acs", "check", wanted).returncode == 0


def test_unreadable_access_control_does_not_pass(tree: Tree) -> None:
    bridge(tree, "0000:10:00.0", None)
    result = tree.run("acs", "apply", "disabled")
    assert result.returncode == 1
    assert "no PCI device has access control" in result.stderr
