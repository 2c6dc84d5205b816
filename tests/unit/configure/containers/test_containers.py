"""Runtimes' configuration, the user, downloads, and the program that starts containers."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from deploys import containers as deploy
from rackproof.configure import facts as shared_facts
from rackproof.configure.containers import bridge, daemon, downloads, facts, operations, plan, user
from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.files import RemoteDirectory, RemoteFile
from rackproof.configure.inputs import Download
from rackproof.configure.package_transaction.transaction import CACHE
from rackproof.configure.render import templates
from rackproof.configure.site import Site
from rackproof.configure.versions import operations as versions
from rackproof.core.architecture import Containers
from rackproof.core.versions import LockedPackage
from rackproof.errors import DeclarationError
from tests.unit.configure.rack import architecture, site
from tests.unit.configure.stub import StubHost, at, run
from tests.unit.shell import executable, sh

INPUTS = ContainerInputs()
FOLDERS = ("/mnt/a/rackproof-user",)
WHOLE = user.UserState(
    59500, "rackproof", ("rackproof:2000000000:65536",), ("rackproof:2000000000:65536",), {FOLDERS[0]: "59500"}
)


def declared(**keys: Any) -> Containers:
    return Containers.model_validate({"runtime": "docker", **keys})


def with_(**keys: Any) -> Site:
    return site("gpu-01", architecture().model_copy(update={"containers": declared(**keys)}))


def test_docker() -> None:
    text = daemon.docker_json(
        declared(data_root="/raid/docker", storage_driver="overlay2", nvidia_runtime=True, default_runtime="nvidia"),
        ContainerInputs(registry_mirrors=("https://mirror.example",), log_max_mib=10),
    )
    values = json.loads(text)
    assert values["data-root"] == "/raid/docker"
    assert values["live-restore"] is True
    assert values["log-opts"] == {"max-file": "3", "max-size": "10m"}
    assert values["runtimes"]["nvidia"]["path"] == "/usr/bin/nvidia-container-runtime"
    assert values["default-runtime"] == "nvidia"
    assert values["default-ulimits"]["memlock"]["Hard"] == -1
    assert values["registry-mirrors"] == ["https://mirror.example"]


def test_docker_without_gpus_names_no_runtime() -> None:
    assert "runtimes" not in json.loads(daemon.docker_json(declared(), INPUTS))


def test_containerd() -> None:
    text = daemon.containerd_toml(
        declared(runtime="containerd", data_root="/raid/containerd", nvidia_runtime=True), INPUTS
    )
    values = tomllib.loads(text)
    cri = values["plugins"]["io.containerd.grpc.v1.cri"]
    assert values["root"] == "/raid/containerd"
    assert cri["containerd"]["runtimes"]["nvidia"]["options"]["SystemdCgroup"] is True
    assert cri["containerd"]["runtimes"]["nvidia"]["options"]["BinaryName"] == daemon.NVIDIA_RUNTIME
    assert cri["containerd"]["default_runtime_name"] == "runc"


def test_podman() -> None:
    conf = tomllib.loads(daemon.podman_conf(INPUTS))
    assert conf["engine"]["cgroup_manager"] == "cgroupfs"
    storage = tomllib.loads(daemon.podman_storage(declared(runtime="podman", data_root="/raid/c")))
    assert storage["storage"]["rootless_storage_path"] == "/raid/c/users/$UID"
    mirrors = tomllib.loads(daemon.podman_registries(ContainerInputs(registry_mirrors=("https://mirror.example/x",))))
    assert mirrors["registry"][0]["mirror"] == [{"location": "mirror.example/x"}]


def test_enroot_binds_mounts_and_devices() -> None:
    lines = daemon.enroot_mounts(("/mnt/lfs",)).splitlines()
    assert "/mnt/lfs /mnt/lfs none x-create=dir,bind,rslave,nofail 0 0" in lines
    assert any(line.startswith("/dev/infiniband ") for line in lines)


MADE_BY_OTHERS = {"/run/pyxis", "/run/user"}
"""pyxis makes its folder in slurmd, logind those of sessions."""


@pytest.mark.parametrize("runtime", sorted(daemon.PACKAGES))
def test_a_folder_below_run_is_there_after_every_boot(runtime: str) -> None:
    here = with_(runtime=runtime)
    entries = plan.files(here, declared(runtime=runtime), INPUTS)
    texts = {entry.path: entry.content for entry in entries if isinstance(entry, RemoteFile)}
    if runtime == "enroot":
        texts["pyxis"] = daemon.pyxis_conf(INPUTS, "debian", "x86_64")
    tmpfiles = [text for path, text in texts.items() if path.startswith("/etc/tmpfiles.d/")]
    at_boot = {line.split()[1] for text in tmpfiles for line in text.splitlines() if line.startswith("d ")}
    used = {folder for text in texts.values() for folder in re.findall(r"(?<![\w.-])/run/[a-z]+", text)}
    assert used - MADE_BY_OTHERS <= at_boot
    now = {entry.path: entry.mode for entry in entries if isinstance(entry, RemoteDirectory)}
    assert {path: now[path] for path in at_boot} == dict.fromkeys(at_boot, "1777")
    assert bool(at_boot) is (runtime == "enroot")


def test_enroot_needs_its_packages() -> None:
    with pytest.raises(DeclarationError, match="no distribution has enroot; give URL and sha256"):
        plan.inputs_here(with_(runtime="enroot"))


REPOSITORY = {
    "source": "https://mirror.example/docker/rhel/9/x86_64",
    "key": {"url": "https://mirror.example/docker/gpg", "sha256": "a" * 64},
}


@pytest.mark.parametrize(
    ("runtime", "family", "plain", "expected"),
    [
        ("docker", "rhel", {}, ("docker-ce",)),
        ("containerd", "rhel", {}, ("containerd.io",)),
        ("docker", "rhel", {"repository": REPOSITORY}, ()),
        ("docker", "debian", {}, ()),
        ("podman", "rhel", {}, ()),
    ],
)
def test_packages_without_a_source_are_refused(
    runtime: str, family: str, plain: dict[str, Any], expected: tuple[str, ...]
) -> None:
    names = daemon.packages(runtime, family)
    assert daemon.without_source(names, family, ContainerInputs.model_validate(plain)) == expected


def test_a_repository_without_a_digest_of_its_key() -> None:
    with pytest.raises(ValueError, match=r"repository\.key\.sha256\n  Field required"):
        ContainerInputs.model_validate({"repository": {**REPOSITORY, "key": {"url": "https://mirror.example/gpg"}}})
    with pytest.raises(ValueError, match=r"repository\.key\n  Field required"):
        ContainerInputs.model_validate({"repository": {"source": "https://mirror.example/docker"}})


def installing(
    monkeypatch: pytest.MonkeyPatch,
    plain: dict[str, Any],
    installed: frozenset[str] = frozenset(),
    locked: tuple[LockedPackage, ...] = (),
) -> list[str]:
    """Changes of packages on RHEL, in their order."""
    done: list[str] = []
    monkeypatch.setattr(deploy, "packages_here", lambda part: locked)
    monkeypatch.setattr(deploy, "stage", lambda component, title: done.append(f"stage {component}"))
    monkeypatch.setattr(versions, "signing_keys", lambda **given: done.append(f"key {given['wanted'][0].sha256}"))
    monkeypatch.setattr(deploy.operations, "files", lambda **arguments: done.append(arguments["entries"][0].content))
    monkeypatch.setattr(deploy.operations, "packages", lambda **arguments: done.append(" ".join(arguments["names"])))
    with at(StubHost({shared_facts.InstalledPackages: installed})):
        names = daemon.packages("docker", "rhel")
        deploy._packages(names, "rhel", ContainerInputs.model_validate(plain))
    return done


def test_key_and_repository_come_before_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    key, repository, packages = installing(monkeypatch, {"repository": REPOSITORY})
    assert key == f"key {'a' * 64}"
    assert "baseurl=https://mirror.example/docker/rhel/9/x86_64\n" in repository
    assert "gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/rackproof-containers.asc\n" in repository
    assert packages == "docker-ce"


def test_rhel_without_a_repository_of_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeclarationError, match=r"containers\.repository: RHEL's family has no docker-ce; give"):
        installing(monkeypatch, {})
    # An image may have brought it, or a version set brings it.
    assert installing(monkeypatch, {}, installed=frozenset({"docker-ce"})) == ["docker-ce"]
    locked = (LockedPackage("docker-ce", "3:29.0.1-1.el9", "others.docker", "docker"),)
    assert installing(monkeypatch, {}, locked=locked) == ["stage others.docker"]


def test_a_bridge_to_what_is_not_mounted() -> None:
    with pytest.raises(DeclarationError, match=r"containers\.bridge: nfs-tpc is not mounted"):
        plan.mountpoints(with_(runtime="podman", bridge=["nfs-tpc"]))


@pytest.mark.parametrize("runtime", ["docker", "containerd", "podman"])
def test_every_file_has_one_writer(runtime: str) -> None:
    here = with_(runtime=runtime, **({"bridge": ["nfs-tcp"]} if runtime == "podman" else {"mounts": ["nfs-tcp"]}))
    entries = plan.files(here, here.architecture.containers, INPUTS)  # type: ignore[arg-type]
    paths = [entry.path for entry in entries]
    assert len(paths) == len(set(paths))
    texts = "".join(getattr(entry, "content", "") for entry in entries)
    assert "--privileged" not in texts
    if runtime != "podman":
        assert "RequiresMountsFor=/mnt/nfs-tcp" in texts


@pytest.mark.parametrize("runtime", ["docker", "containerd"])
def test_a_daemon_needs_its_own_mount_and_comes_up_when_late_mounts_do(runtime: str) -> None:
    here = with_(runtime=runtime, mounts=["nfs-tcp"], data_root="/raid/images")
    files = {entry.path: entry for entry in plan.files(here, here.architecture.containers, INPUTS)}  # type: ignore[arg-type]
    drop_in = files[f"/etc/systemd/system/{runtime}.service.d/rackproof.conf"]
    # Without the scratch array a daemon would fill the root disk.
    assert "RequiresMountsFor=/raid/images /mnt/nfs-tcp\n" in getattr(drop_in, "content", "")
    again = files[f"/etc/systemd/system/rackproof-mounts.service.d/{runtime}.conf"]
    assert f"[Unit]\nWants={runtime}.service\n" in getattr(again, "content", "")
    alone = with_(runtime=runtime)
    paths = [entry.path for entry in plan.files(alone, alone.architecture.containers, INPUTS)]  # type: ignore[arg-type]
    assert not any("rackproof-mounts" in path for path in paths)


@pytest.mark.parametrize(
    ("family", "arch", "expected"),
    [
        ("rhel", "x86_64", "/usr/lib64/slurm/spank_pyxis.so"),
        ("rhel", "aarch64", "/usr/lib64/slurm/spank_pyxis.so"),
        ("debian", "x86_64", "/usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so"),
        ("debian", "aarch64", "/usr/lib/aarch64-linux-gnu/slurm/spank_pyxis.so"),
    ],
)
def test_pyxis_is_where_its_package_installs_it(family: str, arch: str, expected: str) -> None:
    assert f"required {expected} " in daemon.pyxis_conf(INPUTS, family, arch)
    own = ContainerInputs(pyxis_library="/opt/pyxis/spank_pyxis.so")
    assert "required /opt/pyxis/spank_pyxis.so " in daemon.pyxis_conf(own, family, arch)


def test_the_user_that_is_there() -> None:
    assert not user.plan(INPUTS, FOLDERS, WHOLE)
    host = StubHost({facts.ContainerUser: WHOLE})
    assert run(operations.container_user, host, inputs=INPUTS, folders=FOLDERS) == []


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (user.UserState(None, None, (), (), {}), ("useradd -u 59500", "/etc/subuid", "/etc/subgid", "install -d")),
        (user.UserState(59500, "rackproof", (), WHOLE.subgid, WHOLE.folders), ("/etc/subuid",)),
        (user.UserState(59500, "rackproof", WHOLE.subuid, WHOLE.subgid, {FOLDERS[0]: "0"}), ("install -d",)),
    ],
)
def test_what_the_user_lacks(state: user.UserState, expected: tuple[str, ...]) -> None:
    lines = user.plan(INPUTS, FOLDERS, state).lines
    assert len(lines) == len(expected)
    assert all(part in line for part, line in zip(expected, lines, strict=True))
    subprocess.run(["dash", "-n", "-c", "\n".join(lines)], check=True, timeout=120)


@pytest.mark.parametrize(
    ("state", "complaint"),
    [
        (user.UserState(1001, None, (), (), {}), "has the number 1001 here, expected 59500"),
        (user.UserState(None, "jane", (), (), {}), "belongs to jane here"),
    ],
)
def test_a_user_with_another_uid_is_refused(state: user.UserState, complaint: str) -> None:
    (refusal,) = run(operations.container_user, StubHost({facts.ContainerUser: state}), inputs=INPUTS, folders=FOLDERS)
    assert complaint in refusal
    assert refusal.endswith("exit 1")


def test_the_question_about_a_user_runs(tmp_path: Path) -> None:
    inputs = ContainerInputs(user="no-such-user")
    ended = sh(user.state_command(inputs, [str(tmp_path)]))
    state = user.parse_state(ended.stdout.splitlines())
    assert (state.uid, state.subuid) == (None, ())
    assert state.folders == {str(tmp_path): str(os.getuid())}


def a_download(folder: Path, content: bytes = b"package") -> Download:
    path = folder / "enroot_3.5.0_amd64.deb"
    path.write_bytes(content)
    return Download(url=f"file://{path}", sha256=hashlib.sha256(b"package").hexdigest())


def load(folder: Path, wanted: Download) -> subprocess.CompletedProcess[str]:
    bin_ = folder / "bin"
    programs = {
        "apt-get": f'echo "$@" >> {folder}/apt',
        "dpkg-deb": "case $3 in Package) echo enroot;; *) echo 3.5.0;; esac",
        "dpkg-query": "case $* in *enroot*) echo installed 3.5.0;; esac",
        "systemctl": ":",
        "curl": 'while [ $# -gt 1 ]; do [ "$1" != -o ] || o=$2; shift; done\ncp "${1#file://}" "$o"',
    }
    for name, body in programs.items():
        executable(bin_ / name, body)
    script = downloads.install_script([wanted], "debian").replace(downloads.DONE, f"{folder}/done")
    script = script.replace(CACHE, f"{folder}/cache")
    return sh(script, programs=bin_)


def test_download_is_compared_and_installed_once(tmp_path: Path) -> None:
    wanted = a_download(tmp_path)
    ended = load(tmp_path, wanted)
    assert ended.returncode == 0, ended.stderr
    assert "-enroot_3.5.0_amd64.deb" in (tmp_path / "apt").read_text()
    assert (tmp_path / "done" / wanted.sha256).exists()


def test_another_file_is_not_installed(tmp_path: Path) -> None:
    ended = load(tmp_path, a_download(tmp_path, b"something else"))
    assert ended.returncode == 1
    assert "expected sha256 " in ended.stderr
    assert "nothing was kept" in ended.stderr
    assert not (tmp_path / "apt").exists()


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    wanted = a_download(tmp_path)
    (tmp_path / "enroot_3.5.0_amd64.deb").unlink()
    ended = load(tmp_path, wanted)
    assert ended.returncode == 1
    assert "enroot_3.5.0_amd64.deb: cp: cannot stat" in ended.stderr


def program(
    tmp_path: Path, runtime: str, mounts: tuple[str, ...], *arguments: str, selinux: bool = False
) -> subprocess.CompletedProcess[str]:
    """With a runtime that prints its arguments, one a line, as a user who is not root."""
    text = templates.text(
        bridge.PROGRAM,
        runtime=runtime,
        host_root=bridge.ROOT,
        shared=("/usr",),
        mountpoints=list(mounts),
        selinux=selinux,
    )
    bin_ = tmp_path / "bin"
    executable(bin_ / runtime, "printf '%s\\n' \"$@\"")
    executable(bin_ / "id", "echo 59500")
    executable(bin_ / "mountpoint", "case $3 in /mnt/gone) exit 1 ;; /mnt/hung) exit 124 ;; esac")
    return sh(text, "rackproof-container", *arguments, programs=bin_, XDG_RUNTIME_DIR=str(tmp_path))


def test_podman_over_the_nodes_own_programs(tmp_path: Path) -> None:
    ended = program(tmp_path, "podman", ("/mnt/a", "/mnt/b"), "--host-root", "--", "ls", "-l", "a b")
    words = ended.stdout.splitlines()
    assert ended.returncode == 0, ended.stderr
    assert words[-3:] == ["ls", "-l", "a b"]
    assert words[words.index("--rootfs") + 1] == bridge.ROOT
    assert {"/mnt/a:/mnt/a:rslave", "/mnt/b:/mnt/b:rslave", "/usr:/usr:ro"} <= set(words)
    assert {"--userns=keep-id", "--cap-drop=all", "--security-opt=no-new-privileges", "--read-only"} <= set(words)
    assert "--privileged" not in words


def test_docker_with_an_image(tmp_path: Path) -> None:
    ended = program(tmp_path, "docker", ("/mnt/a",), "--image", "tools:1", "--", "id")
    words = ended.stdout.splitlines()
    assert words[-2:] == ["tools:1", "id"]
    assert "type=bind,source=/mnt/a,target=/mnt/a,bind-propagation=rslave" in words
    assert words[words.index("--cap-drop") + 1] == "ALL"


@pytest.mark.parametrize("runtime", ["podman", "docker"])
@pytest.mark.parametrize("selinux", [True, False])
def test_selinux_does_not_keep_shared_storage_from_a_container(tmp_path: Path, runtime: str, selinux: bool) -> None:
    ended = program(tmp_path, runtime, ("/mnt/a",), "--image", "tools:1", "--", "id", selinux=selinux)
    words = ended.stdout.splitlines()
    assert ended.returncode == 0, ended.stderr
    options = words[: words.index("tools:1")]
    assert ("label=disable" in options) is selinux
    assert not selinux or options[options.index("label=disable") - 1] == "--security-opt"
    # Nothing is labelled anew, on whichever system.
    assert not [word for word in options if word.endswith((":z", ":Z", ",z", ",Z"))]


@pytest.mark.parametrize(("family", "disabled"), [("rhel", True), ("debian", False)])
def test_only_rhels_family_separates_containers_by_labels(family: str, disabled: bool) -> None:
    here = with_(runtime="podman", bridge=["nfs-tcp"])
    text = plan.program(here, declared(runtime="podman", bridge=["nfs-tcp"]), family).content
    assert ("label=disable" in text) is disabled


@pytest.mark.parametrize(
    ("mounts", "arguments", "rc", "complaint"),
    [
        (("/mnt/gone",), ("--host-root", "--", "ls"), 69, "/mnt/gone is not mounted"),
        (("/mnt/hung",), ("--host-root", "--", "ls"), 69, "/mnt/hung does not answer"),
        (("/mnt/a",), ("--host-root",), 64, "usage:"),
        (("/mnt/a",), ("--", "ls"), 64, "usage:"),
    ],
)
def test_what_is_not_started(
    tmp_path: Path, mounts: tuple[str, ...], arguments: tuple[str, ...], rc: int, complaint: str
) -> None:
    ended = program(tmp_path, "podman", mounts, *arguments)
    assert ended.returncode == rc
    assert complaint in ended.stderr


def test_root_is_made_once(tmp_path: Path) -> None:
    script = bridge.root_script(("/mnt/a",)).replace(bridge.ROOT, str(tmp_path / "root"))
    state = bridge.state_command(("/mnt/a",)).replace(bridge.ROOT, str(tmp_path / "root"))
    assert subprocess.check_output(["dash", "-c", state], timeout=120) == b"no\n"
    for _ in (1, 2):
        sh(script, check=True)
        assert subprocess.check_output(["dash", "-c", state], timeout=120) == b"yes\n"
    assert (tmp_path / "root/mnt/a").is_dir()
    assert (tmp_path / "root/bin").readlink() == Path("usr/bin")
