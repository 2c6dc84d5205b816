"""The same on RHEL's family. dnf and rpm are stand-ins here: their words are those of dnf 4."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rackproof.configure.package_transaction.transaction import Policy
from rackproof.configure.versions.install import hold_script, plan_install, to_hold
from rackproof.configure.versions.state import PackageState, differences, is_held, is_installed, parse_state
from rackproof.core.versions import LockedPackage
from rackproof.errors import Refused
from tests.unit.configure.versions.programs import refusal, run_with

POLICY = Policy(lock_wait_s=0)
DRIVER = LockedPackage("nvidia-open", "3:580.126.20-1.el9", "driver")
EMPTY = PackageState({}, frozenset(), (), {})
RPM = 'case "$*" in *NAME*) echo "nvidia-open-3:580.126.20-1.el9.*";; *) [ -e $F/there ] && cat $F/there;; esac'


def dnf(plan: str, status: int = 1, install: str = "echo '3:580.126.20-1.el9' >$F/there") -> dict[str, str]:
    """A dnf whose transaction would be ``plan``; ``--assumeno`` ends with 1 after showing one."""
    return {
        "dnf": f'case "$*" in *assumeno*) printf "%b" "{plan}"; exit {status};; *" install "*) {install};; esac',
        "rpm": RPM,
        "systemctl": "",
    }


FINE = "Installing:\\n nvidia-open x86_64 3:580.126.20-1.el9 cuda 1 k\\nOperation aborted.\\n"


def script(policy: Policy = POLICY, state: PackageState = EMPTY) -> str:
    return plan_install((DRIVER,), state, "rhel", policy)[0]


def test_exactly_the_locked_version_is_asked_for_and_proven(tmp_path: Path) -> None:
    assert "set -- nvidia-open=3:580.126.20-1.el9" in script()
    done = run_with(tmp_path, script(), dnf(FINE))
    assert done.returncode == 0, done.stderr


def test_another_version_afterwards_is_an_error(tmp_path: Path) -> None:
    done = run_with(tmp_path, script(), dnf(FINE, install="echo '3:580.95.05-1.el9' >$F/there"))
    assert refusal(done).startswith("asked for and not there afterwards: nvidia-open=3:580.126.20-1.el9")


def test_a_version_that_no_repository_has_is_named(tmp_path: Path) -> None:
    spec = "nvidia-open-3:580.126.20-1.el9"
    plan = f"No match for argument: {spec}\\nError: Unable to find a match: {spec}\\n"
    message = refusal(run_with(tmp_path, script(), dnf(plan)))
    assert message.startswith(
        "in none of the repositories of this node: nvidia-open-3:580.126.20-1.el9; put them on the mirror"
    )


@pytest.mark.parametrize(
    ("title", "option", "says"),
    [
        ("Downgrading", "allow_downgrade", "newer than declared: nvidia-driver; set versions.allow_downgrade"),
        ("Removing", "allow_removal", "installing nvidia-open-3:580.126.20-1.el9 would remove nvidia-driver; remove"),
    ],
)
def test_nothing_goes_back_or_away_unless_that_is_declared(tmp_path: Path, title: str, option: str, says: str) -> None:
    plan = f"{title}:\\n nvidia-driver x86_64 3:590.1-1.el9 cuda 1 k\\n\\nOperation aborted.\\n"
    message = refusal(run_with(tmp_path, script(), dnf(plan)))
    assert message.startswith(says)
    allowed = script(dataclasses.replace(POLICY, **{option: True}))
    assert run_with(tmp_path, allowed, dnf(plan)).returncode == 0


def test_another_signature_is_refused(tmp_path: Path) -> None:
    install = "echo 'Public key for nvidia-open.rpm is not installed'; echo 'Error: GPG check FAILED'; exit 1"
    message = refusal(run_with(tmp_path, script(), dnf(FINE, install=install)))
    assert message.startswith(
        "a repository is not signed with a key that this node trusts: Public key for nvidia-open.rpm"
    )


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    install = "echo 'installing package x needs 40MB more space on the /usr filesystem'; exit 1"
    message = refusal(run_with(tmp_path, script(), dnf(FINE, install=install)))
    assert message.startswith("a file system of this node is full: ")


VERSIONLOCK = (
    'case "$*" in *"versionlock add"*) [ -e $F/deaf ] || for l; do :; done; [ -e $F/deaf ] || echo "$l" >>$F/locks;;'
    ' *"versionlock delete"*) : >$F/locks;; *"versionlock list"*) [ ! -e $F/locks ] || cat $F/locks;; esac'
)
INSTALLED = PackageState({"nvidia-open": ("3:580.126.20-1.el9",)}, frozenset(), (), {})


def test_a_lock_on_another_version_is_replaced_and_read_back(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("nvidia-open-3:570.1-1.el9.*\n")
    done = run_with(tmp_path, hold_script([DRIVER], "rhel", POLICY), {"dnf": VERSIONLOCK, "rpm": RPM})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "locks").read_text() == "nvidia-open-3:580.126.20-1.el9.*\n"


def test_a_lock_that_is_not_listed_afterwards_fails(tmp_path: Path) -> None:
    (tmp_path / "deaf").touch()
    done = run_with(tmp_path, hold_script([DRIVER], "rhel", POLICY), {"dnf": VERSIONLOCK, "rpm": RPM})
    assert refusal(done) == "held, and not in the list of holds afterwards: nvidia-open"


def test_without_the_plugin_nothing_can_be_held_and_the_plugin_is_named(tmp_path: Path) -> None:
    done = run_with(tmp_path, hold_script([DRIVER], "rhel", POLICY), {"dnf": "exit 1", "rpm": RPM})
    assert refusal(done) == "dnf has no versionlock; install python3-dnf-plugin-versionlock"


@pytest.mark.parametrize(
    ("locked", "held", "expected"),
    [
        ("3:580.126.20-1.el9", "nvidia-open-3:580.126.20-1.el9.*", True),
        ("580.126.20-1.el9", "nvidia-open-3:580.126.20-1.el9.*", True),
        ("3:580.126.20-1.el9", "nvidia-open-3:580.126.2-1.el9.*", False),
        ("3:580.126.20-1.el9", "nvidia-open-dkms-3:580.126.20-1.el9.*", False),
        ("3:580.126.20-1.el9", "!nvidia-open-3:580.126.20-1.el9.*", False),
    ],
)
def test_a_lock_counts_for_its_own_version_only(locked: str, held: str, expected: bool) -> None:
    package = dataclasses.replace(DRIVER, version=locked)
    assert is_held(package, PackageState({}, frozenset({held}), (), {}), "rhel") is expected


def test_of_kernels_several_are_kept_and_of_everything_else_one() -> None:
    versions = ("0:5.14.0-570.el9", "0:5.14.0-611.el9")
    state = PackageState({"kernel-core": versions, "libnccl": versions}, frozenset(), (), {})
    assert is_installed(LockedPackage("kernel-core", "5.14.0-570.el9", "kernel"), state, "rhel")
    assert not is_installed(LockedPackage("libnccl", "5.14.0-570.el9", "nccl"), state, "rhel")


def test_an_answer_of_rpm_is_read() -> None:
    lines = [
        "installed nvidia-open 3:580.126.20-1.el9", "package libnccl is not installed", "status 1", "--",
        "nvidia-open-3:580.126.20-1.el9.*", "status 0", "--", "status 0", "--",
        "/usr /dev/vda2 20480000 11264000 9216000 55% /",
        "/var",
    ]  # fmt: skip
    state = parse_state(lines, "rhel")
    assert differences([DRIVER], state, "rhel", held=True) == ()
    assert to_hold([DRIVER], INSTALLED, "rhel") == (DRIVER,)
    assert state.free_mib == {"/usr": 9000, "/var": None, "/boot": None}
    with pytest.raises(Refused, match=r"/var: free space unknown \(df gives no answer\), 1024 MiB wanted"):
        plan_install([DRIVER], dataclasses.replace(state, installed={}), "rhel", Policy(free_mib=1024))
