"""IBM Storage Scale: packages, the portability layer for the running kernel, membership as declared, a mount unit.

An existing member (``admin_node``) adds nodes to the cluster; every node asks it over the cluster's ssh. The kit never
creates a cluster.
"""

from __future__ import annotations

import shlex

from rackproof import shell
from rackproof.configure import mounts as mount_plans
from rackproof.configure.files import RemoteFile
from rackproof.configure.mounts import DesiredMount, systemd_escape
from rackproof.configure.reboot import drain
from rackproof.configure.storage_client.client import Client, ClientNode, NamedStorage, mount_of, mounted_test
from rackproof.configure.storage_client.inputs import Scale
from rackproof.configure.storage_client.install import fetch, installed, kernel_headers, packages, place, software
from rackproof.configure.storage_client.steps import Step
from rackproof.configure.units import Unit
from rackproof.errors import DeclarationError
from rackproof.shell import Script

BIN = "/usr/lpp/mmfs/bin"
KEY = "storage_client.scale"
ACTIVE = f"timeout -k 2 15 {BIN}/mmgetstate -Y | awk -F: '$3 != \"HEADER\"{{print $9}}' | grep -qx active"
UNTIL_ACTIVE = f"n=0; until {ACTIVE}; do n=$((n + 1)); [ $n -lt 40 ] || break; sleep 3; done"


BUILT_STAMP = "/var/lib/rackproof/scale-built"
BUILD = {
    "rhel": "binutils cpp elfutils-libelf-devel gcc gcc-c++ make",
    "debian": "binutils cpp g++ gcc libelf-dev make",
}
"""Packages that mmbuildgpl needs beside the kernel's headers; it names missing ones, and installs none (IBM, mmbuildgpl
command)."""


def service(named: NamedStorage) -> str:
    return f"rackproof-gpfs-{systemd_escape(named.storage.mountpoint)}.service"


def mounts(named: NamedStorage, node: ClientNode) -> tuple[DesiredMount, ...]:
    return (
        mount_of(
            named, what=named.storage.source, type="gpfs", requires=("gpfs.service",), timeout_s=120,
            service=service(named), content=_unit(named), source_pattern=rf"(/dev/)?{named.storage.source}",
        ),
    )  # fmt: skip


_WAIT = (
    f'n=0; until {BIN}/mmgetstate -Y | grep -q ":active:"; do n=$$((n + 1)); [ $$n -lt 20 ] || exit 1; sleep 3; done'
)
"""``$$`` is systemd's escape for ``$``."""


def _unit(named: NamedStorage) -> str:
    """A service that runs mmmount, which gets options and servers from the cluster; a mount unit would repeat them."""
    storage = named.storage
    options = f" -o {','.join(storage.options)}" if storage.options else ""
    return f"""\
# Managed by rackproof. Not started at boot by itself: rackproof-mounts.service starts it, again until it succeeds.
[Unit]
Description=Storage {named.name}
X-Where={storage.mountpoint}
Requires=gpfs.service
After=gpfs.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c '{_WAIT}'
ExecStart={BIN}/mmmount {storage.source} {storage.mountpoint}{options}
ExecStop={BIN}/mmumount {storage.source}
TimeoutSec=120
"""


def client(named: NamedStorage, node: ClientNode, family: str) -> Client:
    inputs = node.inputs.scale
    names = inputs.packages if family == "rhel" else [_debian(name) for name in inputs.packages]
    wanted = dict.fromkeys(names, inputs.version)
    return Client(
        files=(RemoteFile("/etc/profile.d/rackproof-scale.sh", f"# Managed by rackproof.\nPATH=$PATH:{BIN}\n"),),
        guards=_not_under_a_daemon({name: node.locked.get(name, version) for name, version in wanted.items()}, family),
        install=(
            *software("scale", wanted, inputs.repository, family, f"{KEY}.version", node),
            kernel_headers(family, "The portability layer of Storage Scale", node.policy),
            packages("Storage Scale's build", dict.fromkeys(BUILD[family].split(), ""), family, KEY, node.policy),
            _portability_layer(family),
            *_membership(named, node),
        ),
        units=(Unit("gpfs.service"),),
        ready=(
            Step(
                name="Daemon of Storage Scale",
                holds=ACTIVE,
                script=f"timeout 60 {BIN}/mmstartup || :\n{UNTIL_ACTIVE}",
                otherwise="mmgetstate does not report active: arbitrating means no quorum, down means it has ended; "
                "see /var/adm/ras/mmfs.log.latest",
            ),
            *_verbs(named, inputs, node.node),
        ),
        proofs=_proofs(named),
    )


def _not_under_a_daemon(wanted: dict[str, str], family: str) -> tuple[Step, ...]:
    """Packages are exchanged with the daemon stopped: IBM, Upgrading IBM Storage Scale non-protocol Linux nodes."""
    others = []
    for name, version in wanted.items():
        if version:
            there = f"rpm -q {name}" if family == "rhel" else f"dpkg-query -W {name}"
            others.append(f"{{ ! {there} || {installed({name: version}, family)}; }}")
    if not others:
        return ()
    return (
        Step(
            name="Exchange of Storage Scale's packages",
            holds=f"! grep -qsx mmfsd /proc/[0-9]*/comm || {{ {' && '.join(others)}; }}",
            otherwise="other versions than declared are installed and their daemon runs: drain the node, let it become"
            f" idle, stop it ({BIN}/mmumount all, {BIN}/mmshutdown), and run again",
        ),
    )


def _portability_layer(family: str) -> Step:
    """Built for the running kernel and the installed packages: a module of older packages does not fit the daemon."""
    package = _debian("gpfs.gpl") if family == "debian" else "gpfs.gpl"
    query = "rpm -q --qf '%{VERSION}-%{RELEASE}'" if family == "rhel" else "dpkg-query -W -f='${Version}'"
    stamp = f'"$(uname -r) $({query} {package})"'
    log = "/var/log/rackproof-mmbuildgpl.log"
    return Step(
        name="Portability layer of Storage Scale",
        holds=f'test -n "$(modinfo -k "$(uname -r)" -n mmfs26)" && [ "$(cat {BUILT_STAMP})" = {stamp} ]',
        script=f"timeout 800 {BIN}/mmbuildgpl >{log} 2>&1 || {{ tail -n 5 {log} >&2; exit 1; }}\ndepmod\n"
        f"mkdir -p {BUILT_STAMP.rpartition('/')[0]}\n"
        f"echo {stamp} >{BUILT_STAMP}.new && mv -f {BUILT_STAMP}.new {BUILT_STAMP}",
        otherwise=f"not built for the running kernel; see {log}, IBM's list of kernels",
    )


def _debian(name: str) -> str:
    """IBM's Debian packages: no underscores, no capitals."""
    return name.replace("_", "-").lower()


def _membership(named: NamedStorage, node: ClientNode) -> list[Step]:
    """Raises DeclarationError when joining is declared without ``admin_node``."""
    inputs = node.inputs.scale
    member = Step(
        name="Membership of Storage Scale",
        holds="test -s /var/mmfs/gen/mmfsNodeData",
        otherwise=f"this node is in no cluster: add it to one, or declare {KEY}.join and admin_node",
    )
    if inputs.join == "none":
        return [member]
    if not inputs.admin_node:
        raise DeclarationError(f"{named.name}: {KEY}.admin_node: name the member of the cluster that adds {node.node}")
    asked = f"timeout 300 ssh -o BatchMode=yes {shlex.quote(inputs.admin_node)} "
    name = shlex.quote(node.node)
    add = f"{BIN}/mmaddnode -N {name}:client && {BIN}/mmchlicense client --accept -N {name}"
    steps = [Step(member.name, member.holds, f"{inputs.admin_node} could not add it", asked + shlex.quote(add))]
    if inputs.join == "remote":
        steps.append(_remote(named, inputs, asked))
    return steps


def _remote(named: NamedStorage, inputs: Scale, asked: str) -> Step:
    if not (inputs.remote_cluster and inputs.remote_contacts and inputs.remote_key):
        raise DeclarationError(f"{named.name}: {KEY}: join remote needs remote_cluster, remote_contacts and remote_key")
    name, device = shlex.quote(named.storage.source), shlex.quote(inputs.remote_device or named.storage.source)
    cluster, contacts = shlex.quote(inputs.remote_cluster), shlex.quote(",".join(inputs.remote_contacts))
    path = shlex.quote(place(inputs.remote_key))
    known = f"{BIN}/mmremotefs show {name} -Y"
    tell = (
        f"{BIN}/mmremotecluster show {cluster} >/dev/null 2>&1 || {BIN}/mmremotecluster add"
        f" {cluster} -n {contacts} -k /var/mmfs/ssl/rackproof-remote.pub; "
        f"{BIN}/mmremotefs add {name} -f {device} -C {cluster} -T {shlex.quote(named.storage.mountpoint)} -A no"
    )
    return Step(
        name=f"Remote file system {name}",
        holds=f"timeout -k 2 15 {known} | grep -q {shlex.quote(f':{inputs.remote_cluster}:')}",
        script=f"{fetch(inputs.remote_key)}\n"
        f"{asked}'cat >/var/mmfs/ssl/rackproof-remote.pub' <{path}\n{asked}{shlex.quote(tell)}",
        otherwise=f"{inputs.remote_cluster} must have granted it to this cluster: mmauth add and mmauth grant there",
    )


def stop_script(node: str) -> str:
    """Shell lines that stop the daemon, and fail with one line while jobs or processes use a file system."""
    return Script.of(
        shell.script(mount_plans.__name__, "let_go", stop_limit_s=mount_plans.STOP_LIMIT_S),
        shell.script(__name__, "scale_stop", node=node, bin=BIN, limit_s=drain.COMMAND_S),
    )


def _verbs(named: NamedStorage, inputs: Scale, node: str) -> tuple[Step, ...]:
    """verbs settings, compared with those of the running daemon, not with the stored configuration."""
    if named.storage.transport != "rdma":
        return ()
    if not inputs.verbs_ports:
        raise DeclarationError(f"{named.name}: transport rdma needs {KEY}.verbs_ports, e.g. mlx5_0/1")
    wanted = {
        "verbsRdma": "enable",
        "verbsRdmaSend": "yes",
        "verbsPorts": " ".join(inputs.verbs_ports),
        "verbsRdmaCm": inputs.verbs_rdma_cm,
        **({"verbsGPUDirectStorage": "yes"} if inputs.gds else {}),
    }
    tests = [
        f"timeout -k 2 15 {BIN}/mmdiag --config | grep -E '^[ !*]*{key} ' | grep -qF {shlex.quote(value)}"
        for key, value in wanted.items()
    ]
    settings = ",".join(f"{key}={value}" for key, value in wanted.items())
    return (
        Step(
            name="RDMA of Storage Scale",
            holds=" && ".join(tests),
            # The daemon reads them at its start.
            script=f"{stop_script(node)}\n"
            f"timeout 120 {BIN}/mmchconfig {shlex.quote(settings)} -N {node}\ntimeout 60 {BIN}/mmstartup -N {node}\n"
            f"{UNTIL_ACTIVE}",
            otherwise="mmdiag --config has other verbs settings than declared; are the ports up (ibstat), and is "
            "this node allowed to change the cluster's configuration?",
        ),
    )


def _proofs(named: NamedStorage) -> tuple[Step, ...]:
    mounted = Step(
        name=f"Mount of {named.name}",
        holds=mounted_test(named.storage.mountpoint, "gpfs"),
        otherwise=f"not mounted; see journalctl -u {service(named)} and mmlsmount {named.storage.source} -L",
    )
    if named.storage.transport != "rdma":
        return (mounted,)
    return (
        mounted,
        Step(
            name=f"Transport of {named.name}",
            holds=f"timeout -k 2 15 {BIN}/mmfsadm test verbs status | grep -qi 'status: started'",
            otherwise="transport rdma is declared, but not started by the daemon; see /var/adm/ras/mmfs.log.latest",
        ),
    )
