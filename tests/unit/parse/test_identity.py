"""Identities of machines: what tells them apart, and what firmware only pretends to know."""

from __future__ import annotations

import subprocess

import pytest

from rackproof.configure.gpu import simulated
from rackproof.configure.render import templates
from rackproof.core.evidence import NodeIdentity
from rackproof.parse import ParseError
from rackproof.parse.identity import IDENTITY_COMMAND, SIMULATED_GPUS, parse_identity

DGX = """\
/etc/machine-id:8d3c9f6e1c0a4a0bb1f1f64d3f1f2a10
/proc/sys/kernel/random/boot_id:0b6f1d8e-4f3d-4b9c-8a57-0f6d2f1b7c11
/sys/class/dmi/id/product_serial:1660224000101
/sys/class/dmi/id/board_serial:/ABC1234/CNFCP0012345/
/sys/class/dmi/id/chassis_serial:Not Specified
"""
BOOT = "0b6f1d8e-4f3d-4b9c-8a57-0f6d2f1b7c11"


def identity(**fields: str) -> NodeIdentity:
    values = {"machine_id": "a", "boot_id": "b", "serial": "product=1; board=2", "host_key": "ssh-ed25519 k"} | fields
    return NodeIdentity(node="gpu-01", model="", virtual=None, simulated_gpus=False, **values)


def test_a_server_has_ids_and_serial_numbers() -> None:
    serial = "product=1660224000101; board=/ABC1234/CNFCP0012345/"
    assert parse_identity(DGX)[:3] == ("8d3c9f6e1c0a4a0bb1f1f64d3f1f2a10", BOOT, serial)


@pytest.mark.parametrize(
    ("lines", "virtual"),
    [
        ("sys_vendor:NVIDIA|product_name:DGXH200|no hypervisor", False),
        ("sys_vendor:QEMU|product_name:Standard PC (Q35 + ICH9, 2009)|hypervisor", True),
        ("sys_vendor:QEMU|product_name:QEMU Virtual Machine|no hypervisor", True),  # Arm: no such flag
        ("sys_vendor:Amazon EC2|product_name:p5.48xlarge|hypervisor", True),
        ("sys_vendor:Amazon EC2|product_name:c6g.metal|no hypervisor", False),
        ("no hypervisor", None),  # no firmware that names the model
        ("sys_vendor:NVIDIA", None),  # truncated
        ("hypervisor", True),
    ],
)
def test_a_machine_shows_whether_it_is_virtual(lines: str, virtual: bool | None) -> None:
    dmi = "".join(f"{'/sys/class/dmi/id/' if ':' in line else ''}{line}\n" for line in lines.split("|"))
    machine = parse_identity(DGX + dmi)
    assert (machine.virtual, machine.simulated_gpus) == (virtual, False)
    assert parse_identity(f"{DGX}{dmi}{SIMULATED_GPUS}\n").simulated_gpus


def test_the_program_that_replays_gpus_is_recognised() -> None:
    text = templates.text(SIMULATED_GPUS, recordings=simulated.RECORDINGS)
    assert "rackproof/simulated-gpu" in text


def test_this_machine_answers() -> None:
    answer = subprocess.run(["sh", "-c", IDENTITY_COMMAND], capture_output=True, check=True)
    assert parse_identity(answer.stdout)[1]


def test_a_machine_without_serial_numbers_has_its_boot_id() -> None:
    assert parse_identity(f"/proc/sys/kernel/random/boot_id:{BOOT}\n")[:3] == ("", BOOT, "")
    first_boot = f"/etc/machine-id:uninitialized\n/proc/sys/kernel/random/boot_id:{BOOT}\n"
    assert parse_identity(first_boot)[:3] == ("", BOOT, "")


@pytest.mark.parametrize(
    "text",
    ["", "None", "N/A", "Not Specified", "To be filled by O.E.M.", "Default string", "System Serial Number", "0000000"],
)
def test_placeholders_are_no_serial_numbers(text: str) -> None:
    lines = f"/proc/sys/kernel/random/boot_id:{BOOT}\n/sys/class/dmi/id/product_serial:{text}\n"
    assert parse_identity(lines)[2] == ""


def test_a_truncated_answer_never_looks_like_another_machine() -> None:
    whole = identity(**dict(zip(("machine_id", "boot_id", "serial"), parse_identity(DGX)[:3], strict=True)))
    for length in range(len(DGX)):
        try:
            machine_id, boot_id, serial = parse_identity(DGX[:length])[:3]
        except ParseError:
            continue
        part = identity(machine_id=machine_id, boot_id=boot_id, serial=serial)
        assert list(part.differences(whole)) == []
        assert boot_id == BOOT


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"boot_id": "c"}, []),
        ({"machine_id": "z"}, ["machine-id a → z"]),
        ({"host_key": "ssh-ed25519 z"}, ["host key ssh-ed25519 k → ssh-ed25519 z"]),
        ({"host_key": "ssh-rsa z"}, []),  # another key of the same machine
        ({"serial": "product=1; board=9"}, ["board serial number 2 → 9"]),
        ({"serial": "product=1"}, []),  # it can no longer be read
        ({"machine_id": ""}, []),
    ],
)
def test_what_tells_two_machines_apart(change: dict[str, str], words: list[str]) -> None:
    assert list(identity(**change).differences(identity())) == words
