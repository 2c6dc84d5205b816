"""Answers of ``guard.sh`` and ``programs.sh``: of this machine, of written ones, and cut at every byte."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rackproof.parse import ParseError
from rackproof.parse.load import parse_look
from rackproof.parse.measuring_programs import parse_programs_found
from rackproof.shell import script
from tests.unit.looks import Machine

GPUS = Path(__file__).parents[2] / "data/tools/nvidia-smi-590-2gpu.xml"
ANSWER = Machine(messages=[(0.0, "Linux version 6.12"), (9.0, "<3>I/O error, dev nvme0n1, sector 1")]).look(
    "since='1.0'"
)
FOUND = Machine(changed=["??5??????   /usr/bin/fio"]).found("set -- fio iperf3")


def test_this_machine_answers_both_scripts() -> None:
    answers = [
        subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False).stdout
        for text in (
            script("rackproof.bench.guard", "guard", since="", gpus=0),
            script("rackproof.bench.programs", "programs", "sh", "no-such-program"),
        )
    ]
    assert parse_look(answers[0]).processors > 0
    programs = parse_programs_found(answers[1]).programs
    assert programs["no-such-program"] is None
    assert programs["sh"] is not None


def test_a_whole_look() -> None:
    look = parse_look(ANSWER)
    assert look.mounts == {
        "/": "/dev/vda1 ext4 rw",
        "/mnt/local": "/dev/nvme0n1 ext4 rw",
        "/mnt/nfs-tcp": "10.77.0.11:/srv/nfs nfs4 rw",
    }
    assert look.log is not None
    assert [(t.kind, t.seconds) for t in look.log.troubles] == [("io_error", 9.0)]
    assert look.counters["ports"]["rxe0/1 rcvd_seq_err"] == 7
    assert "rxe0/1 symbol_error" not in look.counters["ports"]
    assert look.counters["drives"] == {"md127 degraded": 0, "nvme0 media_errors": 0}
    assert look.unread == {}


@pytest.mark.parametrize("parse", [parse_look, parse_programs_found])
def test_no_part_of_an_answer_is_an_answer(parse: type) -> None:
    text = ANSWER if parse is parse_look else FOUND
    for end in range(len(text) - 1):
        with pytest.raises(ParseError):
            parse(text[:end])


def test_gpus_are_counted_and_their_users_named() -> None:
    xml = GPUS.read_text().strip()
    look = parse_look(Machine(gpus=xml).look(""))
    assert sum(name.endswith(" present") for name in look.counters["gpus"]) == 2
    busy = xml.replace("<compute_mode>Default<", "<compute_mode>Exclusive_Process<", 1)
    assert any("compute mode Exclusive_Process" in user for user in parse_look(Machine(gpus=busy).look("")).in_use)
    broken = parse_look(Machine(gpus="Unable to determine the device handle for GPU").look(""))
    assert "unreadable" in broken.unread["gpus"]


def test_a_drive_that_does_not_answer_and_a_log_that_is_forbidden_are_named() -> None:
    text = ANSWER.replace("status 0", "status 1")
    assert parse_look(text).unread == {"drives": "nvme0 did not answer"}
    lines = ANSWER.splitlines(keepends=True)
    kernel = [line for line in lines if not line.startswith("<")]
    at = [number for number, line in enumerate(kernel) if line == "--\n"][1] + 1
    refused = "".join([*kernel[:at], "dmesg: read kernel buffer failed: Operation not permitted\n", *kernel[at:]])
    assert "kernel" in parse_look(refused).unread


def test_programs_have_owners_and_changes() -> None:
    found = parse_programs_found(FOUND)
    assert found.programs["fio"] is not None
    assert found.programs["fio"].packages == ("fio",)
    assert found.changed["fio"] == ("/usr/bin/fio",)


def test_rpm_prints_other_columns() -> None:
    text = FOUND.replace("??5??????   /usr/bin/fio", "S.5....T.  c /etc/fio.conf\n.M.......    /usr/bin/iperf3")
    assert parse_programs_found(text).changed == {"fio": (), "iperf3": ()}
    text = FOUND.replace("??5??????   /usr/bin/fio", "S.5....T.    /usr/bin/fio")
    assert parse_programs_found(text).changed["fio"] == ("/usr/bin/fio",)


def test_a_verification_that_did_not_run_is_no_verification() -> None:
    for text in (FOUND.replace("status 0", "status 124"), FOUND.replace("package fio\n", "")):
        with pytest.raises(ParseError):
            parse_programs_found(text)
