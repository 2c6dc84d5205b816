"""Set-up of vendors' clients, and their installation for real: their server and their programs are ours."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rackproof.configure.files import RemoteFile
from rackproof.configure.inputs import Download
from rackproof.configure.mounts import MANAGED
from rackproof.configure.storage_client import beegfs, catalogue, daos, lustre, multipath, scale, weka
from rackproof.configure.storage_client.client import ClientNode, NamedStorage
from rackproof.configure.storage_client.inputs import Nfs, StorageClientInputs
from rackproof.configure.storage_client.steps import Step, script_of
from rackproof.core.architecture import Storage
from rackproof.errors import DeclarationError
from tests.unit.configure.storage_client.vendor import KERNEL, Bench, Vendor

pytestmark = pytest.mark.few(28)

SUM = "0" * 64


def named(fstype: str, source: str, **more: Any) -> NamedStorage:
    servers = tuple(more.pop("servers", ("10.0.0.1", "10.0.0.2")))
    plain = {"class": "parallel", "mountpoint": "/mnt/x", "fstype": fstype, "source": source, "servers": servers}
    return NamedStorage("x", Storage.model_validate({**plain, **more}), servers)


def a_node(**inputs: Any) -> ClientNode:
    plain = StorageClientInputs.model_validate(inputs)
    return ClientNode("gpu-01", 0, ("rail0", "rail1"), roce_tos=106, inputs=plain)


WEKA = named("wekafs", "default", transport="rdma")
LUSTRE = named("lustre", "lfs01", transport="rdma")
BEEGFS = named("beegfs", "beegfs_nodev", transport="rdma")
SCALE = named("gpfs", "fs1", transport="rdma")
DAOS = named("fuse.daos", "pool/cont", transport="rdma")
ALL = [
    (WEKA, {"weka": {"install_sha256": SUM}}),
    (LUSTRE, {"lustre": {}}),
    (LUSTRE, {"lustre": {"source": {"url": "http://h/l.tgz", "sha256": SUM}}}),
    (BEEGFS, {"beegfs": {"auth_disabled": True}}),
    (BEEGFS, {"beegfs": {"auth_disabled": True, "version": 7, "gds": True}}),
    (SCALE, {"scale": {"verbs_ports": ["mlx5_0/1"]}}),
    (
        SCALE,
        {
            "scale": {
                "verbs_ports": ["mlx5_0/1", "mlx5_1/1"], "join": "remote", "admin_node": "gpu-01", "gds": True,
                "remote_cluster": "ess",
                "remote_contacts": ["ess1"], "remote_key": {"url": "http://h/k", "sha256": SUM},
            }
        },
    ),
    (DAOS, {"daos": {}}),
]  # fmt: skip


@pytest.mark.parametrize("family", ["debian", "rhel"])
@pytest.mark.parametrize(("storage", "inputs"), ALL)
def test_every_script_and_every_test_is_shell(storage: NamedStorage, inputs: dict[str, Any], family: str) -> None:
    (client,) = catalogue.clients_of([storage], a_node(**inputs), family, None)
    steps = (*client.install, *client.ready, *client.proofs)
    assert len(steps) >= 3
    for step in steps:
        for text in (step.holds, step.script, script_of([step])):
            assert subprocess.run(["dash", "-n", "-c", text], check=False, capture_output=True).stderr == b""
        assert "\n" not in step.otherwise
    (mount,) = catalogue.mounts_of(storage, a_node(**inputs))
    assert mount.network
    assert mount.where == "/mnt/x"
    if mount.service:
        assert "X-Where=/mnt/x" in (mount.content or "")
        assert MANAGED in (mount.content or "").splitlines()[0]


@pytest.mark.parametrize(
    ("storage", "inputs", "says"),
    [
        (WEKA, {}, "storage_client.weka.install_sha256"),
        (WEKA, {"weka": {"install_sha256": SUM, "net": ["udp"], "num_cores": 0}}, "rdma and .* udp contradict"),
        (named("wekafs", "default", servers=()), {"weka": {"install_sha256": SUM}}, "storage.x.servers"),
        (named("lustre", "lfs01"), {}, "Lustre needs tcp or rdma"),
        (BEEGFS, {}, "name the shared secret.s source, or set auth_disabled"),
        (SCALE, {}, "transport rdma needs storage_client.scale.verbs_ports"),
        (SCALE, {"scale": {"verbs_ports": ["m/1"], "join": "cluster"}}, "scale.admin_node"),
        (
            SCALE,
            {"scale": {"verbs_ports": ["m/1"], "join": "remote", "admin_node": "a"}},
            "needs remote_cluster, remote_contacts and remote_key",
        ),
        (named("fuse.daos", "pool"), {}, "expected POOL/CONTAINER, actual pool"),
        (named("ceph", "fs"), {}, "section ceph, or storage_client.cephfs.fsid"),
        (named("ceph", "fs"), {"cephfs": {"fsid": "a"}}, "cephfs.secret is absent; it names the source of the key"),
        (named("zfs", "pool"), {}, "no rule to mount"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_touched(storage: NamedStorage, inputs: Any, says: str) -> None:
    def plan() -> None:
        catalogue.mounts_of(storage, a_node(**inputs))
        catalogue.clients_of([storage], a_node(**inputs), "debian", None)

    with pytest.raises(DeclarationError, match=says):
        plan()


# WEKA


INSTALL = b"echo installed by $WEKA_CGROUPS_MODE >>$0.log\n"


def weka_steps(server: Vendor, script: bytes = INSTALL) -> tuple[Step, ...]:
    installer = server.offer("/dist/v1/install", script)
    inputs = {"install_port": server.port, "install_sha256": installer.sha256}
    storage = named("wekafs", "default", servers=("127.0.0.1",))
    return weka.client(storage, a_node(weka=inputs), "debian").install


def test_weka_is_installed_from_a_backend_that_says_what_was_looked_at(server: Vendor, bench: Bench) -> None:
    steps = weka_steps(server)
    server.served["/dist/v1/install"] = b"echo >" + bench.at_root("/usr/bin/weka").encode()
    done = bench.carry_out(steps)
    assert done.returncode == 1
    assert "/dist/v1/install: expected sha256" in done.stderr
    assert not (bench.root / "usr/bin/weka").exists()


def test_weka_twice_is_once_and_its_cores_stay_in_every_cpuset(server: Vendor, bench: Bench) -> None:
    bench.file("/etc/wekaio/service.conf", "[os]\nisolate_cpusets=true\n")
    (bench.root / "usr/bin").mkdir(parents=True, exist_ok=True)
    bench.program("weka")
    target = bench.at_root("/usr/bin/weka")
    install = f"echo mode=$WEKA_CGROUPS_MODE\nprintf '#!/bin/sh\\n' >{target}\nchmod 755 {target}\n"
    steps = weka_steps(server, install.encode())
    done = bench.carry_out(steps)
    assert (done.returncode, done.stdout) == (0, "mode=force_v2\n")
    assert (bench.root / "etc/wekaio/service.conf").read_text() == "[os]\nisolate_cpusets=false\n"
    assert "systemctl try-restart weka-agent.service" in bench.log
    assert bench.holding(steps) == (True, True)
    assert bench.left == []


def test_weka_that_ends_without_an_agent_is_an_error(server: Vendor, bench: Bench) -> None:
    done = bench.carry_out(weka_steps(server))
    assert done.returncode == 1
    assert "Agent of WEKA: not installed; does this node reach the backend's port" in done.stderr


def test_weka_mounts_with_cores_and_cards_and_waits_for_minutes() -> None:
    inputs = {"install_sha256": SUM, "net": ["ens1/10.0.0.21/24/10.0.0.254"], "num_cores": 2}
    (mount,) = weka.mounts(WEKA, a_node(weka=inputs))
    assert mount.what == "10.0.0.1,10.0.0.2/default"
    assert {"net=ens1/10.0.0.21/24/10.0.0.254", "num_cores=2", "traces_capacity_mb=512"} <= set(mount.options)
    assert (mount.requires, mount.timeout_s) == (("weka-agent.service",), 240)
    (mount,) = weka.mounts(WEKA, a_node(weka={"cores": [3, 4], "num_cores": 1}))
    assert {"core=3", "core=4", "net=rail0"} <= set(mount.options)
    assert not any(option.startswith("num_cores") for option in mount.options)


@pytest.mark.parametrize(
    ("output", "holds"),
    [("DPDK / RDMA", True), ("UDP", False), ("DPDK / RDMA\nUDP", False), ("", False), ("DPDK", False)],
)
def test_weka_without_rdma_is_found_out(bench: Bench, output: str, holds: bool) -> None:
    (_, transport) = weka.client(WEKA, a_node(weka={"install_sha256": SUM}), "debian").proofs
    bench.program("weka", f"printf '%s\\n' '{output}'")
    assert bench.holding([transport]) == (holds,)


# VAST and PowerScale


BUILD = b"""#!/bin/sh
[ "$1" = bin ] || exit 1
mkdir -p dist
echo "$@" >dist/vastnfs_4.0.35_amd64.deb
echo built
"""


def bundle(script: bytes = BUILD) -> bytes:
    """A vendor's source from outside: a folder with build.sh."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as tar:
        member = tarfile.TarInfo("vastnfs-4.0.35/build.sh")
        member.size, member.mode = len(script), 0o755
        tar.addfile(member, io.BytesIO(script))
    return buffer.getvalue()


def vast(bench: Bench, download: Download) -> tuple[Step, ...]:
    bench.file(f"/lib/modules/{KERNEL}/build/Makefile", "")
    bench.file("/proc/self/mounts", "/dev/vda / ext4 rw 0 0\n")
    bench.program("modinfo", "test -e /var/lib/rackproof/package && echo nfs_bundle_version:charp")
    bench.program("update-initramfs")
    bench.managers()
    bench.stand_in("apt-get", 'for last; do :; done; cp "$last" /var/lib/rackproof/package')
    bench.program(
        "vastnfs-ctl", "d=/sys/module/sunrpc/parameters; mkdir -p $d; echo 4.0.35-vastdata >$d/nfs_bundle_version"
    )
    inputs = Nfs(driver="vastnfs", bundle=download, version="4.0.35", build_options=("--no-ofed",))
    return multipath.steps(inputs, "debian")


def test_vast_is_built_installed_and_loaded_once(server: Vendor, bench: Bench) -> None:
    steps = vast(bench, server.offer("/vastnfs-4.0.35.tar.xz", bundle()))
    done = bench.carry_out(steps)
    assert (done.returncode, done.stderr) == (0, "")
    assert (bench.root / "var/lib/rackproof/package").read_text() == "bin --no-ofed\n"
    assert "vastnfs-ctl reload" in bench.log
    assert bench.holding(steps) == (True,) * 4
    assert bench.left == []


def test_vast_never_takes_the_kernels_client_away_from_under_a_mount(server: Vendor, bench: Bench) -> None:
    steps = vast(bench, server.offer("/v.tar.xz", bundle()))
    bench.file("/proc/self/mounts", "srv:/home /home nfs4 rw 0 0\n")
    done = bench.carry_out(steps)
    assert done.returncode == 1
    assert "NFS is in use: /home; unmount it first (deploys/unmount.py" in done.stderr
    assert server.asked == []
    assert not (bench.root / "var/lib/rackproof/package").exists()


def test_vast_of_another_kernel_is_built_anew(server: Vendor, bench: Bench) -> None:
    steps = vast(bench, server.offer("/v.tar.xz", bundle()))
    assert bench.carry_out(steps).returncode == 0
    bench.program("uname", "echo 6.8.0-70-generic")
    assert bench.holding(steps)[:2] == (False, False)


def test_a_vast_bundle_that_does_not_build_says_why(server: Vendor, bench: Bench) -> None:
    broken = bundle(b"#!/bin/sh\necho error: no rule for this kernel; exit 2\n")
    steps = vast(bench, server.offer("/v.tar.xz", broken))
    done = bench.carry_out(steps)
    assert done.returncode == 1
    assert "error: no rule for this kernel" in done.stderr
    assert "Client vastnfs: not installed" in done.stderr
    assert bench.left == []
    assert bench.carry_out(vast(bench, server.offer("/w.tar.xz", bundle()))).returncode == 0


def test_vast_without_a_source_is_refused_while_planning() -> None:
    with pytest.raises(DeclarationError, match="needs either bundle"):
        multipath.steps(Nfs(driver="vastnfs"), "debian")


# BeeGFS


def text_of(storage: NamedStorage, **inputs: Any) -> dict[str, str]:
    lines = beegfs.text(storage, a_node(beegfs=inputs)).splitlines()
    return dict(line.split(" = ", 1) if not line.endswith(" =") else (line[:-2], "") for line in lines if " =" in line)


REPOSITORY = {"source": "http://h/repo", "key": {"url": "http://h/key", "sha256": SUM}}


@pytest.mark.parametrize("family", ["debian", "rhel"])
@pytest.mark.parametrize(
    ("storage", "inputs", "locked"),
    [
        (
            BEEGFS,
            {"beegfs": {"auth_disabled": True, "repository": REPOSITORY}},
            ["beegfs-client", "beegfs-tools", "libbeegfs-ib"],
        ),
        (
            LUSTRE,
            {"lustre": {"repository": REPOSITORY, "packages": {"lustre-client": "", "lustre-client-dkms": ""}}},
            ["lustre-client", "lustre-client-dkms"],
        ),
        (DAOS, {"daos": {"repository": REPOSITORY, "packages": {"daos-client": ""}}}, ["daos-client"]),
    ],
)
def test_what_a_version_set_brings_is_asked_of_no_other_repository(
    storage: NamedStorage, inputs: dict[str, Any], locked: list[str], family: str
) -> None:
    def steps(names: list[str], version: str = "1.0") -> str:
        node = replace(a_node(**inputs), locked=dict.fromkeys(names, version))
        (client,) = catalogue.clients_of([storage], node, family, None)
        return " ".join(step.name for step in client.install)

    kind = next(iter(inputs))
    assert f"Repository {kind}" in steps([])
    assert "Packages of" in steps([])
    assert f"Repository {kind}" not in steps(locked)
    assert "Packages of" not in steps(locked)
    if len(locked) > 1:
        assert f"Repository {kind}" in steps(locked[1:])


def test_a_version_set_and_the_inventory_that_differ_are_both_named() -> None:
    node = a_node(beegfs={"auth_disabled": True, "packages": {"beegfs-client": "8.2.0"}})
    with pytest.raises(
        DeclarationError, match=r"packages: beegfs-client 8\.2\.0, but the version set has 8\.3\.1: remove one"
    ):
        catalogue.clients_of([BEEGFS], replace(node, locked={"beegfs-client": "8.3.1"}), "rhel", None)


def test_beegfs_with_rdma_never_falls_back_and_is_marked() -> None:
    text = text_of(BEEGFS, auth_disabled=True, rdma_interfaces=["rail0", "rail1"])
    assert (text["connUseRDMA"], text["connTCPFallbackEnabled"]) == ("true", "false")
    assert (text["sysMgmtdHost"], text["connMgmtdPort"]) == ("10.0.0.1", "8008")
    assert text["connRDMATypeOfService"] == "106"
    assert text["connRDMAInterfacesFile"].strip() == "/etc/beegfs/rackproof-x-rdma-interfaces"
    tcp = text_of(named("beegfs", "beegfs_nodev", transport="tcp"), auth_disabled=True, version=7)
    assert (tcp["connUseRDMA"], tcp["connTCPFallbackEnabled"], tcp["connMgmtdPortTCP"]) == ("false", "true", "8008")


def test_the_secret_of_beegfs_is_taken_byte_by_byte_and_never_shown() -> None:
    secret = bytes(range(256))
    node = replace(a_node(beegfs={"auth": {"environment": "X"}}), secret=lambda kind: secret)
    client = beegfs.client(BEEGFS, node, "debian")
    (file,) = [entry for entry in client.files if entry.path == "/etc/beegfs/conn.auth"]
    assert isinstance(file, RemoteFile)
    assert (file.secret, file.mode) == (True, "400")
    assert file.content.encode(errors="surrogateescape") == secret
    assert "content" not in repr(file)


NODES = "beegfs-storage-01 [ID: 11]\n   Connections: RDMA: 8 (10.0.0.1:8003);\n"


@pytest.mark.parametrize(
    ("nodes", "holds"),
    [(NODES, True), (NODES + NODES.replace("RDMA:", "TCP:"), False), ("", False), (NODES.replace("8 (", "0 ("), False)],
)
def test_beegfs_over_tcp_is_found_out(bench: Bench, nodes: str, holds: bool) -> None:
    proof = beegfs.client(BEEGFS, a_node(beegfs={"auth_disabled": True}), "debian").proofs
    bench.file("/proc/fs/beegfs/1/meta_nodes", "")
    bench.file("/proc/fs/beegfs/1/storage_nodes", nodes)
    assert bench.holding(proof) == (holds,)


@pytest.mark.parametrize("doca", [True, False])
def test_the_beegfs_module_is_built_with_the_headers_that_are_there(bench: Bench, doca: bool) -> None:
    if doca:
        bench.file("/usr/src/ofa_kernel/default/include/rdma/x.h", "")
    bench.program("modinfo", "cat /var/lib/rackproof/module")
    bench.program("depmod")
    bench.file("/opt/beegfs/sbin/beegfs-client", "#!/bin/sh\necho /m/beegfs.ko >/var/lib/rackproof/module\n", 0o755)
    steps = beegfs.client(BEEGFS, a_node(beegfs={"auth_disabled": True}), "debian").install
    build = [step for step in steps if step.name.startswith("Build")]
    assert bench.carry_out(build).returncode == 0
    text = (bench.root / "etc/beegfs/beegfs-client-autobuild.conf").read_text()
    assert ("OFED_INCLUDE_PATH=" in text) == doca
    assert all(bench.holding(build))


# Lustre


def test_lnet_is_set_up_by_the_options_of_its_module() -> None:
    """As packaged the service skips itself at boot, when its module is there, and reads /etc/lnet.conf only."""
    client = lustre.client(LUSTRE, a_node(), "rhel")
    (drop_in,) = [file for file in client.files if file.path == lustre.DROP_IN]
    assert isinstance(drop_in, RemoteFile)
    assert "ConditionPathExists=\n" in drop_in.content
    started = [line for line in drop_in.content.splitlines() if line.startswith("ExecStart=")]
    assert started[0] == "ExecStart="
    assert "ExecStart=-/usr/sbin/lnetctl lnet configure --all" in started
    assert started[-1].endswith("""grep -q "@o2ib$$"'""")
    # Loaded at boot it would start LNet before the rails have their addresses.
    assert client.modules == ("lnet",)


def test_two_networks_of_lustre_are_refused() -> None:
    over_tcp = replace(LUSTRE, name="scratch", storage=LUSTRE.storage.model_copy(update={"transport": "tcp"}))
    assert len(catalogue.clients_of([LUSTRE, replace(LUSTRE, name="scratch")], a_node(), "rhel", None)) == 2
    with pytest.raises(DeclarationError, match=r"scratch: one node .* /etc/modprobe\.d/rackproof-lustre"):
        catalogue.clients_of([LUSTRE, over_tcp], a_node(), "rhel", None)


def test_lustre_is_mounted_from_all_its_servers_and_o2ib_is_tuned_like_them() -> None:
    (mount,) = lustre.mounts(LUSTRE, a_node())
    assert mount.what == "10.0.0.1@o2ib:10.0.0.2@o2ib:/lfs01"
    assert mount.requires == ("lnet.service",)
    text = lustre.options("o2ib", a_node())
    assert 'options lnet networks="o2ib(rail0,rail1)"' in text
    assert "peer_credits_hiw=16" in text
    assert "peer_credits=32" in text
    tcp = lustre.options(
        "tcp", a_node(lustre={"interfaces": ["bond0"], "skip_mr_route_setup": True, "discovery": False})
    )
    assert "ko2iblnd" not in tcp
    assert "skip_mr_route_setup=1" in tcp
    assert "lnet_peer_discovery_disabled=1" in tcp


def modules_of_lustre() -> Step:
    (step,) = [
        candidate
        for candidate in lustre.client(LUSTRE, a_node(), "debian").install
        if candidate.name == "Modules of Lustre"
    ]
    return step


def test_modules_for_a_kernel_that_old_lists_do_not_know(bench: Bench) -> None:
    bench.managers()
    bench.stand_in(
        "apt-get",
        'case "$*" in *update*) : >/var/lib/rackproof/lists; exit;; esac; [ -e /var/lib/rackproof/lists ] || exit 100',
    )
    bench.program("dpkg")
    done = bench.carry_out([modules_of_lustre()])
    assert (done.returncode, done.stderr) == (0, "")
    assert f"--no-remove install -- lustre-client-modules-{KERNEL}" in bench.log
    bench.program("apt-get", "exit 100")
    bench.packages.write_text("")
    done = bench.carry_out([modules_of_lustre()])
    assert done.returncode == 1
    assert "no lustre-client-modules of the running kernel: boot a kernel that the repository has" in done.stderr


def test_a_foreign_lock_is_not_taken_for_missing_modules(bench: Bench) -> None:
    lock = bench.file("/var/lib/dpkg/lock", "")
    # The list is whole in one read alone: it changes between two.
    bench.file("/proc/at-once", f"1: POSIX  ADVISORY  WRITE 4711 08:01:{lock.stat().st_ino} 0 EOF\n")
    bench.program("cat", '[ "$1" != /proc/locks ] || set -- /proc/at-once; exec /bin/cat "$@"')
    bench.file("/proc/4711/cmdline", "apt-get\0upgrade\0")
    (bench.root / "proc/4711/fd").mkdir()
    (bench.root / "proc/4711/fd/3").symlink_to(lock)
    for name, body in (("sleep", ":"), ("dpkg-query", "exit 1"), ("apt-get", "exit 100")):
        bench.program(name, body)
    done = bench.carry_out([modules_of_lustre()])
    assert done.returncode == 1
    assert (
        done.stderr.splitlines()[-1] == "Modules of Lustre: the package manager is locked by another process, see above"
    )
    assert "apt-get " not in bench.log


@pytest.mark.parametrize(
    ("connections", "holds"),
    [
        (["10.0.0.1@o2ib"], True),
        (["10.0.0.1@o2ib", "<none>"], True),
        (["10.0.0.1@o2ib", "10.0.0.2@tcp"], False),
        (["<none>"], False),
        ([], False),
    ],
)
def test_lustre_over_tcp_is_found_out(bench: Bench, connections: Sequence[str], holds: bool) -> None:
    proofs = lustre.client(LUSTRE, a_node(), "rhel").proofs
    lines = "".join(f"    current_connection: {nid}\\n" for nid in connections)
    bench.program("lctl", f"printf '{lines}'")
    assert bench.holding(proofs) == (holds,)


# Storage Scale, DAOS


def test_scale_must_be_a_member_or_be_told_who_adds_it() -> None:
    client = scale.client(SCALE, a_node(scale={"verbs_ports": ["m/1"]}), "rhel")
    (member,) = [step for step in client.install if step.name.startswith("Membership")]
    assert member.script == ""
    assert "declare storage_client.scale.join and admin_node" in member.otherwise
    asked = scale.client(SCALE, a_node(scale={"verbs_ports": ["m/1"], "join": "cluster", "admin_node": "ess1"}), "rhel")
    (member,) = [step for step in asked.install if step.name.startswith("Membership")]
    assert "ssh -o BatchMode=yes ess1 " in member.script
    assert "mmaddnode -N gpu-01:client" in member.script


@pytest.mark.parametrize(
    ("state", "user", "unmounts", "message"),
    [
        ("", False, True, None),
        ("IDLE+DRAIN", False, True, None),
        ("DOWN+DRAIN", False, True, None),
        ("MIXED+DRAIN", False, True, "Slurm's jobs are on this node (MIXED+DRAIN)"),
        ("ALLOCATED", False, True, "Slurm's jobs are on this node (ALLOCATED)"),
        ("IDLE", False, True, "Slurm may start jobs on this node (state: IDLE)"),
        ("no answer", False, True, "Slurm may start jobs on this node (state: unknown)"),
        ("IDLE+DRAIN", True, True, "/mnt/x is in use by"),
        ("", False, False, "umount: /mnt/x: target is busy"),
    ],
)
def test_scale_is_not_stopped_under_its_users(
    bench: Bench, state: str, user: bool, unmounts: bool, message: str | None
) -> None:
    called = f"echo ${{0##*/}} >>{bench.root}/log"
    bench.file("/usr/lpp/mmfs/bin/mmshutdown", f"#!/bin/sh\n{called}\n", 0o755)
    failure = "" if unmounts else "echo umount: /mnt/x: target is busy >&2; exit 1"
    bench.file("/usr/lpp/mmfs/bin/mmumount", f"#!/bin/sh\n{called}\n{failure}\n", 0o755)
    bench.file("/proc/self/mounts", "fs1 /mnt/x gpfs rw 0 0\n/dev/sda1 / ext4 rw 0 0\n")
    if state:
        bench.file("/proc/17/comm", "slurmd\n")
        bench.program(
            "scontrol",
            f"echo 'NodeName=gpu-01 Arch=x86_64 State={state} Weight=1'" if state != "no answer" else "exit 1",
        )
    if user:
        bench.file("/proc/4711/comm", "python3\n")
        bench.file("/proc/4711/fd/0", "").unlink()
        (bench.root / "proc/4711/fd/0").symlink_to("/mnt/x/checkpoint")
    ended = bench.run(f"set -eu\n{scale.stop_script('gpu-01')}")
    assert (ended.returncode == 0) is (message is None), ended.stderr
    assert ("mmshutdown" in bench.log) is (message is None)
    assert message is None or message in ended.stderr


@pytest.mark.parametrize("family", ["rhel", "debian"])
@pytest.mark.parametrize(
    ("daemon", "version", "holds"),
    [
        (True, "5.2.3-1", True),
        (True, "5.1.9-4", False),
        (False, "5.1.9-4", True),
        (True, "", True),
    ],
)
def test_packages_of_scale_are_not_exchanged_under_their_daemon(
    bench: Bench, family: str, daemon: bool, version: str, holds: bool
) -> None:
    client = scale.client(SCALE, a_node(scale={"verbs_ports": ["m/1"], "version": "5.2.3-1"}), family)
    bench.program(
        "rpm", f"[ -n '{version}' ] || exit 1; case $2 in *-5.*) case $2 in *-{version}) ;; *) exit 1;; esac;; esac"
    )
    bench.program("dpkg-query", f"[ -n '{version}' ] || exit 1; printf 'installed {version}'")
    bench.file("/proc/17/comm", "mmfsd\n" if daemon else "bash\n")
    assert bench.holding(client.guards) == (holds,)
    # What the version set installs is guarded, too.
    locked = replace(a_node(scale={"verbs_ports": ["m/1"]}), locked={"gpfs.base": "5.2.3-1"})
    assert bench.holding(scale.client(SCALE, locked, family).guards) == (holds,)
    assert not scale.client(SCALE, a_node(scale={"verbs_ports": ["m/1"]}), family).guards


def test_the_portability_layer_is_that_of_the_installed_packages(bench: Bench) -> None:
    client = scale.client(SCALE, a_node(scale={"verbs_ports": ["m/1"]}), "rhel")
    (layer,) = [step for step in client.install if step.name.startswith("Portability")]
    bench.program("modinfo", "echo /lib/modules/mmfs26.ko")
    bench.program("depmod", "")
    bench.program("rpm", "printf 5.2.3-1")
    bench.file("/usr/lpp/mmfs/bin/mmbuildgpl", f"#!/bin/sh\necho built >>{bench.root}/log\n", 0o755)
    assert bench.holding([layer]) == (False,)
    assert bench.run(f"set -eu\n{layer.script}").returncode == 0
    assert bench.holding([layer]) == (True,)
    bench.program("rpm", "printf 5.2.4-0")
    assert bench.holding([layer]) == (False,)
    tools = next(step for step in client.install if step.name == "Packages of Storage Scale's build")
    assert client.install.index(tools) < client.install.index(layer)


@pytest.mark.parametrize(
    ("output", "holds"), [("VERBS RDMA status: started", True), ("VERBS RDMA status: disabled", False)]
)
def test_scale_without_rdma_is_found_out(bench: Bench, output: str, holds: bool) -> None:
    bench.file("/usr/lpp/mmfs/bin/mmfsadm", f"#!/bin/sh\necho '{output}'\n", 0o755)
    (_, transport) = scale.client(SCALE, a_node(scale={"verbs_ports": ["m/1"]}), "rhel").proofs
    assert bench.holding([transport]) == (holds,)


@pytest.mark.parametrize(
    ("provider", "holds"), [("ofi+verbs;ofi_rxm", True), ("ucx+dc_x", True), ("ofi+tcp;ofi_rxm", False), ("", False)]
)
def test_daos_over_tcp_is_found_out(bench: Bench, provider: str, holds: bool) -> None:
    bench.program("daos_agent", f"echo 'Provider: {provider}'" if provider else "exit 1")
    assert bench.holding(daos.client(DAOS, a_node(), "rhel").proofs) == (holds,)


def test_daos_wants_certificates_or_to_be_told_that_there_are_none() -> None:
    assert any("insecure: true" in step.otherwise for step in daos.client(DAOS, a_node(), "rhel").install)
    text = daos.agent(DAOS, a_node(daos={"insecure": True, "interfaces": ["rail0"]}))
    assert 'access_points: ["10.0.0.1:10001", "10.0.0.2:10001"]' in text
    assert 'transport_config: {"allow_insecure": true}' in text
    (mount,) = daos.mounts(DAOS, a_node())
    assert "BindsTo=daos_agent.service" in (mount.content or "")
    assert "LimitMEMLOCK=infinity" in (mount.content or "")
    assert "--multi-user /mnt/x pool cont" in (mount.content or "")
