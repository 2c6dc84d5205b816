"""Steps that install software: verified downloads, signed repositories, exact packages, matching kernel modules."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from rackproof.configure.inputs import Download, Repository
from rackproof.configure.package_transaction.transaction import (
    RUNNING_KERNEL,
    STRICT,
    Package,
    Policy,
    Transaction,
    cached,
    fetch_function,
    fetch_line,
    package_file,
    transaction_script,
)
from rackproof.configure.storage_client.client import ClientNode
from rackproof.configure.storage_client.steps import Step
from rackproof.configure.versions.repositories import declared_file, declared_key, keys_script
from rackproof.errors import DeclarationError
from rackproof.shell import Script

TITLES = {"beegfs": "BeeGFS", "daos": "DAOS", "lustre": "Lustre", "scale": "Storage Scale"}


def place(download: Download) -> str:
    """Path of a download on the node."""
    return cached(download.url, download.sha256)


def fetch(download: Download) -> str:
    """Shell lines that download and verify a file."""
    return Script.of(fetch_function(), fetch_line(download.url, download.sha256, place(download)))


def repository(name: str, source: Repository, family: str, key: str) -> tuple[Step, ...]:
    """A vendor's repository. Its file is written after its key was verified: a repository that cannot be verified stops
    every installation."""
    signing, file = declared_key(name, source, family), declared_file(name, name, source, family)
    ring, path, text = signing.path, file.path, shlex.quote(file.content.rstrip("\n"))
    older = f"/etc/apt/sources.list.d/rackproof-{name}.list"  # apt refuses two keys for one repository
    return (
        Step(
            name=f"Key of the repository {name}",
            holds=f"echo {signing.sha256}'  '{ring} | sha256sum -c --status",
            script=keys_script([signing], family),
            otherwise=f"the pinned key is not available: has the vendor changed it? see {key}.repository.key",
            writes=(ring,),
        ),
        Step(
            name=f"Repository {name}",
            holds=f'[ ! -e {older} ] && [ "$(cat {path})" = {text} ]',
            script=(f"printf '%s\\n' {text} >{path}.new\nchmod 644 {path}.new\nmv -f {path}.new {path}\nrm -f {older}"),
            otherwise=f"{path} could not be written",
            writes=(path, older),
        ),
    )


def installed(packages: Mapping[str, str], family: str) -> str:
    """Shell test: all packages are completely installed, in these versions."""
    tests = []
    for package, version in packages.items():
        name = shlex.quote(package)
        if family == "rhel":
            tests.append(f"rpm -q {shlex.quote(f'{package}-{version}' if version else package)}")
        elif version:
            wanted = shlex.quote(f"installed {version}")
            tests.append(f"[ \"$(dpkg-query -W -f='${{db:Status-Status}} ${{Version}}' {name})\" = {wanted} ]")
        else:
            tests.append(f"[ \"$(dpkg-query -W -f='${{db:Status-Status}}' {name})\" = installed ]")
    return " && ".join(tests)


def packages(name: str, wanted: Mapping[str, str], family: str, key: str, policy: Policy = STRICT) -> Step:
    """Exactly these versions, from configured repositories. Nothing else is upgraded for them."""
    named = tuple(Package(package, version or None) for package, version in wanted.items())
    return Step(
        name=f"Packages of {name}",
        holds=installed(wanted, family),
        script=transaction_script(Transaction(family, named, refresh=True, policy=policy)),
        otherwise=f"not all of {' '.join(wanted)} are installed as declared; are they in the repository? see {key}",
        brings=tuple(wanted.items()),
    )


def software(
    name: str, wanted: Mapping[str, str], source: Repository | None, family: str, key: str, node: ClientNode
) -> tuple[Step, ...]:
    """Packages, from a vendor's repository if one is given, without those of the version set, which other operations
    install. Raises DeclarationError when the two declare different versions.
    """
    for package, version in wanted.items():
        if version and node.locked.get(package, version) != version:
            raise DeclarationError(
                f"{key}: {package} {version}, but the version set has {node.locked[package]}: remove one of them"
            )
    left = {package: version for package, version in wanted.items() if package not in node.locked}
    if not left:
        return ()
    where = repository(name, source, family, f"storage_client.{name}") if source else ()
    return (*where, packages(TITLES[name], left, family, key, node.policy))


def install_download(download: Download, family: str, policy: Policy = STRICT) -> str:
    """Shell lines that install a package from its file."""
    file = package_file(download.url, download.sha256, family)
    return transaction_script(Transaction(family, files=(file,), policy=policy))


def install_built(paths: str, family: str, policy: Policy = STRICT) -> str:
    """Shell lines that install packages that were built on the node; ``paths``: shell words."""
    return transaction_script(Transaction(family, built=paths, policy=policy))


def kernel_headers(family: str, why: str, policy: Policy = STRICT) -> Step:
    """Step that installs the headers of exactly the running kernel, which every build needs."""
    if family == "rhel":
        package = Package("kernel-devel", RUNNING_KERNEL)
    else:
        package = Package(f"linux-headers-{RUNNING_KERNEL}")
    return Step(
        name="Headers of the running kernel",
        holds='test -e "/lib/modules/$(uname -r)/build/Makefile"',
        script=transaction_script(Transaction(family, (package,), policy=policy)),
        otherwise=f"{why} is built for the running kernel, whose headers are not available: boot the kernel of the "
        "version set, or mirror its headers",
        brings=((package.name, package.version or ""),),
    )


def module(name: str, module_name: str, remedy: str) -> Step:
    """Step that checks that a kernel module was built for the running kernel."""
    return Step(
        name=f"Module {module_name}",
        holds=f'[ "$(modinfo -k "$(uname -r)" -F vermagic {module_name} | cut -d\' \' -f1)" = "$(uname -r)" ]',
        otherwise=f"{name} has no module {module_name} for the running kernel; {remedy}",
    )
