"""Settings of a port beyond its name and address, and its state: the vocabulary of ``rackproof-port``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from rackproof import shell
from rackproof.configure.network import Port
from rackproof.configure.nic.inputs import NicInputs
from rackproof.core.architecture import Fabric, Lossless, Nic
from rackproof.errors import DeclarationError
from rackproof.parse.sections import blocks_of
from rackproof.parse.text import matched

SCRIPT: Final = "/usr/local/sbin/rackproof-port"
DECLARED: Final = "/etc/rackproof/ports"
"""One file a port with the settings for ``rackproof-port``, ``key=value`` a line."""

DATAGRAM_MTU_MAX: Final = 4092
CONNECTED_MTU_MAX: Final = 65520
PRIORITIES: Final = range(8)
CONNECTIONS: Final = ("tos", "roce_mode", "traffic_class")
"""Settings of the RDMA device, not of the port: the ports of an adapter in a bond have one device together."""


def script(name: str) -> str:
    """A program that is installed on nodes: ``port``, ``rdma-names`` or ``acs``. ``port`` also answers
    ``state_command``, which does not need it to be installed."""
    return shell.program(__name__, name)


_SETTING: Final = r"([a-z0-9_]+(?:\.[a-z0-9_]+)*)=(.*)"


PortState = Mapping[str, str]
"""State of a port in the vocabulary of the script: ``trust``, ``pfc``, ``dscp.26``, ``max_read_request`` …"""


def state_command(ports: Sequence[str]) -> str:
    """Command that reads all ports; nothing of the kit needs to be installed."""
    names = " ".join(shlex.quote(port) for port in ports)
    return f"sh -c {shlex.quote(script('port'))} rackproof-port state {names}"


def parse_states(lines: Sequence[str]) -> dict[str, PortState]:
    """Answer of ``state_command``. Raises ValueError on anything else."""
    states: dict[str, PortState] = {}
    for name, body in blocks_of("ports", "port ([^=]+)", lines):
        if name in states:
            raise ValueError(f"{name} is reported twice")
        settings = (matched("ports", _SETTING, line, "a setting of a port") for line in body)
        states[name] = {setting[1]: setting[2] for setting in settings}
    return states


def roce_settings(fabric: Fabric, stack: NicInputs, nic: Nic | None, nvidia: bool) -> dict[str, str]:
    """Settings of every RoCE rail, in the order in which they are set.

    ``nvidia``: drivers of NVIDIA's packages. Raises DeclarationError where the driver cannot do what the architecture
    declares.
    """
    values = lossless_settings(fabric.lossless, stack, nvidia)
    for key, ring in (("ring_rx", stack.ring_rx), ("ring_tx", stack.ring_tx)):
        if ring is not None:
            values[key] = str(ring)
    return values | pcie_settings(stack, nic)


def lossless_settings(lossless: Lossless | None, stack: NicInputs, nvidia: bool) -> dict[str, str]:
    """Classes, pauses, congestion and buffers of a RoCE port. Raises DeclarationError."""
    values: dict[str, str] = {}
    if lossless:
        if lossless.trust:
            values["trust"] = lossless.trust
        for dscp, priority in sorted((lossless.dscp_priority or {}).items()):
            values[f"dscp.{dscp}"] = str(priority)
        if lossless.pfc_priority is not None:
            values["pfc"] = ",".join("1" if n == lossless.pfc_priority else "0" for n in PRIORITIES)
        if lossless.global_pause:
            values |= {"pause_rx": lossless.global_pause, "pause_tx": lossless.global_pause}
        if lossless.ecn is not None and not (stack.ecn_by_firmware and not nvidia):
            if not nvidia:
                raise DeclarationError(
                    "fabric.lossless.ecn: the distribution's driver has no switch for ECN of a class; put DOCA into the"
                    " version set, or say nic: {ecn_by_firmware: true} and firmware_settings ROCE_CC_PRIO_MASK_P1"
                )
            chosen = PRIORITIES if lossless.pfc_priority is None or not lossless.ecn else (lossless.pfc_priority,)
            values |= {f"ecn.{point}.{n}": str(int(lossless.ecn)) for n in chosen for point in ("rp", "np")}
        for key, value in (("cnp_dscp", lossless.cnp_dscp), ("cnp_prio", lossless.cnp_priority)):
            if value is not None:
                values[key] = str(value)
        if lossless.roce_mode:
            values["roce_mode"] = lossless.roce_mode
        if lossless.tos is not None:
            values["tos"] = str(lossless.tos)
        if lossless.traffic_class is not None:
            if not nvidia:
                raise DeclarationError(
                    "fabric.lossless.traffic_class: only NVIDIA's driver packages can force one; put DOCA into the"
                    " version set, or leave it to programs (NCCL_IB_TC) and take the key out of the architecture"
                )
            values["traffic_class"] = str(lossless.traffic_class)
    for key, numbers in (("prio2buffer", stack.prio2buffer), ("buffer_size", stack.buffer_size)):
        if numbers and not nvidia:
            raise DeclarationError(
                f"nic.{key}: needs mlnx_qos, which only NVIDIA's driver packages have; put DOCA into the"
                " version set, or take the key out of the inventory"
            )
        if numbers:
            values[key] = ",".join(map(str, numbers))
    return values


def infiniband_settings(fabric: Fabric, stack: NicInputs, nic: Nic | None, nvidia: bool) -> dict[str, str]:
    """Settings of every InfiniBand rail. Raises DeclarationError for a mode or an MTU that does not exist."""
    values = ipoib_settings("fabric.mtu", fabric.mtu, ipoib_mode(stack, nic), nvidia)
    values |= {f"child.{full_key(child.pkey)}": "yes" for child in stack.pkeys}
    return values | pcie_settings(stack, nic)


def ipoib_settings(key: str, mtu: int, mode: str, nvidia: bool) -> dict[str, str]:
    """MTU of an InfiniBand port's interface; ``key`` names it in errors. Raises DeclarationError."""
    connected = mode == "connected"
    if connected and not nvidia:
        raise DeclarationError(
            "IPoIB in connected mode: with the distribution's driver ConnectX-4 and later are in datagram mode only;"
            " put DOCA into the version set, or take datagram"
        )
    most = CONNECTED_MTU_MAX if connected else DATAGRAM_MTU_MAX
    if mtu > most:
        raise DeclarationError(f"{key} is {mtu}: IPoIB in {mode} mode carries {most} bytes at most")
    return {"ipoib_mode": mode, "mtu": str(mtu)}


def pcie_settings(stack: NicInputs, nic: Nic | None) -> dict[str, str]:
    """PCIe settings of a rail, by the script's key."""
    request = stack.max_read_request or (nic.max_read_request if nic else None)
    ordering = nic.relaxed_ordering if nic and nic.relaxed_ordering is not None else stack.relaxed_ordering
    return pcie_values(request, ordering)


def pcie_values(request: int | None, ordering: bool | None) -> dict[str, str]:
    """PCIe settings by the script's key; None leaves one out. ``request``: maximum read request in bytes."""
    values = {}
    if request:
        values["max_read_request"] = str(request)
    if ordering is not None:
        values["relaxed_ordering"] = str(int(ordering))
    return values


def ipoib_mode(stack: NicInputs, nic: Nic | None) -> str:
    """The architecture's value takes precedence over the inventory's."""
    return (nic.ipoib_mode if nic else None) or stack.ipoib_mode


def full_key(pkey: int) -> str:
    """Name of a child interface as the kernel forms it: with full membership, ``8001``."""
    return f"{pkey | 0x8000:04x}"


def declaration(values: Mapping[str, str]) -> str:
    """The file below ``DECLARED``."""
    return "# Managed by rackproof. Set at boot and when the port appears: see rackproof-port.\n" + "".join(
        f"{key}={value}\n" for key, value in values.items()
    )


def differences(port: str, wanted: Mapping[str, str], state: PortState | None) -> list[str]:
    """Settings that are not in force, one line each; empty if all are."""
    if state is None or "absent" in state:
        return [f"{port}: there is no such port"]
    return [
        f"{port}: {key}: expected {value}, actual {state.get(key, 'nothing')}"
        for key, value in wanted.items()
        if state.get(key) != value
    ]


def instance(port: str) -> str:
    """A port's name as systemd escapes it."""
    return port.replace("-", "\\x2d")


def unit_of(port: str, infiniband: bool) -> str:
    return f"rackproof-{'ipoib' if infiniband else 'roce'}@{instance(port)}.service"


def apply_script(ports: Sequence[str], infiniband: bool) -> str:
    """Set ports through their units, and report what could not be set."""
    lines = ["set -u", "status=0", "mkdir -p /run/rackproof/pending"]
    for port in ports:
        unit, name = shlex.quote(unit_of(port, infiniband)), shlex.quote(port)
        mark = shlex.quote(f"/run/rackproof/pending/restart:{unit_of(port, infiniband)}")
        lines.append(
            f"if timeout 240 systemctl restart -- {unit} && {SCRIPT} check {name}; then rm -f -- {mark};"
            f" else {SCRIPT} check {name}; status=1; fi"
        )
    return "\n".join((*lines, "exit $status"))


def rdma_names(ports: Sequence[Port]) -> str:
    """``/etc/rackproof/rdma-names``: interface and name of its RDMA device, a line each."""
    return "# Managed by rackproof: port, and what its RDMA device is called.\n" + "".join(
        f"{port.name} {port.rdma}\n" for port in ports
    )
