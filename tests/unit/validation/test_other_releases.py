"""Checks on releases whose package manager, kernel and paths are not Debian's."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from rackproof.configure.packages import declared_packages
from rackproof.core.programs import OFF_PATH
from rackproof.parse.fscache import parse_cache_daemons
from rackproof.validation import Unmeasured
from tests.unit.refusals import refuses
from tests.unit.validation.checking import ROOT, healthy, validators

DPKG, RPM, TABLE, DAEMONS = "dpkg-query -W", "rpm -qa", "cat /proc/fs/fscache/caches", "-lname /dev/cachefiles"
NO_DPKG = (127, "", "bash: line 1: dpkg-query: command not found\n")
NO_TABLE = (1, "", "cat: /proc/fs/fscache/caches: No such file or directory\n")
CACHES = "CACHE    REF   VOLS  OBJS  ACCES S NAME\n======== ===== ===== ===== ===== = ===============\n"

Answer = tuple[int, str, str]
"""Exit status, output and error output."""


class Node:
    """testinfra's host of a node: answers by a part of the command."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = answers
        self.backend = self

    def announce(self, *commands: str) -> None:
        """Nothing is read ahead."""

    def run(self, command: str, *arguments: str) -> SimpleNamespace:
        for part, (rc, stdout, stderr) in self.answers.items():
            if part in command:
                return SimpleNamespace(rc=rc, stdout=stdout, stderr=stderr)
        raise Unmeasured(f"not recorded: {command}")


def packages_on(answers: Mapping[str, Answer]) -> None:
    context = healthy()
    validators()["base.packages"][1](host=Node(answers), arch=context.arch, node=context.rack.node("gpu-01"))


def rpm_list(without: str = "") -> str:
    context = healthy()
    names = declared_packages(context.arch, context.rack.node("gpu-01"), "rhel")
    return "".join(f"installed {name}\n" for name in (*names, "gpg-pubkey") if name != without)


@pytest.mark.parametrize("dpkg", [NO_DPKG, (0, "", ""), (1, "", "dpkg-query: no packages found\n")])
def test_rpm_is_asked_where_dpkg_has_nothing(dpkg: Answer) -> None:
    packages_on({DPKG: dpkg, RPM: (0, rpm_list(), "")})
    with pytest.raises(AssertionError, match=r"missing: openssh-clients$"):
        packages_on({DPKG: dpkg, RPM: (0, rpm_list(without="openssh-clients"), "")})


test_packages_that_cannot_be_read = refuses(
    packages_on,
    {DPKG: NO_DPKG, RPM: (127, "", "bash: rpm: command not found\n")},
    {DPKG: NO_DPKG, RPM: (0, "", "")},
    {DPKG: (124, "", "")},
    {DPKG: (2, "", "dpkg-query: error: failed to open package info file\n")},
    {DPKG: NO_DPKG},
    error=Unmeasured,
    says="",
)


def cache_states(answers: Mapping[str, Answer]) -> Any:
    return validators()["mount.cache"][1].__globals__["cache_states"](Node(answers))


def test_a_cache_on_a_kernel_with_and_without_the_table() -> None:
    assert cache_states({TABLE: (0, CACHES + "00000001     2     1  2123     1 A x\n", "")}) == ("active",)
    assert cache_states({TABLE: NO_TABLE, DAEMONS: (0, "/proc/812/fd/3\nend of descriptors\n", "")}) == ("active",)
    assert cache_states({TABLE: NO_TABLE, DAEMONS: (0, "end of descriptors\n", "")}) == ()
    with pytest.raises(Unmeasured):
        cache_states({TABLE: (1, "", "cat: /proc/fs/fscache/caches: Permission denied\n"), DAEMONS: (0, "x", "")})


test_descriptors_that_cannot_be_read = refuses(
    parse_cache_daemons, "", "/proc/812/fd/3\n", "/proc/812/fd\nend of descriptors\n", "end of\n", says=""
)


def programs_of(check: str, answers: Mapping[str, Answer]) -> None:
    context = healthy()
    arch, node = context.arch, context.rack.node("gpu-01")
    names = arch.programs_of(node.groups)
    assert "mpirun" in names
    lines = "".join(f"{name} {'' if name == 'mpirun' else f'/usr/bin/{name}'}\n" for name in names)
    host = Node({"for p in ": (0, lines, ""), **answers})
    validators()[check][1](host=host, arch=arch, node=node, item="mpirun")


def test_mpirun_is_where_rhel_installs_it() -> None:
    built, path = OFF_PATH["mpirun"]
    there = {
        f"command -v {built} || command -v {path}": (0, f"mpirun {path}\n", ""),
        f"{path} --version": (0, "mpirun 4.1.1\nstatus 0\n", ""),
    }
    programs_of("tools.present", there)
    programs_of("tools.starts", there)
    absent = {f"command -v {built}": (0, "mpirun \n", "")}
    with pytest.raises(AssertionError, match="actual not found"):
        programs_of("tools.present", absent)
    with pytest.raises(Unmeasured, match="not installed"):
        programs_of("tools.starts", absent)
    broken = {**there, f"{path} --version": (0, "libhwloc.so.15: cannot open shared object file\nstatus 127\n", "")}
    with pytest.raises(AssertionError, match="libhwloc"):
        programs_of("tools.starts", broken)


def test_no_check_asks_one_package_manager_only() -> None:
    """A module that asks dpkg asks rpm, too."""
    asking = {
        path.name: path.read_text()
        for folder in ("validators", "rackproof/validation", "rackproof/bench", "rackproof/parse")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sh") and "dpkg-query -" in path.read_text()
    }
    assert {"test_base.py", "programs.sh"} <= set(asking)
    assert [name for name, text in asking.items() if "rpm -q" not in text] == []
