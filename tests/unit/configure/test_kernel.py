from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.configure.kernel import (
    CLOCK_SOURCE,
    Setting,
    normal,
    parse_values,
    plan_values,
    sysctl_path,
    values_command,
    write_plan,
)
from tests.unit.shell import sh


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("net.core.rmem_max", "/proc/sys/net/core/rmem_max"),
        ("net.ipv4.conf.eth0/100.rp_filter", "/proc/sys/net/ipv4/conf/eth0.100/rp_filter"),
    ],
)
def test_sysctl_keys_are_files(key: str, path: str) -> None:
    assert sysctl_path(key) == path


@pytest.mark.parametrize(
    ("raw", "value"),
    [("4096\t131072\t67108864", "4096 131072 67108864"), ("always [madvise] never", "madvise"), ("1", "1"), ("", "")],
)
def test_values_are_compared_without_their_spelling(raw: str, value: str) -> None:
    assert normal(raw) == value


def test_only_differences_are_planned() -> None:
    actual = {"/proc/sys/vm/swappiness": "60", "/proc/sys/net/ipv4/tcp_rmem": "4096 131072 67108864"}
    plan = plan_values({"vm.swappiness": "1", "net.ipv4.tcp_rmem": "4096 131072  67108864"}, {}, actual)
    assert plan == (Setting("/proc/sys/vm/swappiness", "60", "1"),)


def test_a_key_that_the_kernel_lacks_is_planned_and_fails_loudly() -> None:
    (setting,) = plan_values({"net.nosuch": "1"}, {}, {})
    assert setting.actual is None
    done = sh(write_plan([setting]).script)
    assert done.returncode == 1
    assert "/proc/sys/net/nosuch: this kernel has no such setting" in done.stderr


def test_a_pattern_reaches_every_match_and_asks_for_none() -> None:
    pattern = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    actual = {pattern.replace("*", str(k)): governor for k, governor in enumerate(["powersave", "performance"])}
    plan = plan_values({}, {pattern: "performance"}, actual)
    assert [setting.path for setting in plan] == [pattern.replace("*", "0")]
    assert plan_values({}, {pattern: "performance"}, {}) == ()


def test_sysctl_keys_are_set_again_after_huge_pages_were_switched() -> None:
    """The kernel raises vm.min_free_kbytes then."""
    thp = "/sys/kernel/mm/transparent_hugepage/enabled"
    actual = {thp: "always", "/proc/sys/vm/min_free_kbytes": "65536"}
    plan = plan_values({"vm.min_free_kbytes": "65536"}, {thp: "madvise"}, actual)
    assert [setting.path for setting in plan] == [thp, "/proc/sys/vm/min_free_kbytes"]
    assert plan_values({"vm.min_free_kbytes": "65536"}, {thp: "always"}, actual) == ()


@pytest.mark.parametrize("taken", [True, False])
def test_a_clock_source_that_the_kernel_does_not_take_is_an_error(tmp_path: Path, taken: bool) -> None:
    """The kernel says nothing when it is told a name that it does not have."""
    (tmp_path / "current_clocksource").write_text("hpet\n")
    (tmp_path / "available_clocksource").write_text("hpet acpi_pm\n")
    if not taken:
        (tmp_path / "current_clocksource").unlink()
        (tmp_path / "current_clocksource").symlink_to("/dev/null")
    plan = plan_values({}, {CLOCK_SOURCE: "tsc"}, {CLOCK_SOURCE: "hpet"})
    script = write_plan(plan).script.replace(CLOCK_SOURCE.rpartition("/")[0], str(tmp_path))
    done = sh(script)
    assert done.returncode == (0 if taken else 1), done.stderr
    if not taken:
        assert "clock source: expected tsc, actual ; this kernel offers hpet acpi_pm" in done.stderr


def test_command_and_parser_agree_on_a_real_machine(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("always [madvise] never\n")
    command = values_command(["kernel.ostype", "no.such.key"], [f"{tmp_path}/*", f"{tmp_path}/none*/x"])
    done = sh(command, check=True)
    values = parse_values(done.stdout.splitlines())
    assert values == {"/proc/sys/kernel/ostype": "Linux", f"{tmp_path}/one": "madvise"}


def test_what_grep_did_not_say_is_no_answer() -> None:
    with pytest.raises(ValueError, match="grep: expected PATH:LINE"):
        parse_values(["grep: broken"])
