"""ssh between nodes: host keys in ssh_known_hosts, and keys in authorized_keys that may log in and run nothing.

Nothing of the kit runs commands from node to node: root on one node is not root on another.

A private key never leaves the node that made it. Keys of a node that does not answer stay as they are elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PRIVATE_KEY = "/root/.ssh/id_ed25519"
AUTHORIZED_KEYS = "/root/.ssh/authorized_keys"
KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
RUNS_NOTHING = 'restrict,command="/bin/true"'
"""Options of every key, sshd(8): no command but this one, no terminal, no forwarding."""
HOST_KEYS = "/etc/ssh/ssh_host_*_key.pub"


@dataclass(frozen=True, slots=True)
class Identity:
    """Public keys of a node, each ``type base64`` without its comment."""

    host_keys: tuple[str, ...]
    user_key: str | None


def identity_command() -> str:
    return (
        f'for f in {HOST_KEYS}; do [ -f "$f" ] && read -r key <"$f" && echo "host $key"; done; '
        f"key=; if [ -f {PRIVATE_KEY}.pub ]; then read -r key <{PRIVATE_KEY}.pub; "
        f"elif [ -f {PRIVATE_KEY} ]; then key=$(ssh-keygen -y -f {PRIVATE_KEY} </dev/null); fi; "
        '[ -z "$key" ] || echo "user $key"; '
    )


def parse_identity(lines: Sequence[str]) -> Identity:
    """Answer of ``identity_command``. Raises ValueError on a line that is not a public key."""
    host_keys: list[str] = []
    user_key: str | None = None
    for line in lines:
        what, *words = line.split()
        if what not in ("host", "user") or len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
            raise ValueError(f"not a public key: {line!r}")
        key = f"{words[0]} {words[1]}"
        if what == "host":
            host_keys.append(key)
        else:
            user_key = key
    # One key per node is enough; older types serve only clients without Ed25519.
    preferred = [key for key in host_keys if key.startswith("ssh-ed25519 ")] or sorted(host_keys)
    return Identity(tuple(preferred), user_key)


def known_hosts(
    names: Mapping[str, Sequence[str]], identities: Mapping[str, Identity], present: str
) -> tuple[str, tuple[str, ...]]:
    """Lines of ssh_known_hosts, and the nodes without a key.

    ``names``: by node, its further names (aliases, addresses), in rack order. ``present``: the current block.
    """
    kept = _by_first_name(present)
    lines: list[str] = []
    missing: list[str] = []
    for node, further in names.items():
        identity = identities.get(node)
        if identity is not None and identity.host_keys:
            lines += [f"{','.join([node, *further])} {key}" for key in identity.host_keys]
        elif node in kept:
            lines += kept[node]
        else:
            missing.append(node)
    return "".join(f"{line}\n" for line in lines), tuple(missing)


def _by_first_name(block: str) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for line in block.splitlines():
        lines.setdefault(line.split(",")[0].split(" ")[0], []).append(line)
    return lines


def authorized_keys(
    nodes: Sequence[str], identities: Mapping[str, Identity], present: str
) -> tuple[str, tuple[str, ...]]:
    """Lines of authorized_keys, and the nodes without a key."""
    kept = {line.rsplit(" ", 1)[-1]: " ".join(line.split()[-3:]) for line in present.splitlines()}
    lines: list[str] = []
    missing: list[str] = []
    for node in nodes:
        identity = identities.get(node)
        comment = f"root@{node}"
        answered = f"{identity.user_key} {comment}" if identity is not None and identity.user_key else None
        if key := answered or kept.get(comment):
            lines.append(f"{RUNS_NOTHING} {key}")
        else:
            missing.append(node)
    return "".join(f"{line}\n" for line in lines), tuple(missing)


def keygen_script(node: str) -> str:
    """Shell script that makes the node's key pair; an existing one is never replaced."""
    return "\n".join(
        (
            "set -eu",
            "umask 077",
            "mkdir -p /root/.ssh",
            f"[ -e {PRIVATE_KEY} ] || ssh-keygen -q -t ed25519 -N '' -C root@{node} -f {PRIVATE_KEY} </dev/null",
        )
    )
