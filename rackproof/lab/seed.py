"""A node's seed: name, host key, authorized keys and management network, present before its first boot.

The seed is a second archive behind the image's initramfs, whose last script copies it to the root file system. So the
controller knows the host keys before the first connection.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from rackproof.errors import LabError
from rackproof.lab.spec import NodeSpec

KEY_TIMEOUT_S = 30


def make_key(path: Path, comment: str) -> str:
    """Make an ed25519 key pair unless it exists; return the public line without its comment."""
    if not path.exists():
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)],
            check=True, timeout=KEY_TIMEOUT_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    path.chmod(0o600)
    return " ".join(path.with_suffix(path.suffix + ".pub").read_text().split()[:2])


def write_initrd(target: Path, base: Path, node: NodeSpec, host_key: Path, authorized: str) -> None:
    """Write the image's initramfs followed by this node's seed archive."""
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        seed = Path(work) / "rackproof-seed"
        _tree(seed, node, host_key, authorized)
        names = "\n".join(str(p.relative_to(work)) for p in [seed, *sorted(seed.rglob("*"))]) + "\n"
        packed = subprocess.run(
            ["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"],
            cwd=work, input=names.encode(), capture_output=True, timeout=KEY_TIMEOUT_S, check=False,
        )  # fmt: skip
        if packed.returncode != 0:
            raise LabError(f"{node.name}: packing its seed failed: {packed.stderr.decode(errors='replace').strip()}")
        part = Path(work) / "initrd"
        with part.open("wb") as out:
            with base.open("rb") as image:
                shutil.copyfileobj(image, out)
            out.write(b"\0" * (-out.tell() % 4))  # the kernel expects the next archive on a 4-byte boundary
            out.write(packed.stdout)
        part.chmod(0o600)
        part.rename(target)


def _tree(seed: Path, node: NodeSpec, host_key: Path, authorized: str) -> None:
    def put(path: str, data: bytes, mode: int = 0o644) -> None:
        file = seed / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode)

    put("etc/hostname", f"{node.name}\n".encode())
    # Without a machine id systemd would preset every unit at the first boot.
    put("etc/machine-id", hashlib.sha256(host_key.read_bytes()).hexdigest()[:32].encode() + b"\n", 0o444)
    put("etc/ssh/ssh_host_ed25519_key", host_key.read_bytes(), 0o600)
    put("etc/ssh/ssh_host_ed25519_key.pub", host_key.with_suffix(".pub").read_bytes())
    keys = "AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/lab_authorized_keys"
    put("etc/ssh/sshd_config.d/rackproof-lab.conf", f"HostKey /etc/ssh/ssh_host_ed25519_key\n{keys}\n".encode())
    put("etc/ssh/lab_authorized_keys", f"{authorized} rackproof-lab\n".encode(), 0o600)
    put("etc/systemd/network/05-management.network",
        f"[Match]\nMACAddress={node.mac('mgmt')}\n\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n\n"
        "[DHCPv4]\nUseDNS=no\n".encode())  # fmt: skip
