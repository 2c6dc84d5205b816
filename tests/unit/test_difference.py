"""Two readings of a healthy machine are the same, and one thing that changed is one thing shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rackproof.cli.diff import diff
from rackproof.core.rack import Node
from rackproof.remote.command import CommandResult
from rackproof.remote.difference import Difference, differences
from rackproof.remote.noise import RULES, VARIES, anonymous, quiet
from rackproof.remote.recording import Recording, by_command
from rackproof.remote.recording_folder import read_folder, write_recordings
from rackproof.selftest.noise import at_another_moment
from rackproof.selftest.written import open_rack
from rackproof.validation.known import load_checks
from rackproof.validation.survey import survey

pytestmark = pytest.mark.few(9)

ROOT = Path(__file__).parents[1] / "data"
RACK = {r.node.name: r for r in read_folder(ROOT / "recordings" / "virtual-rack")}
ONE, TWO = RACK["gpu-01"], RACK["gpu-02"]


def changed(recording: Recording, command: str, change: Callable[[str], str]) -> Recording:
    """The recording with another answer to the first command that holds this text."""
    (whole_command, *_) = (c for c in recording.results if command in c)
    old = recording.results[whole_command]
    new = replace(old, stdout=change(old.text).encode())
    assert new != old, "nothing was changed"
    return replace(recording, results={**recording.results, whole_command: new})


OWN = ("dmesg", "nvme", "nfs-paths", "mountinfo", "mountstats", "/sys/class/bdi", "drives", "rp-local")
"""Questions whose answers differ between the twins: what once went wrong, the order in which the kernel found the
drives, and the server's addresses, which every client takes in another order on purpose."""


def of_twins(one: Recording, two: Recording) -> list[Difference]:
    """Without what is a node's own."""
    return [difference for difference in differences(one, two) if not any(words in difference.command for words in OWN)]


def test_a_recording_is_the_same_as_itself() -> None:
    assert differences(ONE, ONE, everything=True) == []


def test_twins_are_the_same_whatever_they_are_called() -> None:
    assert of_twins(ONE, TWO) == []
    assert len(differences(ONE, TWO, everything=True)) > 5


@pytest.mark.parametrize("command", ["cat /proc/modules", "lsmod"])
def test_modules_that_ss_loads_are_no_difference(command: str) -> None:
    before = "nfs 4096 1 - Live 0x0\n"
    loaded = "inet_diag 4096 1 tcp_diag, Live 0x0\ntcp_diag 4096 0 - Live 0x0\nunix_diag 4096 0 - Live 0x0\n"
    assert quiet(command, loaded + before) == quiet(command, before)
    assert quiet(command, "nfsd 4096 1 - Live 0x0\n" + before) != quiet(command, before)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("command", "change", "line"),
    [
        (
            "nvidia-smi -q -x",
            lambda t: t.replace("580.95.05</driver", "580.82.07</driver"),
            "<driver_version>580.82.07",
        ),
        ("sysctl", lambda t: t.replace("vm.swappiness = 1", "vm.swappiness = 60"), "+vm.swappiness = 60"),
        ("ip -j addr", lambda t: t.replace('"mtu":9000', '"mtu":1500'), "1500"),
        ("mountinfo", lambda t: t.replace("nconnect=4", "nconnect=1"), "nconnect=1"),
        ("mountstats", lambda t: t.replace("xprt:\ttcp", "xprt:\trdma", 1), "xprt:\trdma"),
        ("dpkg-query", lambda t: t.replace("installed fio\n", ""), "-installed fio"),
        ("chronyc -n -c sources", lambda t: t.replace("^,*", "^,?"), "+^,?"),
        ("chronyc -n -c tracking", lambda t: t.replace("Normal", "Not synchronised"), "Not synchronised"),
        ("ping", lambda t: t.replace("2 received, 0%", "1 received, 50%"), "1 received"),
        ("ping", lambda t: t.replace("status 0", "status 1"), "+status 1"),
    ],
)
def test_relevant_changes_are_shown(command: str, change: Callable[[str], str], line: str) -> None:
    (difference,) = differences(ONE, changed(ONE, command, change))
    assert command in difference.command
    assert any(line in text for text in difference.lines if text.startswith(("+", "-"))), difference.lines
    before = {difference.command: difference for difference in differences(ONE, TWO)}
    (between,) = (
        difference
        for difference in differences(ONE, changed(TWO, command, change))
        if difference != before.get(difference.command)
    )
    assert any(line in text for text in between.lines if text.startswith(("+", "-"))), between.lines


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("nvidia-smi -q -x", lambda t: re.sub(r"<gpu_temp>\d+ C", "<gpu_temp>77 C", t)),
        ("nvidia-smi -q -x", lambda t: t.replace("Thu Jan  1 00:00:00 1970", "Fri Jan  2 11:11:11 1970")),
        ("chronyc -n -c tracking", lambda t: re.sub(r"(?<=,)-?0\.0\d+", "0.000001", t, count=1)),
        ("chronyc -n -c sources", lambda t: re.sub(r",377,\d+,", ",377,3,", t)),
        ("ping", lambda t: re.sub(r"time \d+ms", "time 9ms", t)),
        ("mountstats", lambda t: re.sub(r"age:\t\d+", "age:\t99958", t)),
        ("stat -f", lambda t: re.sub(r"(?m)^(\d+ \d+) \d+$", r"\1 5", t)),
        ("ip -j addr", lambda t: t.replace('"valid_life_time":4294967295', '"valid_life_time":17')),
        ("lscpu -J", lambda t: re.sub(r'("field": "BogoMIPS:",\s*"data": )"[^"]*"', r'\1"1.5"', t)),
        ("/proc/modules", lambda t: re.sub(r" \d+ (\S+) Live 0x\w+", r" 17 \1 Live 0xffffffff00000000", t)),
        ("dmesg", lambda t: "".join(reversed(t.removesuffix("status 0\n").splitlines(keepends=True))) + "status 0\n"),
        ("mountinfo", lambda t: "".join(reversed(t.splitlines(keepends=True)))),
    ],
)
def test_values_that_change_by_themselves_are_not_shown(command: str, change: Callable[[str], str]) -> None:
    other = changed(ONE, command, change)
    assert differences(ONE, other) == []
    assert len(differences(ONE, other, everything=True)) == 1


@pytest.fixture(scope="module")
def read() -> dict[str, list[Recording]]:
    """Answers to every check on healthy racks, by the rack's name."""
    checks = load_checks(ROOT.parents[1] / "validators")
    recordings = {}
    for name in ("virtual-rack", "hgx-h200-roce"):
        context = open_rack(ROOT, name)
        assert list(survey(context, checks))
        recordings[name] = [Recording(node, dict(context.readers[node.name].used)) for node in context.rack.nodes]
    return recordings


@pytest.mark.parametrize("rack", ["virtual-rack", "hgx-h200-roce"])
def test_a_healthy_rack_is_the_same_at_another_moment(read: dict[str, list[Recording]], rack: str) -> None:
    for recording in read[rack]:
        assert len(recording.results) > 10
        for seed in "abc":
            later = {command: at_another_moment(result, seed) for command, result in recording.results.items()}
            assert later != recording.results
            assert differences(recording, replace(recording, results=later)) == []


def test_nodes_of_one_kind_are_the_same(read: dict[str, list[Recording]]) -> None:
    one, two, *_ = read["hgx-h200-roce"]
    between = differences(one, two)
    # gpu-02's are written as gpu-01's with the names exchanged, which is not what it would be told.
    exchanged = ("ping ", "getent ")
    assert [
        (difference.command, difference.lines) for difference in between if not difference.command.startswith(exchanged)
    ] == []


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [
        ("uptime", " 10:00:00 up 3 days, load average: 0.1", " 11:00:00 up 4 days, load average: 9"),
        ("cat /proc/meminfo", "MemTotal: 8 kB\nMemFree: 3 kB", "MemTotal: 8 kB\nMemFree: 1 kB"),
        ("cat /proc/meminfo", "Active(anon): 1 kB", "Active(anon): 7 kB"),
        ("systemctl show x", "MainPID=7\nActiveState=active", "MainPID=8\nActiveState=active"),
        ("dmesg", "[    1.5] NVRM: loaded", "[   77.25] NVRM: loaded"),
        ("journalctl -k", "Nov 21 07:45:00 gpu-01 sshd[12]: x", "Nov 22 08:00:01 gpu-01 sshd[345]: x"),
        ("ethtool -S rail0", "     rx_bytes: 123", "     rx_bytes: 99999"),
        ("nvme smart-log -o json", '{"temperature":310,"power_on_hours":5}', '{"temperature":5,"power_on_hours":9}'),
        ("ceph -s -f json", '{"epoch":5,"health":"x"}', '{"epoch":77,"health":"x"}'),
        ("lscpu", "CPU(s): 8\nCPU MHz: 3800.1", "CPU(s): 8\nCPU MHz: 800.0"),
        ("ipmitool sdr", "Inlet | 23 degrees C | ok", "Inlet | 25 degrees C | ok"),
        ("scontrol show node", "State=IDLE CPULoad=0.01", "State=IDLE CPULoad=7.00"),
        ("some tool", "at 2026-11-21T07:45:00Z done", "at 2026-11-22 08:00:00.5+01:00 done"),
    ],
)  # fmt: skip
def test_values_that_vary_are_taken_out(command: str, before: str, after: str) -> None:
    assert quiet(command, before) == quiet(command, after)
    assert before != after


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [
        ("cat /proc/meminfo", "MemTotal: 8 kB", "MemTotal: 6 kB"),
        ("systemctl show x", "ActiveState=active", "ActiveState=failed"),
        ("ethtool -S rail0", "     rx_discards: 0", "     rx_discards: 9"),
        ("nvme smart-log", '{"media_errors":0}', '{"media_errors":2}'),
        ("grep -sH '' /sys/x/hw_counters/*", "x/hw_counters/out_of_sequence:0", "x/hw_counters/out_of_sequence:12"),
        ("uname -v", "#1 SMP Wed Nov 12 10:00:00 UTC 2026", "#1 SMP Wed Nov 12 11:00:00 UTC 2026"),
        ("lscpu", "CPU(s): 8", "CPU(s): 4"),
        ("nvidia-smi", "<ecc_errors>0</ecc_errors>", "<ecc_errors>4</ecc_errors>"),
    ],
)
def test_values_that_never_change_by_themselves_are_kept(command: str, before: str, after: str) -> None:
    assert quiet(command, before) != quiet(command, after)


@given(
    st.sampled_from(sorted({rule.command.pattern for rule in RULES})),
    st.text(alphabet='ab:=,0 1.\n\t<>/"[]', max_size=80),
)
def test_quiet_text_stays_as_it_is(command: str, text: str) -> None:
    once = quiet(command, text)
    assert quiet(command, once) == once


def test_identifiers_of_a_machine_are_removed() -> None:
    text = (
        '52:54:77:20:00:0b GPU-d22cd06c-42e5-50e0-9046-f044e8228e38 <serial>165</serial> fe80::1:2 "SerialNumber": "X1"'
    )
    assert anonymous(text) == '‹mac› GPU-‹uuid› <serial>‹serial›</serial> ‹link-local› "SerialNumber": ‹serial›'
    kept = "00:00:00:00:00:00 0000:18:00.0 10.77.0.1 ff:ff:ff:ff:ff:ff 12:34:56"
    assert anonymous(kept) == kept


def recording(name: str, group: str = "gpu", **answers: str) -> Recording:
    results = [CommandResult(name, command, 0, text.encode()) for command, text in answers.items()]
    return Recording(Node(name, (group,), {"fabric_addresses": [f"10.0.0.{int(name[-2:])}/24"]}), by_command(results))


def test_own_names_are_no_difference_and_wrong_names_are() -> None:
    one, two = recording("gpu-01", hostname="gpu-01\n"), recording("gpu-02", hostname="gpu-02\n")
    assert differences(one, two) == []
    three = replace(recording("gpu-03", hostname="gpu-02\n"))
    (difference,) = differences(one, three, peers=[two])
    assert difference.lines[-2:] == ("-‹this node›", "+‹a peer›")


def test_a_question_that_only_one_was_asked_and_another_end_are_differences() -> None:
    one, two = recording("gpu-01", a="x\n", b="y\n"), recording("gpu-01", a="x\n", c="z\n")
    assert differences(one, two) == [
        Difference("b", ("- recorded here only",)),
        Difference("c", ("+ recorded here only",)),
    ]
    failed = replace(one, results={**one.results, "a": CommandResult("gpu-01", "a", 1, b"x\n", b"oops\n")})
    hung = replace(one, results={**one.results, "a": CommandResult("gpu-01", "a", None, b"x\n", error="not finished")})
    assert [d.lines[1:] for d in differences(one, failed)] == [("+! exit status 1", "+! oops", " x")]
    assert [d.lines[1:] for d in differences(one, hung)] == [("+! not finished", " x")]


# The command


def ran(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(diff, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_folders_are_compared_node_by_node_and_equal_differences_are_shown_once(tmp_path: Path) -> None:
    names = [f"gpu-{k:02d}" for k in (1, 2, 3)]
    write_recordings(tmp_path / "a", [recording(name, uname="6.12\n") for name in names])
    write_recordings(tmp_path / "b", [recording(name, uname="6.12\n") for name in names])
    assert ran(tmp_path / "a", tmp_path / "b") == (0, "3 compared, no difference\n")
    write_recordings(tmp_path / "b", [recording(name, uname="7.0\n") for name in names[1:]])
    status, output = ran(tmp_path / "a", tmp_path / "b")
    assert status == 1
    assert output == "gpu-[02-03]: uname\n  @@ -1 +1 @@\n  -6.12\n  +7.0\n3 compared, gpu-[02-03] differ\n"


def test_a_node_that_only_one_side_has_is_a_difference(tmp_path: Path) -> None:
    write_recordings(tmp_path / "a", [recording("gpu-01", x="1"), recording("gpu-02", x="1")])
    write_recordings(tmp_path / "b", [recording("gpu-01", x="1"), recording("gpu-03", x="1")])
    status, output = ran(tmp_path / "a", tmp_path / "b")
    assert (status, output.splitlines()[:2]) == (1, ["gpu-02: recorded before only", "gpu-03: recorded after only"])


def test_peers_are_compared_within_their_group(tmp_path: Path) -> None:
    alike = [recording(f"gpu-{k:02d}", uname="6.12\n") for k in (1, 2, 3)]
    other = recording("gpu-04", uname="7.0\n")
    write_recordings(tmp_path, [*alike, other, recording("storage-01", "storage", uname="5\n")])
    status, output = ran(tmp_path, "--peers")
    assert (status, output.splitlines()[0]) == (1, "gpu-04 against gpu-01: uname")
    assert output.endswith("3 compared, gpu-04 differ\n")
    (tmp_path / "gpu-04.json").unlink()
    assert ran(tmp_path, "--peers") == (0, "2 compared, no difference\n")


def test_two_files_are_two_nodes(tmp_path: Path) -> None:
    write_recordings(tmp_path, [recording("gpu-01", t="gpu-01 a\n"), recording("gpu-02", t="gpu-02 b\n")])
    status, output = ran(tmp_path / "gpu-01.json", tmp_path / "gpu-02.json")
    assert (status, output.splitlines()[-3:-1]) == (1, ["  -‹this node› a", "  +‹this node› b"])
    assert ran(tmp_path / "gpu-01.json", tmp_path / "gpu-01.json", "--all")[0] == 0


def test_recordings_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    assert ran(tmp_path)[0] == 2  # click's own; the command turns it into 3
    result = CliRunner().invoke(diff, [str(tmp_path), str(tmp_path)])
    assert "the folder has no recordings" in str(result.exception)


def test_the_mark_is_one_word() -> None:
    assert VARIES.split() == [VARIES]
