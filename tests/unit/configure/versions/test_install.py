"""Scripts that install exact versions, run against real apt and dpkg with a database of their own."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from rackproof.configure.package_transaction.transaction import Policy
from rackproof.configure.versions.install import hold_script, plan_install, to_hold
from rackproof.configure.versions.state import PackageState, differences, parse_state, state_command
from rackproof.core.versions import LockedPackage
from rackproof.errors import Refused
from tests.unit.configure.versions.programs import refusal
from tests.unit.configure.versions.real_apt import AVAILABLE, RealApt
from tests.unit.refusals import refuses
from tests.unit.shell import executable

pytestmark = [pytest.mark.few(6), pytest.mark.skipif(not AVAILABLE, reason="apt and dpkg are not here")]

POLICY = Policy(lock_wait_s=0)


@pytest.fixture
def apt(tmp_path: Path) -> RealApt:
    made = RealApt(tmp_path)
    for name in ("libnccl2", "nvidia-open"):
        for version in ("1.0-1", "2.0-1"):
            made.publish(name, version)
    return made


def locked(**versions: str) -> tuple[LockedPackage, ...]:
    return tuple(LockedPackage(name.replace("_", "-"), version, "driver") for name, version in versions.items())


def state_of(apt: RealApt, packages: tuple[LockedPackage, ...]) -> PackageState:
    answer = apt.run(state_command([package.name for package in packages], "debian"))
    return parse_state(answer.stdout.splitlines(), "debian")


def install(
    apt: RealApt, packages: tuple[LockedPackage, ...], policy: Policy = POLICY
) -> subprocess.CompletedProcess[str]:
    return apt.run(plan_install(packages, state_of(apt, packages), "debian", policy)[0])


def test_the_locked_version_is_installed_though_a_newer_one_is_offered(apt: RealApt) -> None:
    wanted = locked(libnccl2="1.0-1", nvidia_open="2.0-1")
    done = install(apt, wanted)
    assert done.returncode == 0, done.stderr
    assert apt.installed() == {"libnccl2": "1.0-1", "nvidia-open": "2.0-1"}


def test_what_is_as_locked_needs_nothing(apt: RealApt) -> None:
    wanted = locked(libnccl2="1.0-1")
    install(apt, wanted)
    assert plan_install(wanted, state_of(apt, wanted), "debian", POLICY) == ("", [])
    assert differences(wanted, state_of(apt, wanted), "debian", held=False) == ()


def test_holding_is_read_back_and_survives_a_change_of_the_lock(apt: RealApt) -> None:
    old, new = locked(libnccl2="1.0-1"), locked(libnccl2="2.0-1")
    install(apt, old)
    assert differences(old, state_of(apt, old), "debian", held=True) == ("libnccl2: expected held, actual not held",)
    done = apt.run(hold_script(to_hold(old, state_of(apt, old), "debian"), "debian", POLICY))
    assert done.returncode == 0, done.stderr
    assert to_hold(old, state_of(apt, old), "debian") == ()
    done = install(apt, new)
    assert done.returncode == 0, done.stderr
    assert apt.installed() == {"libnccl2": "2.0-1"}
    assert differences(new, state_of(apt, new), "debian", held=True) == ()


def test_a_hold_is_back_after_a_change_that_failed(apt: RealApt) -> None:
    old = locked(libnccl2="1.0-1")
    install(apt, old)
    apt.run(hold_script(old, "debian", POLICY))
    apt.publish("libnccl2", "3.0-1", postinst="exit 1")
    assert install(apt, locked(libnccl2="3.0-1")).returncode == 1
    assert state_of(apt, old).held == {"libnccl2"}


def test_a_hold_that_is_not_listed_afterwards_fails(apt: RealApt) -> None:
    install(apt, locked(libnccl2="1.0-1"))
    executable(apt.root / "bin/apt-mark", "exit 0")
    done = apt.run(hold_script(locked(libnccl2="1.0-1"), "debian", POLICY))
    assert refusal(done) == "held, and not in the list of holds afterwards: libnccl2"


def test_a_package_that_no_repository_has_is_named(apt: RealApt) -> None:
    message = refusal(install(apt, locked(libnccl2="9.9-9", nvidia_open="1.0-1")))
    assert message.startswith("in none of the repositories of this node: libnccl2=9.9-9")
    assert "mirror" in message
    assert apt.installed() == {}


def test_what_the_mirror_lost_is_installed_already_and_needs_no_mirror(apt: RealApt) -> None:
    first = locked(libnccl2="1.0-1")
    install(apt, first)
    apt.withdraw("libnccl2", "1.0-1")
    apt.run("apt-get -q update")
    done = install(apt, (*first, *locked(nvidia_open="1.0-1")))
    assert done.returncode == 0, done.stderr


def test_a_downgrade_is_refused_unless_it_is_declared(apt: RealApt) -> None:
    install(apt, locked(libnccl2="2.0-1"))
    message = refusal(install(apt, locked(libnccl2="1.0-1")))
    assert message.startswith("newer than declared: libnccl2 (installed: 2.0-1)")
    assert apt.installed() == {"libnccl2": "2.0-1"}
    done = install(apt, locked(libnccl2="1.0-1"), dataclasses.replace(POLICY, allow_downgrade=True))
    assert done.returncode == 0, done.stderr
    assert apt.installed() == {"libnccl2": "1.0-1"}


def test_nothing_is_removed_for_it_unless_that_is_declared(apt: RealApt) -> None:
    install(apt, locked(nvidia_open="1.0-1"))
    apt.publish("cuda-drivers", "1.0-1", "Conflicts: nvidia-open\n")
    message = refusal(install(apt, locked(cuda_drivers="1.0-1")))
    assert "would remove nvidia-open" in message
    assert apt.installed() == {"nvidia-open": "1.0-1"}
    done = install(apt, locked(cuda_drivers="1.0-1"), dataclasses.replace(POLICY, allow_removal=True))
    assert done.returncode == 0, done.stderr
    assert apt.installed() == {"cuda-drivers": "1.0-1"}


def test_the_next_run_mends_a_half_configured_package(apt: RealApt) -> None:
    apt.publish("nvidia-dkms", "1.0-1", postinst=f"test -e {apt.root}/mended")
    done = install(apt, locked(nvidia_dkms="1.0-1"))
    assert "apt-get could not install nvidia-dkms=1.0-1" in refusal(done)
    assert state_of(apt, locked(nvidia_dkms="1.0-1")).broken == ("nvidia-dkms",)
    (apt.root / "mended").touch()
    done = install(apt, locked(nvidia_dkms="1.0-1"))
    assert done.returncode == 0, done.stderr
    assert apt.installed() == {"nvidia-dkms": "1.0-1"}


def test_a_half_configured_package_that_cannot_be_mended_is_named(apt: RealApt) -> None:
    apt.publish("nvidia-dkms", "1.0-1", postinst="exit 1")
    install(apt, locked(nvidia_dkms="1.0-1"))
    message = refusal(install(apt, locked(libnccl2="1.0-1")))
    assert message.startswith("half-configured, and cannot be repaired: nvidia-dkms")


def test_the_pinning_package_is_there_before_the_driver_is_looked_at(apt: RealApt) -> None:
    apt.publish("nvidia-driver-pinning-2.0", "1")
    planned, _ = plan_install(
        locked(nvidia_open="2.0-1", **{"nvidia_driver_pinning_2.0": "1"}),
        PackageState({}, frozenset(), (), {}),
        "debian",
        POLICY,
    )
    assert planned.index("set -- nvidia-driver-pinning-2.0=1") < planned.index("set -- nvidia-open=2.0-1")
    done = apt.run(planned)
    assert done.returncode == 0, done.stderr


def test_a_full_disk_is_reported_before_anything_is_done() -> None:
    state = PackageState({}, frozenset(), (), {"/usr": 100, "/var": 9000, "/boot": 9000})
    with pytest.raises(Refused, match=r"/usr: 100 MiB free, 6144 wanted"):
        plan_install(locked(libnccl2="1.0-1"), state, "debian", dataclasses.replace(POLICY, free_mib=6144))


def test_a_disk_that_fills_up_on_the_way_is_named(apt: RealApt) -> None:
    failing = "echo 'E: Write error - write (28: No space left on device)'; exit 100"
    executable(apt.root / "bin/apt-get", f"case \"$*\" in *' -s '*) exit 0;; *install*) {failing};; esac")
    apt.run("/usr/bin/apt-get -q update")
    message = refusal(install(apt, locked(libnccl2="1.0-1")))
    assert message.startswith("a file system of this node is full: ")
    assert "/usr" in message or "/ " in message


def test_lists_signed_with_another_key_are_refused(apt: RealApt) -> None:
    words = "The following signatures could not be verified: NO_PUBKEY A4B469963BF863CC"
    executable(apt.root / "bin/apt-get", f"echo 'W: GPG error: https://x InRelease: {words}'; exit 100")
    message = refusal(install(apt, locked(libnccl2="1.0-1")))
    assert "not signed with a key that this node trusts" in message
    assert "A4B469963BF863CC" in message


test_an_answer_that_is_not_whole_is_none = refuses(
    lambda lines: parse_state(lines, "debian"),
    ["--", "--", "--"],
    ["status 0", "--", "status 0", "--", "status 1"],
    ["status 2", "--", "status 0", "--", "status 1", "--", "/usr 1", "status 0"],
    ["status 0", "--", "status 127", "--", "status 1", "--", "/usr 1", "status 0"],
    ["status 0", "--", "status 0", "--", "status 1", "--", "/usr ", "status 0"],
    error=(ValueError, IndexError),
    says="",
)
