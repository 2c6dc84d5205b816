"""A node with adapters in a folder, for what one run leaves to the next."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from rackproof.configure.nic import ports
from tests.unit.configure.loop import SYSTEMCTL, Shell
from tests.unit.configure.nic.tree import ETHTOOL, MLNX_QOS, RDMA, SETPCI, Tree
from tests.unit.shell import executable

TO_ROOT = ("/usr/local/sbin/", "/usr/sbin/ofed", "/run/rackproof", "/var/lib/rackproof")
ALSO = ("/sys/", "/proc/sys/kernel/random", "/proc/self/mounts", "/proc/net/bonding")


def node(tmp_path: Path) -> Tree:
    """A node with the kit's own programs for adapters, and no adapter yet."""
    tree = Tree(tmp_path)
    for name in ("units", "var/lib"):
        (tree.root / name).mkdir(parents=True)
    for name, body in (("ethtool", ETHTOOL), ("setpci", SETPCI), ("rdma", RDMA), ("mlnx_qos", MLNX_QOS)):
        tree.program(name, body)
    tree.program("systemctl", SYSTEMCTL.replace("@root@", str(tree.root)))
    for name in ("port", "rdma-names", "acs"):
        executable(tree.root / f"usr/local/sbin/rackproof-{name}", ports.script(name))
    tree.program("ss", "exit 0")  # no user is logged in
    tree.write("/proc/self/mounts", "/dev/vda1 / ext4 rw 0 0\n")
    return tree


def shell(tree: Tree) -> Shell:
    """The kit's own programs find the folder by themselves; all other commands are told where it is."""

    def run(script: str) -> subprocess.CompletedProcess[str]:
        paths = TO_ROOT if "RACKPROOF_ROOT" in script else (*TO_ROOT, *ALSO)
        script = re.sub("|".join(map(re.escape, paths)), lambda match: f"{tree.root}{match[0]}", script)
        done = tree.sh(script)
        done.stdout = done.stdout.replace(str(tree.root), "")
        return done

    return run


def starts(tree: Tree, unit: str, script: str) -> None:
    (tree.root / f"units/{unit}.start").write_text(script.replace("/usr/local", f"{tree.root}/usr/local"))
