"""Packages by URL and sha256: loaded to a folder of their own, compared, and only then installed, all in one go."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from rackproof.configure.containers.inputs import Download
from rackproof.configure.package_manager import LOCK_WAIT_S, tell_why, wait_for_lock

DONE = "/var/lib/rackproof/downloads"
"""A file for each sha256 that was installed."""


def state_command() -> str:
    return f'for f in {DONE}/*; do [ ! -e "$f" ] || echo "${{f##*/}}"; done; '


def missing(wanted: Sequence[Download], installed: Collection[str]) -> tuple[Download, ...]:
    return tuple(download for download in wanted if download.sha256 not in installed)


def install_script(wanted: Sequence[Download], family: str) -> str:
    """Fails with the URL when it is not there, or is not what was asked for; nothing is installed then."""
    lines = ["set -eu", "d=$(mktemp -d)", "trap 'rm -rf -- \"$d\"' EXIT"]
    names = []
    for index, download in enumerate(wanted):
        suffix = "deb" if family == "debian" else "rpm"
        name = f"{index:02}-{download.url.rsplit('/', 1)[1].split('?')[0]}"
        name = name if name.endswith(f".{suffix}") else f"{name}.{suffix}"
        file, url = f'"$d"/{shlex.quote(name)}', shlex.quote(download.url)
        names.append(file)
        lines += [
            f"timeout -k 5 600 curl -fsSL --retry 2 -o {file} -- {url}"
            f" || {{ echo {shlex.quote(f'{download.url}: cannot be loaded')} >&2; exit 1; }}",
            f"echo {download.sha256}'  '{file} | sha256sum -c --status -"
            f" || {{ echo {shlex.quote(f'{download.url}: not the file that was asked for (sha256)')} >&2; exit 1; }}",
        ]
    files = " ".join(names)
    install = "apt-get -q -y -o DPkg::Lock::Timeout=300 install" if family == "debian" else "dnf -q -y install"
    lines += [
        "export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8",
        *wait_for_lock(family, LOCK_WAIT_S),
        *tell_why(family),
        f"try {install} {files} || refused 'the downloaded packages cannot be installed, see above'",
        f"mkdir -p {DONE}",
        *(f"touch {DONE}/{download.sha256}" for download in wanted),
    ]
    return "\n".join(lines)
