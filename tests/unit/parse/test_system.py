"""Answers about the operating system: what they say, and which are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rackproof.parse import ParseError, answer, cpu, dkms, kernel, meminfo, packages, sha256sum, tuned
from rackproof.parse.cpu import Frequency, IdleState
from rackproof.parse.dkms import Dkms
from tests.unit.refusals import survives_damage

CMDLINE = 'BOOT_IMAGE=/vmlinuz root="a b" iommu=pt pcie_aspm=off nosmt -- single\n'
MODULES = (
    "nvme 65536 2 - Live 0x0000000000000000\nnouveau 1 0 - Unloading 0xffffffffc0a00000 (OE)\n"
    "built in\next4\nnvme-core\n"
)
IDLE = (
    "driver intel_idle\nonline 0-223 states 448\n    224 state0 0 0 POLL\n    222 state1 290 1 C6 ACPI\n"
    "      2 state1 290 0 C6 ACPI\nend of idle states\n"
)
FREQUENCY = "cpu0/cpufreq/scaling_driver acpi-cpufreq\ncpufreq/boost 1\nend of frequencies\n"
WEAK = "itlb_multihit: KVM: Mitigation: VMX disabled\nl1tf: Not affected\nmds: Vulnerable\nend of vulnerabilities\n"
PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages 12\nend of huge pages\n"
MEMINFO = "MemTotal:       24684092 kB\nSwapTotal:             0 kB\nHugePages_Total:       0\nActive(anon):  12 kB\n"
HASH = "0" * 64


def test_the_kernels_arguments() -> None:
    cmdline = kernel.parse_cmdline(CMDLINE)
    assert cmdline == ("BOOT_IMAGE=/vmlinuz", "root=a b", "iommu=pt", "pcie_aspm=off", "nosmt")
    there = [text for text in ("iommu=pt", "iommu", "pcie-aspm=off", "nosmt") if kernel.in_cmdline(text, cmdline)]
    assert there == ["iommu=pt", "iommu", "pcie-aspm=off", "nosmt"]
    absent = [
        text
        for text in ("iommu=p", "iommu=pt2", "omm", "single", "nosmt=force", "pt")
        if kernel.in_cmdline(text, cmdline)
    ]
    assert absent == []


@pytest.mark.parametrize(
    ("argument", "line", "used"),
    [
        ("iommu=pt", "iommu=off iommu=pt", True),
        ("iommu=pt", "iommu=pt iommu=off", False),
        ("numa-balancing=disable", "numa_balancing=disable quiet numa-balancing=enable", False),
        ("nosmt", "nosmt=force", True),
        ("nosmt", "quiet", False),
        ("console=ttyS0", "console=ttyS0 console=tty0", True),
        ("pci=realloc", "pci=realloc pci=noaer", True),
    ],
)
def test_of_an_argument_that_is_there_twice_the_last_one_is_in_force(argument: str, line: str, used: bool) -> None:
    assert kernel.in_force(argument, tuple(line.split())) is used


def test_modules() -> None:
    assert kernel.parse_modules(MODULES) == {
        "ext4": "built in",
        "nvme_core": "built in",
        "nvme": "Live",
        "nouveau": "Unloading",
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nvidia/570.86.10, 6.8.0-51, x86_64: installed", Dkms("nvidia", "570.86.10", "6.8.0-51", "installed")),
        ("nvidia, 570.86.10, 6.8.0-51, x86_64: built", Dkms("nvidia", "570.86.10", "6.8.0-51", "built")),
        ("mlnx-ofed-kernel/25.01.OFED.25.01.0.6.0.1, 5.14.0-503.el9.x86_64, x86_64: installed (original_module exists)",
         Dkms("mlnx-ofed-kernel", "25.01.OFED.25.01.0.6.0.1", "5.14.0-503.el9.x86_64", "installed")),
        ("a/1, 6.8, x86_64: installed (WARNING! Diff between built and installed module!)",
         Dkms("a", "1", "6.8", "installed", "WARNING! Diff between built and installed module!")),
        ("nvidia/570.86.10: added", Dkms("nvidia", "570.86.10", "", "added")),
    ],
)  # fmt: skip
def test_dkms(line: str, expected: Dkms) -> None:
    warning = "Deprecated feature: REMAKE_INITRD (/var/lib/dkms/lustre-client/2.15.6/source/dkms.conf)"
    assert dkms.parse_dkms_status([warning, line]) == (expected,)


def test_secure_boot() -> None:
    assert kernel.parse_secure_boot("   6   0   0   0   1\n") is True
    assert kernel.parse_secure_boot("   6   0   0   0   0\n") is False
    assert kernel.parse_secure_boot("no EFI\n") is False


def test_holds_of_both_package_managers() -> None:
    names = dict.fromkeys(("kernel", "kernel-core", "nvidia"))
    assert packages.parse_holds(["apt", "kernel:amd64", "nvidia-open"], names) == {"kernel"}
    assert packages.parse_holds(["dnf", "kernel-core-0:5.14.0-427.el9.*", "!nvidia-0:1-1.*"], names) == {"kernel-core"}
    assert packages.parse_holds(["dnf", "# Added by a person", "Package name: nvidia"], names) == {"nvidia"}
    assert packages.parse_holds(["dnf", "cuda-12-4-0:12.4.1-1.*", "cuda-12-0:12.0.*"], {"cuda": None}) == frozenset()
    assert packages.parse_holds(["dnf", "cuda-0:12.4.1-1.*"], {"cuda": None}) == {"cuda"}
    assert packages.parse_holds(["apt"], names) == frozenset()
    with pytest.raises(ParseError, match="expected a list of held packages"):
        packages.parse_holds([], names)


def test_versions_of_packages() -> None:
    output = (
        "package libc6 installed 2.36-9\npackage libc6 installed 2.36-8\npackage fio config-files 3.39-1\n"
        "dpkg-query: no packages found matching slurmd\n"
    )
    expected = {"libc6": ("2.36-9", "2.36-8"), "fio": (), "slurmd": ()}
    assert packages.parse_package_versions(output, ("libc6", "fio", "slurmd")) == expected
    assert packages.parse_package_versions("package slurmd is not installed\n", ("slurmd",)) == {"slurmd": ()}
    assert packages.parse_package_versions("package awk not-installed \n", ("awk",)) == {"awk": ()}
    with pytest.raises(ParseError, match="no output for fio"):
        packages.parse_package_versions("package libc6 installed 2.36-9\n", ("libc6", "fio"))
    with pytest.raises(ParseError, match="unexpected output for libc6"):
        packages.parse_package_versions("package libc6 installed 2.36-9\n", ("fio",))
    with pytest.raises(ParseError, match="expected a package"):
        packages.parse_package_versions("package libc6 installed \n", ("libc6",))


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ("3.39-1", "3.39-1", True),
        ("3.39-1", "3.39-*", True),
        ("3.39-1", "3.39", False),
        ("3.39-1", "3?39-1", False),
        ("3.39-1", "[3].39-1", False),
    ],
)
def test_versions_are_the_same_but_for_a_star(actual: str, expected: str, same: bool) -> None:
    assert packages.is_version(actual, expected) is same


def test_hashes_of_files() -> None:
    lines = [f"{HASH}  /etc/a b", "sha256sum: /etc/c: No such file or directory"]
    assert sha256sum.parse_sha256sum(lines, ("/etc/a b", "/etc/c")) == {
        "/etc/a b": HASH,
        "/etc/c": "No such file or directory",
    }
    with pytest.raises(ParseError, match="no output for /etc/d"):
        sha256sum.parse_sha256sum(lines, ("/etc/a b", "/etc/c", "/etc/d"))
    with pytest.raises(ParseError, match="unexpected line"):
        sha256sum.parse_sha256sum([*lines, lines[0]], ("/etc/a b", "/etc/c"))
    with pytest.raises(ParseError, match="unexpected line"):
        sha256sum.parse_sha256sum(["sha256sum: /etc/c: Permission denied"], ("/etc/c",))


def test_memory_and_swap() -> None:
    values = meminfo.parse_meminfo(MEMINFO)
    assert (values["MemTotal"], values["SwapTotal"]) == (24684092, 0)
    with pytest.raises(ParseError, match="has no field SwapTotal"):
        meminfo.parse_meminfo("MemTotal:       24684092 kB\n")


def test_microcode() -> None:
    assert cpu.parse_microcode(["    112 0x2b000461", "    112 0x2b000603"]) == {"0x2b000461": 112, "0x2b000603": 112}
    with pytest.raises(ParseError, match="no processor has a microcode revision"):
        cpu.parse_microcode([])


def test_idle_states() -> None:
    assert cpu.parse_idle_states(IDLE) == (
        IdleState("POLL", 224, 0, False),
        IdleState("C6 ACPI", 222, 290, True),
        IdleState("C6 ACPI", 2, 290, False),
    )
    assert cpu.parse_idle_states("driver none\nonline 0-3 states 0\nend of idle states\n") == ()
    with pytest.raises(ParseError, match="lists 226 of 448 states"):
        cpu.parse_idle_states(IDLE.replace("    222 state1 290 1 C6 ACPI\n", ""))
    with pytest.raises(ParseError, match="state 0 is listed for 0 of 224 processors"):
        cpu.parse_idle_states(IDLE.replace("    224 state0 0 0 POLL\n", "").replace("states 448", "states 224"))
    for output in ("driver intel_idle\nonline 0-3 states 0\nend of idle states\n", IDLE.replace("intel_idle", "none")):
        with pytest.raises(ParseError, match=r"the driver .* has . idle states"):
            cpu.parse_idle_states(output)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (FREQUENCY, Frequency("acpi-cpufreq", True)),
        (FREQUENCY.replace("boost 1", "boost 0"), Frequency("acpi-cpufreq", False)),
        ("intel_pstate/no_turbo 1\nend of frequencies\n", Frequency("", False)),
        ("intel_pstate/no_turbo 0\nend of frequencies\n", Frequency("", True)),
        ("end of frequencies\n", Frequency("", None)),
    ],
)
def test_frequency(output: str, expected: Frequency) -> None:
    assert cpu.parse_frequency(output) == expected


def test_vulnerabilities_and_huge_pages() -> None:
    assert kernel.parse_vulnerabilities(WEAK) == {
        "itlb_multihit": "KVM: Mitigation: VMX disabled",
        "l1tf": "Not affected",
        "mds": "Vulnerable",
    }
    assert meminfo.parse_hugepages(PAGES) == {2048: 12}
    assert meminfo.parse_hugepages("end of huge pages\n") == {}


def test_tuned() -> None:
    assert tuned.parse_tuned_profile("Current active profile: hpc-compute\n") == "hpc-compute"
    assert tuned.parse_tuned_profile("No current active profile.\n") == ""


def test_a_blank_answer_says_why() -> None:
    assert answer.parse_answer("dmesg", "[ 0.0] x\nstatus 0\n").printed == "[ 0.0] x\n"
    with pytest.raises(
        ParseError, match=r"^the login may not do this: dmesg: Operation not permitted \(exit status 1\)$"
    ):
        print(answer.parse_answer("dmesg", "status 1\n", "dmesg: Operation not permitted\n").printed)


ENDED: list[tuple[Callable[[str], Any], str]] = [
    (cpu.parse_idle_states, IDLE),
    (cpu.parse_frequency, FREQUENCY),
    (kernel.parse_vulnerabilities, WEAK),
    (meminfo.parse_hugepages, PAGES),
    (kernel.parse_secure_boot, "   6   0   0   0   1\n"),
    (tuned.parse_tuned_profile, "Current active profile: hpc-compute\n"),
    (lambda output: kernel.parse_modules(answer.parse_answer("x", output).body), MODULES + "status 0\n"),
    (lambda output: kernel.parse_cmdline(answer.parse_answer("x", output).body), CMDLINE + "status 0\n"),
    (
        lambda output: packages.parse_package_versions(output, ("fio", "mpi")),
        "package fio installed 3\npackage mpi installed 4\n",
    ),
]


@pytest.mark.parametrize(("parser", "output"), ENDED)
def test_an_answer_that_is_cut_off_is_none(parser: Callable[[str], Any], output: str) -> None:
    parser(output)
    for end in range(len(output)):
        with pytest.raises(ParseError):
            parser(output[:end])


test_a_damaged_answer_raises_nothing_but_a_parse_error = survives_damage(*ENDED)
