"""The second run on a node with adapters: what the first one left, read back through every fact's own parser."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest

from rackproof.configure import operations as common
from rackproof.configure.nic import firmware_operations, infiniband, operations, ports
from rackproof.configure.nic.inputs import Image, NicInputs
from rackproof.configure.nic.locked_firmware import Locked
from rackproof.configure.nic.plan import ACS, ACS_UNIT
from rackproof.configure.nic.stack import MODULES
from rackproof.configure.units import Unit
from rackproof.core.architecture import Fabric
from rackproof.core.machine import Machine, Pci
from rackproof.core.versions.models import Firmware
from tests.unit.configure.loop import carried_out, left_alone
from tests.unit.configure.nic.second_run import node, shell, starts
from tests.unit.configure.nic.test_firmware import CONFIG, FLINT
from tests.unit.configure.nic.test_operations import RAILS
from tests.unit.configure.nic.test_port_script import NIC, wanted
from tests.unit.configure.nic.tree import DCB, MLNX_QOS, UDEVADM_249, Tree
from tests.unit.shell import executable

pytestmark = pytest.mark.few(2)

SLOT = "0000:1a:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return node(tmp_path)


def declare(tree: Tree, values: Mapping[str, str]) -> None:
    tree.write("/etc/rackproof/ports/rail0", ports.declaration(values))


BUFFERS = NicInputs(
    relaxed_ordering=True, ring_rx=8192,
    prio2buffer=(0, 0, 0, 1, 0, 0, 0, 0), buffer_size=(262016, 2097152, 0, 0, 0, 0, 0, 0),
)  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("total", ["total_size=262016", "max_buffer_size=4170096"])
def test_roce_with_nvidias_drivers(tree: Tree, total: str) -> None:
    tree.program("mlnx_qos", MLNX_QOS.replace("total_size=262016", total))
    tree.port("rail0", SLOT, "mlx5_0")
    roce(tree, wanted(True, BUFFERS), {"qos/pfc": "0,0,0,0,0,0,0,0", "qos/buffer_size": "1,1,0,0,0,0,0,0"})


def test_roce_with_the_distributions_drivers(tree: Tree) -> None:
    (tree.programs / "mlnx_qos").unlink()
    tree.program("dcb", DCB)
    tree.port("rail0", SLOT, "mlx5_0", nvidia=False)
    roce(tree, wanted(False), {"dcb/pfc3": "off", "dcb/app26": "0"})


def roce(tree: Tree, values: Mapping[str, str], further: Mapping[str, str]) -> None:
    declare(tree, values)
    starts(tree, "rackproof-roce@", '/usr/local/sbin/rackproof-port apply "$1"')
    given = {"wanted": {"rail0": values}}
    assert carried_out(operations.port_settings, shell(tree), **given)
    assert left_alone(operations.port_settings, shell(tree), **given) == "all 1 ports have their settings"
    for path, text in {
        **further,
        f"pci/{SLOT}-CAP_EXP_8.w": "2937",  # requests of 512 bytes, as after every reset
        "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos": "0",
        "ethtool/pause_rx": "on",
        "ethtool/ring_rx": "1024",
    }.items():
        tree.write(path, f"{text}\n")
        (command,) = carried_out(operations.port_settings, shell(tree), **given)
        assert "rackproof-roce@rail0.service" in command
        left_alone(operations.port_settings, shell(tree), **given)


def test_what_the_sample_of_mlnx_qos_says_is_in_force_as_it_says(tree: Tree) -> None:
    """Printed by a ConnectX-7: nothing of it is set again where it is what is declared."""
    sample = Path(__file__).parents[3] / "data/tools/mlnx-qos.txt"
    tree.program("mlnx_qos", f"[ $# -eq 2 ] && cat {sample}")
    tree.port("rail0", SLOT, "mlx5_0")
    values = {
        "trust": "dscp", "dscp.26": "3", "dscp.48": "6", "pfc": "0,0,0,1,0,0,0,0",
        "prio2buffer": "0,0,0,1,0,0,0,0", "buffer_size": "19872,243072,0,0,0,0,0,0",
    }  # fmt: skip
    left_alone(operations.port_settings, shell(tree), wanted={"rail0": values})
    for key in values:
        with pytest.raises(AssertionError, match="rackproof-roce@rail0"):
            left_alone(operations.port_settings, shell(tree), wanted={"rail0": {**values, key: "9"}})


def test_ipoib_its_mode_and_its_partitions(tree: Tree) -> None:
    stack = NicInputs.model_validate({"ipoib_mode": "connected", "pkeys": [{"pkey": 1}]})
    values = ports.infiniband_settings(Fabric(kind="infiniband", mtu=65520), stack, NIC, nvidia=True)
    tree.port("rail0", SLOT, "mlx5_0")
    for path, text in {"type": "32", "mode": "datagram", "mtu": "4092", "create_child": ""}.items():
        tree.write(f"/sys/class/net/rail0/{path}", f"{text}\n" if text else "")
    net = tree.root / "sys/class/net/rail0"
    tree.program("ip", f'[ "$1 $2 $3 $5" = "link set dev mtu" ] && echo "$6" >{net}/mtu')
    # The kernel makes the interface as soon as it is asked for.
    child = f"if [ -s {net}/create_child ]; then mkdir -p {net}.8001; echo 0x8001 >{net}.8001/pkey; fi"
    port = "/usr/local/sbin/rackproof-port apply rail0"
    starts(tree, "rackproof-ipoib@", f"{port} 2>/dev/null\n{child}\n{port}\n")
    declare(tree, values)
    given = {"wanted": {"rail0": values}, "infiniband": True}
    assert carried_out(operations.port_settings, shell(tree), **given)
    assert left_alone(operations.port_settings, shell(tree), **given) == "all 1 ports have their settings"
    for path, text in {"mode": "datagram", "mtu": "2044"}.items():
        tree.write(f"/sys/class/net/rail0/{path}", f"{text}\n")
        assert carried_out(operations.port_settings, shell(tree), **given)
        left_alone(operations.port_settings, shell(tree), **given)


def test_access_control_that_comes_back_is_taken_away_again(tree: Tree) -> None:
    (tree.root / "sys/bus/pci/devices/0000:00:01.0").mkdir(parents=True)
    control = "/pci/0000:00:01.0-ECAP_ACS_6.w"
    tree.write(control, "001d\n")
    starts(tree, "rackproof-acs", "/usr/local/sbin/rackproof-acs apply disabled")
    given = {"wanted": (Unit(ACS_UNIT, proof=f"{ACS} check disabled"),)}
    assert carried_out(common.units, shell(tree), **given)
    assert tree.read(control) == "0000"
    left_alone(common.units, shell(tree), **given)
    tree.write(control, "001d\n")
    (command,) = carried_out(common.units, shell(tree), **given)
    assert "systemctl restart -- rackproof-acs.service" in command
    left_alone(common.units, shell(tree), **given)


@pytest.mark.parametrize("vendor", [True, False])
def test_the_subnet_manager_runs_where_it_is_declared_and_nowhere_else(tree: Tree, vendor: bool) -> None:
    name = "opensmd" if vendor else "opensm"
    running = tree.root / "opensm-runs"
    tree.program("pgrep", f'[ "$*" = "-x opensm" ] && [ -e {running} ]')
    starts(tree, name, f": >{running}")
    here = {"wanted": infiniband.subnet_manager_units(True, vendor)}
    assert carried_out(common.units, shell(tree), **here)
    left_alone(common.units, shell(tree), **here)
    running.unlink()  # it has ended, and systemd did not see it
    assert carried_out(common.units, shell(tree), **here)
    left_alone(common.units, shell(tree), **here)
    elsewhere = {"wanted": infiniband.subnet_manager_units(False, vendor)}
    assert carried_out(common.units, shell(tree), **elsewhere)
    left_alone(common.units, shell(tree), **elsewhere)
    (tree.root / "units/opensm.service/masked").unlink()
    with pytest.raises(AssertionError, match=r"mask --no-reload -- opensm\.service"):
        left_alone(common.units, shell(tree), **elsewhere)


def test_rdma_devices_get_their_names_once(tree: Tree) -> None:
    tree.port("rail0", SLOT, "mlx5_1")
    tree.port("rail1", "0000:3c:00.0", "mlx5_0")
    for name in ("mlx5_0", "mlx5_1"):
        device = tree.root / f"sys/class/infiniband/{name}"
        (device.resolve() / "device").symlink_to(device.resolve().parents[1])
    tree.write("/etc/rackproof/rdma-names", ports.rdma_names(RAILS))
    starts(tree, "rackproof-rdma-names", "/usr/local/sbin/rackproof-rdma-names apply")
    given = {"wanted": RAILS}
    (command,) = carried_out(operations.rdma_devices, shell(tree), **given)
    assert "rackproof-rdma-names.service" in command
    assert left_alone(operations.rdma_devices, shell(tree), **given) == "all 2 RDMA devices have their names"
    tree.write("/etc/rackproof/rdma-names", "rail0 mlx5_1\nrail1 mlx5_0\n")
    assert tree.run("rdma-names", "apply").returncode == 0
    with pytest.raises(AssertionError, match="rackproof-rdma-names"):
        left_alone(operations.rdma_devices, shell(tree), **given)


IMAGE = b"image"
PSID = "MT_0000000838"
BURN = Image(version="28.43.2566", url="https://mirror.example/fw.bin", sha256=hashlib.sha256(IMAGE).hexdigest())
CONFIGURED = ("compute", ("rail0",), "28.43.2566", {"LINK_TYPE_P1": "ETH", "ATS_ENABLED": "False", "NUM_OF_VFS": "8"})


class Adapter:
    """Firmware that is written now and runs after a reset: files ``stored``, ``running``, ``next`` and ``current``."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.folder = tree, tree.root / "firmware"
        flint = FLINT.replace("{stored}", "@stored@").replace("{running}", "FW Version(Running):   @running@\n")
        tree.write("/firmware/flint", flint)
        tree.write("/firmware/header", CONFIG)
        for name in ("next", "current"):
            tree.write(f"/firmware/{name}", "ATS_ENABLED True(1)\nLINK_TYPE_P1 IB(1)\nNUM_OF_VFS 0\n")
        for name in ("stored", "running"):
            tree.write(f"/firmware/{name}", "28.39.1002\n")
        tree.write("/image", IMAGE.decode())
        tree.program("curl", f'while [ "$1" != -o ]; do shift; done; cp {tree.root}/image "$2"')
        tree.program(
            "flint",
            f"cd {self.folder}\ncase $* in *burn) echo 28.43.2566 >stored;; *)"
            ' sed "s/@stored@/$(cat stored)/;s/@running@/$(cat running)/" flint;; esac',
        )
        tree.program(
            "mlxconfig",
            f"""cd {self.folder}
case " $* " in
*" set "*) while [ "$1" != set ]; do shift; done; shift
  for each; do
    case $each in
    LINK_TYPE_P1=ETH) v='ETH(2)';; *=True) v='True(1)';; *=False) v='False(0)';; *) v=${{each#*=}};;
    esac
    sed -i "s/^${{each%%=*}} .*/${{each%%=*}} $v/" next
  done;;
*" query "*) while [ "$1" != query ]; do shift; done; shift
  cat header
  for each; do
    now=$(sed -n "s/^$each //p" current); then=$(sed -n "s/^$each //p" next); c=' '; [ "$now" = "$then" ] || c='*'
    printf '%s       %-43s 0                   %-19s %-19s\\n' "$c" "$each" "$now" "$then"
  done;;
esac
""",
        )
        self.boot("1")

    def boot(self, number: str, reset: bool = True) -> None:
        """``reset``: the adapter too, which a warm start need not do."""
        self.tree.write("/proc/sys/kernel/random/boot_id", f"7d2a2d5e-62c1-4c1f-8a53-00000000000{number}\n")
        for mark in (self.tree.root / "run/rackproof/pending").glob("*"):
            mark.unlink()
        if reset:
            (self.folder / "current").write_text((self.folder / "next").read_text())
            (self.folder / "running").write_text((self.folder / "stored").read_text())

    def changed_by_hand(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


@pytest.fixture
def adapter(tree: Tree) -> Adapter:
    tree.port("rail0", SLOT, "mlx5_0")
    addresses = [{"family": "inet", "local": "10.0.0.1", "prefixlen": 24, "scope": "global"}]
    link = {
        "ifindex": 2,
        "operstate": "UP",
        "ifname": "rail0",
        "flags": ["UP"],
        "mtu": 9000,
        "link_type": "ether",
        "address": "a0:88:c2:01:00:0e",
    }
    tree.write("/links.json", json.dumps([{**link, "addr_info": addresses}]) + "\n")
    tree.program("ip", f"cat {tree.root}/links.json")
    tree.program("udevadm", f"{UDEVADM_249}echo ID_PATH=pci-{SLOT}")
    return Adapter(tree)


def test_firmware_and_its_settings(adapter: Adapter) -> None:
    run = shell(adapter.tree)
    given = {"wanted": [CONFIGURED], "rails": RAILS[:1], "locked": Locked(images={PSID: BURN})}
    (command,) = carried_out(firmware_operations.adapter_firmware, run, **given)
    assert "-y burn" in command
    assert "set LINK_TYPE_P1=ETH ATS_ENABLED=False NUM_OF_VFS=8" in command
    marks = sorted(path.name for path in (adapter.tree.root / "run/rackproof/pending").iterdir())
    assert marks == ["reboot:NIC firmware of rail0", "reboot:NIC firmware settings of rail0"]
    # Before the reboot as after it.
    for _ in range(2):
        assert left_alone(firmware_operations.adapter_firmware, run, **given) == "firmware of 1 adapters is as declared"
        adapter.boot("2")
    assert not list((adapter.tree.root / "run/rackproof/pending").iterdir())
    adapter.changed_by_hand("next", "ATS_ENABLED False(0)", "ATS_ENABLED True(1)")
    (command,) = carried_out(firmware_operations.adapter_firmware, run, **given)
    assert "set ATS_ENABLED=False\n" in command
    left_alone(firmware_operations.adapter_firmware, run, **given)
    adapter.changed_by_hand("stored", "28.43.2566", "28.45.1200")
    adapter.boot("3")
    (command,) = carried_out(firmware_operations.adapter_firmware, run, **given)
    assert "-y burn" in command


def test_settings_that_a_warm_reboot_did_not_bring_are_an_error_and_not_set_again(adapter: Adapter) -> None:
    run = shell(adapter.tree)
    given = {"wanted": [("compute", ("rail0",), None, CONFIGURED[3])], "rails": RAILS[:1], "locked": Locked()}
    carried_out(firmware_operations.adapter_firmware, run, **given)
    adapter.boot("2", reset=False)
    with pytest.raises(AssertionError, match="a warm reboot does not always apply it"):
        left_alone(firmware_operations.adapter_firmware, run, **given)


def test_firmware_of_the_version_set(adapter: Adapter) -> None:
    run = shell(adapter.tree)
    pci = (Pci(SLOT, "15b3", "1021", "020000"),)
    machine = Machine("ubuntu", "24.04", "noble", "6.8.0", "x86_64", (), pci, True, False, "GenuineIntel", 1)
    locked = Locked((Firmware(model="ConnectX-7", version="28.43.2566"),), {PSID: BURN})
    given = {"wanted": (), "rails": (), "locked": locked}
    with patch.object(firmware_operations, "machine_here", lambda: machine):
        with pytest.raises(AssertionError, match=r"expected 28\.43\.2566, actual 28\.39\.1002"):
            left_alone(firmware_operations.locked_firmware_in_force, run, locked=locked)
        carried_out(firmware_operations.adapter_firmware, run, **given)
        left_alone(firmware_operations.adapter_firmware, run, **given)
        assert left_alone(firmware_operations.locked_firmware_in_force, run, locked=locked).startswith(
            "comes with the reboot"
        )
        adapter.boot("2")
        left_alone(firmware_operations.adapter_firmware, run, **given)
        messages = left_alone(firmware_operations.locked_firmware_in_force, run, locked=locked)
    assert messages == "firmware of 1 adapters is as the version set says"


def drivers(tree: Tree, ofed: str, path: str, loaded: str, installed: str) -> None:
    """Modules as they are in use and as they are installed."""
    for name in MODULES:
        tree.write(f"/sys/module/{name}/srcversion", f"{loaded}\n")
    tree.program("ofed_info", f"[ -e {tree.root}/ofed ] && cat {tree.root}/ofed")
    if ofed:
        tree.write("/ofed", f"{ofed}:\n")
    tree.program(
        "modinfo",
        f'case $2 in srcversion) echo {installed};; *) echo "/lib/modules/6.8.0-87-generic/{path}/$3.ko";; esac',
    )
    tree.program(
        "dkms",
        "echo 'mlnx-ofed-kernel/25.10.OFED.25.10.1.7.1.1, 6.8.0-87-generic, x86_64: installed'" if ofed else "exit 1",
    )


@pytest.mark.parametrize(
    ("source", "ofed", "path"), [("doca", "25.10-1.7.1", "updates/dkms"), ("inbox", "", "kernel/net")]
)
def test_drivers_that_are_installed_come_into_force_with_one_reboot(
    tree: Tree, source: str, ofed: str, path: str
) -> None:
    run = shell(tree)
    given = {"source": source, "dkms": ("mlnx-ofed-kernel",), "restart": False}
    drivers(tree, ofed, path, "0123456789ABCDEF0123456", "FEDCBA98765432100123456")
    (command,) = carried_out(operations.drivers, run, **given)
    assert "reboot:drivers of the network adapters" in command
    left_alone(operations.drivers, run, **given)
    (tree.root / "run/rackproof/pending/reboot:drivers of the network adapters").unlink()
    drivers(tree, ofed, path, "FEDCBA98765432100123456", "FEDCBA98765432100123456")
    assert left_alone(operations.drivers, run, **given) == f"drivers ({source}) are in force"
    if source == "doca":
        tree.program("dkms", "echo 'mlnx-ofed-kernel/25.10.OFED.25.10.1.7.1.1, 6.8.0-87-generic, x86_64: built'")
        with pytest.raises(AssertionError, match=r"not built for kernel .*mlnx-ofed-kernel \(built\)"):
            left_alone(operations.drivers, run, **given)


def test_another_ofed_is_removed_once(tree: Tree) -> None:
    run = shell(tree)
    given = {"source": "inbox", "version": None, "allowed": True}
    drivers(tree, "5.8-4.1.5.0", "updates/dkms", "AAAA", "AAAA")
    executable(tree.root / "usr/sbin/ofed_uninstall.sh", f"rm {tree.root}/ofed")
    (command,) = carried_out(operations.remove_drivers, run, **given)
    assert "ofed_uninstall.sh --force" in command
    assert left_alone(operations.remove_drivers, run, **given) == "no other drivers are installed"
