"""Packages that the architecture wants held, without a version set: real apt with a database of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackproof.configure.facts import Marks
from rackproof.configure.packages import VERSION_LOCK, declared_packages
from rackproof.configure.versions import facts
from rackproof.configure.versions.operations import declared_held
from rackproof.configure.versions.state import PackageState, parse_state, state_command
from tests.unit.configure.rack import architecture, rack
from tests.unit.configure.stub import StubHost, run
from tests.unit.configure.versions.real_apt import AVAILABLE, RealApt

NAMES = ("nvidia-driver-580", "libnccl2")


def planned(
    state: PackageState | None, family: str = "debian", executing: bool = True, marks: tuple[str, ...] = ()
) -> tuple[list[str], StubHost]:
    stub = StubHost({facts.PackageStates: state, Marks: frozenset(marks)}, executing=executing)
    return run(declared_held, stub, names=NAMES, family=family), stub


def there(held: frozenset[str] = frozenset(), *absent: str, version: str = "1.0-1") -> PackageState:
    return PackageState({name: (version,) for name in NAMES if name not in absent}, held, (), {})


@pytest.mark.skipif(not AVAILABLE, reason="apt and dpkg are not here")
def test_what_is_installed_is_held_once(tmp_path: Path) -> None:
    apt = RealApt(tmp_path / "apt")
    for name in NAMES:
        apt.publish(name, "1.0-1")
    assert apt.run(f"apt-get -q update; apt-get -q -y install {' '.join(NAMES)}").returncode == 0

    def ask() -> PackageState:
        return parse_state(apt.run(state_command(NAMES, "debian")).stdout.splitlines(), "debian")

    (command,), _ = planned(ask())
    for path in ("/var/lib/rackproof", "/run/rackproof"):
        command = command.replace(path, f"{tmp_path}{path}")
    done = apt.run(command)
    assert done.returncode == 0, done.stderr
    assert ask().held == set(NAMES)
    commands, stub = planned(ask())
    assert (commands, stub.noops) == ([], ["all 2 packages are held"])


def test_what_is_not_installed_is_no_hold() -> None:
    commands, stub = planned(there(frozenset(), "libnccl2"))
    assert "rp_hold nvidia-driver-580\n" in commands[0]
    assert commands[1].endswith("exit 1")
    assert stub.logged[0].startswith("system.holds: not installed, so not held: libnccl2; name them in system.packages")
    commands, _ = planned(there(frozenset({"nvidia-driver-580"}), "libnccl2"))
    assert len(commands) == 1
    assert commands[0].endswith("exit 1")
    # What comes after a reboot must not keep the node from it.
    driver_only = there(frozenset({"nvidia-driver-580"}), "libnccl2")
    commands, stub = planned(driver_only, marks=("reboot:kernel 6.8 is locked",))
    assert commands == []
    assert stub.logged == ["held after the reboot (reboot:kernel 6.8 is locked): libnccl2"]
    assert len(planned(driver_only, marks=("restart:x.service",))[0]) == 1
    # A plan has there what operations before it install.
    commands, stub = planned(there(frozenset(), *NAMES), executing=False)
    assert "rp_hold nvidia-driver-580 libnccl2\n" in commands[0]
    assert stub.logged == []


def test_a_node_that_does_not_answer_is_refused() -> None:
    commands, _ = planned(None)
    assert commands[0].endswith("exit 1")


def test_on_rhel_they_are_held_at_their_versions() -> None:
    entry = "nvidia-driver-580-3:580.1-1.el9.*"
    commands, _ = planned(there(frozenset({entry}), version="3:580.1-1.el9"), "rhel")
    assert "rp_hold libnccl2\n" in commands[0]
    both = frozenset({entry, "libnccl2-3:580.1-1.el9.*"})
    assert planned(there(both, version="3:580.1-1.el9"), "rhel")[0] == []
    # A lock of another version holds the wrong one.
    assert planned(there(both, version="3:580.2-1.el9"), "rhel")[0] != []


@pytest.mark.parametrize(("family", "holds", "wanted"), [
    ("rhel", NAMES, True), ("rhel", (), False), ("debian", NAMES, False),
])  # fmt: skip
def test_dnf_gets_the_plugin_that_holds(family: str, holds: Any, wanted: bool) -> None:
    whole = architecture()
    arch = whole.model_copy(update={"system": whole.system.model_copy(update={"holds": holds})})
    assert (VERSION_LOCK[0] in declared_packages(arch, rack().node("gpu-01"), family)) is wanted
