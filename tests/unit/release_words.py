"""Directives, options and units that the kit's templates, scripts and plans use, by the program that reads them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.unit.sources import nodes_of

ROOT: Final = Path(__file__).parents[2]

Word = tuple[str, str]
"""Program, and a directive, option, verb or unit of it."""

PROGRAMS: Final = {
    "systemd": (
        "hostnamectl journalctl loginctl networkctl systemctl systemd-escape systemd-run systemd-tmpfiles timedatectl"
        " udevadm"
    ),
    "iproute2": "bridge dcb devlink ip rdma ss tc",
    "chrony": "chronyc chronyd",
    "ethtool": "ethtool",
    "util-linux": "blkid findmnt flock lsblk lscpu mount nsenter prlimit setpriv umount wipefs",
    "nfs-utils": "exportfs mountstats nfsstat",
    "slurm": "sacct scontrol sinfo slurmctld slurmd squeue srun",
    "NetworkManager": "nmcli",
    "tuned": "tuned-adm",
    "nftables": "nft",
    "openssh": "ssh ssh-keygen sshd",
    "mdadm": "mdadm",
    "kmod": "modprobe",
    "e2fsprogs": "mkfs.ext4",
    "xfsprogs": "mkfs.xfs",
    "nvme-cli": "nvme",
    "pciutils": "lspci setpci",
    "procps": "sysctl",
    "shadow": "useradd usermod",
    "apt": "apt-cache apt-get apt-mark",
    "dpkg": "dpkg dpkg-query",
    "dnf": "dnf",
    "rpm": "rpm rpmkeys",
    "dkms": "dkms",
    "grubby": "grubby",
    "firewalld": "firewall-cmd",
    "podman": "podman",
}
"""Commands by the package whose version decides what they know."""
OWNER: Final = {command: program for program, commands in PROGRAMS.items() for command in commands.split()}
WITH_VERBS: Final = (
    *("bridge", "chronyc", "dcb", "devlink", "hostnamectl", "ip", "loginctl", "networkctl", "nmcli", "rdma"),
    *("systemctl", "tc", "timedatectl", "tuned-adm", "udevadm"),
)
"""Commands whose first word chooses what they do. Other words are objects of the site."""
_COMMAND: Final = re.compile(
    r"(?<![\w./=§-])(" + "|".join(sorted(map(re.escape, OWNER), key=len, reverse=True)) + r")(?![\w.-])"
    r"""((?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'|[^\s;|&()<>`"'])+)*)"""
)
_ARGUMENT: Final = re.compile(r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s;|&()<>`"'])+""")
_OPTION: Final = re.compile(r"--?[A-Za-z][A-Za-z0-9-]*")
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9._-]*)\s*=")
_UDEV: Final = re.compile(r"\b([A-Z]+)(?:\{[^}]*\})?\s*(?:[=!]=|\+?=)")
_UNIT: Final = re.compile(
    r"(?<![\w./@-])((?!rackproof)[A-Za-z][A-Za-z0-9_-]*)(@)?[^\s'\"/.;,]*"
    r"(\.(?:service|socket|target|timer))\b"
)


def commands(text: str, verbs: bool = True) -> Iterator[Word]:
    """Options of commands, with the command's name, and their verbs.

    ``verbs``: false for text that may be a sentence, in which any word follows a command's name.
    """
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.lstrip().startswith("#"):
            continue
        for match in _COMMAND.finditer(line):
            command, words = match[1], _ARGUMENT.findall(match[2])
            for word in words:
                if word == "--" or word.endswith((",", ":")):
                    break
                if option := _OPTION.match(word):
                    yield OWNER[command], f"{command} {option[0]}"
            verb = next((word for word in words if not word.startswith("-")), "")
            if verbs and command in WITH_VERBS and re.fullmatch(r"[a-z][a-z-]*", verb):
                yield OWNER[command], f"{command} {verb}"


def units(text: str) -> Iterator[str]:
    """Names of units that are not the kit's; ``@.service`` for an instance."""
    for match in _UNIT.finditer(text):
        yield f"{match[1]}{match[2] or ''}{match[3]}"


def file_words(path: str, text: str) -> Iterator[Word]:
    """Directives of a configuration file, by its path on the node. Nothing for files of other programs."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(("#", "//"))]
    if path.startswith("/etc/chrony"):
        yield from (("chrony", f"chrony.conf {line.split()[0]}") for line in lines if line[0].isalpha())
    elif path.startswith("/etc/udev/rules.d/"):
        yield from (("systemd", f"udev {key}") for line in lines for key in _UDEV.findall(line))
    elif path.startswith("/etc/slurm/"):
        name = path.rpartition("/")[2]
        if name in ("slurm.conf", "cgroup.conf", "gres.conf"):
            yield from (
                ("slurm", f"{name} {key}") for line in lines for key in re.findall(r"(?:^|\s)([A-Z]\w+)=", line)
            )
    elif kind := _ini_kind(path):
        program, name = kind
        yield from ((program, f"{name} {word}") for word in _ini(lines, program))


_INI: Final = {
    r"/etc/systemd/network/.*\.(link|network|netdev)": ("systemd", "systemd.{}"),
    r"/etc/systemd/system\.conf\.d/.*": ("systemd", "system.conf"),
    r"/etc/systemd/system/.*\.(?:service|mount|conf)": ("systemd", "unit"),
    r"/etc/nfs\.conf\.d/.*": ("nfs-utils", "nfs.conf"),
    r"/etc/tuned/.*": ("tuned", "tuned.conf"),
    r"/etc/NetworkManager/.*": ("NetworkManager", "keyfile"),
    r"/etc/yum\.repos\.d/.*": ("dnf", "repository"),
}


def _ini_kind(path: str) -> Word | None:
    for pattern, (program, name) in _INI.items():
        if match := re.fullmatch(pattern, path):
            return program, name.format(*match.groups())
    return None


def _ini(lines: list[str], program: str) -> Iterator[str]:
    section = ""
    for line in lines:
        if re.fullmatch(r"\[.*\]", line):
            section = line[1:-1]
        elif (key := _KEY.match(line)) and not key[1].startswith("X-") and section != "sysctl":
            name = key[1].rstrip("0123456789") if program == "NetworkManager" else key[1]
            yield name if program == "dnf" else f"{section}.{name}"


def template_text(text: str) -> str:
    """A template without its tags: every branch at once, ``§`` in place of a value."""
    return re.sub(r"\{\{.*?\}\}", "§", re.sub(r"\{[%#].*?[%#]\}", "", text, flags=re.DOTALL), flags=re.DOTALL)


def strings(path: Path) -> Iterator[str]:
    """Texts of a module except docstrings; ``§`` in place of a value."""
    nodes = nodes_of(path)
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            inner |= {id(value) for value in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "§" for part in node.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


@cache
def declared() -> dict[Word, str]:
    """Every word of templates, scripts and modules, with one file that has it."""
    places: dict[Word, str] = {}
    templates = ROOT / "templates"
    for path in sorted(templates.rglob("*.j2")):
        target, text = f"/{path.relative_to(templates).as_posix().removesuffix('.j2')}", template_text(path.read_text())
        _note(places, path, (*file_words(target, text), *(commands(text) if target.startswith("/usr/") else ())))
    for path in sorted((ROOT / "rackproof").rglob("*.sh")):
        _note(places, path, commands(path.read_text()))
    modules = (path for folder in ("rackproof", "validators", "deploys") for path in (ROOT / folder).rglob("*.py"))
    for path in sorted(modules):
        if path.is_relative_to(ROOT / "rackproof" / "lab"):
            continue  # builds and drives the virtual rack's own image
        for text in strings(path):
            # Also a unit or configuration file that a module writes.
            of_units = ((OWNED[name], name) for name in units(text) if name in OWNED)
            unit_file = file_words("/etc/systemd/system/x.service", text) if "\n[Service]\n" in f"\n{text}" else ()
            _note(places, path, (*commands(text, verbs=False), *of_units, *unit_file))
    return places


def _note(places: dict[Word, str], path: Path, words: tuple[Word, ...] | Iterator[Word]) -> None:
    for word in words:
        places.setdefault(word, path.relative_to(ROOT).as_posix())


OWNED: Final = {
    "NetworkManager.service": "NetworkManager",
    "NetworkManager-wait-online.service": "NetworkManager",
    "chrony.service": "chrony",
    "chronyd.service": "chrony",
    "nfs-client.target": "nfs-utils",
    "nfs-server.service": "nfs-utils",
    "rpc-statd.service": "nfs-utils",
    "slurmctld.service": "slurm",
    "slurmd.service": "slurm",
    "tuned.service": "tuned",
    **dict.fromkeys(
        (
            "systemd-modules-load.service",
            "systemd-networkd.service",
            "systemd-networkd-wait-online.service",
            "systemd-networkd-wait-online@.service",
            "systemd-sysctl.service",
            "systemd-udevd.service",
        ),
        "systemd",
    ),
}
"""Units of these programs."""


def planned(golden: str) -> dict[Word, str]:
    """Every word of a node's plan: files that it writes, and commands that it runs."""
    files: dict[str, list[str]] = {}
    words: dict[Word, str] = {}
    path = ""
    for line in golden.splitlines():
        if match := re.match(r"\| \+\+\+ (/\S+)", line):
            path = match[1]
            files[path] = []
        elif line.startswith("| +") and path:
            files[path].append(line[3:])
        elif line.startswith("$ "):
            for word in (*commands(line[2:]), *((OWNED[name], name) for name in units(line) if name in OWNED)):
                words.setdefault(word, line[2:100])
    for name, lines in files.items():
        text = "\n".join(lines)
        script = commands(text) if name.startswith("/usr/") else ()
        for word in (*file_words(name, text), *script):
            words.setdefault(word, name)
    return words
