"""Lustre: packages for exactly the running kernel or a build against DOCA, LNet, mounts from the management server."""

from __future__ import annotations

import shlex

from rackproof import shell
from rackproof.configure.files import RemoteFile
from rackproof.configure.inputs import Download
from rackproof.configure.mounts import DesiredMount
from rackproof.configure.package_transaction.transaction import (
    RUNNING_KERNEL,
    Package,
    Policy,
    Transaction,
    transaction_script,
)
from rackproof.configure.storage_client.client import Client, ClientNode, NamedStorage, mount_of
from rackproof.configure.storage_client.inputs import Lustre
from rackproof.configure.storage_client.install import (
    fetch,
    install_built,
    kernel_headers,
    module,
    packages,
    place,
    repository,
    software,
)
from rackproof.configure.storage_client.steps import Step
from rackproof.configure.units import Unit
from rackproof.errors import DeclarationError

LNET = "lnet.service"
KEY = "storage_client.lustre"
BUILT_STAMP = "/var/lib/rackproof/lustre-built"
BUILD = {
    "rhel": (
        "gcc make rpm-build libtool flex bison libmount-devel libnl3-devel libyaml-devel elfutils-libelf-devel"
        " kernel-rpm-macros kernel-abi-stablelists python3-devel keyutils-libs-devel"
    ),
    "debian": (
        "build-essential libtool flex bison libmount-dev libnl-genl-3-dev libyaml-dev module-assistant libelf-dev"
        " debhelper dpatch libkeyutils-dev libselinux1-dev zlib1g-dev quilt swig"
    ),
}
"""Build dependencies of Lustre; stackhpc's slurm appliance (roles/lustre) lists the same for Rocky."""


DROP_IN = "/etc/systemd/system/lnet.service.d/rackproof.conf"
_SERVICE = """\
# Managed by rackproof. The packaged unit does nothing where the module is loaded already, and never looks at the
# module's options.
[Unit]
ConditionPathExists=
After=network-online.target openibd.service rackproof-rdma-names.service

[Service]
ExecStart=
ExecStart=/sbin/modprobe lnet
ExecStart=-/usr/sbin/lnetctl lnet configure --all
ExecStart=/bin/sh -c 'timeout 15 lctl list_nids | grep -q "@{network}$$"'
TimeoutStartSec=120
"""
"""The service fails when its network is missing; without this a mount would wait minutes for its servers."""


def mounts(named: NamedStorage, node: ClientNode) -> tuple[DesiredMount, ...]:
    network = network_name(named, node.inputs.lustre)
    servers = named.first_servers("Lustre is mounted from its management server (MGS)")
    # Colons separate failover partners of one MGS; commas would separate addresses of one node.
    nids = ":".join(server if "@" in server else f"{server}@{network}" for server in servers)
    return (
        mount_of(
            named, what=f"{nids}:/{named.storage.source}", type="lustre", options=("nofail", "_netdev"),
            requires=(LNET,), timeout_s=120, source_pattern=rf".*:/{named.storage.source}/?",
        ),
    )  # fmt: skip


def network_name(named: NamedStorage, inputs: Lustre) -> str:
    if named.storage.transport is None and not inputs.network:
        raise DeclarationError(f"{named.name}: storage.{named.name}.transport: Lustre needs tcp or rdma")
    return inputs.network or ("o2ib" if named.storage.transport == "rdma" else "tcp")


def client(named: NamedStorage, node: ClientNode, family: str) -> Client:
    inputs = node.inputs.lustre
    network = network_name(named, inputs)
    return Client(
        files=(
            RemoteFile("/etc/modprobe.d/rackproof-lustre.conf", options(network, node), restart=(LNET,)),
            RemoteFile(DROP_IN, _SERVICE.format(network=network), restart=(LNET,)),
            # Empty, so that it cannot contradict the module's options.
            RemoteFile("/etc/lnet.conf", "# Managed by rackproof: LNet is set up by modprobe.d.\n{}\n"),
        ),
        install=(
            *_software(inputs, family, node),
            module("Lustre", "lustre", f"a client of exactly this kernel, or {KEY}.source to build it from"),
        ),
        # The module lustre would start LNet before the network is up: the first mount loads it.
        modules=("lnet",),
        units=(Unit(LNET, proof=f"timeout -k 2 15 lctl list_nids | grep -q '@{network}$'"),),
        proofs=(_transport(named, network),) if named.storage.transport else (),
    )


def options(network: str, node: ClientNode) -> str:
    """Module options for modprobe.d, read when the module is loaded."""
    inputs = node.inputs.lustre
    interfaces = inputs.interfaces or node.interfaces
    if not interfaces:
        raise DeclarationError(f"{KEY}.interfaces: name the interfaces of LNet")
    lines = ["# Managed by rackproof.", f'options lnet networks="{network}({",".join(interfaces)})"']
    if not inputs.discovery:
        lines.append("options lnet lnet_peer_discovery_disabled=1")
    if network.startswith("o2ib"):
        keys = ("peer_timeout", "peer_credits", "credits", "peercredits_hiw", "concurrent_sends", "ntx")
        words = {"peercredits_hiw": "peer_credits_hiw"}
        settings = " ".join(f"{words.get(key, key)}={getattr(inputs, key)}" for key in keys)
        lines.append(f"options ko2iblnd {settings}")
    elif inputs.skip_mr_route_setup:
        lines.append("options ksocklnd skip_mr_route_setup=1")
    return "\n".join(lines) + "\n"


def _software(inputs: Lustre, family: str, node: ClientNode) -> list[Step]:
    if not inputs.source:
        default = (
            {"kmod-lustre-client": "", "lustre-client": ""} if family == "rhel" else {"lustre-client-utils": ""}
        )  # fmt: skip
        wanted = inputs.packages or default
        steps = list(software("lustre", wanted, inputs.repository, family, f"{KEY}.packages", node))
        if family != "rhel" and not inputs.packages:
            steps.append(_modules_package(node.policy))
        return steps
    unpack = shell.script(__name__, "unpack", sources=place(inputs.source))
    build = shell.script(__name__, "lustre_build", ofed=inputs.ofed, target="rpms" if family == "rhel" else "debs")
    built = '"$work"/*client*.rpm' if family == "rhel" else '"$work"/debs/*client*.deb'
    script = shell.Script.of(
        fetch(inputs.source),
        unpack,
        build,
        install_built(built, family, node.policy),
        f"mkdir -p {BUILT_STAMP.rpartition('/')[0]}",
        f"{stamp(inputs.source, inputs.ofed)} >{BUILT_STAMP}.new && mv -f {BUILT_STAMP}.new {BUILT_STAMP}",
    )
    tools = dict.fromkeys(BUILD["rhel" if family == "rhel" else "debian"].split(), "")
    return [
        *(repository("lustre", inputs.repository, family, KEY) if inputs.repository else ()),
        kernel_headers(family, "Lustre", node.policy),
        packages("Lustre's build", tools, family, KEY, node.policy),
        Step(
            name="Build of Lustre",
            holds=f'[ "$({stamp(inputs.source, inputs.ofed)})" = "$(cat {BUILT_STAMP})" ]',
            script=script,
            otherwise="not built for this kernel and these drivers; see above, and the release's list of kernels",
        ),
    ]


def stamp(source: Download, ofed: str) -> str:
    """Shell command that prints what a build depends on: sources, running kernel, DOCA."""
    return (
        f'echo {source.sha256[:12]} "$(uname -r)" '
        f'"$(cat {ofed}/.ofed_version {ofed}/build_release 2>/dev/null | sha256sum | cut -c1-12)"'
    )


def _modules_package(policy: Policy) -> Step:
    name = f"lustre-client-modules-{RUNNING_KERNEL}"
    return Step(
        name="Modules of Lustre",
        holds=f'[ "$(dpkg-query -W -f=\'${{db:Status-Status}}\' "{name}")" = installed ]',
        script=transaction_script(Transaction("debian", (Package(name),), policy=policy)),
        otherwise="no lustre-client-modules of the running kernel: boot a kernel that the repository has, or give "
        f"{KEY}.source",
        brings=((name, ""),),
    )


def _transport(named: NamedStorage, network: str) -> Step:
    """Checks that every connection of this file system to a target uses the declared network."""
    source = shlex.quote(f"{named.storage.file_system}-")
    ask = f"timeout -k 2 15 lctl get_param -n osc.{source}'*'.import mdc.{source}'*'.import"
    count = "awk '/current_connection:/{if ($0 ~ /@" + network + "/) good = 1; else if ($0 !~ /none/) bad = 1} "
    return Step(
        name=f"Transport of {named.name}",
        holds=f"{ask} | {count}END{{exit !(good && !bad)}}'",
        otherwise=f"not all of its servers are reached over {network}: lnetctl net show on both ends, and was "
        f"{network} up when Lustre was mounted?",
    )
