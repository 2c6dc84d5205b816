"""``python -m tests.shellcheck``: shellcheck over shell files of the checkout, templates of programs, commands, and
the virtual rack's faults and programs.

Templates are rendered first, with each of their sample values.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rackproof.configure import files
from rackproof.configure.containers import user
from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.gpu.tuning import Tuning
from rackproof.configure.node import cmdline, settings
from rackproof.configure.node.cmdline import WantedArguments
from rackproof.configure.render import Templates
from rackproof.configure.rollback.restore import kept_command
from rackproof.configure.trust import identity_command
from rackproof.lab.faults import live_faults, script_of
from rackproof.lab.recipe import read_recipe, releases
from rackproof.parse import (
    accounts,
    block,
    client_transfer,
    containers,
    cpu,
    edac,
    installed,
    interrupts,
    machine,
    nvme,
    statfs,
)
from rackproof.remote import command

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT / "templates"
_CONTAINER = {
    "host_root": "/var/lib/root",
    "shared": ["/usr", "/etc"],
    "mountpoints": ["/mnt/a", "/mnt/b"],
    "selinux": True,
}
SAMPLES: dict[str, list[dict[str, Any]]] = {
    "nvidia-smi": [{"recordings": "/usr/local/share/gpu"}],
    "rackproof-container": [_CONTAINER | {"runtime": runtime} for runtime in ("podman", "docker", "enroot")],
    "rackproof-gpu": [
        {"tuning": Tuning(ecc=False, mig=False)},
        {"tuning": Tuning(700.0, (2619, 1980), (1200, 1980), (2619,), True, True, ("3g.71gb", "4g.71gb"), reset=True)},
    ],
    "rackproof-health": [
        {"node": "gpu-01", "directory": "/opt/kit", "time_limit": 60, "arguments": ["--local"], "drain_on": drain_on}
        for drain_on in ([], ["failed", "timeout"])
    ],
    "rackproof-idle-limit": [{"bytes": r"\002"}],
    "rackproof-irq-affinity": [{"root": "/"}],
    "rackproof-mounts": [{"mounts": [{"unit": "mnt-a.mount"}]}],
    "rackproof-read-ahead": [{"wanted": {"/mnt/a": 1024}}],
}
"""Values of the templates below ``usr/local/bin`` and ``usr/local/sbin``, by name of the program."""
_SETTINGS = settings.Settings(True, "UTC", "rackproof", ("nvme_tcp",), ("nouveau",), {2048: 1}, True)
COMMANDS = {
    "accounts": accounts.accounts_command(("a", "b")),
    "client transfer": client_transfer.PORTS,
    "containers": containers.INSIDE.replace("{folders}", "/a /b"),
    "cpu": cpu.IDLE_STATES,
    "drives": block.DRIVES,
    "edac": edac.EDAC,
    "files": files.states_command(("/a", "/b"), ("/a", "/b")),
    "grub": cmdline.dropin_text(WantedArguments(("iommu=pt", "quiet"), ("nosmt",))),
    "installed versions": installed.CAPTURE_COMMAND,
    "interrupts": interrupts.INTERRUPTS,
    "journals": kept_command(),
    "latency": statfs.latency_command("/mnt/a", 5),
    "machine": machine.MACHINE_COMMAND,
    "nvme": nvme.SMART_LOGS,
    "path": command.FULL_PATH,
    "settings": settings.state_command(_SETTINGS),
    "ssh keys": identity_command(),
    "user": user.state_command(ContainerInputs(), ("/a", "/b")),
}
"""Long commands of modules. Recordings and files on nodes hold their words: in a file they would read differently."""
_ACCEPTED = "SC2034,SC2284,SC3045"  # the counter of a loop; ``echo ==``; ``ulimit -l``, which dash knows
_OF_FAULTS = "SC2012,SC2100"  # ``ls`` of names without blanks; ``fault=client-throttled`` is no subtraction
_OF_IMAGE = "SC2013,SC2046,SC2086,SC2116,SC2254"  # words of a kernel command line
_SHELL = re.compile(r"#!.*\b(sh|bash)$")


def tracked() -> Iterator[Path]:
    """Shell files that git knows, but for templates: by suffix, or by their interpreter."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.suffix == ".sh":
            yield path
        elif not path.suffix and path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                if _SHELL.match(file.readline().rstrip()):
                    yield path


def rendered(folder: Path) -> Iterator[Path]:
    """Shell programs among the templates, as they land on nodes."""
    templates = Templates(TEMPLATES)
    for path in sorted(TEMPLATES.glob("usr/local/*bin/*.j2")):
        if not _SHELL.match(path.read_text(encoding="utf-8").partition("\n")[0]):
            continue
        program = path.name.removesuffix(".j2")
        for number, values in enumerate(SAMPLES[program]):
            text = templates.text(str(path.relative_to(TEMPLATES).with_suffix("")), **values)
            target = folder / f"{program}.{number}.sh"
            target.write_text(text, encoding="utf-8")
            yield target


def scripts() -> Iterator[tuple[str, str, str]]:
    """Name, codes that are accepted, and text of shell that is in no file of its own."""
    for name, text in COMMANDS.items():
        yield f"{name}.command", _ACCEPTED, text
    for fault in live_faults().values():
        for state in ("on", "off"):
            yield f"{fault.name}.{state}", _OF_FAULTS, script_of(fault, state)
    for path, text in read_recipe(releases()[0])[0]["files"].items():
        if text.startswith("#!"):
            yield Path(path).name, _OF_IMAGE, text.partition("\n")[2]


def commands(folder: Path) -> Iterator[Path]:
    for name, accepted, text in scripts():
        target = folder / f"{name}.sh"
        target.write_text(f"# shellcheck shell=sh disable={accepted}\n{text}\n", encoding="utf-8")
        yield target


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [*tracked(), *rendered(Path(folder)), *commands(Path(folder))]
        sys.exit(subprocess.run(["shellcheck", "--norc", "--", *map(str, paths)], cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
