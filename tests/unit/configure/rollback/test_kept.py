"""Rollback of files that are not the kit's own. The operations' scripts run in a folder."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.configure.containers import facts as container_facts
from rackproof.configure.containers import operations as containers
from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.containers.user import UserState
from rackproof.configure.gpu import facts as gpu_facts
from rackproof.configure.gpu import operations as gpu
from rackproof.configure.gpu import scripts
from rackproof.configure.inputs import Download, Repository
from rackproof.configure.node import users
from rackproof.configure.node.inputs import User
from rackproof.configure.package_transaction.transaction import Package
from rackproof.configure.rollback import restore
from rackproof.configure.rollback.journal import INITRAMFS, Journal, file_line, later, mark_lines
from rackproof.configure.rollback.restore_script import restore_script
from rackproof.configure.slurm import operations as slurm
from rackproof.configure.storage_client import operations as storage
from rackproof.configure.storage_client.install import repository
from rackproof.configure.storage_client.operations import Holding
from rackproof.configure.storage_client.steps import Step
from rackproof.configure.versions import facts as version_facts
from rackproof.configure.versions import operations as versions
from rackproof.configure.versions.kernels import KernelState
from rackproof.configure.versions.repositories import Key
from rackproof.errors import Refused
from tests.unit.configure.gpu.test_install import EMPTY, UBUNTU, wanted
from tests.unit.configure.rollback.test_rollback import SYSTEMCTL, Node, needs_root
from tests.unit.configure.stub import StubHost, at, run

pytestmark = [pytest.mark.few(8), needs_root]
K, OLD = "6.8.0-87-generic", "6.8.0-90-generic"
KEY = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\nnew\n"
SHA = hashlib.sha256(KEY).hexdigest()


class Rooted(Node):
    """Whose scripts find their absolute paths below its root."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept = self.root / "var/lib/rackproof/rollback"
        for name in ("etc", "boot/grub", "usr/share/keyrings"):
            (self.root / name).mkdir(parents=True)

    def at_root(self, script: str) -> str:
        return re.sub(r"(?<![\w/.])/(etc|usr|boot|var|home)(?=/)", rf"{self.root}/\1", script)

    def carry(self, script: str, check: bool = True) -> str:
        """Run it; the run that it belongs to."""
        self.sh(self.at_root(script), check=check)
        return self.kept_runs()[-1].run

    def does(self, operation: Any, answers: dict[type, Any], **arguments: Any) -> str:
        (script,) = run(operation, StubHost(answers), **arguments)
        return self.carry(script)

    def text(self, name: str) -> str | None:
        path = self.root / name
        return path.read_text() if path.exists() else None

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def pending(self) -> list[str]:
        folder = self.folder / "pending"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def node(tmp_path: Path) -> Rooted:
    return Rooted(tmp_path)


def test_what_only_the_script_knows_is_restored_and_is_the_kits(node: Rooted) -> None:
    path = node.write("etc/a", "old\n")
    journal = node.journal()
    node.sh(journal.before([], f"set -eu; hostname >/dev/null; echo new >{path}", [later(str(path))]))
    path.write_text("mine\n")
    with pytest.raises(Refused):
        node.plan_back(journal.run)
    path.write_text("new\n")
    assert node.back(journal.run)
    assert path.read_text() == "old\n"


@pytest.mark.parametrize("end", ["exit 3", "set -e; false", "echo not read; exit 3"])
def test_a_script_that_fails_has_written_down_what_it_left(node: Rooted, end: str) -> None:
    path = node.root / "etc/a"
    script = node.journal("r1").before([], f"cat >{path}\n{end}", [later(str(path))])
    done = node.sh(script, "from standard input\n", check=False)
    assert done.returncode in (1, 3)
    assert path.read_text() == "from standard input\n"
    assert node.back("r1")
    assert not path.exists()


def test_what_a_script_was_cut_off_at_is_only_overwritten_when_it_is_named(node: Rooted) -> None:
    path = node.write("etc/a", "old\n")
    script = node.journal("r1").before([], f"echo new >{path}", [later(str(path))])
    node.sh(script.split("rp_rc=$?")[0])  # the connection is lost here
    with pytest.raises(Refused):
        node.plan_back("r1")
    assert node.back("r1", [str(path)])
    assert path.read_text() == "old\n"


def test_two_changes_by_scripts_are_one_chain(node: Rooted) -> None:
    path = str(node.root / "etc/a")
    for text in ("1", "2"):
        node.sh(node.journal("r1").before([], f"echo {text} >{path}", [later(path)]))
    node.sh(node.journal("r2").before([file_line(path, None)], f"rm {path}"))
    assert node.back("r1") == restore.RestorePlan()
    node.write("etc/a", "3\n")
    with pytest.raises(Refused):
        node.plan_back("r1")


KERNELS = KernelState(K, (K, OLD), "", (), frozenset())


def test_grubs_choice_of_a_kernel_comes_back(node: Rooted) -> None:
    node.write(f"boot/vmlinuz-{K}", "")
    node.write("boot/grub/grub.cfg", f"'gnulinux-advanced-x' 'gnulinux-{K}-advanced-x'\n")
    node.program("update-grub", 'echo update-grub >>"$LOG"')
    done = node.does(versions.boot_kernel, {version_facts.Kernels: KERNELS}, release=K, family="debian")
    drop_in = "etc/default/grub.d/60-rackproof-kernel.cfg"
    assert f"# kernel {K}" in (node.text(drop_in) or "")
    ran = len(node.log())
    node.back(done)
    assert node.text(drop_in) is None
    assert node.log()[ran:] == ["update-grub"]
    assert node.pending() == ["reboot:the default kernel has changed"]


def test_grubbys_choice_of_a_kernel_comes_back(node: Rooted) -> None:
    old = str(node.write(f"boot/vmlinuz-{OLD}", ""))
    node.write(f"boot/vmlinuz-{K}", "")
    default = node.write("default", f"{old}\n")
    grubby = f'case $1 in --default-kernel) cat {default} ;; --set-default) echo "$2" >{default} ;; esac'
    node.program("grubby", grubby)
    done = node.does(versions.boot_kernel, {version_facts.Kernels: KERNELS}, release=K, family="rhel")
    assert default.read_text().strip().endswith(K)
    plan = node.back(done)
    assert f"default kernel: {old}" in [change.line for change in plan.changes({})]
    assert default.read_text() == f"{old}\n"
    node.back(node.kept_runs()[-1].run)
    assert default.read_text().strip().endswith(K)


def test_a_kernel_that_is_gone_does_not_keep_the_rest_from_coming_back(node: Rooted) -> None:
    entry = restore.Entry("kernel", "-", "-", "-", "/boot/gone", "-", "-", "-", "default")
    node.program("grubby", 'echo "$*" >>"$LOG"; echo /boot/now')
    done = node.sh(restore_script(restore.RestorePlan(kernel=entry), node.journal()))
    assert "/boot/gone: no longer installed" in done.stderr
    assert node.log() == ["--default-kernel"]


def test_a_marked_kernel_alone_is_nothing_to_keep() -> None:
    host = StubHost({version_facts.Kernels: KernelState(OLD, (OLD, K), K, (), frozenset())})
    (script,) = run(versions.boot_kernel, host, release=K, family="debian")
    assert "rp_open" not in script


def test_initial_file_systems_are_made_again_with_the_old_files(node: Rooted) -> None:
    path = node.root / "etc/blacklist"
    node.program("update-initramfs", f'echo "$* $(ls {node.root}/etc)" >>"$LOG"')
    script = node.journal("r1").before(mark_lines((INITRAMFS,)), f"echo x >{path}", [later(str(path))])
    node.sh(script)
    node.back("r1")
    assert node.log() == ["-u -k all "]
    assert node.pending() == []


@pytest.mark.parametrize("before", [None, "old\n"])
def test_keys_of_repositories_come_back(node: Rooted, before: str | None) -> None:
    name = "usr/share/keyrings/rackproof-cuda.asc"
    if before is not None:
        node.write(name, before)
    source = node.folder / "key.asc"
    source.write_bytes(KEY)
    key = Key("cuda", f"/{name}", f"file://{source}", SHA)
    done = node.does(versions.signing_keys, {version_facts.KeyDigests: {}}, wanted=[key], family="debian")
    assert node.text(name) == KEY.decode()
    node.back(done)
    assert node.text(name) == before


def test_holds_of_gpu_packages_come_back(node: Rooted) -> None:
    held = f"{node.folder}/held"
    node.program(
        "apt-mark", f'[ "$1" = showhold ] && {{ cat {held} 2>/dev/null; exit; }}; echo "$*" >>"$LOG"; echo "$3" >{held}'
    )
    state = replace(EMPTY, packages={"nccl": "2.1-1"})
    answers = {gpu_facts.GpuFacts: state}
    done = node.does(gpu.installed, answers, packages=[Package("nccl", "2.1-1")], family="debian", hold=True)
    assert node.log() == ["hold -- nccl"]
    node.back(done)
    assert node.log() == ["hold -- nccl", "unhold nccl"]


def test_a_lock_that_had_to_go_for_another_version_is_set_again() -> None:
    state = replace(EMPTY, held=frozenset({"nccl"}))
    host = StubHost({gpu_facts.GpuFacts: state})
    (script,) = run(gpu.installed, host, packages=[Package("nccl", "2.1-1")], family="rhel", hold=True)
    assert "rp_hold rhel nccl" in script
    assert script.index("\nrp_install ") < script.index("\nrp_hold nccl")


def test_the_driver_keeps_what_its_script_writes() -> None:
    goal = wanted(UBUNTU)
    (script,) = run(gpu.driver, StubHost({gpu_facts.GpuFacts: EMPTY}), target=goal, machine=UBUNTU)
    kept, _, rest = script.partition("\nrp_close\n")
    for line in (
        f"rp_file {scripts.FABRIC_COPY} later -", "rp_mark initramfs",
        *(f"rp_hold debian {package.name}" for package in goal.packages if package.version),
    ):  # fmt: skip
        assert line in kept.splitlines()
    digest = hashlib.sha256(f"{goal.stamp}\n".encode()).hexdigest()
    assert f"rp_file {scripts.STAMP} {digest} -" in kept
    assert f"rp_wrote {scripts.FABRIC_COPY}" in rest


def test_a_copy_of_a_unit_goes_without_stopping_the_packages_own() -> None:
    entry = restore.Entry("file", "absent", "-", "-", "-", "x", "-", "-", scripts.FABRIC_COPY)
    script = restore_script(restore.RestorePlan(files=(entry,)), Journal("r1"))
    assert "back_stop_added nvidia-fabricmanager.service" in script.splitlines()
    assert '[ -e "/usr/lib/systemd/system/$1" ] || back_stop "$1"' in script


def test_steps_of_storage_leave_a_packages_file_as_the_package_has_it(node: Rooted) -> None:
    """Kept just before the step that changes it: the package itself stays, with its file."""
    conf, unit = "etc/wekaio/service.conf", "weka-agent.service"
    (node.folder / f"active.{unit}").write_text("active\n")
    node.program("systemctl", SYSTEMCTL.replace("$STATE", str(node.folder)))
    brings = f"mkdir -p /etc/wekaio; echo a >/{conf}"
    steps = [
        Step("Agent", f"test -e /{conf}", "no", brings),
        Step("Cores", f"grep -q b /{conf}", "no", f"echo b >>/{conf}", writes=(f"/{conf}",), restart=(unit,)),
    ]
    done = node.does(storage.ensured, {Holding: (False, False)}, steps=steps)
    assert node.text(conf) == "a\nb\n"
    node.back(done)
    assert node.text(conf) == "a\n"
    assert node.log() == [f"systemctl restart -- {unit}"]


def test_steps_that_hold_are_not_kept() -> None:
    step = Step("Cores", "true", "no", "echo b >/etc/a", writes=("/etc/a",))
    assert run(storage.ensured, StubHost({Holding: (True,)}), steps=[step]) == []
    (script,) = run(storage.ensured, StubHost({Holding: (True, False)}), steps=[step, Step("b", "true", "", "true")])
    assert "rp_" not in script


@pytest.mark.parametrize("family", ["debian", "rhel"])
def test_vendors_repositories_go_with_their_keys(node: Rooted, family: str) -> None:
    source = node.folder / "key.asc"
    source.write_bytes(KEY)
    node.program("curl", f'while [ "$1" != -o ]; do shift; done; cp {source} "$2"')
    for name in ("etc/apt/sources.list.d", "etc/yum.repos.d"):
        (node.root / name).mkdir(parents=True)
    node.program("rpm", "exit 0")
    keys = "pki/rpm-gpg" if family == "rhel" else "apt/keyrings"
    vendor_repository = Repository(source="https://vendor/x ./", key=Download(url="https://vendor/key", sha256=SHA))
    steps = repository("beegfs", vendor_repository, family, "storage_client.beegfs")
    before = node.tree()
    done = node.does(storage.ensured, {Holding: (False, False)}, steps=steps)
    assert node.text(f"etc/{keys}/rackproof-beegfs.asc") == KEY.decode()
    node.back(done)
    after = {name: what for name, what in node.tree().items() if name.startswith("etc")}
    assert after == {name: what for name, what in before.items() if name.startswith("etc")}


def user_programs(there: Rooted, *known: str) -> None:
    home = there.root / "home"
    entries = " ".join(known)
    there.program("getent", f'for u in {entries} $(cat {there.folder}/made 2>/dev/null); do [ "$2" != "$u" ] ||'
                  f' {{ echo "$u:x:1:1::{home}/$u:/bin/sh"; exit 0; }}; done; exit 2')  # fmt: skip
    there.program("useradd", f'[ "$1" != -D ] || {{ echo HOME={home}; exit; }}; for n; do :; done;'
                  f' mkdir -p {home}/$n; echo $n >{there.folder}/made')  # fmt: skip
    for name in ("chown", "visudo"):
        there.program(name, "true")
    there.program("id", "echo root")
    there.program("runuser", 'shift 3; exec "$@"')  # -u NAME --
    there.program("install", 'for n; do :; done; mkdir -p "$n"')


@pytest.mark.parametrize("keys", [None, "ssh-ed25519 AAAA mine\n"])
def test_keys_and_rights_of_a_user_come_back(node: Rooted, keys: str | None) -> None:
    user_programs(node, "ada")
    (node.root / "home/ada").mkdir(parents=True)
    (node.root / "etc/sudoers.d").mkdir()
    own_keys = "home/ada/.ssh/authorized_keys"
    if keys:
        node.write(own_keys, keys)
    node.write("etc/sudoers.d/rackproof-ada", "old\n")
    has = users.Account(1, "/bin/bash", frozenset(), keys=tuple((keys or "").splitlines()), sudo=("old",))
    plan = users.plan([User(name="ada", ssh_keys=("ssh-ed25519 BBBB new",), sudo="ALL=(ALL) ALL")], {}, {"ada": has})
    done = node.carry(node.journal().before(plan.kept, plan.script, plan.later))
    assert (node.text(own_keys) or "").endswith("ssh-ed25519 BBBB new\n")
    node.back(done)
    assert node.text(own_keys) == keys
    assert node.text("etc/sudoers.d/rackproof-ada") == "old\n"


def test_keys_of_a_user_who_was_made_go_and_the_home_stays(node: Rooted) -> None:
    user_programs(node)
    plan = users.plan([User(name="eve", ssh_keys=("ssh-ed25519 BBBB new",))], {}, {})
    done = node.carry(node.journal().before(plan.kept, plan.script, plan.later))
    assert node.text("home/eve/.ssh/authorized_keys") == "ssh-ed25519 BBBB new\n"
    node.back(done)
    assert [path.name for path in (node.root / "home").rglob("*")] == ["eve"]


def test_a_link_in_a_users_folder_is_not_followed(node: Rooted) -> None:
    """Root writes there; the user could point it at anything."""
    path = node.write("home/ada/keys", "old\n")
    node.sh(node.journal("r1").before([], f"echo new >{path}", [later(str(path))]))
    (path.parent / ".keys.rackproof-new").symlink_to(node.write("etc/shadow", "secret\n"))
    node.back("r1")
    assert node.text("etc/shadow") == "secret\n"
    assert node.text("home/ada/keys") == "old\n"


def test_a_munge_key_comes_back_and_is_for_root_only(node: Rooted) -> None:
    for name in ("id", "chown"):
        node.program(name, "true")
    node.program("systemctl", SYSTEMCTL.replace("$STATE", str(node.folder)))
    old = "old secret " * 4
    node.write("etc/munge/munge.key", old).chmod(0o400)
    with at(StubHost({})):
        script = slurm._key_script(("munge.service",), new=True).replace(
            "dd if=/dev/urandom bs=1024 count=1", f"printf {'x' * 40}"
        )
    done = node.carry(script)
    assert node.text("etc/munge/munge.key") == "x" * 40
    for path in node.kept.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
    plan = node.plan_back(done)
    assert plan.files[0].secret
    node.back(done)
    assert node.text("etc/munge/munge.key") == old
    assert os.stat(node.root / "etc/munge/munge.key").st_mode & 0o777 == 0o400


def test_subordinate_numbers_come_back(node: Rooted) -> None:
    node.write("etc/subuid", "ada:100000:65536\n")
    inputs = ContainerInputs()
    wanted_range = (f"{inputs.user}:{inputs.subordinate_start}:{inputs.subordinate_count}",)
    state = UserState(inputs.uid, inputs.user, (), wanted_range, {})
    done = node.does(containers.container_user, {container_facts.ContainerUser: state}, inputs=inputs, folders=())
    assert wanted_range[0] in (node.text("etc/subuid") or "")
    node.back(done)
    assert node.text("etc/subuid") == "ada:100000:65536\n"
    assert node.text("etc/subgid") is None


def test_a_users_folder_of_keys_that_is_a_link_is_neither_saved_nor_restored(node: Rooted) -> None:
    user_programs(node, "ada")
    roots = node.write("root/.ssh/authorized_keys", "ssh-ed25519 ROOT root\n")
    own = node.write("home/ada/.ssh/authorized_keys", "ssh-ed25519 AAAA mine\n").parent
    plan = users.plan([User(name="ada", ssh_keys=("ssh-ed25519 BBBB new",))], {}, {})
    done = node.carry(node.journal().before(plan.kept, plan.script, plan.later))
    own.rename(own.with_name("was-ssh"))
    own.symlink_to(roots.parent)
    with pytest.raises((AssertionError, Refused)):
        node.back(done)
    assert roots.read_text() == "ssh-ed25519 ROOT root\n"
    with pytest.raises((AssertionError, Refused)):
        node.carry(node.journal("r9").before(plan.kept, plan.script, plan.later))
    assert roots.read_text() == "ssh-ed25519 ROOT root\n"
