"""The architecture precedes the inventory, and the two must not contradict each other."""

from __future__ import annotations

import pytest

from rackproof.configure.node import declared
from rackproof.configure.node.inputs import NodeInputs, User
from rackproof.core.architecture import Limits, Scratch, System
from rackproof.core.architecture import User as DeclaredUser
from rackproof.errors import InventoryError
from tests.unit.refusals import refuses

DRIVES = tuple(f"/dev/disk/by-id/nvme-{n}" for n in range(4))


def test_limits_are_the_architectures_and_else_the_inventorys() -> None:
    system = System(limits=Limits(nofile=65536, stack="unlimited", services=("slurmd.service", "own.service")))
    assert declared.limits(system, NodeInputs(nproc=4096)) == {
        "memlock": "unlimited",
        "nofile": 65536,
        "nproc": 4096,
        "stack": "unlimited",
    }
    assert declared.limits(System(), NodeInputs())["nofile"] == 1048576
    services = declared.limited_services(system, NodeInputs())
    assert services == ("slurmd.service", "containerd.service", "own.service")


def test_an_inventory_that_says_another_limit_is_told_so() -> None:
    system = System(limits=Limits(nofile=65536))
    with pytest.raises(InventoryError, match=r"node\.nofile: the architecture's system\.limits\.nofile says 65536"):
        declared.limits(system, NodeInputs(nofile=1024))
    assert declared.limits(system, NodeInputs(nofile=65536))["nofile"] == 65536


def test_accounts_are_joined_by_name() -> None:
    system = System(users=(DeclaredUser(name="ops", uid=6000, groups=("docker",), sudo="ALL=(ALL) ALL"),))
    inputs = NodeInputs(
        users=(User(name="ops", password_from="HASH", ssh_keys=("ssh-rsa AAAA me",)), User(name="guest"))
    )
    ops, guest = declared.users(system, inputs)
    assert (ops.uid, ops.groups, ops.sudo) == (6000, ("docker",), "ALL=(ALL) ALL")
    assert (ops.password_from, ops.ssh_keys) == ("HASH", ("ssh-rsa AAAA me",))
    assert guest == User(name="guest")


test_accounts_that_contradict_are_named = refuses(
    lambda own: declared.users(System(users=(DeclaredUser(name="ops", uid=6000),)), NodeInputs(users=(own,))),
    (User(name="ops", uid=7000), "node.users: ops: uid: the architecture's system.users says 6000"),
    (User(name="other", uid=6000), "uid 6000 is another account's"),
    error=InventoryError,
)


def test_the_array_is_the_architectures() -> None:
    array = Scratch(drives=4, mountpoint="/raid", label="raid", source="x")
    scratch = declared.scratch_inputs(array, DRIVES, NodeInputs(scratch_chunk_kib=256))
    assert (scratch.scratch_path, scratch.scratch_label, scratch.scratch_fstype) == ("/raid", "raid", "xfs")
    assert scratch.scratch_chunk_kib == 256
    assert declared.scratch_inputs(None, DRIVES, NodeInputs()) == NodeInputs()


test_an_array_that_cannot_be_as_declared_is_refused = refuses(
    lambda case: declared.scratch_inputs(Scratch(drives=4, mountpoint="/raid", source="x"), *case),
    (((), NodeInputs()), "an array of 4 drives, the inventory names none"),
    ((DRIVES[:3], NodeInputs()), "the inventory names 3"),
    ((DRIVES, NodeInputs(scratch_path="/local")), "node.scratch_path: the architecture's scratch.mountpoint says"),
    error=InventoryError,
)


def test_what_is_checked_and_not_set_is_listed() -> None:
    system = System(
        package_versions={"fio": "3.39-*", "libnccl2": "2.28.3-1"},
        files={"/etc/a": "0" * 64, "/etc/b": "1" * 64},
        dkms=("nvidia", "own"),
    )
    assert declared.checked_only(system, {"libnccl2"}, {"/etc/b"}, {"nvidia"}) == (
        "checked, not set: system.package_versions (fio), system.files (/etc/a), system.dkms (own); a version set that"
        " has them (versions_lock) sets them, or the site"
    )
    assert declared.checked_only(system, {"fio", "libnccl2"}, {"/etc/a", "/etc/b"}, {"nvidia", "own"}) is None
    assert declared.checked_only(System(), (), (), ()) is None
