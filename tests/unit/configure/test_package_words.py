"""Complaints of apt and dnf, in one line with a way out: real apt with a database of its own, a stand-in for dnf."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rackproof.configure.packages import install_script
from tests.unit.configure.versions.programs import refusal, run_with
from tests.unit.configure.versions.real_apt import AVAILABLE, RealApt
from tests.unit.shell import executable

pytestmark = pytest.mark.few(4)

MIRROR = (
    "put them on the mirror (rackproof mirror list), declare versions that it has, or enable the repository that has"
    " them"
)
needs_apt = pytest.mark.skipif(not AVAILABLE, reason="apt and dpkg are not here")


@pytest.fixture
def apt(tmp_path: Path) -> RealApt:
    made = RealApt(tmp_path)
    made.publish("fio", "3.39-1")
    return made


def install(apt: RealApt, *names: str) -> str:
    """Last line of a script that failed."""
    return refusal(apt.run(install_script(names)))


@needs_apt
def test_what_a_repository_has_is_installed(apt: RealApt) -> None:
    done = apt.run(install_script(["fio"]))
    assert done.returncode == 0, done.stderr
    assert apt.installed() == {"fio": "3.39-1"}


@needs_apt
def test_all_packages_that_no_repository_has_are_named(apt: RealApt) -> None:
    apt.publish("perftest", "1.0-1", "Recommends: ghost\n")
    output = install(apt, "fio", "slurmd", "ghost")
    assert output.startswith(f"in none of the repositories of this node: ghost slurmd; {MIRROR} (on Debian contrib,")
    assert apt.installed() == {}


@needs_apt
def test_what_a_package_stands_on_and_the_mirror_lacks_is_named(apt: RealApt) -> None:
    apt.publish("podman", "5.4-1", "Depends: fio, conmon (>= 2.1)\n")
    assert install(apt, "podman").startswith(f"in none of the repositories of this node: conmon; {MIRROR}")


@needs_apt
def test_a_file_that_the_index_names_and_the_mirror_lost(apt: RealApt) -> None:
    (apt.root / "repo/fio_3.39-1_all.deb").unlink()
    output = install(apt, "fio")
    assert output.startswith("a repository cannot be read: ")
    assert "fio_3.39-1_all.deb" in output
    assert output.endswith("does this node reach it, and has it all that its index names?")


@needs_apt
def test_a_repository_that_does_not_answer_is_named_beside_what_is_missing(apt: RealApt) -> None:
    (apt.root / "etc/apt/sources.list").write_text("deb [trusted=yes] http://127.0.0.1:9/debian ./\n")
    output = install(apt, "fio")
    assert output.startswith("in none of the repositories of this node: fio (")
    assert "http://127.0.0.1:9/debian" in output


@needs_apt
def test_a_repository_that_is_not_signed_with_a_known_key(apt: RealApt) -> None:
    (apt.root / "etc/apt/sources.list").write_text(f"deb file:{apt.root}/repo ./\n")
    output = install(apt, "fio")
    assert "a repository is not signed with a key that this node trusts: " in output
    assert f"file:{apt.root}/repo" in output
    assert "compare the new key's fingerprint" in output


@needs_apt
def test_a_foreign_broken_repository_explains_no_other_failure(apt: RealApt) -> None:
    sources = apt.root / "etc/apt/sources.list"
    sources.write_text(f"{sources.read_text()}deb [trusted=yes] http://127.0.0.1:9/debian ./\n")
    apt.publish("slurmd", "24.11-1", postinst="exit 1")
    output = install(apt, "slurmd")
    assert "repositor" not in output
    assert "dpkg" in output


@needs_apt
def test_a_full_disk_is_not_taken_for_a_missing_package(apt: RealApt) -> None:
    words = "E: You don't have enough free space in /var/cache/apt/archives/."
    executable(apt.root / "bin/apt-get", f'echo "{words}"; exit 100')
    assert install(apt, "fio").startswith("a file system of this node is full: ")


def dnf(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    body = f'case "$*" in *" install "*) cat <<\'EOT\' >&2\n{words}\nEOT\nexit 1;; esac'
    return run_with(folder, install_script(["munge", "slurm"], "rhel"), {"dnf": body, "rpm": "exit 1", "systemctl": ""})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "No match for argument: munge\nNo match for argument: slurm\nError: Unable to find a match: munge slurm",
            f"in none of the repositories of this node: munge slurm; {MIRROR} (crb or EPEL)",
        ),
        (
            "Error: \n Problem: conflicting requests\n  - nothing provides libhwloc.so.15()(64bit) needed by"
            " slurm-24.05-1.el9.x86_64 from rackproof-slurm",
            f"in none of the repositories of this node: libhwloc.so.15()(64bit); {MIRROR} (crb or EPEL)",
        ),
        (
            "Errors during downloading metadata for repository 'epel':\n  - Status code: 404 for https://m.example/r\n"
            "Error: Failed to download metadata for repo 'epel': Cannot download repomd.xml",
            "a repository cannot be read: Status code: 404 for https://m.example/r; does this node reach it, and"
            " has it all that its index names?",
        ),
        (
            "Public key for munge-0.5.rpm is not installed\nError: GPG check FAILED",
            "a repository is not signed with a key that this node trusts: Public key for munge-0.5.rpm is not"
            " installed; compare the new key's fingerprint with what its owner publishes, then give it in the place of"
            " the old one",
        ),
        (
            "Error: Transaction test error:\n  file /x conflicts",
            "dnf could not install munge slurm: Error: Transaction test error: file /x conflicts",
        ),
    ],
)
def test_words_of_dnf(tmp_path: Path, words: str, message: str) -> None:
    assert refusal(dnf(tmp_path, words)).strip() == message
