"""The scratch array: only blank drives become one, and what is there already is left alone or assembled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rackproof.configure.node.scratch import Scratch, ScratchState, parse_state, plan, script, state_command
from rackproof.errors import Refused
from tests.unit.refusals import refuses
from tests.unit.shell import executable, is_shell, sh

ARRAY = Scratch(("/dev/disk/by-id/nvme-a", "/dev/disk/by-id/nvme-b"), "/scratch")


def member(name: str, *content: str, kind: str = "disk") -> list[str]:
    return [
        f"member /dev/disk/by-id/nvme-{name}",
        f"device=/dev/{name}",
        f"name=/dev/x{name}",
        f"kind={kind}",
        *content,
    ]


MD = ("type=linux_raid_member", "label=any:rp-scratch")
BLANK = ("zero=yes",)
RUNNING = ["array", "active=yes", "type=xfs", "label=rp-scratch"]


def state(first: tuple[str, ...], second: tuple[str, ...], array: list[str]) -> ScratchState:
    return parse_state([*member("a", *first), *member("b", *second), *array])


@pytest.mark.parametrize(
    ("actual", "steps"),
    [
        (state(BLANK, BLANK, ["array"]), ("create", "mkfs")),
        (state(MD, MD, RUNNING), ()),
        (state(MD, MD, ["array"]), ("assemble", "mkfs-if-blank")),
        (state(MD, MD, ["array", "active=yes", "zero=yes"]), ("mkfs",)),
        (state(MD, MD, [*RUNNING, "mounted=/scratch"]), ()),
    ],
)
def test_what_is_done(actual: ScratchState, steps: tuple[str, ...]) -> None:
    assert plan(ARRAY, actual) == steps
    if steps:
        checked = subprocess.run(["sh", "-n", "-c", script(ARRAY, steps, actual)], check=False)
        assert checked.returncode == 0


test_what_is_refused = refuses(
    lambda actual: plan(ARRAY, actual),
    (state(("type=ext4", "label=data"), BLANK, ["array"]), "/dev/a: expected a blank drive .* ext4 'data'"),
    (state(BLANK, (), ["array"]), "data without a known signature"),
    (state(BLANK, ("holder=/dev/b1", "signature=gpt"), ["array"]), "signature gpt, holds /dev/b1"),
    (state(MD, BLANK, ["array"]), "member of the array 'rp-scratch' already, /dev/b not"),
    (state(("type=linux_raid_member", "label=other:home"), BLANK, ["array"]), "linux_raid_member"),
    (state(MD, MD, ["array", "active=yes", "type=ext4", "label=mine"]), "actual ext4 'mine'; nothing was done"),
    (state(MD, MD, ["array", "active=yes"]), "data without a known signature; nothing was done"),
    (parse_state(["member /dev/a", *member("b", *BLANK), "array"]), "expected exactly one drive, actual none"),
    (parse_state([*member("a", *BLANK, kind="part"), *member("b", *BLANK), "array"]), "expected a whole drive"),
    (parse_state([*member("a", *BLANK), *member("a", *BLANK), "array"]), "/dev/a: named twice"),
    error=Refused,
)


test_an_invalid_answer_is_refused = refuses(
    parse_state, [], ["array=x"], ["member a"], [*member("a"), "array", "nonsense"], error=ValueError, says="array"
)


def test_the_question_is_shell() -> None:
    assert is_shell(state_command(ARRAY))


def test_a_drive_that_was_written_to_since_the_question_stops_the_script(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name, text in {"wipefs": "echo gpt", "mdadm": f"echo mdadm >>{log}", "udevadm": ":"}.items():
        executable(tmp_path / name, text)
    current = state(BLANK, BLANK, ["array"])
    done = sh(script(ARRAY, ("create", "mkfs"), current), programs=tmp_path)
    assert done.returncode == 1
    assert "/dev/a: no longer blank" in done.stderr
    assert not log.exists()
