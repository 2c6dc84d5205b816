"""Answers of ``guard.sh`` and ``programs.sh``: of this machine, of written ones, and cut at every byte."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from rackproof.bench.guard import load_command
from rackproof.bench.waiting import STATE
from rackproof.core.evidence import CheckOutcome
from rackproof.core.programs import IMAGE, PERFTEST, TOOLS, in_image, judge_program
from rackproof.parse import ParseError
from rackproof.parse.load import parse_load_state, parse_state
from rackproof.parse.measuring_programs import parse_programs_found
from rackproof.shell import script
from tests.unit.load_answers import Machine
from tests.unit.refusals import refuses_parts
from tests.unit.shell import executable, sh

GPUS = Path(__file__).parents[2] / "data/tools/nvidia-smi-590-2gpu.xml"
ANSWER = Machine(messages=[(0.0, "Linux version 6.12"), (9.0, "<3>I/O error, dev nvme0n1, sector 1")]).load_state(
    "since='1.0'"
)
ALONE = "".join(f"{line}\n" for line in Machine().state())
FOUND = Machine(changed=["??5??????   /usr/bin/fio"]).programs("set -- fio iperf3")
WRITE = f"{PERFTEST}/ib_write_bw"
BUILT = Machine(built={WRITE: "0" * 64}).programs(f"set -- {WRITE} ib_write_bw")


def test_this_machine_answers_both_scripts() -> None:
    answers = [
        sh(text).stdout
        for text in (
            load_command("", gpus=False),
            script(
                "rackproof.bench.programs",
                "programs",
                "sh",
                "no-such-program",
                "/bin/no-such",
                tools=TOOLS,
                engine="none",
                image="",
            ),
            STATE,
        )
    ]
    assert parse_load_state(answers[0]).processors == parse_state(answers[2]).processors > 0
    programs = parse_programs_found(answers[1]).programs
    assert programs["no-such-program"] is programs["/bin/no-such"] is None
    assert programs["sh"] is not None


def test_a_whole_look() -> None:
    state = parse_load_state(ANSWER)
    assert state.mounts == {
        "/": "/dev/vda1 ext4 rw",
        "/mnt/local": "/dev/nvme0n1 ext4 rw",
        "/mnt/nfs-tcp": "10.77.0.11:/srv/nfs nfs4 rw",
    }
    assert state.log is not None
    assert [(t.kind, t.seconds) for t in state.log.troubles] == [("io_error", 9.0)]
    assert state.counters["ports"]["rxe0/1 rcvd_seq_err"] == 7
    assert "rxe0/1 symbol_error" not in state.counters["ports"]
    assert state.counters["drives"] == {"md127 degraded": 0, "md127 raid_disks": 2, "nvme0 media_errors": 0}
    assert state.states["drives"] == {"md127 state": "active"}
    assert state.unread == {}


test_no_part_of_an_answer_is_an_answer = refuses_parts(
    (parse_load_state, ANSWER), (parse_programs_found, FOUND), (parse_programs_found, BUILT), (parse_state, ALONE)
)


def test_gpus_are_counted_and_their_users_named() -> None:
    xml = GPUS.read_text().strip()
    state = parse_load_state(Machine(gpus=xml).load_state(""))
    assert sum(name.endswith(" present") for name in state.counters["gpus"]) == 2
    busy = xml.replace("<compute_mode>Default<", "<compute_mode>Exclusive_Process<", 1)
    assert any(
        "compute mode Exclusive_Process" in user for user in parse_load_state(Machine(gpus=busy).load_state("")).in_use
    )
    broken = parse_load_state(Machine(gpus="Unable to determine the device handle for GPU").load_state(""))
    assert "unreadable" in broken.unread["gpus"]


@pytest.mark.parametrize("kind", ["fuse.daos", "zfs", "vastnfs", "virtiofs"])
def test_a_mount_of_any_kind_is_kept_unless_it_holds_nothing(kind: str) -> None:
    mounts = [f"pool /data {kind} rw 0 0", "lxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0", "tmpfs /srv tmpfs rw 0 0"]
    assert parse_load_state(Machine(mounts=mounts).load_state("")).mounts == {"/data": f"pool {kind} rw"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<remapped_row_pending>No<", "<remapped_row_pending>N/A<"),
        ("<remapped_row_failure>No<", "<remapped_row_failure>[Not Supported]<"),
        ("<remapped_row_unc>0<", "<remapped_row_unc>N/A<"),
        ("<remapped_row_pending>No<", "<remapped_row_pending>Maybe<"),
    ],
)
def test_remapped_rows_that_a_gpu_does_not_tell_are_not_none(old: str, new: str) -> None:
    xml = GPUS.read_text().strip()
    assert old in xml
    state = parse_load_state(Machine(gpus=xml.replace(old, new, 1)).load_state(""))
    assert "remapped_row" in state.unread["gpus"] or "remapped rows" in state.unread["gpus"]


def test_a_counter_that_is_no_number_is_named() -> None:
    state = parse_load_state(ANSWER.replace("md/degraded:0", "md/degraded:some"))
    assert state.unread == {"drives": "unreadable: md127 degraded: 'some'"}


def test_a_drive_that_does_not_answer_and_a_log_that_is_forbidden_are_named() -> None:
    text = ANSWER.replace("status 0", "status 1")
    assert parse_load_state(text).unread == {"drives": "nvme0 did not answer"}
    lines = ANSWER.splitlines(keepends=True)
    kernel = [line for line in lines if not line.startswith("<")]
    at = [number for number, line in enumerate(kernel) if line == "--\n"][1] + 1
    refused = "".join([*kernel[:at], "dmesg: read kernel buffer failed: Operation not permitted\n", *kernel[at:]])
    assert "kernel" in parse_load_state(refused).unread


def test_programs_have_owners_and_changes() -> None:
    listing = parse_programs_found(FOUND)
    assert listing.programs["fio"] is not None
    assert listing.programs["fio"].packages == ("fio",)
    assert listing.changed["fio"] == ("/usr/bin/fio",)


def test_a_built_program_is_as_it_was_built_or_named() -> None:
    listing = parse_programs_found(BUILT)
    program = listing.programs[WRITE]
    assert program is not None
    assert (program.built, program.sources, program.packages) == ("0" * 64, "5" * 64, ())
    text = f"{WRITE}, as built from sources with sha256 {'5' * 64}"
    assert judge_program(WRITE, listing) == (CheckOutcome.PASSED, text, True)
    assert judge_program("ib_write_bw", listing)[1] == "/usr/bin/ib_write_bw of ib_write_bw, as installed"
    changed = BUILT.replace(f"{'0' * 64} {'5' * 64}", f"{'1' * 64} {'5' * 64}")
    outcome, message, required = judge_program(WRITE, parse_programs_found(changed))
    assert (outcome, required) == (CheckOutcome.FAILED, True)
    assert message == f"expected {WRITE} as the deploy built it, sha256 {'1' * 64}, actual {'0' * 64}"
    for digests in ("", "0" * 64, f"{'0' * 63}g {'5' * 64}", f"{'0' * 64} "):
        with pytest.raises(ParseError, match="expected the digests of a built program"):
            parse_programs_found(BUILT.replace(f"{'0' * 64} {'5' * 64}", digests, 1))


@pytest.mark.parametrize(
    ("printed", "images"),
    [
        (f"sha256:{'a1' * 32} r.example/t@sha256:{'b2' * 32} r2.example/t@sha256:{'b2' * 32}", 2),
        (f"{'a1' * 32}", 0),
        ("", None),
    ],
)
def test_the_script_asks_the_runtime_for_the_sites_image(tmp_path: Path, printed: str, images: int | None) -> None:
    """docker prints the id with its algorithm, podman without; no line where the image is absent."""
    executable(tmp_path / "podman", f'[ "$1 $2 $5" = "image inspect torch:2.9" ] && echo "{printed}"')
    asked = script(
        "rackproof.bench.programs",
        "programs",
        IMAGE,
        tools="/none",
        engine="podman",
        image="torch:2.9" if printed else "x",
    )
    answer = sh(asked, programs=tmp_path).stdout
    installed = parse_programs_found(answer)
    assert installed.programs == {IMAGE: None}
    assert {name: len(names) for name, names in installed.images.items()} == (
        {} if images is None else {in_image("a1" * 32): images}
    )
    for wrong in ("contained a1a1", "contained", f"contained {'a1' * 32} a  b"):
        with pytest.raises(ParseError):
            parse_programs_found(answer.replace(f"program {IMAGE}", wrong))


@pytest.mark.parametrize(
    ("recorded", "actual", "outcome"),
    [
        ("whole", "whole", (CheckOutcome.PASSED, True)),
        ("whole", "other", (CheckOutcome.FAILED, True)),
        ("", "whole", (CheckOutcome.FAILED, False)),  # built by an older kit, or by the site
    ],
)
def test_the_script_tells_what_was_built(
    tmp_path: Path, recorded: str, actual: str, outcome: tuple[CheckOutcome, bool]
) -> None:
    """Linked into a folder of the PATH, as the deploy does it."""
    folder = tmp_path / "tools/nccl_tests"
    executable(folder / "bin/all_reduce_perf", actual)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/all_reduce_perf").symlink_to(folder / "bin/all_reduce_perf")
    (folder / "sha256").write_text("5" * 64 + "\n")
    if recorded:
        digest = sha256(f"#!/bin/sh\n{recorded}\n".encode()).hexdigest()
        (folder / "programs.sha256").write_text(f"{'1' * 64}  x_all_reduce_perf\n{digest}  all_reduce_perf\n")
    asked = script(
        "rackproof.bench.programs",
        "programs",
        "all_reduce_perf",
        tools=str(tmp_path / "tools"),
        engine="none",
        image="",
    )
    listing = parse_programs_found(sh(asked, programs=tmp_path / "bin").stdout)
    judged = judge_program("all_reduce_perf", listing)
    assert (judged[0], judged[2]) == outcome
    assert "all_reduce_perf" in judged[1]


def test_rpm_prints_other_columns() -> None:
    text = FOUND.replace("??5??????   /usr/bin/fio", "S.5....T.  c /etc/fio.conf\n.M.......    /usr/bin/iperf3")
    assert parse_programs_found(text).changed == {"fio": (), "iperf3": ()}
    with pytest.raises(ParseError, match="the content of /usr/bin/fio could not be verified"):
        parse_programs_found(FOUND.replace("??5??????   /usr/bin/fio", "..?......    /usr/bin/fio"))
    text = FOUND.replace("??5??????   /usr/bin/fio", "S.5....T.    /usr/bin/fio")
    assert parse_programs_found(text).changed["fio"] == ("/usr/bin/fio",)


def test_a_verification_that_did_not_run_is_no_verification() -> None:
    for text in (FOUND.replace("status 0", "status 124"), FOUND.replace("package fio\n", "")):
        with pytest.raises(ParseError):
            parse_programs_found(text)
