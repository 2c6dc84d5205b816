"""DAOS: the agent, and a dfuse service that is bound to it.

The storage's ``source`` is ``POOL/CONTAINER``. The servers choose the transport; the agent reports it.
"""

from __future__ import annotations

import json

from rackproof.configure.files import RemoteFile
from rackproof.configure.mounts import DesiredMount, systemd_escape
from rackproof.configure.storage_client.client import Client, ClientNode, NamedStorage, mount_of
from rackproof.configure.storage_client.install import software
from rackproof.configure.storage_client.steps import Step
from rackproof.configure.units import Unit
from rackproof.errors import DeclarationError

AGENT = "daos_agent.service"
AGENT_CONF = "/etc/daos/daos_agent.yml"
KEY = "storage_client.daos"
CERTIFICATES = "/etc/daos/certs"


def service(named: NamedStorage) -> str:
    return f"rackproof-dfuse-{systemd_escape(named.storage.mountpoint)}.service"


def mounts(named: NamedStorage, node: ClientNode) -> tuple[DesiredMount, ...]:
    storage = named.storage
    if storage.source.count("/") != 1:
        raise DeclarationError(
            f"{named.name}: storage.{named.name}.source: expected POOL/CONTAINER, actual {storage.source}"
        )
    return (
        mount_of(
            named, what="dfuse", type="fuse.daos", requires=(AGENT,), timeout_s=60, service=service(named),
            content=_unit(named, node), source_pattern="dfuse",
        ),
    )  # fmt: skip


def _unit(named: NamedStorage, node: ClientNode) -> str:
    inputs = node.inputs.daos
    pool, container = named.storage.source.split("/")
    words = ["--foreground"]
    if inputs.multi_user:
        words.append("--multi-user")
    if inputs.threads:
        words.append(f"--thread-count={inputs.threads}")
    if not inputs.caching:
        words.append("--disable-caching")
    where = named.storage.mountpoint
    # dfuse in the foreground does not report that it has mounted: wait for the kernel's mount table.
    # "$$" is systemd's escape for "$".
    mounted = f'grep -q " {where} fuse.daos " /proc/self/mounts'
    wait = f"n=0; until {mounted}; do n=$$((n + 1)); [ $$n -lt 50 ] || exit 1; sleep 1; done"
    return f"""\
# Managed by rackproof. Not started at boot by itself: rackproof-mounts.service starts it, again until it succeeds.
[Unit]
Description=Storage {named.name}
X-Where={where}
BindsTo={AGENT}
After={AGENT}

[Service]
Type=simple
ExecStartPre=-/bin/fusermount3 -uz {where}
ExecStartPre=/bin/mkdir -p {where}
ExecStart=/usr/bin/dfuse {" ".join(words)} {where} {pool} {container}
ExecStartPost=/bin/sh -c '{wait}'
ExecStop=/bin/fusermount3 -u {where}
LimitMEMLOCK=infinity
LimitNOFILE=1048576
TimeoutSec=60
"""


def client(named: NamedStorage, node: ClientNode, family: str) -> Client:
    inputs = node.inputs.daos
    # dfuse serves only its own user by default; this allows others.
    fuse = RemoteFile("/etc/fuse.conf", "# Managed by rackproof.\nuser_allow_other\n")
    limits = "# Managed by rackproof: RDMA pins what it registers.\n[Service]\nLimitMEMLOCK=infinity\n"
    certificates = Step(
        name="Certificates of DAOS",
        holds=f"cd {CERTIFICATES} && test -s daosCA.crt && test -s agent.crt && test -s agent.key",
        otherwise=f"{CERTIFICATES} lacks daosCA.crt, agent.crt or agent.key: copy those of the servers' "
        f"gen_certificates.sh, or set {KEY}.insecure: true",
    )
    return Client(
        files=(
            RemoteFile(AGENT_CONF, agent(named, node), restart=(AGENT,)),
            RemoteFile("/etc/systemd/system/daos_agent.service.d/rackproof.conf", limits, restart=(AGENT,)),
            *((fuse,) if inputs.multi_user else ()),
        ),
        install=(
            *software("daos", inputs.packages, inputs.repository, family, f"{KEY}.packages", node),
            *(() if inputs.insecure else (certificates,)),
        ),
        units=(Unit(AGENT),),
        proofs=(_transport(named),) if named.storage.transport else (),
    )


def agent(named: NamedStorage, node: ClientNode) -> str:
    """daos_agent.yml. Values are JSON, a subset of YAML, so that quoting is right."""
    inputs = node.inputs.daos
    servers = named.first_servers("DAOS is reached over its access points")
    transport: dict[str, object] = {"allow_insecure": inputs.insecure}
    if not inputs.insecure:
        transport |= {
            "ca_cert": f"{CERTIFICATES}/daosCA.crt",
            "cert": f"{CERTIFICATES}/agent.crt",
            "key": f"{CERTIFICATES}/agent.key",
        }
    values: dict[str, object] = {
        "name": inputs.system,
        "access_points": [server if ":" in server else f"{server}:{inputs.port}" for server in servers],
        "port": inputs.port,
        "transport_config": transport,
    }
    if inputs.interfaces:
        values["include_fabric_ifaces"] = list(inputs.interfaces)
    return "# Managed by rackproof.\n" + "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())


def _transport(named: NamedStorage) -> Step:
    """Checks the servers' providers that the agent reports: ``ofi+verbs;ofi_rxm``, ``ucx+dc_x`` …"""
    fast, slow = "verbs|ucx\\+(dc|rc|ud)|cxi", "tcp|sockets"
    wanted, other = (fast, slow) if named.storage.transport == "rdma" else (slow, fast)
    ask = "timeout -k 2 15 daos_agent dump-attachinfo 2>/dev/null"
    return Step(
        name=f"Transport of {named.name}",
        holds=f"p=$({ask} | grep -i provider) && echo \"$p\" | grep -qE '{wanted}'"
        f" && ! echo \"$p\" | grep -qE '{other}'",
        otherwise=f"transport {named.storage.transport} is declared but the servers offer another provider: "
        "daos_agent dump-attachinfo; it is set in the servers' daos_server.yml",
    )
