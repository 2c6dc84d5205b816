"""Downloads, repositories, packages, modules: scripts run for real, against a vendor's server on this machine."""

from __future__ import annotations

import pytest

from rackproof.configure.facts import Marks
from rackproof.configure.inputs import Download, Repository
from rackproof.configure.storage_client import plan as storage_client
from rackproof.configure.storage_client.install import (
    fetch,
    install_download,
    kernel_headers,
    module,
    packages,
    place,
    repository,
)
from rackproof.configure.storage_client.steps import Step, script_of
from tests.unit.configure.storage_client.vendor import KERNEL, Bench, Vendor
from tests.unit.configure.stub import StubHost

pytestmark = pytest.mark.few(6)

KEY = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"


def downloaded(download: Download) -> Step:
    return Step(
        name="Download of x",
        holds=f"echo {download.sha256}'  '{place(download)} | sha256sum -c --status",
        script=fetch(download),
        otherwise="not downloaded",
    )


def test_a_download_is_there_whole_and_fetched_once(server: Vendor, bench: Bench) -> None:
    step = downloaded(server.offer("/x.tgz", b"content" * 99))
    done = bench.carry_out([step])
    assert (done.returncode, done.stderr, server.asked) == (0, "", ["/x.tgz"])
    assert bench.holding([step]) == (True,)
    assert bench.left == []


@pytest.mark.parametrize("way", ["other", "404", "cut", "down"])
def test_a_bad_download_is_named_and_leaves_nothing_and_heals(server: Vendor, bench: Bench, way: str) -> None:
    good = b"content" * 999
    download = server.offer("/x.tgz", good)
    step = downloaded(download)
    says = {
        "other": f"expected sha256 {download.sha256}, actual ",
        "404": "404",
        "cut": "/x.tgz: curl: (18)",
        "down": "/x.tgz: curl: (7)",
    }[way]
    if way == "other":
        server.served["/x.tgz"] = b"something else"
    elif way == "404":
        del server.served["/x.tgz"]
    elif way == "cut":
        server.cut.add("/x.tgz")
    else:
        download = Download(url="http://127.0.0.1:9/x.tgz", sha256=download.sha256)
        step = downloaded(download)
    done = bench.carry_out([step])
    assert done.returncode == 1
    assert says in done.stderr
    assert "Download of x: not downloaded" in done.stderr
    assert bench.left == []
    assert list((bench.root / "var/cache/rackproof").iterdir()) == []
    if way != "down":
        server.cut.clear()
        server.served["/x.tgz"] = good
        assert bench.carry_out([step]).returncode == 0


def test_a_repository_is_named_only_after_its_key_was_checked(server: Vendor, bench: Bench) -> None:
    key = server.offer("/key.asc", KEY)
    steps = repository("beegfs", Repository(source="https://h/beegfs noble non-free", key=key), "debian", "k")
    server.served["/key.asc"] = b"another key"
    done = bench.carry_out(steps)
    assert done.returncode == 1
    assert "has the vendor changed it? see k.repository.key" in done.stderr
    listed = bench.root / "etc/apt/sources.list.d/rackproof-beegfs.sources"
    older = listed.with_suffix(".list")
    older.write_text("deb https://h/beegfs noble non-free\n")
    assert not listed.exists()
    server.served["/key.asc"] = KEY
    assert bench.carry_out(steps).returncode == 0
    assert "Signed-By: /etc/apt/keyrings/rackproof-beegfs.asc" in listed.read_text().replace(str(bench.root), "")
    assert not older.exists()
    assert bench.holding(steps) == (True, True)
    assert bench.left == []


def test_rhel_checks_signatures_too(server: Vendor, bench: Bench) -> None:
    key = server.offer("/key", KEY)
    steps = repository("lustre", Repository(source="https://h/el9", key=key), "rhel", "k")
    assert bench.carry_out(steps).returncode == 0
    text = (bench.root / "etc/yum.repos.d/rackproof-lustre.repo").read_text()
    assert "gpgcheck=1\ngpgkey=file:///" in text


def test_exactly_the_declared_version_is_installed_or_it_is_an_error(bench: Bench) -> None:
    step = packages("BeeGFS", {"beegfs-client": "20:8.3.1"}, "debian", "k.packages")
    bench.managers()
    bench.stand_in("apt-get", f"case $* in *' install '*) echo 'beegfs-client 20:8.2.0' >{bench.packages}; exit;; esac")
    done = bench.carry_out([step])
    assert done.returncode == 1
    assert "afterwards: beegfs-client=20:8.3.1 (actual: installed 20:8.2.0)\n" in done.stderr
    assert "not all of beegfs-client are installed as declared" in done.stderr
    bench.stand_in("apt-get", "")
    assert bench.carry_out([step]).returncode == 0
    assert "beegfs-client=20:8.3.1" in bench.log
    assert bench.holding([step]) == (True,)


def test_a_package_that_is_missing_from_the_mirror_is_named(bench: Bench) -> None:
    bench.program("dnf", "echo 'No match for argument: kmod-lustre-client' >&2; exit 1")
    bench.program("rpm", "exit 1")
    done = bench.carry_out([packages("Lustre", {"kmod-lustre-client": ""}, "rhel", "k.packages")])
    assert done.returncode == 1
    assert "No match for argument: kmod-lustre-client" in done.stderr
    assert "are they in the repository? see k.packages" in done.stderr


@pytest.mark.parametrize(
    ("family", "tool", "words"),
    [
        ("debian", "apt-get", "E: You don't have enough free space in /var/cache/apt/archives/."),
        ("debian", "apt-get", "dpkg: error processing archive: cannot copy extracted data: No space left on device"),
        ("rhel", "dnf", "Error Summary: At least 312MB more space needed on the / filesystem."),
    ],
)
def test_a_full_disk_is_not_taken_for_a_package_that_is_not_there(
    bench: Bench, family: str, tool: str, words: str
) -> None:
    bench.program(tool, f'case "$*" in *install*) echo "{words}" >&2; exit 1;; esac')
    bench.program("dpkg-query" if family == "debian" else "rpm", "exit 1")
    bench.program("dpkg")
    done = bench.carry_out([packages("Lustre", {"lustre-client": ""}, family, "k.packages")])
    assert done.returncode == 1
    *_, complaint, last = done.stderr.splitlines()
    assert complaint.startswith("a file system of this node is full: ")
    assert words in done.stderr
    assert last == ("Packages of Lustre: a file system of this node is full, see above; make room and run again")
    assert not list(bench.root.glob("rackproof.*"))


def test_a_foreign_lock_is_waited_for_and_named(bench: Bench) -> None:
    bench.file("/var/lib/dnf/rpmdb_lock.pid", "4711")
    bench.file("/proc/4711/cmdline", "dnf\0upgrade\0")
    bench.program("sleep")
    bench.program("dnf", "exit 1")
    bench.program("rpm", "exit 1")
    done = bench.carry_out([packages("Lustre", {"lustre-client": ""}, "rhel", "k.packages")])
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "the package manager is locked by process 4711 (dnf upgrade ) after 2 s; let it finish or end it, then run"
        " again",
        "Packages of Lustre: the package manager is locked by another process, see above",
    ]
    assert "dnf " not in bench.log


def test_a_module_of_another_kernel_is_no_module(bench: Bench) -> None:
    step = module("Lustre", "lustre", "boot the kernel of the version set")
    bench.program("modinfo", "echo '6.8.0-55-generic SMP preempt'")
    done = bench.carry_out([step])
    assert done.returncode == 1
    assert "no module lustre for the running kernel; boot the kernel of the version set" in done.stderr
    bench.program("modinfo", f"echo '{KERNEL} SMP preempt mod_unload'")
    assert bench.holding([step]) == (True,)


def test_headers_of_another_kernel_are_no_headers(bench: Bench) -> None:
    step = kernel_headers("debian", "BeeGFS")
    bench.managers()
    bench.program("dpkg")
    bench.program("apt-get", "exit 100")
    done = bench.carry_out([step])
    assert done.returncode == 1
    assert "BeeGFS is built for the running kernel, whose headers are not available" in done.stderr
    assert f"linux-headers-{KERNEL}" in bench.log
    # Lists that are old name files that are gone: they are fetched again.
    bench.stand_in(
        "apt-get",
        'case "$*" in *update*) : >/var/lib/rackproof/lists; exit 0;; esac; [ -e /var/lib/rackproof/lists ] ||'
        f" exit 100; mkdir -p /lib/modules/{KERNEL}/build; : >/lib/modules/{KERNEL}/build/Makefile",
    )
    assert bench.carry_out([step]).returncode == 0


def test_an_interactive_program_gets_end_of_file(bench: Bench) -> None:
    """dpkg about a file of its own, ssh about a key."""
    asks = '! read -r answer && [ "$DEBIAN_FRONTEND" = noninteractive ] && : >/var/lib/rackproof/asked'
    script = script_of([Step("Question", "test -e /var/lib/rackproof/asked", "it was answered", asks)])
    done = bench.run(f"printf 'yes\\n' | (\n{script}\n)")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_from_its_file(server: Vendor, bench: Bench) -> None:
    download = server.offer("/client.deb", b"deb")
    step = Step("Client", "test -e /var/lib/rackproof/there", "not installed", install_download(download, "debian"))
    bench.managers()
    bench.stand_in("apt-get", 'for last; do :; done; test -s "$last" && : >/var/lib/rackproof/there')
    assert bench.carry_out([step]).returncode == 0
    assert bench.holding([step]) == (True,)


@pytest.mark.parametrize(
    ("marks", "builds"),
    [
        ((), True),
        (("reboot:hugepages of 1 GiB", "restart:mnt-lfs.mount"), True),
        (("reboot:kernel 5.14.0-503.14.1.el9_5.x86_64 is locked and another one runs",), False),
        (("reboot:drivers of the network adapters",), False),
    ],
)
def test_nothing_is_built_for_what_goes_with_the_reboot(
    monkeypatch: pytest.MonkeyPatch, marks: tuple[str, ...], builds: bool
) -> None:
    """A build for a kernel whose headers are gone would fail the node, and keep it from the reboot that heals it."""
    stub = StubHost({Marks: frozenset(marks)})
    monkeypatch.setattr(storage_client, "host", stub)
    assert storage_client.built_for_what_runs() is builds
    assert bool(stub.logged) is not builds
