"""Installed packages, DKMS modules and adapter firmware of a node: the source of a version set."""

from __future__ import annotations

from typing import Final

from rackproof.core.versions.capture import Captured
from rackproof.parse.dkms import parse_dkms_status
from rackproof.parse.machine import MACHINE_COMMAND, parse_machine
from rackproof.parse.packages import parse_package_list
from rackproof.parse.sections import sections_of

_LIST: Final = (
    "if command -v dpkg-query >/dev/null; then"
    " dpkg-query -W -f='${db:Status-Status} ${Package} ${Version}\\n'; else"
    " rpm -qa --qf 'installed %{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\\n'; fi"
)
_FIRMWARE: Final = (
    'for d in /sys/class/infiniband/*; do b=$d/board_id; [ ! -e "$b" ] || echo "$(cat "$b") $(cat "$d/fw_ver")"; done'
)
CAPTURE_COMMAND: Final = (
    f"{MACHINE_COMMAND}; echo ==; {_LIST}; echo ==; "
    "if command -v dkms >/dev/null; then timeout 60 dkms status; fi; echo ==; "
    f"{_FIRMWARE}; echo ==; echo end of versions"
)
"""One read-only command per node."""


def parse_installed_versions(text: str) -> Captured:
    """Output of ``CAPTURE_COMMAND``. Raises ValueError for anything else, and for incomplete output."""
    parts = sections_of(text.splitlines(), mark="==")
    if len(parts) != 5 or parts[4] != ["end of versions"]:
        raise ValueError("the answer is cut off")
    machine = parse_machine(parts[0])
    packages = parse_package_list(parts[1])
    if not packages:
        raise ValueError("the answer has no list of installed packages")
    firmware: dict[str, set[str]] = {}
    for line in parts[3]:
        psid, _, version = line.strip().partition(" ")
        if not (psid and version):
            raise ValueError(f"expected the firmware of an adapter, got {line!r}")
        firmware.setdefault(psid, set()).add(version)
    built = [
        module.name
        for module in parse_dkms_status(parts[2])
        if (module.kernel, module.state) == (machine.kernel, "installed")
    ]
    return Captured(
        machine,
        {name: frozenset(versions) for name, versions in packages.items()},
        tuple(dict.fromkeys(built)),
        {psid: ", ".join(sorted(versions)) for psid, versions in firmware.items()},
    )
