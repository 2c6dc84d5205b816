"""VAST's and PowerScale's NFS clients, which replace the kernel's sunrpc and all modules that use it.

The modules cannot be replaced while NFS is mounted: the step then fails and names the mount.
"""

from __future__ import annotations

import shlex

from rackproof import shell
from rackproof.configure.inputs import Download
from rackproof.configure.package_transaction.transaction import STRICT, Policy
from rackproof.configure.storage_client.inputs import Nfs
from rackproof.configure.storage_client.install import fetch, install_built, install_download, kernel_headers, place
from rackproof.configure.storage_client.steps import Step
from rackproof.errors import DeclarationError

KEY = "storage_client.nfs"
VERSION = "/sys/module/sunrpc/parameters/nfs_bundle_version"
"""Exists only in the vendors' modules (VAST's documentation; PowerScale's client is built from the same source)."""
STAMP = "/var/lib/rackproof"


def steps(inputs: Nfs, family: str, policy: Policy = STRICT) -> tuple[Step, ...]:
    """Raises DeclarationError for a vendor's driver without its source."""
    driver = inputs.driver
    if driver == "kernel":
        return ()
    download = inputs.bundle or inputs.package
    if download is None or (inputs.bundle and inputs.package):
        raise DeclarationError(
            f"{KEY}: driver {driver} needs either bundle (sources) or package, each with url and sha256"
        )
    built = f'[ "$(cat {STAMP}/{driver})" = "$(uname -r) {download.sha256[:12]}" ] && command -v {driver}-ctl'
    unused = shell.script(__name__, "nfs_unused")
    loaded = f"grep -q {shlex.quote(f'^{inputs.version}')} {VERSION}"
    steps_ = [
        Step(
            name=f"Client {driver}",
            holds=built,
            script=shell.Script.of(
                unused,
                _install(inputs, download, family, policy),
                f"mkdir -p {STAMP}",
                f'echo "$(uname -r)" {download.sha256[:12]} >{STAMP}/{driver}.new',
                f"mv -f {STAMP}/{driver}.new {STAMP}/{driver}",
            ),
            otherwise=f"not installed; does {KEY} fit the running kernel and its RDMA drivers (--no-ofed in "
            "build_options with the kernel's own)?",
        ),
        Step(
            name=f"Module of {driver}",
            holds='modinfo -k "$(uname -r)" -F parm sunrpc | grep -q nfs_bundle_version',
            otherwise=f"{driver} is installed, but not for the running kernel; rebuild it",
        ),
        Step(
            name=f"{driver} in the kernel",
            holds=loaded,
            script=f"{unused}\ntimeout 120 {driver}-ctl reload",
            otherwise="the kernel still has another sunrpc: something holds it (lsmod | grep sunrpc); "
            f"a reboot loads {driver}",
        ),
    ]
    return (kernel_headers(family, driver, policy), *steps_) if inputs.bundle else tuple(steps_)


def _install(inputs: Nfs, download: Download, family: str, policy: Policy) -> str:
    initramfs = "dracut -f" if family == "rhel" else 'update-initramfs -u -k "$(uname -r)"'
    if inputs.package:
        return shell.Script.of(install_download(download, family, policy), initramfs)
    kind = "rpm" if family == "rhel" else "deb"
    unpack = shell.script(__name__, "unpack", sources=place(download))
    log = f"/var/log/rackproof-{inputs.driver}-build.log"
    return shell.Script.of(
        fetch(download),
        unpack,
        shell.script(__name__, "multipath_build", *inputs.build_options, log=log),
        install_built(f'"$work"/dist/*.{kind}', family, policy),
        initramfs,
    )
