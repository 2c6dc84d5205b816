"""The second run on a node with vendors' clients: what the first one left holds, what is taken away is brought back.

All of a client's steps go through their operation and its fact; the vendors' programs are ours and remember.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from rackproof.configure.storage_client import beegfs, daos, lustre, scale, weka
from rackproof.configure.storage_client.client import Client
from rackproof.configure.storage_client.operations import ensured
from rackproof.configure.storage_client.steps import Step
from tests.unit.configure.loop import carried_out, left_alone
from tests.unit.configure.storage_client.test_vendors import (
    BEEGFS,
    DAOS,
    LUSTRE,
    NODES,
    SCALE,
    SUM,
    a_node,
    bundle,
    named,
    vast,
)
from tests.unit.configure.storage_client.vendor import KERNEL, Bench, Vendor

pytestmark = pytest.mark.few(1)

Change = Callable[[Bench], object]
Case = tuple[Client, Sequence[tuple[Change, str]]]


def managers(bench: Bench) -> None:
    bench.managers()
    bench.file(f"/lib/modules/{KERNEL}/build/Makefile", "")
    bench.program("depmod")
    bench.program("sleep")


def without(path: str, word: str) -> Change:
    def change(bench: Bench) -> None:
        file = bench.root / path.lstrip("/")
        lines = file.read_text().splitlines(keepends=True)
        left = [line for line in lines if word not in line]
        assert len(left) < len(lines), file.read_text()
        file.write_text("".join(left))

    return change


def becomes(path: str, text: str) -> Change:
    return lambda bench: bench.file(path, text)


def offered(server: Vendor, kind: str) -> dict[str, Any]:
    key = server.offer(f"/{kind}.asc", b"-----BEGIN PGP PUBLIC KEY BLOCK-----")
    return {"source": f"http://h/{kind} noble main", "key": key.model_dump()}


def of_weka(server: Vendor, bench: Bench, family: str) -> Case:
    bench.file("/etc/wekaio/service.conf", "[os]\nisolate_cpusets=true\n")
    (bench.root / "usr/bin").mkdir(parents=True, exist_ok=True)
    bench.file("/var/lib/rackproof/weka", "4.3.0\n")
    body = """case "$1 $2 $3" in
"version current "*) cat /var/lib/rackproof/weka;;
"version set "*) echo "$3" >/var/lib/rackproof/weka;;
"local ps "*) printf 'CONTAINER  STATE    DISABLED\\nclient     Running  True\\n';;
"cluster processes "*) echo 'DPDK / RDMA';;
esac"""
    bench.program("weka", body)
    installer = server.offer(
        "/dist/v1/install", f": >{bench.root}/usr/bin/weka; chmod 755 {bench.root}/usr/bin/weka\n".encode()
    )
    inputs = {"install_port": server.port, "install_sha256": installer.sha256, "version": "4.4.2"}
    storage = named("wekafs", "default", servers=("127.0.0.1",), transport="rdma")
    return weka.client(storage, a_node(weka=inputs), family), (
        (lambda bench: (bench.root / "usr/bin/weka").unlink(), "Agent of WEKA"),
        (becomes("/etc/wekaio/service.conf", "isolate_cpusets=true\n"), "Cores of WEKA"),
        (without("/etc/wekaio/service.conf", "isolate"), "Cores of WEKA"),
        (becomes("/var/lib/rackproof/weka", "4.4.3\n"), "Version of WEKA"),
    )


IMPORTS = """osc.lfs01-OST0000-osc-ffff8e1c.import=
import:
    name: lfs01-OST0000-osc-ffff8e1c
    state: FULL
    connection:
       failover_nids: [ 10.0.0.1@o2ib ]
       current_connection: 10.0.0.1@o2ib
"""


KEYS_OF_APT = "apt/keyrings", "apt/sources.list.d", "sources"


def lnet(bench: Bench) -> None:
    bench.file("/var/lib/rackproof/imports", IMPORTS)
    bench.program("lctl", "cat /var/lib/rackproof/imports")
    bench.program("modinfo", f'[ -s {bench.packages} ] && echo "$2 SMP preempt mod_unload modversions"')


def of_lustre(server: Vendor, bench: Bench, family: str) -> Case:
    lnet(bench)
    inputs = {"repository": offered(server, "lustre")}
    keys, files, suffix = ("pki/rpm-gpg", "yum.repos.d", "repo") if family == "rhel" else KEYS_OF_APT
    package = "kmod-lustre-client" if family == "rhel" else "lustre-client-utils"
    return lustre.client(LUSTRE, a_node(lustre=inputs), family), (
        (without("/packages/installed", package), "Packages of Lustre"),
        *(() if family == "rhel" else ((without("/packages/installed", "client-modules"), "Modules of Lustre"),)),
        (becomes(f"/etc/{keys}/rackproof-lustre.asc", "another"), "Key of the repository lustre"),
        (becomes(f"/etc/{files}/rackproof-lustre.{suffix}", ""), "Repository lustre"),
    )  # fmt: skip


def of_lustre_from_source(server: Vendor, bench: Bench, family: str) -> Case:
    lnet(bench)
    kind = "rpms" if family == "rhel" else "debs"
    built = "lustre-client-2.16.1.rpm" if family == "rhel" else "debs/lustre-client_2.16.1.deb"
    configure = f"#!/bin/sh\nprintf '{kind}:\\n\\tmkdir -p debs; : >{built}\\n' >Makefile\n"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo("lustre-2.16.1/configure")
        member.size, member.mode = len(configure), 0o755
        tar.addfile(member, io.BytesIO(configure.encode()))
    source = server.offer("/lustre-2.16.1.tar.gz", buffer.getvalue())
    bench.file("/usr/src/ofa_kernel/default/.ofed_version", "OFED-internal-25.10\n")
    return lustre.client(LUSTRE, a_node(lustre={"source": source.model_dump()}), family), (
        (becomes("/usr/src/ofa_kernel/default/.ofed_version", "OFED-internal-26.01\n"), "Build of Lustre"),
        (without("/packages/installed", "gcc" if family == "rhel" else "swig"), "Packages of Lustre's build"),
    )


def of_beegfs(server: Vendor, bench: Bench, family: str) -> Case:
    bench.file("/usr/src/ofa_kernel/default/include/rdma/x.h", "")
    build = "#!/bin/sh\necho /lib/modules/beegfs.ko >/var/lib/rackproof/module\n"
    bench.file("/opt/beegfs/sbin/beegfs-client", build, 0o755)
    bench.program(
        "modinfo",
        "[ -s /var/lib/rackproof/module ] || exit 1; "
        'case "$*" in *vermagic*) echo "$2 SMP preempt mod_unload";; *) cat /var/lib/rackproof/module;; esac',
    )
    bench.file("/proc/fs/beegfs/1/meta_nodes", NODES)
    bench.file("/proc/fs/beegfs/1/storage_nodes", NODES)
    inputs = {"auth_disabled": True, "gds": True, "repository": offered(server, "beegfs")}
    inputs["packages"] = {"beegfs-client": "20:8.3.1" if family == "debian" else "8.3.1", "libbeegfs-ib": ""}
    autobuild = "/etc/beegfs/beegfs-client-autobuild.conf"
    return beegfs.client(BEEGFS, a_node(beegfs=inputs), family), (
        (without("/packages/installed", "libbeegfs-ib"), "Packages of BeeGFS"),
        (becomes("/packages/installed", "beegfs-client 20:8.2.0\nlibbeegfs-ib 1\n"), "Packages of BeeGFS"),
        # As a package brings it: the options of the kit stand in it no more.
        (becomes(autobuild, "buildEnabled=true\nbuildArgs=-j8\n"), "Build options of the BeeGFS client"),
        # Another kernel has none.
        (becomes("/var/lib/rackproof/module", ""), "Build of the BeeGFS client"),
    )


SCALE_PROGRAMS = {
    "mmbuildgpl": f"echo /lib/modules/{KERNEL}/extra/mmfs26.ko >/var/lib/rackproof/gpl",
    "mmaddnode": "echo node >/var/mmfs/gen/mmfsNodeData",
    "mmchlicense": ":",
    "mmstartup": "echo active >/var/lib/rackproof/daemon; cp /var/lib/rackproof/stored /var/lib/rackproof/inforce",
    "mmshutdown": "echo down >/var/lib/rackproof/daemon",
    "mmumount": ":",
    "mmgetstate": (
        "echo 'mmgetstate::HEADER:version:reserved:reserved:nodeName:nodeNumber:state:quorum:nodesUp:totalNodes:"
        'remarks:cnfsState:\'; echo "mmgetstate::0:1:::gpu-01:5:$(cat /var/lib/rackproof/daemon):2:3:7::(undefined):"'
    ),
    "mmchconfig": "echo \"$1\" | tr , '\\n' | sed 's/^/ ! /;s/=/ /' >/var/lib/rackproof/stored",
    "mmdiag": "echo; echo '=== mmdiag: config ==='; echo 'allowDeleteAclOnChmod 1'; cat /var/lib/rackproof/inforce",
    "mmfsadm": "echo 'VERBS RDMA status: started'",
    "mmremotecluster": '[ "$1" != show ] || exit 1',
    "mmremotefs": (
        'case $1 in add) echo "$6" >/var/lib/rackproof/remote;; show) '
        "[ -e /var/lib/rackproof/remote ] || { echo 'mmremotefs: 6027-1247 [E] not found' >&2; exit 1; }; "
        "echo 'mmremotefs:show:HEADER:version:reserved:reserved:localName:remoteName:remoteCluster:mountPoint:'; "
        'echo "mmremotefs:show:0:1:::fs1:fs1:$(cat /var/lib/rackproof/remote):%2Fmnt%2Fx:";; esac'
    ),
}


def of_scale(server: Vendor, bench: Bench, family: str) -> Case:
    for name, body in SCALE_PROGRAMS.items():
        bench.file(f"/usr/lpp/mmfs/bin/{name}", f"#!/bin/sh\n{body}\n", 0o755)
    for path in ("daemon", "stored", "inforce", "gpl"):
        bench.file(f"/var/lib/rackproof/{path}", "")
    (bench.root / "var/mmfs/gen").mkdir()
    (bench.root / "var/mmfs/ssl").mkdir()
    bench.program("modinfo", "[ -s /var/lib/rackproof/gpl ] && cat /var/lib/rackproof/gpl")
    bench.program("ssh", 'shift 3; sh -c "$*"')
    bench.file("/proc/self/mounts", "fs1 /mnt/x gpfs rw,relatime 0 0\n")
    inputs = {
        "verbs_ports": ["mlx5_0/1", "mlx5_1/1"], "join": "remote", "admin_node": "ess1", "gds": True,
        "remote_cluster": "ess.example.com", "remote_contacts": ["ess1"], "version": "5.2.3-1",
        "remote_key": server.offer("/ess.pub", b"clusterName=ess").model_dump(),
    }  # fmt: skip
    package = "gpfs.msg.en_US" if family == "rhel" else "gpfs.msg.en-us"
    return scale.client(SCALE, a_node(scale=inputs), family), (
        (without("/packages/installed", package), "Packages of Storage Scale"),
        (becomes("/var/lib/rackproof/gpl", ""), "Portability layer of Storage Scale"),
        (becomes("/var/mmfs/gen/mmfsNodeData", ""), "Membership of Storage Scale"),
        (becomes("/var/lib/rackproof/remote", "other.example.com\n"), "Remote file system fs1"),
        (becomes("/var/lib/rackproof/daemon", "arbitrating\n"), "Daemon of Storage Scale"),
        (becomes("/var/lib/rackproof/inforce", " ! verbsRdma disable\n"), "RDMA of Storage Scale"),
        (without("/var/lib/rackproof/inforce", "verbsGPUDirectStorage"), "RDMA of Storage Scale"),
    )


def of_daos(server: Vendor, bench: Bench, family: str) -> Case:
    for name in ("daosCA.crt", "agent.crt", "agent.key"):
        bench.file(f"/etc/daos/certs/{name}", "x")
    bench.program("daos_agent", "echo '    Provider: ofi+verbs;ofi_rxm'")
    inputs = {"repository": offered(server, "daos"), "packages": {"daos-client": "2.6.3-1"}}
    return daos.client(DAOS, a_node(daos=inputs), family), (
        (without("/packages/installed", "daos-client"), "Packages of DAOS"),
        (becomes("/packages/installed", "daos-client 2.6.2-1\n"), "Packages of DAOS"),
    )


@pytest.mark.few(3)
@pytest.mark.parametrize("family", ["debian", "rhel"])
@pytest.mark.parametrize("of", [of_weka, of_lustre, of_lustre_from_source, of_beegfs, of_scale, of_daos])
def test_a_client_is_set_up_once_and_each_deviation_mended_once(
    server: Vendor,
    bench: Bench,
    of: Callable[[Vendor, Bench, str], Case],
    family: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    managers(bench)
    client, changes = of(server, bench, family)
    caplog.set_level("DEBUG", logger="pyinfra")
    setting_up = (client.install, client.ready)
    for steps in setting_up:
        assert not steps or carried_out(ensured, bench.run, steps=steps)
    for steps in (*setting_up, client.proofs):
        assert not steps or left_alone(ensured, bench.run, steps=steps) == f"all {len(steps)} steps hold"
    for change, name in changes:
        change(bench)
        caplog.clear()
        (steps,) = [steps for steps in setting_up if name in {step.name for step in steps}]
        (_,) = carried_out(ensured, bench.run, steps=steps)
        assert f": {name}" in caplog.text
        left_alone(ensured, bench.run, steps=steps)
    assert [path for path in bench.left if "/rollback/" not in path] == []


def test_vasts_client_is_built_once_and_again_for_another_kernel(server: Vendor, bench: Bench) -> None:
    steps = vast(bench, server.offer("/vastnfs-4.0.35.tar.xz", bundle()))
    assert carried_out(ensured, bench.run, steps=steps)
    assert left_alone(ensured, bench.run, steps=steps) == "all 4 steps hold"
    for change in (
        becomes("/sys/module/sunrpc/parameters/nfs_bundle_version", "4.0.30-vastdata\n"),
        becomes("/var/lib/rackproof/vastnfs", f"6.8.0-51-generic {steps[1].holds.split()[-4]}\n"),
    ):
        change(bench)
        assert carried_out(ensured, bench.run, steps=steps)
        left_alone(ensured, bench.run, steps=steps)


@pytest.mark.parametrize(
    ("storage", "inputs", "program", "output"),
    [
        ("lustre", {}, "lctl", IMPORTS.replace("10.0.0.1@o2ib\n", "10.0.0.1@tcp\n")),
        ("daos", {"insecure": True}, "daos_agent", "Provider: ofi+tcp;ofi_rxm"),
        ("weka", {"install_sha256": SUM}, "weka", "client Running\nUDP"),
    ],
)
def test_a_proof_that_does_not_hold_fails_each_run_and_changes_nothing(
    bench: Bench, storage: str, inputs: Mapping[str, Any], program: str, output: str
) -> None:
    module = {"lustre": lustre, "daos": daos, "weka": weka}[storage]
    what = {"lustre": LUSTRE, "daos": DAOS, "weka": named("wekafs", "default", transport="rdma")}[storage]
    proofs: tuple[Step, ...] = module.client(what, a_node(**{storage: inputs}), "debian").proofs
    bench.file("/var/lib/rackproof/said", f"{output}\n")
    bench.program(program, "cat /var/lib/rackproof/said")
    with pytest.raises(AssertionError, match="Transport of x"):
        left_alone(ensured, bench.run, steps=proofs)
