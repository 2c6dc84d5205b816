"""Identity of a machine (machine-id, boot id, serial numbers), and its kind."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rackproof.core.evidence import STAND_IN
from rackproof.parse.errors import ParseError
from rackproof.parse.text import UUID, excerpt, whole_lines

_FILES: Final = {
    "/etc/machine-id": "machine_id",
    "/proc/sys/kernel/random/boot_id": "boot_id",
    "/sys/class/dmi/id/product_serial": "product",
    "/sys/class/dmi/id/board_serial": "board",
    "/sys/class/dmi/id/chassis_serial": "chassis",
    "/sys/class/dmi/id/sys_vendor": "vendor",
    "/sys/class/dmi/id/product_name": "model",
    "/sys/hypervisor/type": "hypervisor",
}
_FLAG: Final = "hypervisor"
"""Flag of x86 processors below any hypervisor (CPUID 1, ECX bit 31)."""
SIMULATED_GPUS: Final = "/usr/local/bin/nvidia-smi"
"""The kit's program that replays answers of GPUs, see ``configure.gpu.simulated``."""
FACTS: Final = 'uname -srm; . /etc/os-release && echo "$PRETTY_NAME"; nproc; grep MemTotal /proc/meminfo'
"""The first question to a node, for the reader of the evidence."""
IDENTITY_COMMAND: Final = (
    f"grep -s '' {' '.join(_FILES)} /dev/null; grep -sm1 -ow {_FLAG} /proc/cpuinfo || echo no {_FLAG};"
    f" grep -sl rackproof/simulated-gpu {SIMULATED_GPUS}; true"
)
"""``path:value`` for every file that there is; serial numbers are for root only, and virtual machines have none. Then
``hypervisor`` or ``no hypervisor``, and the program's path where GPUs are simulated."""

_VIRTUAL: Final = re.compile(
    r"(?i)QEMU|KVM|VMware|VirtualBox|innotek|Xen|OpenStack|Google Compute Engine|Virtual Machine|Bochs|BHYVE|Parallels"
)
"""Vendors and models of virtual machines whose processors have no such flag (Arm)."""

_MACHINE_ID: Final = re.compile("[0-9a-f]{32}")
_PLACEHOLDER: Final = re.compile(
    r"(?i)(|[0.\-xf ]+|none|n/?a|not (specified|available|applicable)|default string|to be filled by o\.?e\.?m\.?"
    r"|(system|chassis|base ?board|board|product)[ -]?serial[ -]?(number|#)?|empty|unknown|123456789|0123456789)"
)
"""Placeholders that firmware prints when no serial number is set."""


class Machine(NamedTuple):
    """Identity and kind of a machine; empty where it does not show it."""

    machine_id: str
    boot_id: str
    serial: str
    """``product=…; board=…``."""
    model: str
    """``QEMU Standard PC (Q35 + ICH9, 2009)``: vendor and product as the firmware names them."""
    virtual: bool | None
    """None if neither firmware nor processor shows it."""
    simulated_gpus: bool


def parse_identity(output: str | bytes) -> Machine:
    """Raises ParseError where an id is malformed, or the boot id is missing: every kernel has one."""
    values: dict[str, str] = {}
    lines = set()
    for line in whole_lines("identity", output):
        path, colon, value = line.partition(":")
        if colon and path in _FILES:
            values.setdefault(_FILES[path], value.strip())
        lines.add(line.strip())
    boot_id, machine_id = values.get("boot_id", ""), values.get("machine_id", "")
    if not re.fullmatch(UUID, boot_id):
        raise ParseError("identity", f"expected a boot id, actual {excerpt(boot_id)}")
    if machine_id not in ("", "uninitialized") and not _MACHINE_ID.fullmatch(machine_id):
        raise ParseError("identity", f"expected a machine-id, actual {excerpt(machine_id)}")
    serials = [
        f"{part}={values[part]}"
        for part in ("product", "board", "chassis")
        if part in values and not _PLACEHOLDER.fullmatch(values[part])
    ]
    model = " ".join(filter(None, (values.get("vendor"), values.get("model"))))
    virtual = _FLAG in lines or bool(values.get("hypervisor")) or _VIRTUAL.search(model) is not None
    real = bool(model) and model != STAND_IN and f"no {_FLAG}" in lines
    return Machine(
        "" if machine_id == "uninitialized" else machine_id, boot_id, "; ".join(serials), model,
        True if virtual else False if real else None, SIMULATED_GPUS in lines,
    )  # fmt: skip
