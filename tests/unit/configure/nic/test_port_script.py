"""The program that sets ports, run for real on a /sys in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.configure.nic import ports
from rackproof.configure.nic.inputs import NicInputs
from rackproof.core.architecture import Fabric, Lossless, Nic
from tests.unit.configure.nic.tree import DCB, ETHTOOL, MLNX_QOS, SETPCI, Tree

pytestmark = pytest.mark.few(3)

LOSSLESS = Lossless(
    pfc_priority=3, ecn=True, trust="dscp", dscp_priority={26: 3, 48: 6}, tos=106, cnp_dscp=4, cnp_priority=5,
    global_pause="off", roce_mode="RoCE v2",
)  # fmt: skip
NIC = Nic(purpose="compute", count=1, speed_gbps=400, link_layer="Ethernet", max_read_request=4096, source="x")
STACK = NicInputs(relaxed_ordering=True, ring_rx=8192)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.program("ethtool", ETHTOOL)
    tree.program("setpci", SETPCI)
    return tree


def wanted(nvidia: bool, stack: NicInputs = STACK) -> dict[str, str]:
    stack = stack if nvidia else stack.model_copy(update={"ecn_by_firmware": True})
    return ports.roce_settings(Fabric(kind="roce", mtu=9000, lossless=LOSSLESS), stack, NIC, nvidia)


def declare(tree: Tree, values: dict[str, str], port: str = "rail0") -> None:
    tree.write(f"/etc/rackproof/ports/{port}", ports.declaration(values))


@pytest.mark.parametrize("nvidia", [True, False], ids=["mlnx_qos", "dcb"])
def test_everything_declared_is_set_once_and_reads_back(tree: Tree, nvidia: bool) -> None:
    tree.port("rail0", "0000:1a:00.0", "mlx5_0", nvidia)
    tree.program("mlnx_qos" if nvidia else "dcb", MLNX_QOS if nvidia else DCB)
    values = wanted(nvidia)
    declare(tree, values)
    before = tree.run("port", "check", "rail0")
    assert before.returncode == 1
    assert "rail0: trust: expected dscp, actual pcp" in before.stderr
    assert "rail0: max_read_request: expected 4096, actual 512" in before.stderr
    assert "rail0: pfc: expected 0,0,0,1,0,0,0,0, actual 0,0,0,0,0,0,0,0" in before.stderr

    applied = tree.run("port", "apply", "rail0")
    assert (applied.returncode, applied.stderr) == (0, "")
    assert tree.read("/pci/0000:1a:00.0-CAP_EXP_8.w") == "5937"  # nothing but the top nibble
    assert tree.read("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos") == "106"

    state = ports.parse_states(tree.run("port", "state", "rail0").stdout.splitlines())
    assert ports.differences("rail0", values, state["rail0"]) == []
    assert state["rail0"]["slot"] == "0000:1a:00.0"
    assert state["rail0"]["rdma"] == "mlx5_0"

    files = {path: path.stat().st_mtime_ns for path in tree.root.rglob("*") if path.is_file()}
    assert tree.run("port", "apply", "rail0").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in tree.root.rglob("*") if path.is_file()} == files


def test_what_the_driver_does_not_take_is_named(tree: Tree) -> None:
    tree.port("rail0", "0000:1a:00.0", "mlx5_0")
    tree.program("mlnx_qos", MLNX_QOS)
    tree.write("/qos/broken", "")
    declare(tree, wanted(True))
    result = tree.run("port", "apply", "rail0")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "rail0: pfc: expected 0,0,0,1,0,0,0,0, actual 0,0,0,0,0,0,0,0"


def test_a_driver_without_the_switch_for_ecn_is_not_taken_for_one_where_it_is_on(tree: Tree) -> None:
    tree.port("rail0", "0000:1a:00.0", "mlx5_0", nvidia=False)
    tree.program("mlnx_qos", MLNX_QOS)
    declare(tree, {"ecn.rp.3": "1"})
    result = tree.run("port", "apply", "rail0")
    assert result.returncode == 1
    assert "rail0: ecn.rp.3: expected 1, actual nothing" in result.stderr


def test_a_port_that_is_not_there_is_named(tree: Tree) -> None:
    declare(tree, {"trust": "dscp"}, "rail7")
    result = tree.run("port", "apply", "rail7")
    assert (result.returncode, result.stderr.splitlines()[-1]) == (1, "rail7: there is no such port")
    assert tree.run("port", "state", "rail7").stdout == "port rail7\nabsent=yes\n"


def test_without_a_declaration_nothing_passes(tree: Tree) -> None:
    tree.port("rail0", "0000:1a:00.0", "mlx5_0")
    result = tree.run("port", "check", "rail0")
    assert (result.returncode, result.stderr) == (1, "rail0: /etc/rackproof/ports/rail0 is missing\n")


def test_buffers_are_set_with_mlnx_qos(tree: Tree) -> None:
    tree.port("rail0", "0000:1a:00.0", "mlx5_0")
    tree.program("mlnx_qos", MLNX_QOS)
    values = wanted(
        True, NicInputs(prio2buffer=(0, 0, 0, 1, 0, 0, 0, 0), buffer_size=(262016, 2097152, 0, 0, 0, 0, 0, 0))
    )
    declare(tree, values)
    assert tree.run("port", "apply", "rail0").returncode == 0
    assert tree.read("/qos/buffer_size") == "262016,2097152,0,0,0,0,0,0"


def test_ipoib_mode_and_partitions(tree: Tree) -> None:
    tree.port("rail0", "0000:1a:00.0", "mlx5_0")
    tree.write("/sys/class/net/rail0/type", "32\n")
    tree.write("/sys/class/net/rail0/mode", "datagram\n")
    tree.write("/sys/class/net/rail0/create_child", "")
    declare(tree, {"ipoib_mode": "connected", "child.8001": "yes"})
    result = tree.run("port", "apply", "rail0")
    assert tree.read("/sys/class/net/rail0/mode") == "connected"
    assert tree.read("/sys/class/net/rail0/create_child") == "0x8001"
    assert "rail0: child.8001: expected yes, actual nothing" in result.stderr  # the kernel of a folder makes none
    tree.write("/sys/class/net/rail0.8001/pkey", "0x8001\n")
    assert tree.run("port", "check", "rail0").returncode == 0


def test_unknown_commands_are_refused(tree: Tree) -> None:
    assert tree.run("port", "set").returncode == 2
    assert tree.run("port", "apply").returncode == 2
