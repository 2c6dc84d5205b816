"""The second run of a node's own settings: what the first one left, read back through the facts' own parsers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.configure.node import operations, settings
from rackproof.configure.node.cmdline import WantedArguments
from rackproof.configure.node.settings import blacklist_text
from tests.unit.configure.loop import SYSTEMCTL, carried_out, left_alone
from tests.unit.configure.node.test_cmdline import WANT
from tests.unit.configure.node.test_settings import ALL
from tests.unit.shell import executable, sh

pytestmark = pytest.mark.few(2)

PATHS = (
    "/etc/", "/boot/", "/run/rackproof", "/proc/swaps", "/proc/modules", "/proc/cmdline", "/sys/kernel",
    "/var/lib/rackproof", "/lib/modules/", "/usr/local/sbin/",
)  # fmt: skip


class Folder:
    """A node: its files below ``root``, and programs that remember there what they were told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for path in ("run", "var/lib", "etc/modprobe.d"):
            (root / path).mkdir(parents=True)

    def local(self, script: str) -> str:
        return re.sub("|".join(map(re.escape, PATHS)), lambda match: f"{self.root}{match[0]}", script)

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def program(self, name: str, body: str, folder: str = "bin") -> None:
        executable(self.root / folder / name, self.local(body))

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        return sh(self.local(script), programs=self.root / "bin")


@pytest.fixture
def node(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
HUGE = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
MODULE = "{} 16384 0 - Live 0x0000000000000000\n"


def with_settings(node: Folder) -> None:
    node.program("systemctl", SYSTEMCTL.replace("@root@", str(node.root)))
    (node.root / "units").mkdir()
    node.write("/proc/swaps", f"{SWAPS}/dev/vda2 partition 2097148 0 -2\n")
    node.program("swapoff", 'read -r head </proc/swaps; echo "$head" >/proc/swaps.new; mv /proc/swaps.new /proc/swaps')
    node.program("timedatectl", 'case $1 in show) cat /etc/zone;; *) echo "$3" >/etc/zone;; esac')
    node.write("/etc/zone", "Europe/Berlin\n")
    node.program("tuned-adm", 'mkdir -p /etc/tuned; echo "$2" >/etc/tuned/active_profile')
    node.write("/proc/modules", MODULE.format("ext4"))
    node.program("uname", "echo 6.8.0")
    node.write("/lib/modules/6.8.0/modules.builtin", "kernel/drivers/net/loopback.ko\n")
    node.program(
        "modprobe", f'[ "$1" != -r ] || exit 1; printf \'{MODULE.strip()}\\n\' "$2" >>/proc/modules'.replace("{}", "%s")
    )
    node.program("update-initramfs", ":")
    node.write(HUGE, "0\n")
    irq = 'case "$1" in --check) cat /etc/strays;; *) : >/etc/strays;; esac'
    node.program("rackproof-irq-affinity", irq, "usr/local/sbin")
    node.write("/etc/strays", "55 of 0000:1a:00.0: on 64\n")


def test_all_settings_are_made_once_and_each_deviation_mended_once(
    node: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    with_settings(node)
    given = {"wanted": ALL}
    carried_out(operations.settings, node.shell, **given)
    assert left_alone(operations.settings, node.shell, **given) == "the node has all settings"
    caplog.set_level("DEBUG", logger="pyinfra")
    changes: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: node.write("/proc/swaps", f"{SWAPS}/dev/zram0 partition 8388604 0 100\n"), "swap off"),
        (lambda: (node.root / "units/swap.target/masked").unlink(), "swap off"),
        (lambda: node.write("/etc/zone", "Asia/Tokyo\n"), "time zone Etc/UTC"),
        (lambda: node.write("/etc/tuned/active_profile", "throughput-performance\n"), "tuned profile rackproof"),
        (lambda: (node.root / "units/tuned.service/active").unlink(), "tuned profile rackproof"),
        (lambda: node.write("/proc/modules", MODULE.format("ext4")), "module nvme_tcp in"),
        (lambda: node.write(settings.BLACKLIST, blacklist_text(("nova_core",))), settings.FORBIDDEN),
        (lambda: node.write(HUGE, "7\n"), "100 huge pages of 2048 KiB"),
        (lambda: node.write("/etc/strays", "57 of 0000:1a:00.0: on 64\n"), "1 interrupts"),
    )
    for change, reason in changes:
        change()
        caplog.clear()
        (_,) = carried_out(operations.settings, node.shell, **given)
        assert [record.getMessage() for record in caplog.records] == [f"gpu-01: {reason}"]
        left_alone(operations.settings, node.shell, **given)


def test_what_only_a_reboot_takes_away_is_asked_for_once(node: Folder) -> None:
    with_settings(node)
    given = {"wanted": replace(ALL, hugepages={})}
    node.write("/proc/modules", MODULE.format("ext4") + MODULE.format("nouveau"))
    carried_out(operations.settings, node.shell, **given)
    mark = node.root / "run/rackproof/pending/reboot:module nouveau is in use"
    assert mark.exists()
    left_alone(operations.settings, node.shell, **given)
    mark.unlink()
    assert carried_out(operations.settings, node.shell, **given)


UPDATE_GRUB = """
GRUB_CMDLINE_LINUX=; . /etc/default/grub
for f in /etc/default/grub.d/*.cfg; do [ ! -e "$f" ] || . "$f"; done
printf 'menuentry x {\\n\\tlinux\\t/boot/vmlinuz-6.8.0-51-generic root=UUID=1 ro %s %s\\n}\\n' \\
  "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT" >/boot/grub/grub.cfg
"""
GRUBBY = r"""
f=/boot/arguments
for each; do
  case $each in
  --info=*) printf 'index=0\nkernel="/boot/vmlinuz-5.14.0"\nargs="%s"\nroot="UUID=1"\n' "$(cat $f)";;
  --remove-args=*) awk -v out="${each#*=}" '{ n = split(out, o, " ")
    for (i = 1; i <= NF; i++) { keep = 1; name = $i; sub(/=.*/, "", name)
      for (k = 1; k <= n; k++) if (o[k] == $i || o[k] == name) keep = 0
      if (keep) printf "%s ", $i } print "" }' $f >$f.n; mv $f.n $f;;
  --args=*) for a in ${each#*=}; do case " $(cat $f) " in *" $a "*) ;; *) echo "$(cat $f) $a" >$f;; esac; done;;
  esac
done
"""


def boot(node: Folder) -> None:
    line = node.shell("if [ -e /boot/arguments ]; then cat /boot/arguments; else cat /boot/grub/grub.cfg; fi").stdout
    words = next(text for text in line.splitlines() if " ro " in f" {text} ")
    node.write("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz {words.partition('-generic')[2] or words}\n")
    for mark in (node.root / "run/rackproof/pending").glob("*"):
        mark.unlink()


@pytest.mark.parametrize("tool", ["grub", "grubby"])
def test_arguments_of_the_kernel(node: Folder, tool: str) -> None:
    node.write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet iommu=off\n")
    if tool == "grub":
        node.write("/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=off"\n')
        node.write("/boot/grub/grub.cfg", "")
        node.program("update-grub", UPDATE_GRUB)
        node.shell("update-grub")
        (node.root / "bin/grubby").unlink(missing_ok=True)
        menu = "/boot/grub/grub.cfg"
    else:
        node.program("grubby", GRUBBY)
        node.write("/boot/arguments", "ro quiet iommu=off\n")
        menu = "/boot/arguments"
    for wanted in (WANT, WantedArguments(("iommu=pt", "nosmt")), WantedArguments()):
        given = {"wanted": wanted}
        assert carried_out(operations.kernel_arguments, node.shell, **given)
        assert all(word in node.read(menu) for word in wanted.required)
        assert left_alone(operations.kernel_arguments, node.shell, **given).startswith(
            "the next boot has all arguments"
        )
        boot(node)
        assert left_alone(operations.kernel_arguments, node.shell, **given) == "the next boot has all arguments"
        if wanted.required:
            # The menu was regenerated without the kit's arguments.
            node.write(menu, node.read(menu).replace(wanted.required[0], "iommu=soft"))
            assert carried_out(operations.kernel_arguments, node.shell, **given)
            left_alone(operations.kernel_arguments, node.shell, **given)
            assert wanted.required[0] in node.read(menu)


def test_a_wish_that_is_withdrawn_before_the_reboot_asks_for_none(node: Folder) -> None:
    """Although the kernel runs with an argument that no entry has, typed at the boot prompt."""
    node.write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet maxcpus=1\n")
    node.write("/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n')
    node.write("/boot/grub/grub.cfg", "")
    node.program("update-grub", UPDATE_GRUB)
    node.shell("update-grub")
    (node.root / "bin/grubby").unlink(missing_ok=True)
    mark = node.root / "run/rackproof/pending/reboot:kernel arguments"
    assert carried_out(operations.kernel_arguments, node.shell, wanted=WantedArguments(("nosmt",)))
    assert mark.exists()
    assert carried_out(operations.kernel_arguments, node.shell, wanted=WantedArguments())
    assert "nosmt" not in node.read("/boot/grub/grub.cfg")
    assert not mark.exists()
    left_alone(operations.kernel_arguments, node.shell, wanted=WantedArguments())
