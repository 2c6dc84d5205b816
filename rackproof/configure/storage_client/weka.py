"""WEKA: the agent from a backend, and a stateless client that the first mount starts.

A client needs cores of its own. They must be reserved in Slurm (``slurm.cpu_spec_list``), or jobs share them with a
polling loop.
"""

from __future__ import annotations

import shlex

from rackproof import shell
from rackproof.configure.inputs import Download
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.storage_client.client import Client, ClientNode, NamedStorage, mount_of
from rackproof.configure.storage_client.inputs import Weka
from rackproof.configure.storage_client.install import fetch, place
from rackproof.configure.storage_client.steps import Step
from rackproof.configure.units import Unit
from rackproof.errors import DeclarationError
from rackproof.shell import Script

AGENT = "weka-agent.service"
SERVICE_CONF = "/etc/wekaio/service.conf"
KEY = "storage_client.weka"


def mounts(named: NamedStorage, node: ClientNode) -> tuple[DesiredMount, ...]:
    inputs = node.inputs.weka
    backends = named.first_servers("WEKA is mounted from its backends")
    options = [f"net={net}" for net in _net(named, node)]
    if inputs.cores:
        options += [f"core={core}" for core in inputs.cores]
    else:
        options.append(f"num_cores={inputs.num_cores}")
    if inputs.memory_mb:
        options.append(f"memory_mb={inputs.memory_mb}")
    # systemd does not know that wekafs needs the network (WEKA, mounting file systems with fstab).
    options += [f"traces_capacity_mb={inputs.traces_capacity_mb}", "_netdev"]
    name = named.storage.source
    return (
        mount_of(
            named,
            what=f"{','.join(backends)}/{name}",
            type="wekafs",
            options=options,
            requires=(AGENT,),
            timeout_s=inputs.mount_timeout_s,
            # /proc/mounts has the file system with or without a backend in front.
            source_pattern=rf"(.*/)?{name}",
        ),
    )


def _net(named: NamedStorage, node: ClientNode) -> tuple[str, ...]:
    inputs = node.inputs.weka
    if named.storage.transport == "rdma" and "udp" in inputs.net:
        raise DeclarationError(f"{named.name}: transport rdma and {KEY}.net udp contradict each other")
    net = inputs.net or node.interfaces[:1]
    if not net:
        raise DeclarationError(f"{named.name}: {KEY}.net: name the NIC of the client, or udp")
    return net


def client(named: NamedStorage, node: ClientNode, family: str) -> Client:
    """Raises DeclarationError without the checksum of the installer."""
    inputs = node.inputs.weka
    proofs = [
        Step(
            name=f"Client of {named.name}",
            holds="timeout -k 2 15 weka local ps | grep -q Running",
            otherwise="weka local ps shows no running container; see weka local status and the cluster's events",
        )
    ]
    if named.storage.transport == "rdma":
        proofs.append(
            Step(
                name=f"Transport of {named.name}",
                holds='timeout -k 2 15 weka cluster processes --filter "hostname=$(uname -n),role=FRONTEND"'
                " --output network --no-header"
                " | awk '/RDMA/{rdma = 1; next} NF{other = 1} END{exit !(rdma && !other)}'",
                otherwise="transport rdma is declared but the client does not use it; are the NICs of net= RDMA "
                "capable, and is RDMA enabled in the cluster (weka cluster processes)?",
            )
        )
    return Client(install=_install(inputs, installer(named, inputs)), units=(Unit(AGENT),), proofs=tuple(proofs))


def installer(named: NamedStorage, inputs: Weka) -> Download:
    backend = named.first_servers("WEKA is installed from its backends")[0]
    url = f"http://{backend}:{inputs.install_port}/dist/v1/install"
    if not inputs.install_sha256:
        raise DeclarationError(
            f"{named.name}: {KEY}.install_sha256: root runs this script; review it and give its digest: "
            f"curl -s {url} | sha256sum"
        )
    return Download(url=url, sha256=inputs.install_sha256)


def _install(inputs: Weka, download: Download) -> tuple[Step, ...]:
    mode = (f"export WEKA_CGROUPS_MODE={shlex.quote(inputs.cgroups_mode)}",) if inputs.cgroups_mode else ()
    there = "command -v weka && test -x /usr/bin/weka"
    isolate = f"isolate_cpusets={'true' if inputs.isolate_cpusets else 'false'}"
    steps = [
        Step(
            name="Agent of WEKA",
            holds=there,
            script=Script.of(fetch(download), *mode, f"timeout 600 sh {shlex.quote(place(download))}"),
            otherwise="not installed; does this node reach the backend's port, and is the kernel on WEKA's list?",
        ),
        Step(
            name="Cores of WEKA",
            holds=f"grep -qx '{isolate}' {SERVICE_CONF}",
            script=shell.script(__name__, "weka_cores", conf=SERVICE_CONF, isolate=isolate, agent=AGENT),
            otherwise=f"{SERVICE_CONF} does not contain {isolate}",
            writes=(SERVICE_CONF,),
            restart=(AGENT,),
        ),
    ]
    if inputs.version:
        steps.append(
            Step(
                name="Version of WEKA",
                holds=f'[ "$(timeout -k 2 15 weka version current)" = {shlex.quote(inputs.version)} ]',
                script=f"timeout 600 weka version get {shlex.quote(inputs.version)}\n"
                f"timeout 120 weka version set {shlex.quote(inputs.version)}",
                otherwise=f"expected {inputs.version}; does the cluster offer it? see {KEY}.version",
            )
        )
    return tuple(steps)
