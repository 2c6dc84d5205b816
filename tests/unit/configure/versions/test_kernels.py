from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rackproof.configure.versions.kernels import (
    KernelState,
    kernel_command,
    parse_kernel,
    plan_boot,
    plan_dkms,
    unbuilt,
    with_kernel,
)
from rackproof.parse.dkms import Dkms
from tests.unit.configure.versions.programs import refusal, run_with

K = "6.8.0-87-generic"
MARK = f"reboot:kernel {K} is locked and another one runs"
RUNS = KernelState(K, (K,), "", (Dkms("nvidia", "580.126.20", K, "installed"),), frozenset())


def test_the_locked_kernel_that_runs_needs_nothing() -> None:
    assert not plan_boot(K, RUNS, "debian")


def test_a_reboot_is_asked_for_once_while_another_kernel_runs() -> None:
    other = dataclasses.replace(RUNS, running="6.8.0-51-generic", installed=("6.8.0-51-generic", K))
    assert "kernel 6.8.0-87-generic is locked" in plan_boot(K, other, "debian").script
    assert not plan_boot(K, dataclasses.replace(other, pending=frozenset({MARK})), "debian")


def test_a_newer_kernel_does_not_get_started_instead() -> None:
    newer = dataclasses.replace(RUNS, installed=(K, "6.8.0-90-generic"))
    assert "GRUB_DEFAULT" in plan_boot(K, newer, "debian").script
    assert not plan_boot(K, dataclasses.replace(newer, default=K), "debian")
    assert f"grubby --set-default /boot/vmlinuz-{K}" in plan_boot(K, newer, "rhel").script


def test_the_newest_kernel_is_the_package_managers() -> None:
    older, newer = "5.14.0-427.el9.x86_64", "5.14.0-427.13.1.el9_4.x86_64"
    for listed in ([older, newer], [newer, older]):
        state = parse_kernel([newer, "--", *listed, "--", "--", "--", "status 127", "--"])
        assert state.installed == (older, newer)
    assert with_kernel(parse_kernel([newer, "--", newer, "--", "--", "--", "status 127", "--"]), older).installed == (
        older, newer,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["nvidia/580.126.20, 6.8.0-87-generic, x86_64: installed"], ()),
        (["nvidia, 580.126.20, 6.8.0-87-generic, x86_64: installed (original_module exists)"], ()),
        (["nvidia/580.126.20, 6.8.0-87-generic, x86_64: built"], ("nvidia",)),
        (["nvidia/580.126.20, 6.8.0-51-generic, x86_64: installed"], ("nvidia",)),
        (["nvidia/580.126.20: added"], ("nvidia",)),
        ([], ("nvidia",)),
    ],
)
def test_only_installed_for_this_kernel_counts(lines: list[str], expected: tuple[str, ...]) -> None:
    answer = [K, "--", K, "--", "--", "headers", "--", *lines, "status 0", "--"]
    assert unbuilt(["nvidia"], K, parse_kernel(answer)) == expected


@pytest.mark.parametrize("answer", [[], [K, "--"], [K, "--", K, "--", "--", "--", "nvidia?", "status 0", "--"]])
def test_an_invalid_answer_is_refused(answer: list[str]) -> None:
    with pytest.raises(ValueError, match=r"expected 6 sections|dkms: expected a module"):
        parse_kernel(answer)


def test_the_question_is_answered_by_a_real_shell(tmp_path: Path) -> None:
    done = run_with(tmp_path, kernel_command(K), {"dkms": f"echo 'nvidia/1, {K}, x86_64: installed'"})
    assert parse_kernel(done.stdout.splitlines()).dkms == (Dkms("nvidia", "1", K, "installed"),)


NOTHING_BUILT = dataclasses.replace(RUNS, dkms=())
DKMS = 'case "$1 $*" in "status "*) cat $F/status 2>/dev/null;; *) {install};; esac'


def dkms_script(tmp_path: Path) -> str:
    """The plan with this kernel's folder in a temporary one."""
    headers = tmp_path / "modules" / K / "build"
    headers.mkdir(parents=True)
    (headers / "Makefile").touch()
    return plan_dkms(["nvidia"], K, NOTHING_BUILT, "debian").script.replace("/lib/modules/", f"{tmp_path}/modules/")


def test_a_module_is_built_and_proven(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("nvidia/580.126.20: added\n")
    install = f"echo 'nvidia/580.126.20, {K}, x86_64: installed' >$F/status"
    done = run_with(tmp_path, dkms_script(tmp_path), {"dkms": DKMS.format(install=install)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("install", "says"),
    [
        ("exit 10", f"nvidia 580.126.20 does not build for kernel {K}; see /var/lib/dkms/nvidia/580.126.20/build"),
        ("exit 0", f"nvidia 580.126.20: built and not installed for kernel {K}"),
    ],
)
def test_a_build_that_failed_is_named_whatever_it_ended_with(tmp_path: Path, install: str, says: str) -> None:
    (tmp_path / "status").write_text("nvidia/580.126.20: added\n")
    done = run_with(tmp_path, dkms_script(tmp_path), {"dkms": DKMS.format(install=install)})
    assert refusal(done).startswith(says)


def test_a_module_that_dkms_does_not_know_is_named(tmp_path: Path) -> None:
    done = run_with(tmp_path, dkms_script(tmp_path), {"dkms": DKMS.format(install="exit 0")})
    assert refusal(done).startswith("nvidia: dkms does not know it")


@pytest.mark.parametrize(
    ("family", "package"), [("debian", "linux-headers-6.8.0-87-generic"), ("rhel", "kernel-devel-6.8.0-87-generic")]
)
def test_missing_headers_name_their_package(tmp_path: Path, family: str, package: str) -> None:
    script = plan_dkms(["nvidia"], K, NOTHING_BUILT, family).script.replace("/lib/modules/", f"{tmp_path}/none/")
    assert package in refusal(run_with(tmp_path, script, {"dkms": ""}))
