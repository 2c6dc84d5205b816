from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.configure.nic.firmware import (
    FirmwareProblem,
    FirmwareState,
    WantedFirmware,
    good_version,
    not_taken,
    parse_state,
    plan_firmware,
    state_command,
)
from rackproof.configure.nic.inputs import Image
from tests.unit.refusals import error_of
from tests.unit.shell import executable, is_shell, sh

SLOT = "0000:1a:00.0"
BOOT = "7d2a2d5e-62c1-4c1f-8a53-0c4f6c1d9a10"
IMAGE = Image(version="28.43.2566", url="https://mirror.example/fw.bin", sha256="0" * 64)
FLINT = """Image type:            FS4
FW Version:            {stored}
{running}FW Release Date:       27.11.2024
Product Version:       28.43.2566
PSID:                  MT_0000000838
Security Attributes:   secure-fw
"""
CONFIG = """
Device #1:
----------

Device type:        ConnectX7
Name:               MCX75310AAS-NEA_Ax
Description:        NVIDIA ConnectX-7
Device:             0000:1a:00.0

Configurations:                                          Default             Current             Next Boot
"""


def answer(
    settings: Mapping[str, tuple[str, str]] | None = None,
    stored: str = "28.43.2566",
    running: str | None = None,
    memory: str = "",
    pending: str = "",
    flint: str | None = None,
    config: str | None = None,
) -> FirmwareState:
    rows = "".join(
        f"        {name:<43} IB(1)               {now:<19} {then}\n" for name, (now, then) in (settings or {}).items()
    )
    output = flint if flint is not None else FLINT.format(
        stored=stored, running=f"FW Version(Running):   {running}\n" if running else ""
    )  # fmt: skip
    asked = config if config is not None else (CONFIG + rows if settings else "")
    text = f"{BOOT}\n--\n{pending}--\nadapter {SLOT}\n{memory}--flint\n{output}--settings\n{asked}--\n"
    return parse_state(text.splitlines())


def wanted(version: str | None = None, **settings: str) -> list[WantedFirmware]:
    return [WantedFirmware(SLOT, "rail0", version, settings or None)]


@pytest.mark.parametrize(
    ("actual", "declared", "good"),
    [
        ("28.43.2566", "28.43.2566", True),
        ("28.43.2566", "28.43.2567", False),
        ("28.43.2566", ">=28.39.1002", True),
        ("28.4.1", ">=28.39.1002", False),
        ("28.39.1002", ">= 28.39.1002", True),
        (None, ">=28.39.1002", False),
        ("unknown", ">=28.39.1002", False),
    ],
)
def test_versions(actual: str | None, declared: str, good: bool) -> None:
    assert good_version(actual, declared) is good


def test_nothing_to_do() -> None:
    state = answer({"LINK_TYPE_P1": ("ETH(2)", "ETH(2)"), "ATS_ENABLED": ("False(0)", "False(0)")})
    assert not plan_firmware(wanted("28.43.2566", LINK_TYPE_P1="ETH", ATS_ENABLED="False"), state, {})


def test_only_what_differs_is_set_and_a_reboot_is_asked_for() -> None:
    state = answer({"LINK_TYPE_P1": ("IB(1)", "IB(1)"), "ATS_ENABLED": ("False(0)", "False(0)")})
    plan = plan_firmware(wanted(LINK_TYPE_P1="ETH", ATS_ENABLED="False"), state, {})
    assert f'"$config" -d {SLOT} -y set LINK_TYPE_P1=ETH\n' in plan.script
    assert "ATS_ENABLED" not in plan.script
    assert "reboot:NIC firmware settings of rail0" in plan.script
    (change,) = plan.changes
    assert change.line == "rail0 (0000:1a:00.0): at the next boot LINK_TYPE_P1 IB(1) becomes ETH"
    assert change.reboot == "NIC firmware settings of rail0"


def test_a_change_that_waits_for_the_reboot_is_not_made_again() -> None:
    settings = {"LINK_TYPE_P1": ("IB(1)", "ETH(2)")}
    mark = "reboot:NIC firmware settings of rail0\n"
    assert not plan_firmware(wanted(LINK_TYPE_P1="ETH"), answer(settings, memory=f"{BOOT}\n", pending=mark), {})
    # Set by another tool, or the mark is gone: the reboot is still needed, and reported.
    plan = plan_firmware(wanted(LINK_TYPE_P1="ETH"), answer(settings), {})
    assert "mlxconfig" not in plan.script
    assert "reboot:NIC firmware settings of rail0" in plan.script


def test_a_warm_reboot_that_did_not_help() -> None:
    state = answer({"ATS_ENABLED": ("True(1)", "False(0)")}, memory="another-boot\n")
    with pytest.raises(
        FirmwareProblem, match=r"ATS_ENABLED is True\(1\).*warm reboot does not always.*mlxfwreset -d 0000"
    ):
        plan_firmware(wanted(ATS_ENABLED="False"), state, {})


def test_a_setting_that_the_firmware_does_not_have() -> None:
    with pytest.raises(FirmwareProblem, match="its firmware has no setting NO_SUCH"):
        plan_firmware(wanted(NO_SUCH="1"), answer({"ATS_ENABLED": ("True(1)", "True(1)")}), {})


@pytest.mark.parametrize("output", ["sh: 1: false: not found\n", "-E- Failed to open device\n", ""])
def test_a_tool_that_says_nothing_is_an_error(output: str) -> None:
    with pytest.raises(FirmwareProblem, match="mlxconfig does not list them"):
        plan_firmware(wanted(ATS_ENABLED="False"), answer(config=output or " \n"), {})
    with pytest.raises(FirmwareProblem, match="no tool reads the installed version"):
        plan_firmware(wanted("28.43.2566"), answer(flint=output), {})


def test_a_mismatch_names_tool_and_way_out() -> None:
    assert error_of(FirmwareProblem, plan_firmware, wanted("28.43.2566"), answer(stored="28.39.1002"), {}) == (
        "rail0 (0000:1a:00.0): firmware: expected 28.43.2566, actual 28.39.1002 (PSID MT_0000000838); write it with"
        " flint -d 0000:1a:00.0 -i FILE burn, or declare nic: {firmware_images: {MT_0000000838:"
        " {version, url, sha256}}} and the deploy does"
    )


def test_an_image_is_verified_written_and_read_back() -> None:
    plan = plan_firmware(wanted("28.43.2566"), answer(stored="28.39.1002"), {"MT_0000000838": IMAGE})
    script = plan.script
    order = ["rp_fetch https", "-y burn", "grep -Eq", "reboot:NIC firmware of rail0"]
    assert [script.index(word) for word in order] == sorted(script.index(word) for word in order)
    assert is_shell(script)


def test_no_image_is_left_behind(tmp_path: Path) -> None:
    """Each adapter gets a temporary file of its own, and the trap at the end knows the last one's name only."""
    plan = plan_firmware(wanted("28.43.2566"), answer(stored="28.39.1002"), {"MT_0000000838": IMAGE})
    script = "\n".join(("set -eu", *plan.head, *plan.lines, *plan.lines)).replace("/var/tmp/", f"{tmp_path}/images/")
    (tmp_path / "images").mkdir()
    for name, body in {
        "curl": 'while [ "$1" != -o ]; do shift; done; : >"$2"',
        "sha256sum": f"case $* in -c*) exit 1;; *) echo {IMAGE.sha256};; esac",
        "flint": "echo 'FW Version:            28.43.2566'",
    }.items():
        executable(tmp_path / name, body)
    script = script.replace("/run/rackproof", f"{tmp_path}/run")
    done = sh(script.replace("trap ", ": "), programs=tmp_path)  # only what the script does by itself
    assert done.returncode == 0
    assert not list((tmp_path / "images").iterdir())


def test_an_image_of_another_version_is_not_written() -> None:
    with pytest.raises(FirmwareProblem, match=r"says 28.45.1000, the image for MT_0000000838 is 28.43.2566"):
        plan_firmware(wanted("28.45.1000"), answer(stored="28.39.1002"), {"MT_0000000838": IMAGE})


def test_a_flash_that_waits_for_its_reset_is_not_written_again() -> None:
    state = answer(stored="28.43.2566", running="28.39.1002")
    plan = plan_firmware(wanted("28.43.2566"), state, {"MT_0000000838": IMAGE})
    assert "burn" not in plan.script
    assert "reboot:NIC firmware of rail0" in plan.script
    pending = "reboot:NIC firmware of rail0\n"
    assert not plan_firmware(wanted("28.43.2566"), answer(running="28.39.1002", pending=pending), {})


def test_read_back_of_the_next_boot() -> None:
    state = answer({"LINK_TYPE_P1": ("IB(1)", "IB(1)")})
    assert not_taken(wanted(LINK_TYPE_P1="ETH"), state) == [
        "rail0 (0000:1a:00.0): LINK_TYPE_P1: expected ETH at the next boot, actual IB(1)"
    ]
    assert not_taken(wanted(LINK_TYPE_P1="IB"), state) == []
    assert not_taken(wanted(LINK_TYPE_P1="IB"), None)


def test_the_question_is_a_program() -> None:
    command = state_command([WantedFirmware(SLOT, "rail0", "1", {"A B": "1"}), WantedFirmware("0000:1b:00.0", "x")])
    assert is_shell(command)
    out = sh(command).stdout
    state = parse_state(out.splitlines())
    assert set(state.adapters) == {SLOT, "0000:1b:00.0"}
    assert state.adapters[SLOT].running is None


@given(st.lists(st.text(alphabet="abc-: \n0.\t()", max_size=40), max_size=12))
def test_no_answer_is_mistaken_for_another(lines: list[str]) -> None:
    try:
        state = parse_state(lines)
    except ValueError:
        return
    assert all(adapter.running is None for adapter in state.adapters.values())
