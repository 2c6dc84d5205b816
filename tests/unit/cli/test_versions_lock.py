"""``rackproof versions lock INVENTORY``: answers, written to the formats of dpkg, DKMS and sysfs, become a set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rackproof.cli.versions import versions
from rackproof.core.rack import Node, Rack
from rackproof.core.versions.capture import differences_of, locked_packages
from rackproof.core.versions.document import read_versions, require_locked
from rackproof.core.versions.tables import KERNEL_PACKAGES
from rackproof.errors import VersionSetError
from rackproof.parse.installed import CAPTURE_COMMAND, parse_installed_versions
from rackproof.remote.command import CommandResult
from tests.unit.core.versions.sets import TEXT
from tests.unit.shell import sh

KERNEL = "6.8.0-87-generic"
MACHINE = f"""\
ID=ubuntu
VERSION_ID="24.04"
PRETTY_NAME="Ubuntu 24.04.2 LTS"
--
{KERNEL}
x86_64
--
BOOT_IMAGE=/boot/vmlinuz-{KERNEL} root=/dev/sda1 ro
--
0000:1b:00.0 0x10de 0x2335 0x030200
--
efi
0
--
vendor_id\t: GenuineIntel
MemTotal:       2113432016 kB
224
"""
PACKAGES = {
    "bash": "5.2.21-2ubuntu4",
    f"linux-image-{KERNEL}": "6.8.0-87.88",
    f"linux-headers-{KERNEL}": "6.8.0-87.88",
    "nvidia-driver-pinning-580.126.20": "580.126.20-1",
    "nvidia-open": "580.126.20-1",
    "nvidia-fabricmanager": "580.126.20-1",
    "cuda-toolkit-13-0": "13.0.2-1",
    "libnccl2": "2.30.4-1+cuda13.0",
    "datacenter-gpu-manager-4-core": "1:4.5.2-1",
}
REMOVED = "config-files nvidia-driver-535 535.54.03-1"
DKMS = f"nvidia/580.126.20, {KERNEL}, x86_64: installed\nnvidia/570.0, 5.15.0-1-generic, x86_64: installed"
FIRMWARE = "MT_0000000838 28.43.2026\nMT_0000000838 28.43.2026"


def answer(changes: Mapping[str, str | None] | None = None, kernel: str = KERNEL, firmware: str = FIRMWARE) -> str:
    packages = {name: version for name, version in {**PACKAGES, **(changes or {})}.items() if version is not None}
    listed = "\n".join(f"installed {name} {version}" for name, version in packages.items())
    text = f"{MACHINE}==\n{listed}\n{REMOVED}\n==\n{DKMS}\n==\n{firmware}\n==\nend of versions\n"
    return text.replace(KERNEL, kernel) if kernel != KERNEL else text


class FakeFleet:
    """Nodes that answer what they are told to; None: one that cannot be reached."""

    answers: Mapping[str, str | None] = {}

    def __init__(self, rack: Rack) -> None:
        self.rack = rack

    def __enter__(self) -> FakeFleet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, commands: Mapping[str, str], timeout_s: float) -> dict[str, CommandResult]:
        assert set(commands.values()) == {CAPTURE_COMMAND}
        results = {}
        for name, command in commands.items():
            stdout = self.answers[name]
            error = None if stdout is not None else "no route to host"
            results[name] = CommandResult(name, command, None if error else 0, (stdout or "").encode(), error=error)
        return results


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask nodes with the given answers, and lock; ``limit`` and the like as further arguments."""
    draft = tmp_path / "draft.yaml"
    draft.write_text(TEXT)

    def run(answers: Mapping[str, str | None], *arguments: str) -> tuple[Result, Path]:
        rack = Rack("rack.py", tuple(Node(name, ("gpu",), {}) for name in answers))
        monkeypatch.setattr("rackproof.inventory.load_rack", lambda inventory: rack)
        monkeypatch.setattr("rackproof.remote.fleet.Fleet", FakeFleet)
        monkeypatch.setattr(FakeFleet, "answers", answers)
        out = tmp_path / "versions.lock.yaml"
        return CliRunner().invoke(
            versions, ["lock", "rack.py", "-o", str(out), "--from", str(draft), *arguments]
        ), out  # fmt: skip

    return run


def test_nodes_that_are_alike_become_a_locked_set(lock: Any) -> None:
    done, out = lock({"gpu-01": answer(), "gpu-02": answer()})
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == f"{out}: locked, from gpu-[01-02]"
    versions = read_versions(out.read_text(), str(out))
    require_locked(versions, str(out))
    components = versions.platforms["ubuntu-24.04"].components
    assert components.kernel is not None
    assert components.kernel.version == KERNEL
    assert components.driver is not None
    assert (components.driver.version, components.driver.flavour, components.driver.dkms) == (
        "580.126.20", "open", ("nvidia",),
    )  # fmt: skip
    assert components.driver.repository == "cuda"  # where the draft has it from
    assert components.nccl is not None
    assert components.nccl.packages == {"libnccl2": "2.30.4-1+cuda13.0"}
    assert [(firmware.psid, firmware.version) for firmware in components.nic_firmware] == [
        ("MT_0000000838", "28.43.2026")
    ]
    assert "bash" not in out.read_text()
    assert "535" not in out.read_text()  # removed, its configuration stayed


def test_firmware_is_of_adapters_that_have_a_board_id_and_half_an_answer_is_none(tmp_path: Path) -> None:
    """Soft-RoCE has a version of firmware, an empty one, and no board."""
    devices = {"rxe0": {"fw_ver": "\n"}, "mlx5_0": {"fw_ver": "28.43.2026\n", "board_id": "MT_0000000838\n"}}
    for device, entries in devices.items():
        for name, text in entries.items():
            (tmp_path / device).mkdir(exist_ok=True)
            (tmp_path / device / name).write_text(text)
    command = CAPTURE_COMMAND.split("echo ==; ")[3].replace("/sys/class/infiniband", str(tmp_path))
    done = sh(command.rstrip("; "), check=True)
    assert done.stdout == "MT_0000000838 28.43.2026\n"
    with pytest.raises(ValueError, match="expected the firmware of an adapter, got 'MT_0000000838 '"):
        parse_installed_versions(answer(firmware="MT_0000000838 "))


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (answer({"libnccl2": "2.28.3-1+cuda13.0"}), "gpu-03: libnccl2: 2.28.3-1+cuda13.0, most others: 2.30.4-1+cuda"),
        (answer(firmware="MT_0000000838 28.42.1000"), "gpu-03: firmware MT_0000000838: 28.42.1000, most others: 28.43"),
        (answer(firmware="MT_0000000838 28.42.1000\nMT_0000000838 28.43.2026"), "28.42.1000, 28.43.2026, most others"),
    ],
)  # fmt: skip
def test_a_node_that_differs_is_named_and_nothing_is_written(lock: Any, odd: str, words: str) -> None:
    done, out = lock({"gpu-01": answer(), "gpu-02": answer(), "gpu-03": odd})
    assert done.exit_code == 1
    assert words in done.stderr
    assert "not locked: gpu-03 differ from their peers" in done.stderr
    assert not out.exists()


def test_nodes_that_are_alike_and_at_odds_with_themselves_make_no_set(lock: Any) -> None:
    odd = answer(firmware="MT_0000000838 28.42.1000\nMT_0000000838 28.43.2026")
    done, out = lock({"gpu-01": odd, "gpu-02": odd})
    assert isinstance(done.exception, VersionSetError)
    assert "adapters MT_0000000838 of one node have firmware 28.42.1000, 28.43.2026" in str(done.exception)
    assert not out.exists()


def test_of_two_nodes_that_differ_both_values_are_printed(lock: Any) -> None:
    done, out = lock({"gpu-01": answer(), "gpu-02": answer({"nvidia-fabricmanager": "580.95.05-1"})})
    assert done.exit_code == 1
    assert "nvidia-fabricmanager: 580.95.05-1, most others: 580.126.20-1" in done.stderr
    assert not out.exists()


def test_every_package_of_the_running_kernel_is_locked_on_rhel() -> None:
    """Those of which the node keeps several versions, and the headers."""
    base, names = "5.14.0-611.5.1.el9_7", ("core", "modules", "modules-core", "modules-extra", "devel", "devel-matched")
    own = [f"installed kernel-{name} {base}" for name in (*names, "headers")]
    older = [f"installed kernel-{name} 5.14.0-570.el9" for name in names]
    ubuntu = dict.fromkeys((f"linux-image-{KERNEL}", f"linux-headers-{KERNEL}"))
    text = answer(ubuntu, kernel=f"{base}.x86_64").replace("ID=ubuntu", "ID=rocky").replace('"24.04"', '"9.7"')
    captured = parse_installed_versions(text.replace("installed bash", "\n".join([*own, *older, "installed bash"])))
    assert locked_packages(captured)["kernel"] == {f"kernel-{name}": base for name in (*names, "headers")}
    assert {name for name in captured.packages if KERNEL_PACKAGES.fullmatch(name)} == {f"kernel-{n}" for n in names}


def test_another_kernel_is_a_difference() -> None:
    odd = parse_installed_versions(answer(kernel="6.8.0-90-generic"))
    captures = {"a": parse_installed_versions(answer()), "b": parse_installed_versions(answer()), "c": odd}
    assert ("c", "kernel", "6.8.0-90-generic", KERNEL) in {
        (difference.node, difference.key, difference.actual, difference.others)
        for difference in differences_of(captures)
    }


def test_what_only_some_roles_have_is_no_difference(lock: Any) -> None:
    without = {name: None for name in PACKAGES if "nvidia" in name or "cuda" in name or "nccl" in name or "gpu" in name}
    done, _ = lock({"gpu-01": answer(), "storage-01": answer(without)})
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("silent", [None, "", answer().replace("end of versions\n", ""), "junk\n"])
def test_without_a_node_nothing_is_locked(lock: Any, silent: str | None) -> None:
    done, out = lock({"gpu-01": answer(), "gpu-02": silent})
    assert done.exit_code == 2
    assert "gpu-02: versions not read" in done.stderr
    assert "not locked: versions of gpu-02 are missing" in done.stderr
    assert not out.exists()


def test_a_rack_that_contradicts_itself_is_a_draft(lock: Any) -> None:
    odd = answer({"nvidia-fabricmanager": "580.95.05-1"})
    done, out = lock({"gpu-01": odd, "gpu-02": odd})
    assert done.exit_code == 1
    assert "expected exactly the driver's 580.126.20" in done.stderr
    assert not read_versions(out.read_text(), str(out)).locked


def test_a_lock_of_an_inventory_needs_an_output() -> None:
    assert CliRunner().invoke(versions, ["lock", "rack.py"]).exit_code != 0


def test_this_machine_answers_the_command() -> None:
    done = sh(CAPTURE_COMMAND)
    assert done.stdout.endswith("==\nend of versions\n")
    assert parse_installed_versions(done.stdout).packages
