"""Files, units and mounts that the deploys declare for the virtual rack, without a node."""

from __future__ import annotations

import configparser
import re
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from rackproof import architectures
from rackproof.configure.base import plan as base
from rackproof.configure.ceph import plan as ceph
from rackproof.configure.fabric import plan as fabric
from rackproof.configure.fabric import soft_roce
from rackproof.configure.files import Absent, Entry, RemoteFile
from rackproof.configure.gpu import simulated as gpu
from rackproof.configure.kernel import CLOCK_SOURCE
from rackproof.configure.node.inputs import NodeInputs
from rackproof.configure.render import templates
from rackproof.configure.site import Site
from rackproof.configure.storage_client import nfs
from rackproof.configure.storage_client import plan as storage_client
from rackproof.configure.storage_server import plan as storage_server
from rackproof.configure.units import Unit
from rackproof.core.architecture import Architecture
from rackproof.core.architecture.system import TimeSync
from rackproof.core.rack import Node, Rack
from rackproof.core.topology import NAMES, links_between, same_topology
from rackproof.core.updaters import ALL_UPDATERS, UPDATERS
from rackproof.errors import DeclarationError
from rackproof.parse.nvidia_topology import parse_topology
from tests.unit.configure.gpu.machines import machine
from tests.unit.configure.rack import architecture, node, rack, site

GPU, STORAGE = site("gpu-01"), site("storage-01")


def entries(here: Site) -> list[Entry]:
    """All files of a node, from all deploys that apply to it."""
    planned: list[Entry] = [*base.files(here), *fabric.files(here), *soft_roce.files(here)]
    if here.served("nfs"):
        planned += storage_server.files(here)
    if here.served("parallel"):
        planned += ceph.files(here.ceph_plan())
    if here.client_storage():
        planned += storage_client.files(here)
    if here.has_role("gpu") and here.architecture.gpu:
        planned += gpu.files(here, here.architecture.gpu)
    return planned


def content(here: Site, path: str) -> str:
    (match,) = [entry for entry in entries(here) if entry.path == path]
    assert isinstance(match, RemoteFile)
    return match.content


@pytest.mark.parametrize("here", [GPU, STORAGE], ids=["gpu", "storage"])
def test_every_file_has_one_writer_says_whose_it_is_and_ends_with_a_newline(here: Site) -> None:
    paths = [entry.path for entry in entries(here)]
    assert len(paths) == len(set(paths))
    for entry in entries(here):
        if isinstance(entry, RemoteFile):
            assert entry.content.endswith("\n"), entry.path
            recording = "/simulated-gpu/" in entry.path
            assert entry.block or recording or "Managed by rackproof" in entry.content, entry.path


@pytest.mark.parametrize("here", [GPU, STORAGE], ids=["gpu", "storage"])
def test_every_unit_that_a_file_restarts_is_managed(here: Site) -> None:
    restarted = {
        unit
        for entry in entries(here)
        if isinstance(entry, RemoteFile)
        for unit in (*entry.restart, *entry.reload)
        if not unit.endswith(".mount")  # the operation that mounts looks after those
    }
    managed = {unit.name for unit in (*base.units(here), *soft_roce.units(here))}
    if here.served("nfs"):
        managed |= {unit.name for unit in storage_server.units(here)}
        managed |= {unit.name for unit in ceph.units(here.ceph_plan())}
    if here.client_storage():
        managed |= {
            unit.name
            for unit in (
                *storage_client.early_units(storage_client.client_of(here, "debian")),
                *storage_client.units(here),
            )
        }
    if here.has_role("gpu"):
        managed |= {unit.name for unit in gpu.units(here.architecture.gpu)}
    assert restarted <= managed


@pytest.mark.parametrize("here", [GPU, STORAGE], ids=["gpu", "storage"])
def test_units_and_network_files_are_well_formed(here: Site) -> None:
    checked = 0
    for entry in entries(here):
        if re.search(r"\.(mount|service|link|network)$|/rackproof\.conf$", entry.path) and "/systemd/" in entry.path:
            parser = configparser.ConfigParser(strict=False, interpolation=None)
            parser.optionxform = str  # type: ignore[assignment, method-assign]
            assert isinstance(entry, RemoteFile)
            parser.read_string(entry.content)
            assert parser.sections(), entry.path
            checked += 1
    assert checked >= 4


@pytest.mark.parametrize("here", [GPU, STORAGE], ids=["gpu", "storage"])
def test_scripts_are_valid_shell(here: Site) -> None:
    scripts = [e for e in entries(here) if isinstance(e, RemoteFile) and e.content.startswith("#!/bin/sh\n")]
    assert bool(scripts) == here.has_role("gpu")
    for script in scripts:
        assert script.mode == "755"
        result = subprocess.run(["sh", "-n"], input=script.content, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{script.path}: {result.stderr}"


def test_the_bootstrap_is_a_valid_program_that_names_no_key() -> None:
    text = content(STORAGE, "/usr/local/sbin/rackproof-ceph-bootstrap")
    compile(text, "rackproof-ceph-bootstrap", "exec")
    assert text.startswith("#!/usr/bin/python3\n")
    assert f'FSID = "{STORAGE.ceph_plan().fsid}"' in text
    assert "AQ" not in text


def test_one_node_serves_the_time_and_the_others_follow_it() -> None:
    server, client = content(STORAGE, "/etc/chrony/chrony.conf"), content(GPU, "/etc/chrony/chrony.conf")
    assert "local stratum 10" in server
    assert "allow 10.77.0.0/24" in server
    assert "server 10.77.0.11 iburst" in client
    assert "allow" not in client


@pytest.mark.parametrize(
    ("release", "directive"),
    [
        ("debian 12", "leapsectz right/UTC"),
        ("debian 13", "leapseclist /usr/share/zoneinfo/leap-seconds.list"),
        ("ubuntu 22.04", "leapsectz right/UTC"),
        ("ubuntu 24.04", "leapsectz right/UTC"),
        ("rocky 9.4", "leapsectz right/UTC"),
    ],
)
def test_every_chronyd_knows_its_directive_of_leap_seconds(release: str, directive: str) -> None:
    written = next(entry for entry in base.files(GPU, machine=machine(release)) if entry.path == CHRONY)
    assert isinstance(written, RemoteFile)
    assert [line for line in written.content.splitlines() if line.startswith("leapsec")] == [directive]


def test_upstream_time_servers_are_for_the_server_only() -> None:
    assert "server 192.0.2.1 iburst\n" in content(with_upstreams(STORAGE), CHRONY)
    assert "192.0.2.1" not in content(with_upstreams(GPU), CHRONY)


CHRONY = "/etc/chrony/chrony.conf"


def with_upstreams(here: Site, arch: Architecture | None = None) -> Site:
    node_ = replace(here.node, data={**here.node.data, "time_upstreams": ["192.0.2.1", "192.0.2.2"]})
    whole = Rack("test", tuple(node_ if other == here.node else other for other in here.rack.nodes))
    return site(node_.name, arch, whole)


def without_server() -> Architecture:
    system = architecture().system
    return architecture().model_copy(update={"system": system.model_copy(update={"time": TimeSync()})})


@pytest.mark.parametrize("name", ["gpu-01", "storage-01"])
def test_without_a_server_and_upstreams_the_nodes_keep_their_own_time_sources(name: str) -> None:
    here = site(name, without_server())
    assert CHRONY not in [entry.path for entry in base.files(here)]
    assert "chrony.service" in [unit.name for unit in base.units(here)]


@pytest.mark.parametrize("name", ["gpu-01", "storage-01"])
def test_without_a_server_every_node_follows_the_upstreams_and_none_is_an_island(name: str) -> None:
    text = content(with_upstreams(site(name), without_server()), CHRONY)
    assert "server 192.0.2.1 iburst\nserver 192.0.2.2 iburst\n" in text
    assert "local" not in text
    assert "allow" not in text


def test_time_reaches_nodes_without_a_rail_by_the_servers_name() -> None:
    bare = node("login-01", "storage", 1, fabric_addresses=[], fabric_macs=[])
    login = Node("login-01", ("login",), bare.data)
    arch = architecture().model_copy(update={"required_checks": {}})
    whole = Rack("test", (*rack().nodes, login))
    assert "server storage-01 iburst minpoll" in content(site("login-01", arch, whole), CHRONY)
    assert "server 10.77.0.11 iburst minpoll" in content(site("gpu-01", arch, whole), CHRONY)
    assert "\nallow all\n" in content(site("storage-01", arch, whole), CHRONY)


def test_a_rack_may_leave_its_upgrades_alone() -> None:
    system = architecture().system.model_copy(update={"unattended_upgrades": "allowed"})
    here = site("gpu-01", arch=architecture().model_copy(update={"system": system}))
    assert Absent("/etc/apt/apt.conf.d/99-rackproof") in base.files(here)
    assert set(base.updates(masked=False)) <= set(base.units(here))
    assert all(not unit.masked for unit in base.units(here))


@pytest.mark.parametrize("family", sorted(UPDATERS))
def test_what_stops_updates_is_what_the_validator_reads(family: str) -> None:
    stopped = base.updates(masked=True, family=family)
    assert all(unit.masked for unit in stopped)
    assert {unit.name for unit in stopped} == set(UPDATERS[family]) <= set(ALL_UPDATERS)


def test_units_of_updaters_stand_in_one_table() -> None:
    """No other part of the kit names them; the virtual rack's image masks what costs time at boot."""
    root = Path(__file__).resolve().parents[2]
    texts = (
        path for folder in ("rackproof", "deploys", "validators", "templates") for path in (root / folder).rglob("*")
    )
    names = {
        path.relative_to(root).as_posix()
        for path in texts
        if path.is_file() and path.suffix != ".pyc" and any(unit in path.read_text("utf-8") for unit in ALL_UPDATERS)
    }
    assert names == {"rackproof/core/updaters.py", "rackproof/lab/recipe.yaml"}


@pytest.mark.parametrize(
    ("declared", "limits", "conf", "manager"),
    [("unlimited", "unlimited", "infinity", "infinity"), (65536, "65536", "67108864", "67108864")],
)
def test_memory_limits_have_the_unit_of_each_file(declared: object, limits: str, conf: str, manager: str) -> None:
    system = architecture().system.model_copy(update={"limits_memlock": declared})
    here = site("gpu-01", arch=architecture().model_copy(update={"system": system}))
    assert f"root hard memlock {limits}\n" in content(here, "/etc/security/limits.d/60-rackproof.conf")
    assert f"DefaultLimitMEMLOCK={conf}\n" in content(here, "/etc/systemd/system.conf.d/60-rackproof.conf")
    assert base.manager_limits(here, NodeInputs())["DefaultLimitMEMLOCK"] == manager


def test_a_port_is_named_by_mac_address_or_by_path() -> None:
    assert "PermanentMACAddress=52:54:77:20:00:15" in content(GPU, "/etc/systemd/network/10-fabric0.link")
    slot = node("gpu-01", "gpu", 21, fabric_macs=[], fabric_paths=["pci-0000:3b:00.0"])
    here = site("gpu-01", whole=Rack("test", (slot, rack().node("storage-01"))))
    text = content(here, "/etc/systemd/network/10-fabric0.link")
    assert "Path=pci-0000:3b:00.0" in text
    assert "MACAddress=" not in text


def test_several_rails_have_a_file_an_address_and_a_device_each() -> None:
    two = architecture().fabric.model_copy(update={"rails": 2})
    nodes = tuple(
        node(
            n.name,
            n.groups[0],
            i,
            fabric_addresses=[f"10.77.{k}.{i}/24" for k in (0, 1)],
            fabric_macs=["02:aa", "02:bb"],
        )
        for i, n in enumerate(rack().nodes, start=1)
    )
    here = site("gpu-01", arch=architecture().model_copy(update={"fabric": two}), whole=Rack("test", nodes))
    assert "Address=10.77.1.1/24" in content(here, "/etc/systemd/network/10-fabric1.network")
    assert [unit.name for unit in soft_roce.units(here)][1:] == ["rackproof-rxe@0.service", "rackproof-rxe@1.service"]
    assert "10.77.1.3 storage-01-fabric1" in content(here, "/etc/hosts")
    assert "net.ipv4.conf.fabric1.arp_announce = 2" in content(here, "/etc/sysctl.d/61-rackproof-fabric.conf")


def test_exports_are_for_the_fabric_only_and_need_their_drive() -> None:
    exports = content(STORAGE, "/etc/exports.d/rackproof.exports")
    line = exports.splitlines()[-1]
    assert re.fullmatch(r"/srv/nfs 10\.77\.0\.0/24\([a-z_,=0-9]+\)", line), line
    assert {"sync", "mountpoint", "no_subtree_check", "fsid=1"} <= set(line.split("(")[1].rstrip(")").split(","))


def test_the_nfs_server_is_not_up_until_it_listens_for_rdma_and_exports() -> None:
    (unit,) = [unit for unit in storage_server.units(STORAGE) if unit.name == "nfs-server.service"]
    assert unit.proof is not None
    assert "^rdma 20049$" in unit.proof
    assert "^/srv/nfs" in unit.proof
    assert "rdma-port=20049" in content(STORAGE, "/etc/nfs.conf.d/rackproof.conf")


def test_no_boot_waits_for_a_network_mount_and_every_one_is_tried_again() -> None:
    network = [mount for mount in GPU.client_mounts() if mount.network]
    assert len(network) == 5
    script = content(GPU, "/usr/local/sbin/rackproof-mounts")
    for mount in network:
        unit = content(GPU, f"/etc/systemd/system/{mount.unit}")
        assert "[Install]" not in unit
        assert "nofail" in unit
        assert "_netdev" in unit
        assert f"'{mount.unit}'" in script
    assert "WantedBy=local-fs.target" in content(GPU, "/etc/systemd/system/mnt-local.mount")


def test_a_drive_that_the_inventory_does_not_name_is_an_error_before_anything_runs() -> None:
    bare = Rack("test", (node("gpu-01", "gpu", 1, data_drive=None), node("storage-01", "storage", 2, nfs_drive=None)))
    with pytest.raises(DeclarationError, match="data_drive"):
        storage_client.local_drive(site("gpu-01", whole=bare))
    with pytest.raises(DeclarationError, match="nfs_drive"):
        storage_server.export_drive(site("storage-01", whole=bare))


def test_a_server_without_an_address_that_clients_reach_is_an_error_before_anything_runs() -> None:
    bare = node("storage-01", "storage", 1, fabric_addresses=[], fabric_macs=[])
    arch = architecture().model_copy(update={"required_checks": {}})
    here = site("storage-01", arch, Rack("test", (bare, *rack().group("gpu"))))
    with pytest.raises(DeclarationError, match="fabric_addresses: NFS is exported to the networks of its rails"):
        storage_server.files(here)
    with pytest.raises(DeclarationError, match="fabric_addresses: Ceph is reached on rail 0"):
        here.ceph_plan()
    client = site("gpu-01", arch, here.rack)
    with pytest.raises(DeclarationError, match="a server_role with nodes that have fabric_addresses"):
        client.client_mounts()


def test_an_impossible_mount_is_an_error_before_anything_runs() -> None:
    storage = architecture().storage
    same = storage["nfs-tcp"].model_copy(update={"options": ("vers=4.1", "proto=tcp")})
    label = storage["local"].model_copy(update={"source": "a-label-that-is-too-long"})
    for change, message in [
        ({"nfs-tcp": same}, "nfs-tcp and nfs-rdma: NFS 4.1 from one server over two transports"),
        ({"local": label}, "a-label-that-is-too-long: a label of ext4 has 1 to 16"),
    ]:
        arch = architecture().model_copy(update={"storage": {**storage, **change}})
        here = site("gpu-01", arch=arch)
        with pytest.raises(DeclarationError, match=message):
            storage_client.local_drive(here), storage_client.files(here)


def test_two_transports_of_nfs_3_have_a_connection_each() -> None:
    declared = architectures.load("virtual-rack-storage").model
    mounts = {mount.name: mount for mount in site("gpu-01", arch=declared).client_mounts()}
    options = {name: mount.options for name, mount in mounts.items() if "vers=3" in mount.options}
    assert {"proto=rdma", "proto=tcp"} <= {option for own in options.values() for option in own}, options
    spelt = [
        replace(mounts[name], options=tuple(o.replace("vers=3", "nfsvers=3") for o in options[name]))
        for name in options
    ]
    assert nfs.shared_transport(spelt) is None


def test_the_second_server_of_a_role_serves_nothing() -> None:
    """One node is the server that the clients know; another one must not export an empty drive."""
    second = site("storage-02", whole=Rack("test", (*rack().nodes, node("storage-02", "storage", 12))))
    assert second.served("nfs") == second.served("parallel") == {}


def test_simulated_gpus_are_many_different_and_as_declared() -> None:
    declared = architecture().gpu
    assert declared is not None
    log = ET.fromstring(content(GPU, "/usr/local/share/rackproof/simulated-gpu/query.xml"))  # noqa: S314  (our own text)
    gpus = log.findall("gpu")
    assert log.findtext("attached_gpus") == str(len(gpus)) == str(declared.count)
    assert len({card.findtext("uuid") for card in gpus}) == len({card.get("id") for card in gpus}) == declared.count
    for card in gpus:
        assert card.findtext("product_name") == declared.model
        assert card.findtext("fb_memory_usage/total") == f"{declared.memory_mib} MiB"
        assert card.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == f"{declared.pcie_width}x"
        assert card.findtext("ecc_mode/current_ecc") == declared.ecc
    other = ET.fromstring(content(site("gpu-02"), "/usr/local/share/rackproof/simulated-gpu/query.xml"))  # noqa: S314
    assert not {card.findtext("uuid") for card in gpus} & {card.findtext("uuid") for card in other.findall("gpu")}


def test_simulated_gpus_have_device_files() -> None:
    lines = content(GPU, "/etc/tmpfiles.d/rackproof-simulated-gpu.conf").splitlines()
    devices = [line.split() for line in lines if not line.startswith("#")]
    assert [words[1] for words in devices] == [f"/dev/rackproof-gpu{k}" for k in range(8)]
    assert len({words[-1] for words in devices}) == 8


@pytest.mark.parametrize("name", NAMES)
def test_the_replayed_matrix_is_the_declared_graph(name: str) -> None:
    declared = architecture().gpu
    assert declared is not None
    arch = architecture().model_copy(
        update={"gpu": declared.model_copy(update={"topology": name, "count": NAMES[name].gpus})}
    )
    text = content(site("gpu-01", arch=arch), "/usr/local/share/rackproof/simulated-gpu/topo.txt")
    topology = parse_topology(text)
    assert same_topology(links_between(topology.gpus, topology.paths), name) is None
    assert "0-55,112-167" in text.splitlines()[1].split()


def test_every_line_of_the_replayed_table_is_as_wide_as_the_others() -> None:
    table = content(GPU, "/usr/local/share/rackproof/simulated-gpu/table.txt").splitlines()[1:]
    assert {len(line) for line in table if line} == {91}


def test_the_replayed_program_refuses_unrecorded_arguments(tmp_path: Path) -> None:
    for entry in entries(GPU):
        if isinstance(entry, RemoteFile) and "/simulated-gpu/" in entry.path:
            (tmp_path / Path(entry.path).name).write_text(entry.content)
    program = tmp_path / "nvidia-smi"
    program.write_text(templates.text("/usr/local/bin/nvidia-smi", recordings=tmp_path))

    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", str(program), *arguments], capture_output=True, text=True, check=False)

    assert ask().stdout.count("NVIDIA H200 (simulated)") == 8
    assert ask("-L").stdout.startswith("GPU 0: NVIDIA H200 (simulated) (UUID: GPU-")
    assert ask("nvlink", "-s").stdout.count("Link ") == 8 * 18
    assert ask("nvlink", "-e").stdout.count(" Errors: 0") == 8 * 18 * 3
    assert ask("topo", "-m").stdout.count("NV18") == 8 * 7
    assert ask("-q", "-x").returncode == 0
    unknown = ask("--query-gpu=name", "--format=csv")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "no recorded answer to: nvidia-smi --query-gpu=name --format=csv" in unknown.stderr


@pytest.mark.parametrize("here", [GPU, STORAGE], ids=["gpu", "storage"])
def test_rendering_twice_gives_the_same_bytes(here: Site) -> None:
    assert entries(here) == entries(here)


def test_no_unit_of_a_node_is_declared_in_two_ways() -> None:
    declared: dict[str, Unit] = {}
    for unit in (*base.units(STORAGE), *storage_server.units(STORAGE), *ceph.units(STORAGE.ceph_plan())):
        assert declared.setdefault(unit.name, unit).running == unit.running
    assert len(declared) > 6


def test_a_declared_clock_source_is_set_at_boot_and_when_nothing_waits_for_one() -> None:
    whole = architecture()
    arch = whole.model_copy(update={"system": whole.system.model_copy(update={"clock_source": "tsc"})})
    here = site("gpu-01", arch)
    assert CLOCK_SOURCE not in base.kernel_patterns(here)  # it may hang on arguments that come with a reboot
    (unit,) = [file for file in base.files(here) if file.path.endswith(base.KERNEL_SERVICE)]
    assert isinstance(unit, RemoteFile)
    assert f"for f in {CLOCK_SOURCE}; do" in unit.content
    assert CLOCK_SOURCE not in content(GPU, f"/etc/systemd/system/{base.KERNEL_SERVICE}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ports", {"stor0": {"path": "pci-0000:29:00.0"}}),
        ("bonds", {"bond0": {"paths": ["pci-0000:29:00.0", "pci-0000:29:00.1"]}}),
    ],
)
def test_ports_that_a_simulated_fabric_does_not_have_are_refused(key: str, value: object) -> None:
    fabric.check_soft_roce(GPU)
    here = site(whole=Rack("test", (node("gpu-01", "gpu", 21, nic={key: value}),)))
    with pytest.raises(DeclarationError, match=rf"nic\.{key}: only fabrics of real adapters"):
        fabric.check_soft_roce(here)
