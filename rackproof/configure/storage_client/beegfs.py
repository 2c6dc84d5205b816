"""BeeGFS 7 and 8: its service builds and loads the module; mount(8) mounts with a configuration file of the kit.

The client silently falls back to TCP when RDMA does not work. Where RDMA is declared the fallback is disabled, so that
a broken fabric is an error, not a slow file system.
"""

from __future__ import annotations

import shlex

from rackproof import shell
from rackproof.configure.files import Entry, RemoteDirectory, RemoteFile
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.storage_client.client import Client, ClientNode, NamedStorage, mount_of
from rackproof.configure.storage_client.inputs import BeeGfs
from rackproof.configure.storage_client.install import kernel_headers, module, software
from rackproof.configure.storage_client.steps import Step
from rackproof.errors import DeclarationError

KEY = "storage_client.beegfs"
AUTH = "/etc/beegfs/conn.auth"
AUTOBUILD = "/etc/beegfs/beegfs-client-autobuild.conf"
LOG = "/var/log/rackproof-beegfs-build.log"


def configuration(named: NamedStorage) -> str:
    return f"/etc/beegfs/rackproof-{named.name}.conf"


def mounts(named: NamedStorage, node: ClientNode) -> tuple[DesiredMount, ...]:
    named.first_servers("BeeGFS is mounted from its management node")
    return (
        mount_of(
            named,
            what="beegfs_nodev",
            type="beegfs",
            options=(f"cfgFile={configuration(named)}", "nofail", "_netdev"),
            timeout_s=120,
        ),
    )


def client(named: NamedStorage, node: ClientNode, family: str) -> Client:
    """Raises DeclarationError without a shared secret, unless ``auth_disabled`` is set."""
    inputs = node.inputs.beegfs
    if not inputs.auth and not inputs.auth_disabled:
        raise DeclarationError(f"{named.name}: {KEY}.auth: name the shared secret's source, or set auth_disabled: true")
    entries: list[Entry] = [RemoteDirectory("/etc/beegfs")]
    if inputs.auth:
        content = (node.secret("beegfs") or b"").decode(errors="surrogateescape")
        entries.append(RemoteFile(AUTH, content, mode="400", secret=True))
    # The client reads its configuration while mounting.
    unit = mounts(named, node)[0].unit
    entries.append(RemoteFile(configuration(named), text(named, node), restart=(unit,)))
    for kind, names in (("conn-interfaces", inputs.interfaces), ("rdma-interfaces", inputs.rdma_interfaces)):
        if names:
            entries.append(RemoteFile(_list(named, kind), "\n".join(names) + "\n", restart=(unit,)))
    wanted = inputs.packages or _packages(inputs.version, named)
    return Client(
        files=tuple(entries),
        install=(
            kernel_headers(family, "The BeeGFS client", node.policy),
            *software("beegfs", wanted, inputs.repository, family, f"{KEY}.packages", node),
            _arguments(inputs, named.storage.transport == "rdma"),
            _build(),
            module("BeeGFS", "beegfs", f"see the log of its build: {LOG}"),
        ),
        modules=("beegfs",),
        proofs=(_transport(named),) if named.storage.transport else (),
    )


def _packages(version: int, named: NamedStorage) -> dict[str, str]:
    names = ["beegfs-client", "beegfs-tools"] if version >= 8 else ["beegfs-client", "beegfs-helperd", "beegfs-utils"]
    return dict.fromkeys([*names, *(["libbeegfs-ib"] if named.storage.transport == "rdma" else [])], "")


def _list(named: NamedStorage, kind: str) -> str:
    return f"/etc/beegfs/rackproof-{named.name}-{kind}"


def text(named: NamedStorage, node: ClientNode) -> str:
    """beegfs-client.conf, with the keys of version 8, or of 7.3 and later."""
    inputs = node.inputs.beegfs
    rdma = named.storage.transport == "rdma"
    tos = inputs.rdma_tos if inputs.rdma_tos is not None else node.roce_tos or 0
    host = named.first_servers("BeeGFS is mounted from its management node")[0]
    values: dict[str, object] = {
        "sysMgmtdHost": host,
        "connAuthFile": AUTH if inputs.auth else "",
        "connDisableAuthentication": str(not inputs.auth).lower(),
        ("connClientPort" if inputs.version >= 8 else "connClientPortUDP"): inputs.client_port,
        ("connMgmtdPort" if inputs.version >= 8 else "connMgmtdPortTCP"): inputs.mgmtd_port,
        **({} if inputs.version >= 8 else {"connMgmtdPortUDP": inputs.mgmtd_port}),
        "connUseRDMA": str(rdma).lower(),
        "connTCPFallbackEnabled": str(not rdma).lower(),
        "connRDMATypeOfService": tos,
        "connRDMABufNum": inputs.rdma_buf_num,
        "connRDMABufSize": inputs.rdma_buf_size,
        "connMaxInternodeNum": inputs.max_internode_num,
        "connInterfacesFile": _list(named, "conn-interfaces") if inputs.interfaces else "",
        "connRDMAInterfacesFile": _list(named, "rdma-interfaces") if inputs.rdma_interfaces else "",
        "sysMountSanityCheckMS": 11000,
    }
    return "# Managed by rackproof.\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


REBUILD = shell.script(__name__, "beegfs_rebuild", log=LOG)


def _arguments(inputs: BeeGfs, rdma: bool) -> Step:
    """Build options of the module, with DOCA's headers only where installed: a missing path would break the build."""
    fixed = ["-j8"]
    if inputs.gds:
        fixed += [f"NVFS_INCLUDE_PATH={inputs.nvfs_source}", f"NVIDIA_INCLUDE_PATH={inputs.nvidia_source}"]
    headers = f"{inputs.ofed}/include"
    include = f"$(! test -d {headers} || echo ' OFED_INCLUDE_PATH={headers}')" if rdma else ""
    wanted = f'"buildArgs={" ".join(fixed)}{include}"'
    return Step(
        name="Build options of the BeeGFS client",
        holds=f'[ "$(grep ^buildArgs= {AUTOBUILD})" = {wanted} ]',
        script=(
            f"printf '%s\\n' '# Managed by rackproof.' buildEnabled=true {wanted} >{AUTOBUILD}.new\n"
            f"mv -f {AUTOBUILD}.new {AUTOBUILD}\n{REBUILD}"
        ),
        otherwise=f"{AUTOBUILD} could not be written, or the client could not be built with it; see {LOG} on the node",
        writes=(AUTOBUILD,),
    )


def _build() -> Step:
    return Step(
        name="Build of the BeeGFS client",
        holds='test -n "$(modinfo -k "$(uname -r)" -n beegfs)"',
        script=REBUILD,
        otherwise=f"not built for the running kernel; see {LOG} on the node",
    )


def _transport(named: NamedStorage) -> Step:
    """Checks the client's connection counters; servers that were not contacted yet have none."""
    wanted = "RDMA" if named.storage.transport == "rdma" else "TCP"
    other = "TCP" if wanted == "RDMA" else "RDMA"
    touch = f"timeout -k 2 10 stat -f {shlex.quote(named.storage.mountpoint)} >/dev/null"
    return Step(
        name=f"Transport of {named.name}",
        holds=f"{touch}; cat /proc/fs/beegfs/*/meta_nodes /proc/fs/beegfs/*/storage_nodes | awk '/Connections:/"
        f"{{if (/{wanted}: [1-9]/) good = 1; if (/{other}: [1-9]/) bad = 1}} END{{exit !(good && !bad)}}'",
        otherwise=f"connections use not only {wanted} (cat /proc/fs/beegfs/*/storage_nodes); are the servers' "
        "interfaces RDMA capable, and was the module built with the installed RDMA headers?",
    )
