from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from rackproof.configure.package_transaction.lock import lock_functions, lock_lines
from rackproof.configure.versions.repositories import Key, files, keys, keys_script, mirrored
from rackproof.core.machine import Machine
from rackproof.errors import DeclarationError
from tests.unit.configure.versions.programs import refusal, run_with
from tests.unit.core.versions.sets import changed, example

UBUNTU = Machine("ubuntu", "24.04", "noble", "6.8.0-87-generic", "x86_64", (), (), True, False, "", 1, ("debian",))
PLATFORM = example().platforms["ubuntu-24.04"]


def written(mirrors: dict[str, str] | None = None) -> dict[str, str]:
    entries = files(PLATFORM, PLATFORM.repositories, UBUNTU, mirrors or {})
    return {entry.path: entry.content for entry in entries}


def test_apt_trusts_a_repository_by_its_own_key_only() -> None:
    text = written()["/etc/apt/sources.list.d/rackproof-cuda.sources"]
    assert "Signed-By: /usr/share/keyrings/rackproof-cuda.asc\n" in text
    assert "Signed-By: /usr/share/keyrings/rackproof-doca.gpg\n" in "".join(written().values())
    assert "trusted" not in "".join(written().values()).lower()


def test_pins_keep_firmware_tools_dkms_and_the_other_driver_out() -> None:
    text = written()["/etc/apt/preferences.d/rackproof-versions.pref"]
    assert 'Package: mft*\nPin: origin "vendor.example"\nPin-Priority: -1\n' in text
    assert 'Package: dkms\nPin: origin "other.example"\nPin-Priority: -1\n' in text
    # The first record that fits counts, so that the distribution's build of the same version stays away.
    assert text.index("Pin: release o=Ubuntu\nPin-Priority: -1\n") < text.index("Pin: version 580.126.20-*\n")


def test_a_mirror_with_one_host_for_all_needs_labels() -> None:
    mirrors = {"https://vendor.example": "http://mirror.site/a", "https://other.example": "http://mirror.site/b"}
    with pytest.raises(DeclarationError, match=r"shares the host mirror.site with doca"):
        written(mirrors)


def test_dnf_checks_signatures() -> None:
    dnf = {"kind": "dnf", "url": "https://vendor.example/rhel9", "key": {"url": "https://vendor.example/k.pub"},
           "exclude": ["mft*"]}  # fmt: skip
    platform = changed({"repositories/cuda": dnf}, "rocky-9").platforms["rocky-9"]
    rocky = Machine("rocky", "9.4", "", "5.14", "x86_64", (), (), True, False, "", 1, ("rhel",))
    (entry,) = files(platform, {"cuda": platform.repositories["cuda"]}, rocky, {})
    assert "gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-rackproof-cuda\n" in entry.content
    assert "excludepkgs=mft*\n" in entry.content


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/x/y", "http://m/one/y"),
        ("https://a.example/z", "http://m/two/z"),
        ("https://a.example.org/z", "https://a.example.org/z"),
    ],
)
def test_the_longest_beginning_names_the_mirror(url: str, expected: str) -> None:
    assert mirrored(url, {"https://a.example": "http://m/two/", "https://a.example/x": "http://m/one"}) == expected


ARMOURED = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n"


def key(tmp_path: Path, content: bytes, digest: str | None = None) -> Key:
    source = tmp_path / "key.pub"
    source.write_bytes(content)
    sha256 = digest or hashlib.sha256(content).hexdigest()
    return Key("cuda", f"{tmp_path}/keyrings/rackproof-cuda.asc", f"file://{source}", sha256)


def test_a_key_lands_in_its_place(tmp_path: Path) -> None:
    done = run_with(tmp_path, keys_script([key(tmp_path, ARMOURED)], "debian"), {})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "keyrings/rackproof-cuda.asc").read_bytes() == ARMOURED


def test_a_changed_key_is_refused_with_both_digests_and_the_old_one_stays(tmp_path: Path) -> None:
    good = key(tmp_path, ARMOURED)
    run_with(tmp_path, keys_script([good], "debian"), {})
    changed_key = key(tmp_path, ARMOURED + b"other\n", good.sha256)
    message = refusal(run_with(tmp_path, keys_script([changed_key], "debian"), {}))
    other = hashlib.sha256(ARMOURED + b"other\n").hexdigest()
    assert f": expected sha256 {good.sha256}, actual {other}; the key of cuda has changed: " in message
    assert [path.name for path in (tmp_path / "keyrings").iterdir()] == ["rackproof-cuda.asc"]
    assert (tmp_path / "keyrings/rackproof-cuda.asc").read_bytes() == ARMOURED


def test_a_page_in_place_of_a_key_is_named(tmp_path: Path) -> None:
    message = refusal(run_with(tmp_path, keys_script([key(tmp_path, b"<html>")], "debian"), {}))
    assert "is not an armoured key" in message


def test_a_key_that_cannot_be_fetched_is_named(tmp_path: Path) -> None:
    gone = Key("cuda", f"{tmp_path}/k.asc", f"file://{tmp_path}/none", "a" * 64)
    message = refusal(run_with(tmp_path, keys_script([gone], "debian"), {}))
    assert message.startswith(f"file://{tmp_path}/none: ")
    assert message.endswith("put the key of cuda on the mirror (rackproof mirror list) or correct the proxy")


def test_a_draft_installs_nothing() -> None:
    draft = changed({"repositories/cuda/key": {"url": "https://x.example/k"}}).platforms["ubuntu-24.04"]
    with pytest.raises(DeclarationError, match="nothing is installed from a draft"):
        keys(draft.repositories, {})


def test_who_holds_the_package_managers_lock_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "lock-frontend"
    code = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True);"
        " time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            script = "\n".join(["set -eu", lock_functions(), *lock_lines("debian", 1, files=[str(lock)])])
            message = refusal(run_with(tmp_path, script, {}))
        finally:
            holder.terminate()
    assert message.startswith(f"the package manager is locked by process {holder.pid} ({sys.executable} -c ")
    assert run_with(tmp_path, script, {}).returncode == 0
