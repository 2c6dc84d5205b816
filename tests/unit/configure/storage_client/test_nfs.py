"""NFS mounts: addresses in turn, versions, cache, slots; another's CephFS; secrets; the inventory's words."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.configure.files import RemoteFile
from rackproof.configure.inputs import SecretSource
from rackproof.configure.settings import read_inputs
from rackproof.configure.storage_client import catalogue, cephfs, nfs
from rackproof.configure.storage_client.client import ClientNode, NamedStorage, in_turn
from rackproof.configure.storage_client.inputs import StorageClientInputs
from rackproof.configure.storage_client.secrets import read_secret
from rackproof.configure.storage_client.steps import parse_holding
from rackproof.core.architecture import Storage
from rackproof.core.rack import Node, Rack
from rackproof.errors import DeclarationError, InventoryError
from tests.unit.configure.storage_client.vendor import Bench
from tests.unit.refusals import error_of

FOUR = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")


def isilon(servers: tuple[str, ...] = FOUR, **more: Any) -> NamedStorage:
    plain: dict[str, Any] = {
        "class": "nfs", "mountpoint": "/mnt/isilon", "fstype": "nfs", "source": "/ifs", "servers": servers,
        "transport": "tcp", "mounts_per_client": 4, "options": ["vers=3", "nolock", "hard"],
    }  # fmt: skip
    return NamedStorage("isilon", Storage.model_validate({**plain, **more}), servers)


def at(index: int = 0, **plain: Any) -> ClientNode:
    return ClientNode("gpu-01", index, inputs=StorageClientInputs.model_validate(plain))


@pytest.mark.parametrize(
    ("index", "order"), [(0, "1234"), (1, "2341"), (2, "3412"), (3, "4123"), (4, "1234"), (9, "2341")]
)
def test_every_node_mounts_all_addresses_and_begins_at_another_one(index: int, order: str) -> None:
    mounts = nfs.mounts(isilon(), at(index))
    assert [mount.where for mount in mounts] == [f"/mnt/isilon{k}" for k in (1, 2, 3, 4)]
    assert "".join(mount.what[len("10.0.0.")] for mount in mounts) == order
    assert len({mount.unit for mount in mounts}) == 4
    assert all("mountproto=tcp" in mount.options for mount in mounts)


@given(servers=st.integers(1, 12), mounts=st.integers(1, 24), nodes=st.integers(1, 30))
def test_load_is_even_on_a_node_and_over_the_rack(servers: int, mounts: int, nodes: int) -> None:
    names = [str(k) for k in range(servers)]
    whole: Counter[str] = Counter(dict.fromkeys(names, 0))
    for index in range(nodes):
        one = Counter(dict.fromkeys(names, 0))
        one.update(in_turn(names, index, mounts))
        assert max(one.values()) - min(one.values()) <= 1
        whole.update(one)
    assert max(whole.values()) - min(whole.values()) <= min(mounts, nodes)


def test_a_single_mount_of_an_appliance_goes_to_another_address_on_every_node() -> None:
    one = isilon(mounts_per_client=None)
    assert [nfs.mounts(one, at(k))[0].what for k in range(3)] == ["10.0.0.1:/ifs", "10.0.0.2:/ifs", "10.0.0.3:/ifs"]


def test_several_mounts_that_the_kernel_would_make_one_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"4 mounts over 4 addresses with NFS 4\.2"):
        nfs.mounts(isilon(fstype="nfs4", options=["vers=4.2"]), at())
    assert len(nfs.mounts(isilon(fstype="nfs4", options=["vers=4.2"]), at(nfs={"driver": "vastnfs"}))) == 4
    assert len(nfs.mounts(isilon(("10.0.0.1",), fstype="nfs4", options=["vers=4.2"]), at())) == 4


def test_vasts_client_reads_over_all_addresses_of_one_mount() -> None:
    inputs = {"nfs": {"driver": "vastnfs", "local_ports": ["rail0", "rail1"]}}
    (mount,) = nfs.mounts(isilon(mounts_per_client=None, transport="rdma", connections=16), at(**inputs))
    assert {
        "remoteports=10.0.0.1~10.0.0.2~10.0.0.3~10.0.0.4", "localports=rail0~rail1", "spread_reads", "spread_writes",
        "proto=rdma", "port=20049", "nconnect=16",
    } <= set(mount.options)  # fmt: skip
    dell = {"nfs": {"driver": "dellnfs", "remoteports": "dns"}}
    (mount,) = nfs.mounts(isilon(mounts_per_client=None), at(**dell))
    assert "remoteports=dns" in mount.options
    assert "spread_reads" not in mount.options


def test_what_is_cached_needs_fsc_in_force_a_cache_that_is_active_and_a_drive_under_it(bench: Bench) -> None:
    cached = isilon(local_cache="fscache", options=["vers=3"])
    mount = nfs.mounts(cached, at())[0]
    assert "fsc" in mount.options
    assert "fsc" in mount.required
    assert mount.requires == ("cachefilesd.service",)
    client = nfs.client([cached], at(nfs={"cache": {"directory": "/raid/cache", "brun": 30}}))
    files = {file.path: file.content for file in client.files if isinstance(file, RemoteFile)}
    assert "dir /raid/cache\ntag rackproof\nbrun 30%\nbcull 10%\n" in files["/etc/cachefilesd.conf"]
    assert "RequiresMountsFor=/raid/cache" in files["/etc/systemd/system/cachefilesd.service"]
    names = [unit.name for unit in client.units]
    # Version 3 with locks: its daemon remembers them.
    assert names == ["nfs-client.target", "rpcbind.socket", "rpc-statd.service", "cachefilesd.service"]
    table = "CACHE    REF   VOLS  OBJS  ACCES S NAME\n======== ===== ===== ===== ===== = ====\n"
    bench.file("/proc/fs/fscache/caches", table)
    assert bench.run(nfs.CACHE_ACTIVE).returncode == 1
    bench.file("/proc/fs/fscache/caches", table + "00000001     2     1  2123     1 A raid\n")
    assert bench.run(nfs.CACHE_ACTIVE).returncode == 0


def test_a_cache_of_a_kernel_without_a_table_of_caches(bench: Bench) -> None:
    """Before Linux 5.17, as Ubuntu 22.04 and RHEL 9 have it: the daemon keeps the device open."""
    bench.file("/proc/4711/fd/0", "").unlink()
    assert bench.run(nfs.CACHE_ACTIVE).returncode == 1
    (bench.root / "proc/4711/fd/3").symlink_to("/dev/cachefiles")
    assert bench.run(nfs.CACHE_ACTIVE).returncode == 0


def test_slots_and_ports_are_set_where_they_are_declared() -> None:
    none = nfs.client([isilon()], at())
    assert (none.files, none.ready, none.modules) == ((), (), ("nfsv3",))
    inputs = {
        "nfs": {"slot_table_entries": 128, "rdma_slot_table_entries": 256, "statd_port": 662, "lockd_port": 32803}
    }
    client = nfs.client([isilon()], at(**inputs))
    files = {file.path: file.content for file in client.files if isinstance(file, RemoteFile)}
    assert "options sunrpc tcp_max_slot_table_entries=128" in files["/etc/modprobe.d/rackproof-sunrpc.conf"]
    assert "[lockd]\nport=32803\nudp-port=32803" in files["/etc/nfs.conf.d/rackproof-client.conf"]
    assert len(client.ready) == 2


def test_a_foreign_ceph_cluster() -> None:
    storage = Storage.model_validate(
        {"class": "parallel", "mountpoint": "/mnt/c", "fstype": "ceph", "source": "fs", "servers": FOUR[:2]}
    )
    other = NamedStorage("c", storage, FOUR[:2])
    inputs = {"cephfs": {"fsid": "f-1", "user": "train", "secret": {"environment": "X"}, "ms_mode": "secure"}}
    (mount,) = catalogue.mounts_of(other, at(**inputs))
    assert mount.what == "train@f-1.fs=/"
    assert "mon_addr=10.0.0.1:3300/10.0.0.2:3300" in mount.options
    assert "ms_mode=secure" in mount.options
    inputs["cephfs"]["source"] = "monitors"
    (mount,) = catalogue.mounts_of(other, at(**inputs))
    assert mount.what == "10.0.0.1:3300,10.0.0.2:3300:/"
    assert {"name=train", "fs=fs"} < set(mount.options)
    assert not [option for option in mount.options if option.startswith("mon_addr=")]
    client = cephfs.client(other, replace(at(**inputs), secret=lambda kind: b"AQB=="), None)
    secret = client.files[-1]
    assert isinstance(secret, RemoteFile)
    assert (secret.path, secret.content, secret.mode, secret.secret) == (
        "/etc/ceph/rackproof.secret", "AQB==\n", "600", True,
    )  # fmt: skip


def test_a_secret_is_read_from_where_it_is_and_never_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "conn.auth"
    file.write_bytes(b"\xff\x00secret")
    file.chmod(0o640)
    with pytest.raises(InventoryError, match="others have access") as caught:
        read_secret(SecretSource(file=str(file)), "k")
    assert "secret" not in str(caught.value).replace(str(file), "")
    file.chmod(0o600)
    assert read_secret(SecretSource(file=str(file)), "k") == b"\xff\x00secret"
    with pytest.raises(InventoryError, match="No such file"):
        read_secret(SecretSource(file=str(tmp_path / "none")), "k")
    monkeypatch.delenv("RP_TEST", raising=False)
    with pytest.raises(InventoryError, match="RP_TEST is not set"):
        read_secret(SecretSource(environment="RP_TEST"), "k")
    monkeypatch.setenv("RP_TEST", "abc")
    assert read_secret(SecretSource(environment="RP_TEST"), "k") == b"abc"


@pytest.mark.parametrize(
    ("plain", "complaint"),
    [
        ({"nsf": {}}, "storage_client.nsf: no such input; did you mean 'nfs'?"),
        ({"nfs": {"bundle": {"url": "http://h/x"}}}, "storage_client.nfs.bundle.sha256: field required"),
        ({"nfs": {"bundle": {"url": "ftp://h/x", "sha256": "0" * 64}}}, "bundle.url: string should match pattern"),
        ({"nfs": {"bundle": {"url": "http://h/x", "sha256": "xyz"}}}, "expected 64 hexadecimal digits"),
        ({"nfs": {"cache": {"bcull": 40}}}, "stop < cull < run"),
        ({"weka": {"net": ["udp"]}}, "net udp must be the only NIC"),
        ({"beegfs": {"repository": {"source": "https://h"}}}, "storage_client.beegfs.repository.key: field required"),
        ({"beegfs": {"auth": {"file": "a", "environment": "b"}}}, "give either environment or file"),
        ({"beegfs": {"version": 9}}, "storage_client.beegfs.version"),
    ],
)
def test_a_wrong_input_is_one_line_that_names_it(plain: dict[str, Any], complaint: str) -> None:
    node = Node("gpu-01", ("gpu",), {StorageClientInputs.KEY: plain})
    message = error_of(InventoryError, read_inputs, node, StorageClientInputs)
    assert message.startswith("gpu-01: storage_client")
    assert complaint in message


def test_the_addresses_of_a_role_are_those_of_all_its_nodes_and_the_second_ones_last() -> None:
    one = Node("s1", ("storage",), {"fabric_addresses": ["10.0.0.1/24"], "fabric_second_addresses": ["10.0.0.101/24"]})
    two = Node("s2", ("storage",), {"fabric_addresses": ["10.0.0.2/24"]})
    rack = Rack("x", (one, two))

    def addresses(*servers: str, role: str | None = "storage", managed: bool) -> tuple[str, ...]:
        return isilon(servers, server_role=role, managed=managed).storage.addresses(rack)

    assert addresses(managed=False) == ("10.0.0.1", "10.0.0.101", "10.0.0.2")
    assert addresses(managed=True) == ("10.0.0.1", "10.0.0.101")
    assert addresses("10.9.9.9", "10.9.9.9", managed=False) == ("10.9.9.9",)
    assert addresses(role=None, managed=True) == ()


@given(st.lists(st.text(max_size=12), max_size=5))
def test_an_answer_about_steps_is_whole_or_an_error(lines: list[str]) -> None:
    try:
        holding = parse_holding(lines)
    except ValueError:
        return
    assert len(holding) == len(lines)
