from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.parse.machine import MACHINE_COMMAND, parse_machine
from tests.unit.shell import sh

ANSWER = """\
PRETTY_NAME="Ubuntu 24.04.1 LTS"
NAME="Ubuntu"
VERSION_ID="24.04"
VERSION_CODENAME=noble
ID=ubuntu
ID_LIKE=debian
--
6.8.0-51-generic
x86_64
--
BOOT_IMAGE=/boot/vmlinuz-6.8.0-51-generic root=UUID=1 ro iommu=pt
--
0000:1a:00.0 0x15b3 0x1021 0x020000
0000:1b:00.0 0x10de 0x2335 0x030200
--
efi
   1
--
vendor_id\t: GenuineIntel
MemTotal:       2113445432 kB
224
"""


def test_a_server_is_read() -> None:
    machine = parse_machine(ANSWER.splitlines())
    assert (machine.os_id, machine.os_version, machine.codename) == ("ubuntu", "24.04", "noble")
    assert (machine.family, machine.major, machine.label) == ("debian", "24", "ubuntu 24.04")
    assert (machine.kernel, machine.arch, machine.package_arch) == ("6.8.0-51-generic", "x86_64", "amd64")
    assert machine.cmdline[-1] == "iommu=pt"
    assert [device.address for device in machine.devices("10de", "0302")] == ["0000:1b:00.0"]
    assert machine.devices("10de")[0].ids == "10de:2335"
    assert machine.secure_boot is True
    assert (machine.cpu_vendor, machine.processors) == ("GenuineIntel", 224)


def test_without_efi_secure_boot_is_unknown() -> None:
    machine = parse_machine(ANSWER.replace("efi\n   1\n", "bios\n").splitlines())
    assert machine.secure_boot is None
    assert machine.efi is False


def test_a_distribution_is_of_the_family_that_it_says() -> None:
    lines = ANSWER.replace("ID=ubuntu", "ID=somethinglinux").replace("ID_LIKE=debian", 'ID_LIKE="rhel fedora"')
    assert parse_machine(lines.splitlines()).family == "rhel"
    assert parse_machine(lines.replace("rhel fedora", "arch").splitlines()).family == ""


@given(st.integers(0, len(ANSWER) - 8))
def test_a_cut_answer_is_no_answer(length: int) -> None:
    cut = ANSWER[:length]
    with pytest.raises((ValueError, KeyError, IndexError)):
        parse_machine(cut.splitlines())


def test_the_command_is_answered_by_this_machine() -> None:
    done = sh(MACHINE_COMMAND, check=True)
    machine = parse_machine(done.stdout.splitlines())
    assert machine.processors >= 1
    assert machine.kernel
