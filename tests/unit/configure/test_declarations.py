"""Nothing is declared in two ways by one run."""

from __future__ import annotations

import re

import pytest

from rackproof.configure import operations
from rackproof.configure.declarations import Declared
from rackproof.configure.files import RemoteFile
from rackproof.errors import DeclarationError
from tests.unit.configure.stub import StubHost, at

NETWORK = "/etc/systemd/network"
PAIRS = [
    ("/etc/systemd/system/raid.mount", "/etc/systemd/system/raid.mount", "What=/dev/md0\n", "What=/dev/nvme0n1\n"),
    ("/etc/sysctl.d/60-a.conf", "/etc/sysctl.d/61-b.conf", "vm.swappiness = 1\n", "vm.swappiness = 10\n"),
    ("/etc/modprobe.d/a.conf", "/etc/modprobe.d/b.conf", "options nvidia NVreg_X=1\n", "options nvidia NVreg_X=0\n"),
    (f"{NETWORK}/10-a.link", f"{NETWORK}/11-b.link", "Path=x\nName=rail0\n", "Path=y\nName=rail0\n"),
]
THINGS = [
    "/etc/systemd/system/raid.mount", "sysctl vm.swappiness", "option NVreg_X of module nvidia", "interface rail0",
]  # fmt: skip


@pytest.mark.parametrize(("pair", "thing"), list(zip(PAIRS, THINGS, strict=True)), ids=THINGS)
def test_two_declarations_of_one_thing_are_refused_with_both_places(pair: tuple[str, ...], thing: str) -> None:
    first_path, second_path, first, second = pair
    declared = Declared()
    declared.add([RemoteFile(first_path, first)], "Node | Files")
    with pytest.raises(DeclarationError, match=re.escape(thing)) as caught:
        declared.add([RemoteFile(second_path, second)], "Storage | Files")
    assert "by 'Node | Files' and by 'Storage | Files'; nothing was changed" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pair", PAIRS, ids=THINGS)
def test_the_same_declaration_twice_is_none_in_two_ways(pair: tuple[str, ...]) -> None:
    declared = Declared()
    for path in pair[:2]:
        declared.add([RemoteFile(path, pair[2])], "Files")


def test_blocks_of_a_shared_file_are_not_the_file() -> None:
    declared = Declared()
    declared.add([RemoteFile("/etc/hosts", "a\n", block=True), RemoteFile("/etc/hosts", "b\n", block=True)], "Files")


def test_a_plan_ends_before_a_node_is_asked() -> None:
    stub = StubHost({}, executing=False)
    entries = [RemoteFile("/etc/motd", "one\n"), RemoteFile("/etc/motd", "two\n")]
    with at(stub), pytest.raises(DeclarationError, match="/etc/motd is declared twice"):
        list(operations.write_files(entries))
    assert stub.asked == []
