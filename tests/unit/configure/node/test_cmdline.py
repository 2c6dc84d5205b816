"""Kernel command line: what is planned for each boot loader, and that its scripts run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rackproof.configure.node import cmdline
from rackproof.configure.node.cmdline import BootLoader, WantedArguments
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.machine import Machine, Pci
from rackproof.errors import DeclarationError, Refused
from tests.unit.shell import executable, is_shell, sh

WANT = WantedArguments(("iommu=pt", "init_on_alloc=0"), ("nouveau.modeset",))
H100 = Pci("0000:1a:00.0", "10de", "2330", "030200")


def machine(arch: str = "x86_64", *pci: Pci) -> Machine:
    return Machine("ubuntu", "24.04", "noble", "6.8.0", arch, (), pci, True, False, "GenuineIntel", 1)


@pytest.mark.parametrize(
    ("line", "problems"),
    [
        ("iommu=pt init_on_alloc=0", ()),
        ("quiet iommu=off iommu=pt init-on-alloc=0", ()),  # the last one counts, dashes are underscores
        ("iommu=pt iommu=off init_on_alloc=0", ("iommu=pt",)),
        ("iommu=pt init_on_alloc=1", ("init_on_alloc=0",)),
        ("iommu=pt init_on_alloc=0 nouveau.modeset=1", ("without nouveau.modeset",)),
        ("", ("iommu=pt", "init_on_alloc=0")),
    ],
)
def test_what_a_command_line_lacks(line: str, problems: tuple[str, ...]) -> None:
    assert cmdline.missing(WANT, line.split()) == problems


def test_huge_pages_count_in_their_order() -> None:
    want = WantedArguments(("hugepagesz=1G", "hugepages=16"))
    assert cmdline.missing(want, ["hugepagesz=1G", "hugepages=16"]) == ()
    assert cmdline.missing(want, ["hugepages=16", "hugepagesz=1G"]) == ("hugepagesz=1G hugepages=16",)
    assert cmdline.missing(want, ["hugepagesz=2M", "hugepages=8", "hugepagesz=1G", "hugepages=16"])
    assert cmdline.hugepage_arguments({2048: 100, 1048576: 16}) == want.required


@pytest.mark.parametrize(("arch", "first"), [("x86_64", "iommu=pt"), ("aarch64", "iommu.passthrough=1")])
def test_proposals_are_the_platforms_and_only_for_machines_with_gpus(arch: str, first: str) -> None:
    chosen = ("iommu", "numa_balancing", "init_on_alloc", "acs_redirection")
    proposals = cmdline.proposals(machine(arch, H100), chosen)
    assert proposals[0] == first
    assert not {"mitigations=off", "mce=ignore_ce", "iommu=off"} & set(proposals)
    assert cmdline.proposals(machine(arch), chosen) == ()
    assert cmdline.proposals(machine(arch, H100), ()) == ()


@pytest.mark.parametrize(
    ("required", "forbidden", "kept"),
    [
        ((), (), ("iommu=pt", "numa_balancing=disable")),
        (("iommu=off",), (), ("iommu=off", "numa_balancing=disable")),
        (("intel_iommu=off",), (), ("intel_iommu=off", "numa_balancing=disable")),
        ((), ("iommu",), ("numa_balancing=disable",)),
        (("numa_balancing=enable",), (), ("numa_balancing=enable", "iommu=pt")),
    ],
)
def test_a_proposal_gives_way_to_what_is_declared(
    required: tuple[str, ...], forbidden: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    assert cmdline.wanted(required, forbidden, ("iommu=pt", "numa_balancing=disable")).required == kept


def test_a_contradiction_is_named() -> None:
    with pytest.raises(DeclarationError, match="iommu=pt is required, and iommu is forbidden"):
        cmdline.wanted(("iommu=pt",), ("iommu",), ())


def state(*lines: str) -> BootLoader:
    return cmdline.parse_state(lines)


DROPIN_LINES = [f"dropin {line}" for line in cmdline.dropin_text(WANT).splitlines()]
GOOD = "root=/dev/sda1 ro iommu=pt init_on_alloc=0"


def test_nothing_to_do_when_both_boots_have_it() -> None:
    current = state(f"running {GOOD}", "tool grub", f"entry {GOOD}", "entry ro single", *DROPIN_LINES)
    assert cmdline.plan(WANT, current) == ScriptPlan()


@pytest.mark.parametrize("quoted", ['isolcpus="2-3"', "'isolcpus=2-3'", '"isolcpus=2-3"'])
def test_quotes_of_an_entry_are_no_part_of_its_arguments(quoted: str) -> None:
    want = cmdline.wanted(("isolcpus=2-3",), (), ())
    kit = [f"dropin {line}" for line in cmdline.dropin_text(want).splitlines()]
    assert cmdline.plan(want, state("running ro isolcpus=2-3", "tool grub", f"entry ro {quoted}", *kit)) == ScriptPlan()


def test_an_argument_in_quotes_is_in_force_and_one_for_init_is_not() -> None:
    assert state('running ro isolcpus="2-3" -- quiet').running == ("ro", "isolcpus=2-3")


def test_a_menu_that_is_right_waits_for_its_reboot_once() -> None:
    lines = ["running ro", "tool grub", f"entry {GOOD}", *DROPIN_LINES]
    first = cmdline.plan(WANT, state(*lines))
    assert "update-grub" not in first.script
    assert "reboot:kernel arguments" in first.script
    second = cmdline.plan(WANT, state(*lines, "mark reboot:kernel arguments"))
    assert second == ScriptPlan()


def test_the_mark_goes_when_the_running_kernel_has_it() -> None:
    current = state(f"running {GOOD}", "tool grub", f"entry {GOOD}", *DROPIN_LINES, "mark reboot:kernel arguments")
    assert (
        cmdline.plan(WANT, current).script.splitlines()[-1]
        == "rm -f -- '/run/rackproof/pending/reboot:kernel arguments'"
    )


def test_what_is_no_longer_wanted_goes_and_needs_a_reboot() -> None:
    current = state(f"running {GOOD}", "tool grub", f"entry {GOOD}", *DROPIN_LINES)
    plan = cmdline.plan(WantedArguments(), current)
    assert f"rm -f {cmdline.DROPIN}" in plan.script
    assert "update-grub" in plan.script
    assert {change.reboot for change in plan.changes} == {cmdline.REASON}
    gone = cmdline.plan(WantedArguments(), state("running ro", "tool grub", "entry ro"))
    assert gone == ScriptPlan()


def test_an_unknown_boot_loader_is_refused_by_name_and_left_alone_when_all_is_well() -> None:
    with pytest.raises(Refused, match="no grubby and no update-grub"):
        cmdline.plan(WANT, state("running ro"))
    assert cmdline.plan(WANT, state(f"running {GOOD}")).script == ""


@pytest.mark.parametrize("lines", [[], ["running a", "running b"], ["tool grub"], ["running a", "bash: error"]])
def test_an_invalid_answer_is_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r"command line|boot loader"):
        cmdline.parse_state(lines)


def source(text: str, default: str, common: str) -> list[str]:
    """Kernel arguments that grub-mkconfig makes of /etc/default/grub and the drop-in: one variable behind the other."""
    script = (
        f"set -e\nGRUB_CMDLINE_LINUX='{common}'\nGRUB_CMDLINE_LINUX_DEFAULT='{default}'\n{text}\n"
        'echo "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"'
    )
    return sh(script, check=True).stdout.split()


@pytest.mark.parametrize(
    ("default", "common", "expected"),
    [
        ("quiet splash", "", ["quiet", "splash", "iommu=pt", "init_on_alloc=0"]),
        ("quiet iommu=off", "init-on-alloc=1", ["quiet", "iommu=pt", "init_on_alloc=0"]),
        (
            "iommu=pt init_on_alloc=0",
            "nouveau.modeset=0 console=ttyS0",
            ["console=ttyS0", "iommu=pt", "init_on_alloc=0"],
        ),
        ("iommufd=1", "", ["iommufd=1", "iommu=pt", "init_on_alloc=0"]),
    ],
)
def test_the_drop_in_replaces_and_never_repeats(default: str, common: str, expected: list[str]) -> None:
    text = cmdline.dropin_text(WANT)
    assert source(text, default, common) == expected
    assert source(f"{text}{text}", default, common) == expected


def test_several_of_a_name_that_may_be_there_several_times_stay() -> None:
    want = WantedArguments(("pci=disable_acs_redir=pci:0:0",))
    sourced = source(cmdline.dropin_text(want), "pci=realloc=off pci=disable_acs_redir=pci:0:0", "console=tty0")
    assert sourced == ["console=tty0", "pci=realloc=off", "pci=disable_acs_redir=pci:0:0"]


GRUBBY = """\
echo "grubby $*" >>"$LOG"
case $1 in
--info=DEFAULT) echo 'args="ro iommu=pt init_on_alloc=0"' ;;
esac
"""
FAILING = """\
echo 'no space left on device' >&2
exit 1
"""


def run(script: str, folder: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    for name, text in programs.items():
        executable(folder / name.replace("_", "-"), text)
    local = script
    for path in ("/etc", "/boot", "/run"):
        local = local.replace(f"{path}/", f"{folder}{path}/")
        (folder / path.strip("/")).mkdir(exist_ok=True)
    return sh(local, programs=folder, LOG=str(folder / "log"))


def test_grubby_takes_out_what_the_kit_had_put_in(tmp_path: Path) -> None:
    current = state("running ro iommu=pt old=1", "tool grubby", "entry ro iommu=pt old=1", "note iommu=pt old=1")
    plan = cmdline.plan(WANT, current)
    done = run(plan.script, tmp_path, grubby=GRUBBY)
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "log").read_text().splitlines()
    assert log[0] == "grubby --update-kernel=ALL --remove-args=old=1 nouveau.modeset iommu init_on_alloc"
    assert log[1] == "grubby --update-kernel=ALL --args=iommu=pt init_on_alloc=0"
    note = (tmp_path / "etc/rackproof/kernel-arguments").read_text()
    after = state(f"running {GOOD}", "tool grubby", f"entry {GOOD}", f"note {note.strip()}")
    assert cmdline.plan(WANT, after).script == ""


def test_a_grubby_without_effect_is_an_error(tmp_path: Path) -> None:
    plan = cmdline.plan(WantedArguments(("nosmt",)), state("running ro", "tool grubby", "entry ro"))
    done = run(plan.script, tmp_path, grubby=GRUBBY)
    assert done.returncode == 1
    assert "would start without nosmt" in done.stderr


def test_grub_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    dropin = tmp_path / cmdline.DROPIN.lstrip("/")
    dropin.parent.mkdir(parents=True)
    dropin.write_text("# before\n")
    plan = cmdline.plan(WANT, state("running ro", "tool grub", "entry ro", "dropin # before"))
    done = run(plan.script, tmp_path, update_grub=FAILING)
    assert done.returncode == 1
    assert "no space left" in done.stderr
    assert dropin.read_text() == "# before\n"


def test_grub_makes_its_menu_and_is_checked(tmp_path: Path) -> None:
    (tmp_path / "boot/grub").mkdir(parents=True)
    plan = cmdline.plan(WANT, state("running ro", "tool grub"))
    menu = '#!/bin/sh\necho "linux /vmlinuz iommu=pt init_on_alloc=0" >"${LOG%/log}/boot/grub/grub.cfg"\n'
    done = run(plan.script, tmp_path, update_grub=menu)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / cmdline.DROPIN.lstrip("/")).read_text() == cmdline.dropin_text(WANT)
    assert (tmp_path / "run/rackproof/pending/reboot:kernel arguments").exists()
    (tmp_path / "boot/grub/grub.cfg").unlink()
    empty = '#!/bin/sh\n: >"${LOG%/log}/boot/grub/grub.cfg"\n'
    done = run(plan.script, tmp_path, update_grub=empty)
    assert done.returncode == 1
    assert "no entry of" in done.stderr


def test_the_question_is_shell() -> None:
    assert is_shell(cmdline.state_command())
