"""The same hard cases through every caller of the package transaction: all of them give the same answer."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rackproof.configure.containers import downloads
from rackproof.configure.gpu import scripts as gpu
from rackproof.configure.inputs import Download
from rackproof.configure.package_transaction.transaction import CACHE, STRICT, Package, Policy
from rackproof.configure.packages import install_script
from rackproof.configure.storage_client import install as storage
from rackproof.configure.versions.install import plan_install
from rackproof.configure.versions.state import PackageState
from rackproof.core.versions import LockedPackage
from tests.unit.configure.versions.programs import refusal
from tests.unit.configure.versions.real_apt import AVAILABLE, PreparedApt, RealApt, fast_folder
from tests.unit.shell import executable

pytestmark = [pytest.mark.few(4), pytest.mark.skipif(not AVAILABLE, reason="apt and dpkg are not here")]

POLICY = replace(STRICT, lock_wait_s=0)
TOOL = "tool"


def of_base(apt: RealApt, version: str, policy: Policy) -> str:
    return install_script([TOOL], "debian", policy)


def of_gpu(apt: RealApt, version: str, policy: Policy) -> str:
    return gpu.transaction([Package(TOOL, version)], (), "debian", policy)


def of_versions(apt: RealApt, version: str, policy: Policy) -> str:
    free = dict.fromkeys(("/usr", "/var"), 10**6)
    state = PackageState({}, frozenset(), (), free)
    policy = replace(policy, free_mib=256)
    return plan_install([LockedPackage(TOOL, version, "driver")], state, "debian", policy)[0]


def of_storage(apt: RealApt, version: str, policy: Policy) -> str:
    step = storage.packages("Lustre", {TOOL: version}, "debian", "k", policy)
    return f"sh -eu -c {shlex.quote(step.script)}"


def _file(apt: RealApt, version: str) -> dict[str, str]:
    path = apt.root / f"repo/{TOOL}_{version}_all.deb"
    return {"url": f"file://{path}", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def of_storage_file(apt: RealApt, version: str, policy: Policy) -> str:
    return storage.install_download(Download(**_file(apt, version)), "debian", policy)


def of_containers(apt: RealApt, version: str, policy: Policy) -> str:
    script = downloads.install_script([Download(**_file(apt, version))], "debian", policy)
    return script.replace(downloads.DONE, f"{apt.root}/done")


Caller = Callable[[RealApt, str, Policy], str]
FILES: tuple[Caller, ...] = (of_storage_file, of_containers)
VERSIONED: tuple[Caller, ...] = (of_gpu, of_versions, of_storage)
EVERY: tuple[Caller, ...] = (of_base, *VERSIONED, *FILES)


def named(caller: Caller) -> str:
    return caller.__name__.removeprefix("of_")


every_caller = pytest.mark.parametrize("caller", EVERY, ids=named)
callers_with_versions = pytest.mark.parametrize("caller", [*VERSIONED, *FILES], ids=named)


def two_versions(apt: RealApt) -> None:
    for version in ("1.0-1", "2.0-1"):
        apt.publish(TOOL, version)
    apt.run("apt-get -q update")


def no_version(apt: RealApt) -> None:
    two_versions(apt)
    for version in ("1.0-1", "2.0-1"):
        apt.withdraw(TOOL, version)


def a_version_that_fails(apt: RealApt) -> None:
    two_versions(apt)
    apt.publish(TOOL, "3.0-1", postinst="exit 1")


def a_version_that_needs_a_newer_held_library(apt: RealApt) -> None:
    no_version(apt)
    apt.publish("library", "1.0-1")
    apt.run("apt-get -q update; apt-get -q -y install library; apt-mark hold library")
    apt.publish("library", "2.0-1")
    apt.publish(TOOL, "3.0-1", "Depends: library (>= 2.0)\n")
    apt.run("apt-get -q update")


def a_version_that_conflicts(apt: RealApt) -> None:
    two_versions(apt)
    apt.publish("other", "1.0-1")
    apt.publish(TOOL, "3.0-1", "Conflicts: other\n")
    apt.run("apt-get -q update; apt-get -q -y install other")


def a_broken_package(apt: RealApt) -> None:
    two_versions(apt)
    apt.publish("broken", "1.0-1", postinst="exit 1")
    apt.run("apt-get -q update; apt-get -q -y install broken")


def starting_with(prepare: Callable[[RealApt], None]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("apt", [prepare], indirect=True, ids=lambda prepare: prepare.__name__)


@pytest.fixture(scope="module")
def prepared() -> Iterator[PreparedApt]:
    with fast_folder() as folder:
        yield PreparedApt(folder)


@pytest.fixture
def apt(prepared: PreparedApt, request: pytest.FixtureRequest) -> RealApt:
    return prepared.at(getattr(request, "param", two_versions))


def install(
    apt: RealApt, caller: Caller, version: str = "1.0-1", policy: Policy = POLICY
) -> subprocess.CompletedProcess[str]:
    return apt.run(caller(apt, version, policy).replace(CACHE, f"{apt.root}/cache"))


@every_caller
def test_what_is_declared_is_installed(apt: RealApt, caller: Caller) -> None:
    completed = install(apt, caller, "2.0-1")
    assert completed.returncode == 0, completed.stderr
    assert apt.installed() == {TOOL: "2.0-1"}


@pytest.mark.few(2)
@callers_with_versions
def test_a_held_package_is_changed_and_held_again(apt: RealApt, caller: Caller) -> None:
    install(apt, caller, "1.0-1")
    apt.run(f"apt-mark hold {TOOL}")
    completed = install(apt, caller, "2.0-1")
    assert completed.returncode == 0, completed.stderr
    assert apt.installed() == {TOOL: "2.0-1"}
    assert apt.run("apt-mark showhold").stdout.split() == [TOOL]


@pytest.mark.few(1)
@callers_with_versions
@starting_with(a_version_that_fails)
def test_a_hold_is_back_after_a_failure(apt: RealApt, caller: Caller) -> None:
    install(apt, caller, "1.0-1")
    apt.run(f"apt-mark hold {TOOL}")
    assert install(apt, caller, "3.0-1").returncode == 1
    assert apt.run("apt-mark showhold").stdout.split() == [TOOL]


@pytest.mark.few(1)
@every_caller
@starting_with(a_version_that_needs_a_newer_held_library)
def test_no_other_held_package_is_changed(apt: RealApt, caller: Caller) -> None:
    assert "library" in refusal(install(apt, caller, "3.0-1"))
    assert apt.installed() == {"library": "1.0-1"}


@pytest.mark.few(2)
@callers_with_versions
def test_a_downgrade_is_refused_unless_the_inventory_allows_it(apt: RealApt, caller: Caller) -> None:
    install(apt, caller, "2.0-1")
    assert refusal(install(apt, caller, "1.0-1")) == (
        "newer than declared: tool (installed: 2.0-1); set versions.allow_downgrade, or declare what is installed"
    )
    assert apt.installed() == {TOOL: "2.0-1"}
    completed = install(apt, caller, "1.0-1", replace(POLICY, allow_downgrade=True))
    assert completed.returncode == 0, completed.stderr
    assert apt.installed() == {TOOL: "1.0-1"}


@pytest.mark.few(2)
@every_caller
@starting_with(a_version_that_conflicts)
def test_a_removal_is_refused_unless_the_inventory_allows_it(apt: RealApt, caller: Caller) -> None:
    message = refusal(install(apt, caller, "3.0-1"))
    assert message.endswith("would remove other; remove them first, or set versions.allow_removal")
    assert apt.installed() == {"other": "1.0-1"}
    completed = install(apt, caller, "3.0-1", replace(POLICY, allow_removal=True))
    assert completed.returncode == 0, completed.stderr
    assert apt.installed() == {TOOL: "3.0-1"}


@every_caller
def test_a_full_disk_is_found_before_anything_is_done(apt: RealApt, caller: Caller) -> None:
    executable(apt.root / "bin/df", "echo Filesystem; echo /dev/vda 1000 950 50 95% /usr")
    assert refusal(install(apt, caller)).startswith("/usr: 50 MiB free, 256 wanted before packages are installed; ")
    assert apt.installed() == {}


@every_caller
def test_unknown_free_space_is_not_enough(apt: RealApt, caller: Caller) -> None:
    executable(apt.root / "bin/df", "exit 1")
    assert refusal(install(apt, caller)).startswith("/usr: free space unknown (df gives no answer), 256 MiB wanted")
    assert apt.installed() == {}


@pytest.mark.parametrize("caller", [of_base, *VERSIONED], ids=named)
@starting_with(no_version)
def test_a_missing_package_is_named(apt: RealApt, caller: Caller) -> None:
    message = refusal(install(apt, caller))
    assert message.startswith(f"in none of the repositories of this node: {TOOL}")
    assert "put them on the mirror (rackproof mirror list)" in message


@every_caller
def test_the_holder_of_the_lock_is_named(apt: RealApt, caller: Caller) -> None:
    lock = apt.root / "lock"
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    script = caller(apt, "1.0-1", POLICY).replace("/var/lib/dpkg/lock-frontend", str(lock))
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        completed = apt.run(script)
        holder.stdin.write(b"\n")
        holder.stdin.close()
    assert refusal(completed).startswith(f"the package manager is locked by process {holder.pid} ({sys.executable} -c")
    assert apt.installed() == {}


@pytest.mark.few(1)
@every_caller
@starting_with(a_broken_package)
def test_a_half_configured_package_that_cannot_be_repaired_is_named(apt: RealApt, caller: Caller) -> None:
    assert refusal(install(apt, caller)).startswith("half-configured, and cannot be repaired: broken; ")


@pytest.mark.parametrize("caller", FILES, ids=named)
def test_a_file_with_another_digest_is_not_installed(apt: RealApt, caller: Caller) -> None:
    script = caller(apt, "1.0-1", POLICY).replace(CACHE, f"{apt.root}/cache")
    package = apt.root / f"repo/{TOOL}_1.0-1_all.deb"
    package.write_bytes(package.read_bytes() + b"x")
    message = refusal(apt.run(script))
    assert message.startswith(f"file://{package}: expected sha256 ")
    assert message.endswith("; nothing was kept")
    assert apt.installed() == {}
