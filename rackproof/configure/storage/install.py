"""Steps that bring software: downloads that are checked, signed repositories, exact packages, modules that fit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from rackproof.configure.package_manager import LOCK_WAIT_S, wait_for_lock
from rackproof.configure.storage.inputs import Download, Repository
from rackproof.configure.storage.steps import Step
from rackproof.errors import DeclarationError

CACHE = "/var/cache/rackproof"
"""Where downloads stay; what is there with the right content is not fetched again."""

TITLES = {"beegfs": "BeeGFS", "daos": "DAOS", "lustre": "Lustre", "scale": "Storage Scale"}

FETCH = """\
fetch() {  # url, sha256, file
  mkdir -p "$(dirname "$3")"
  if [ -f "$3" ] && echo "$2  $3" | sha256sum -c --status; then return 0; fi
  command -v curl >/dev/null || { echo "curl is not installed" >&2; return 1; }
  if ! why=$(curl -fsSL --connect-timeout 20 --max-time 600 -o "$3.part" "$1" 2>&1); then
    rm -f "$3.part"; echo "$1: $(echo "$why" | tail -n 1)" >&2; return 1
  fi
  actual=$(sha256sum "$3.part" | cut -d' ' -f1)
  if [ "$actual" != "$2" ]; then
    rm -f "$3.part"; echo "$1: expected sha256 $2, actual $actual; nothing was kept" >&2; return 1
  fi
  mv -f "$3.part" "$3"
}
"""
"""Shell function; the file is there completely and with the right content, or not at all."""


def place(download: Download) -> str:
    """Where a download lies on the node: its content is part of the name, so that another one is another file."""
    return f"{CACHE}/{download.sha256[:12]}-{download.url.rstrip('/').rpartition('/')[2]}"


def fetch(download: Download) -> str:
    """Shell lines."""
    words = " ".join(map(shlex.quote, (download.url, download.sha256, place(download))))
    return f"{FETCH}fetch {words}"


def downloaded(name: str, download: Download, key: str) -> Step:
    path = shlex.quote(place(download))
    return Step(
        name=f"Download of {name}",
        holds=f"echo {shlex.quote(download.sha256)}'  '{path} | sha256sum -c --status",
        script=fetch(download),
        otherwise=f"not downloaded; see {key}.url and {key}.sha256, and whether this node reaches the server",
    )


def repository(name: str, source: Repository, family: str, key: str) -> tuple[Step, ...]:
    """A vendor's repository. It is named to the package manager after its key has been checked: one that cannot be
    verified would stop every other installation as well."""
    ring = f"/etc/rackproof/keys/{name}.asc"
    if family == "rhel":
        path = f"/etc/yum.repos.d/rackproof-{name}.repo"
        lines = [f"[rackproof-{name}]", f"name={name}", f"baseurl={source.source}", "enabled=1", "gpgcheck=1"]
        lines.append(f"gpgkey=file://{ring}")
    else:
        path = f"/etc/apt/sources.list.d/rackproof-{name}.list"
        lines = [f"deb [signed-by={ring}] {source.source}"]
    text = shlex.quote("\n".join(["# Written by rackproof.", *lines]))
    return (
        Step(
            name=f"Key of the repository {name}",
            holds=f"echo {source.key.sha256}'  '{ring} | sha256sum -c --status",
            script=f"{fetch(source.key)}\ninstall -D -m 644 {shlex.quote(place(source.key))} {ring}",
            otherwise=f"the key that was pinned is not there: has the vendor changed it? see {key}.repository.key",
            writes=(ring,),
        ),
        Step(
            name=f"Repository {name}",
            holds=f'[ "$(cat {path})" = {text} ]',
            script=f"printf '%s\\n' {text} >{path}.new\nchmod 644 {path}.new\nmv -f {path}.new {path}",
            otherwise=f"{path} could not be written",
            writes=(path,),
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


def packages(name: str, wanted: Mapping[str, str], family: str, key: str) -> Step:
    """Exactly these versions, from repositories that are there already. Nothing else is upgraded for them."""
    if family == "rhel":
        words = " ".join(shlex.quote(f"{each}-{version}" if version else each) for each, version in wanted.items())
        script = f"{unlocked(family)}\ndnf -q -y --setopt=install_weak_deps=False install {words}"
    else:
        words = " ".join(shlex.quote(f"{each}={version}" if version else each) for each, version in wanted.items())
        script = (
            "export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 NEEDRESTART_MODE=l\n"
            f"{unlocked(family)}\n"
            "apt-get -q update -o DPkg::Lock::Timeout=300\n"
            "apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold --allow-downgrades"
            f" install --no-install-recommends {words}"
        )
    return Step(
        name=f"Packages of {name}",
        holds=installed(wanted, family),
        script=script,
        otherwise=f"not all of {' '.join(wanted)} are installed as declared; are they in the repository? see {key}",
        brings=tuple(wanted.items()),
    )


def software(
    name: str, wanted: Mapping[str, str], source: Repository, family: str, key: str, locked: Mapping[str, str]
) -> tuple[Step, ...]:  # fmt: skip
    """Packages, from a vendor's repository where one is given. What a version set brings, it brings from its own
    repositories: neither is asked for again. Raises DeclarationError where the two want different versions.
    """
    for package, version in wanted.items():
        if version and locked.get(package, version) != version:
            raise DeclarationError(f"{key}: {package} {version}, and the version set has {locked[package]}: name one")
    left = {package: version for package, version in wanted.items() if package not in locked}
    if not left:
        return ()
    where = repository(name, source, family, f"storage_clients.{name}") if source else ()
    return (*where, packages(TITLES[name], left, family, key))


def unlocked(family: str) -> str:
    """Shell lines that wait until nobody else is installing, and say who is when that does not end."""
    return "\n".join(wait_for_lock(family, LOCK_WAIT_S))


def local_package(name: str, download: Download, holds: str, family: str, key: str) -> Step:
    """A package that was downloaded, installed from its file."""
    path = shlex.quote(place(download))
    return Step(
        name=f"Package of {name}",
        holds=holds,
        script=f"{fetch(download)}\n{unlocked(family)}\n{install_file(family)} {path}",
        otherwise=f"not installed; is {key} built for this kernel and distribution?",
    )


def install_file(family: str) -> str:
    """The command that installs the packages in the files behind it."""
    return "dnf -q -y install" if family == "rhel" else "apt-get -q -y -o DPkg::Lock::Timeout=300 install"


def of_running_kernel(name: str) -> str:
    """Shell lines that bring ``NAME-RELEASE`` of the running kernel from apt's repositories."""
    # Lists that are old name files that are gone, and do not know what was built for a new kernel.
    return (
        f"{unlocked('debian')}\n"
        "get() { apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends"
        f' "{name}-$(uname -r)"; }}\n'
        "get || { apt-get -q update; get; }"
    )


def kernel_headers(family: str, why: str) -> Step:
    """Without the headers of exactly the running kernel nothing can be built for it."""
    if family == "rhel":
        brings = ("kernel-devel", "$(uname -r)")
        script = f'{unlocked(family)}\ndnf -q -y install "kernel-devel-$(uname -r)"'
    else:
        brings = ("linux-headers-$(uname -r)", "")
        script = of_running_kernel("linux-headers")
    return Step(
        name="Headers of the running kernel",
        holds='test -e "/lib/modules/$(uname -r)/build/Makefile"',
        script=script,
        otherwise=f"{why} is built for the running kernel, whose headers are not to be had: boot the kernel of the "
        "version set, or mirror its headers",
        brings=(brings,),
    )


def module(name: str, module_name: str, way_out: str) -> Step:
    """A kernel module that was built for the running kernel, not for the one that was current when it was packaged."""
    return Step(
        name=f"Module {module_name}",
        holds=f'[ "$(modinfo -k "$(uname -r)" -F vermagic {module_name} | cut -d\' \' -f1)" = "$(uname -r)" ]',
        otherwise=f"{name} has no module {module_name} for the running kernel; {way_out}",
    )
