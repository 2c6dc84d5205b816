"""The bridge: shared storage inside a container, at the same place and with the same options, without privileges.

One program, ``rackproof-container``, runs a command in a container as the user who calls it:

* every declared mount is bound to the same path with propagation ``rslave``: what the node mounts again later shows
  inside, and nothing that is mounted inside shows outside;
* the user keeps its UID (podman: ``--userns=keep-id``; docker: ``--user``), so files belong to the same one;
* no capability is kept, none can be gained, nothing is privileged;
* RDMA devices are passed one by one, the limit on pinned memory is the caller's own, and the network is the
  node's: RoCE addresses belong to its interfaces;
* on RHEL's family SELinux does not separate it (``label=disable``, podman-run(1)): separation would need new labels on
  bound paths, which shared storage does not accept (NFS) or must not have, and would hide RDMA devices;
* podman runs in the caller's control group: within a Slurm job the job's limits hold for the container.

``--host-root`` needs no image and no registry: the node's own ``/usr`` over an empty root, read-only.
"""

from __future__ import annotations

import re
import shlex

PROGRAM = "/usr/local/bin/rackproof-container"
ROOT = "/var/lib/rackproof/host-root"

DIRECTORIES = ("dev", "etc", "etc/alternatives", "etc/libibverbs.d", "mnt", "proc", "run", "sys", "tmp", "usr", "var",
               "var/tmp")  # fmt: skip
LINKS = {"bin": "usr/bin", "etc/mtab": "/proc/mounts", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
FILES = ("etc/group", "etc/hostname", "etc/hosts", "etc/ld.so.cache", "etc/passwd", "etc/resolv.conf",
         "run/.containerenv")  # fmt: skip
"""Mount points for the node's files."""
SHARED = ("/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/libibverbs.d")
"""The node's paths that are bound read-only."""


def root_script(mountpoints: tuple[str, ...]) -> str:
    """Create the empty root. It holds no data; creating it again changes nothing."""
    lines = ["set -eu", "umask 022", f"mkdir -p {ROOT}", f"cd {ROOT}"]
    places = _places(mountpoints)
    lines.append(f"mkdir -p -- {shlex.join(places)}")
    lines += [f"[ -L {name} ] || ln -s {target} {name}" for name, target in LINKS.items()]
    lines.append(f"touch -- {' '.join(FILES)}")
    lines.append(f"echo {shlex.join(places)} > .complete")
    return "\n".join(lines)


def state_command(mountpoints: tuple[str, ...]) -> str:
    """Shell text that prints ``yes`` where the root is complete, and for these mounts, otherwise ``no``."""
    places = re.sub(r'(["$`\\])', r"\\\1", " ".join(_places(mountpoints)))
    return f'if [ "$(cat {ROOT}/.complete 2>/dev/null)" = "{places}" ]; then echo yes; else echo no; fi; '


def _places(mountpoints: tuple[str, ...]) -> list[str]:
    return [*DIRECTORIES, *(path.lstrip("/") for path in mountpoints)]
