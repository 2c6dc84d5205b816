"""Storage runs that measured something else than they claim: none gives a number, each says why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.relay import socket_of
from rackproof.bench.storage import steps as storage
from rackproof.bench.storage.byte_counters import Counted, counted_bytes
from rackproof.bench.storage.commands import AFTER, BEFORE, DROP
from rackproof.bench.storage.conditions import conditions_of
from rackproof.bench.storage.runs import runs_of
from rackproof.core.architecture import FioJob, StorageProfile
from rackproof.core.evidence import Kind, Measurement
from rackproof.evidence.store import read_records
from rackproof.parse import FromMemory, ParseError
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench
from tests.unit.fakes import at_once, lab_rack, reply, virtual_rack
from tests.unit.false_certificates.edited import chained
from tests.unit.false_certificates.racks import World
from tests.unit.storage_nodes import JOB, Document, StorageNodes, recorded_run, with_long_runs

pytestmark = pytest.mark.few(20)

ARCHITECTURE = with_long_runs(virtual_rack())
BENCH = Bench(ARCHITECTURE, lab_rack(), "lab")
ALONE = Bench(ARCHITECTURE, lab_rack(1), "lab")
"""One client runs fio without its server."""
STEPS, ALONE_STEPS = ({step.id: step for step in bench.steps()} for bench in (BENCH, ALONE))
BENCHES = pytest.mark.parametrize("bench", [BENCH, ALONE], ids=["two clients", "one client"])


def measure(folder: Path, nodes: StorageNodes, *names: str, bench: Bench = BENCH) -> list[Measurement]:
    steps = STEPS if bench is BENCH else ALONE_STEPS
    return bench.measure(folder, nodes.answer, [steps[name] for name in names])


def commands(folder: Path) -> list[dict[str, Any]]:
    return [record.body for record in read_records(folder) if record.kind is Kind.COMMAND]


def wrote(command: str) -> bool:
    return "-layout]" in command


def reported(**options: str) -> Callable[[Document], None]:
    """fio reports other options than it was given."""

    def change(document: Document) -> None:
        for entry in document["client_stats"]:
            entry["job options"] |= options

    return change


def figures(way: str = "read", **values: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        for entry in document["client_stats"]:
            entry[way] |= values

    return change


def one_second(document: Document) -> None:
    """The same rates, from a run of one second."""
    for entry in document["client_stats"]:
        read = entry["read"]
        for key in ("io_bytes", "io_kbytes", "total_ios", "runtime"):
            read[key] //= 5
        read["iops"] = read["total_ios"]
        read["bw_bytes"] = read["io_bytes"]


def smaller_blocks(document: Document) -> None:
    for entry in document["client_stats"]:
        entry["read"]["total_ios"] *= 4
        entry["read"]["iops"] *= 4


def replaced(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new)


def one_connection(text: str) -> str:
    end = text.index("\n", text.index("xprt:"))
    return text[:end] + re.sub(r"\n\txprt:.*", "", text[end:])


SOMETHING_ELSE: list[tuple[str, dict[str, Any], str]] = [
    # what a client's fio or its mounts did instead, and the words of the reason
    ("a good document and exit status 1", {"rc": 1}, "exit status 1"),
    ("another block size", {"change": reported(bs="4096")}, "expected bs=1048576, actual 4096"),
    ("buffered", {"change": reported(direct="0")}, "expected direct=1, actual 0"),
    ("another depth", {"change": reported(iodepth="64")}, "expected iodepth=4, actual 64"),
    ("another engine", {"change": reported(ioengine="null")}, "expected ioengine=libaio, actual null"),
    ("another workload", {"change": reported(rw="randread")}, "expected rw=read, actual randread"),
    ("another size", {"change": reported(size="4096")}, "expected size=16777216, actual 4096"),
    ("another folder", {"change": reported(directory="/dev/shm")}, "actual /dev/shm"),
    ("a short runtime by its options", {"change": reported(runtime="1")}, "expected runtime=5, actual 1"),
    ("a run of one second", {"change": one_second}, "expected a run of 5 s, actual 1 s"),
    ("smaller requests than reported", {"change": smaller_blocks}, "expected blocks of 1048576 B, actual 262144 B"),
    ("a rate that its bytes do not give", {"change": figures(bw_bytes=900_000_000)}, "contradicts"),
    ("no options", {"change": lambda d: [e.pop("job options") for e in d["client_stats"]]}, "does not report the opt"),
    ("writes beside the reads", {"change": figures("write", io_bytes=4096, total_ios=1)}, "expected read only"),
    (
        "bytes that no server sent",
        {"counted": 0.5},
        "fio: 50 % of 300 MB that it read came from the client's memory: the mount counted 150 MB",
    ),
    ("files with holes", {"allocated": 0.4}, "expected 16777216 B written, actual 6710784 B allocated"),
    (
        "files that fio wrote itself",
        {"before": "<gpu-01> x: Laying out IO file (1 file / 32MiB)\n"},
        "a file was missing or too short when it began: <gpu-01> x: Laying out",
    ),
    (
        "a file that was not there, of several",  # fio 3.33 reads the others and ends with status 0
        {"before": "fio: file creation disallowed by allow_file_create=0\n"},
        "a file was missing or too short when it began: fio: file creation disallowed",
    ),
    (
        "a bind mount",
        {
            "mountinfo": replaced(
                "/ /mnt/nfs-tcp rw - nfs4 10.77.0.11:/srv/nfs", "/data /mnt/nfs-tcp rw - ext4 /dev/vda1"
            )
        },
        "before the run: /mnt/nfs-tcp: expected nfs4, actual ext4",
    ),
    (
        "a bind mount of the same type",
        {"mountinfo": replaced(" / /mnt/nfs-tcp", " /old /mnt/nfs-tcp")},
        "actual a bind mount of /old of 10.77.0.11:/srv/nfs",
    ),
    (
        "a mount on the benchmarks' folder",
        {"mountinfo": lambda text: f"{text}9 2 0:99 / /mnt/nfs-tcp/rackproof-bench rw - tmpfs ram rw\n"},
        "/mnt/nfs-tcp/rackproof-bench: expected a folder of the storage, actual a mount of ram (tmpfs)",
    ),
    (
        "a mount on a folder of a node",
        {"mountinfo_after": lambda text: f"{text}9 2 8:1 / /mnt/nfs-tcp/rackproof-bench/x rw - ext4 /dev/sda1 rw\n"},
        "after the run: /mnt/nfs-tcp/rackproof-bench/x: expected a folder of the storage, actual a mount of /dev/sda1",
    ),
    (
        "another export",
        {"mountinfo": replaced("10.77.0.11:/srv/nfs", "10.77.0.11:/srv/fast")},
        "source: expected 10.77.0.11:/srv/nfs, actual 10.77.0.11:/srv/fast",
    ),
    ("another server", {"mountinfo": replaced("10.77.0.11:/srv", "10.77.0.99:/srv")}, "actual 10.77.0.99:/srv/nfs"),
    ("no mount any longer", {"mountinfo": replaced(" /mnt/nfs-tcp rw", " /mnt/away rw")}, "actual not mounted"),
    ("a soft mount", {"mountinfo": replaced(",hard", ",soft")}, "hard: expected in force, actual soft"),
    (
        "another mount after the run",
        {"mountinfo_after": replaced("10.77.0.11:/srv/nfs", "10.77.0.11:/srv/fast")},
        "after the run: source: expected 10.77.0.11:/srv/nfs, actual 10.77.0.11:/srv/fast",
    ),
    ("another transport", {"mountstats": replaced("xprt:\ttcp", "xprt:\trdma")}, "expected tcp, actual rdma"),
    ("one connection", {"mountstats": one_connection}, "expected 4, actual 1"),
]


@BENCHES
@pytest.mark.parametrize(("fault", "reason"), [case[1:] for case in SOMETHING_ELSE], ids=[c[0] for c in SOMETHING_ELSE])
def test_what_measured_something_else_is_no_number(
    tmp_path: Path, fault: Mapping[str, Any], reason: str, bench: Bench
) -> None:
    measurements = measure(tmp_path, StorageNodes(ARCHITECTURE, **fault), "storage/nfs-tcp/read", bench=bench)
    assert measurements
    for measurement in measurements:
        assert measurement.samples == ()
        assert reason in (measurement.reason or "")


@pytest.mark.parametrize("point", ["/mnt/nfs-tcp/rackproof-benches", "/mnt/nfs-tcp/home", "/mnt/rackproof-bench"])
def test_a_mount_elsewhere_is_no_fault(tmp_path: Path, point: str) -> None:
    nodes = StorageNodes(ARCHITECTURE, mountinfo=lambda text: f"{text}9 2 0:99 / {point} rw - tmpfs ram rw\n")
    assert all(one.samples for one in measure(tmp_path, nodes, "storage/nfs-tcp/read"))


@pytest.mark.parametrize("name", ["local/write", "nfs-tcp/read", "nfs-rdma/randread", "cephfs/read"])
@BENCHES
def test_a_healthy_storage_is_measured_and_its_numbers_are_read_again(tmp_path: Path, name: str, bench: Bench) -> None:
    measurements = measure(tmp_path, StorageNodes(ARCHITECTURE), f"storage/{name}", bench=bench)
    assert measurements
    for measurement in measurements:
        assert measurement.samples
        assert measurement.reason is None
        assert measurement.companions["counter_bytes"] == measurement.companions["application_bytes"]
    assert bench.faults(tmp_path) == {}
    servers = any("--client=" in command["command"] for command in commands(tmp_path))
    assert servers is (bench is BENCH)


@pytest.mark.parametrize("name", ["storage/nfs-tcp/write", "container/nfs-tcp/read"])
def test_nothing_is_written_on_another_mount(tmp_path: Path, name: str) -> None:
    nodes = StorageNodes(ARCHITECTURE, mountinfo=replaced(" / /mnt/nfs-tcp", " /old /mnt/nfs-tcp"))
    assert all("a bind mount of /old" in (m.reason or "") for m in measure(tmp_path, nodes, name))
    assert not [c for c in commands(tmp_path) if "rm -f" in c["command"] or "fio --" in c["command"]]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("nfs-tcp/read", "42 % of 300 MB that it read came from the client's memory: the mount counted 174 MB"),
        ("local/read", "42 % of 300 MB that it read came from the client's memory: the device counted 174 MB"),
        ("cephfs/read", "42 % of 300 MB that it read came from the client's memory: the client counted 174 MB"),
        ("nfs-tcp/write", "42 % of 250 MB that it wrote stayed in the client's memory: the mount counted 145 MB"),
    ],
)
def test_what_memory_answered_is_invalid_with_its_share(tmp_path: Path, step: str, words: str) -> None:
    measurements = measure(tmp_path, StorageNodes(ARCHITECTURE, counted=0.58), f"storage/{step}")
    assert measurements
    for measurement in measurements:
        assert (measurement.samples, measurement.invalid) == ((), True)
        assert f"fio: {words}" in (measurement.reason or "")


def test_what_was_not_read_is_not_called_invalid(tmp_path: Path) -> None:
    for measurement in measure(tmp_path, StorageNodes(ARCHITECTURE, rc=1), "storage/nfs-tcp/read"):
        assert (measurement.samples, measurement.invalid) == ((), False)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (96, "4 % of 100 B that it read came from the client's memory: the mount counted 96 B"),
        (0, "100 % of 100 B that it read came from the client's memory: the mount counted 0 B"),
        (-1, "the mount counted 1 B less after the run than before"),
        (97, None),
        (1000, None),
    ],
)
def test_a_counter_that_has_less_than_fio_says_is_named(count: int, words: str | None) -> None:
    counted = Counted(count, {"the mount": count})
    if words is None:
        counted.check(100)
        return
    with pytest.raises(ParseError, match=re.escape(f"fio: {words}")) as raised:
        counted.check(100)
    assert isinstance(raised.value, FromMemory) is (count >= 0)


def test_a_cache_on_drives_is_named_beside_memory() -> None:
    nodes = StorageNodes(ARCHITECTURE, counted=0.5)
    (run,) = runs_of(recorded_run(nodes, "nfs-tcp", JOB, {"gpu-01": "10.77.0.21"}))
    cached = ARCHITECTURE.storage["nfs-tcp"].model_copy(update={"local_cache": "fscache"})
    states = run.state("gpu-01", BEFORE), run.state("gpu-01", AFTER)
    with pytest.raises(
        FromMemory, match="50 % of 300 MB that it read came from the client's memory or its cache on dr"
    ):
        counted_bytes(cached, *states, writes=False).check(300 * 10**6)


def test_files_are_written_completely_once_before_caches_are_dropped(tmp_path: Path) -> None:
    names = [f"storage/nfs-tcp/{rw}" for rw in ("write", "read", "randread")]
    assert all(m.samples for m in measure(tmp_path, StorageNodes(ARCHITECTURE), *names))
    asked = [command["command"] for command in commands(tmp_path)]
    (layout,) = [number for number, command in enumerate(asked) if wrote(command)]
    assert layout < min(number for number, command in enumerate(asked) if "drop_caches" in command)
    options = "rw=write iodepth=4 fallocate=none refill_buffers=1 randrepeat=0 end_fsync=1 size=16777216"
    assert [option for option in options.split() if option not in asked[layout]] == []
    assert "time_based" not in asked[layout]
    folder = "set -- /mnt/nfs-tcp/rackproof-bench/gpu-01\n"
    assert any(folder in command and '-name "$stem.*" -delete' in command for command in asked[:layout])
    measured = [command for command in asked if "fio --eta" in command and not wrote(command)]
    assert len(measured) == 3
    assert all("fallocate=none" in command for command in measured)
    assert BENCH.faults(tmp_path) == {}


def test_a_profile_that_only_reads_writes_its_files_first(tmp_path: Path) -> None:
    job = FioJob(rw="read", block_bytes=1048576, file_bytes=3_000_000, numjobs=3, runtime_s=5)
    small = FioJob(rw="randread", block_bytes=4096, file_bytes=8192, numjobs=8, runtime_s=5)
    profile = StorageProfile(jobs={"read": job, "randread": small}, storages=("nfs-tcp",))
    planned = storage.plan(ARCHITECTURE, profile, lab_rack())
    assert all(m.samples for m in BENCH.measure(tmp_path, StorageNodes(ARCHITECTURE).answer, planned))
    (layout,) = [c for c in commands(tmp_path) if wrote(c["command"])]
    assert "size=3145728" in layout["command"]  # whole blocks
    assert "numjobs=8" in layout["command"]


@pytest.mark.parametrize(("rate", "layouts", "measured"), [(2e6, 1, True), (0.5e6, 2, True), (1e3, 1, False)])
def test_slow_storage_gets_the_time_it_needs_or_no_number(
    tmp_path: Path, rate: float, layouts: int, measured: bool
) -> None:
    nodes = StorageNodes(ARCHITECTURE, {"write": rate, "read": 60e6})
    measurements = measure(tmp_path, nodes, "storage/nfs-tcp/read")
    written = [c for c in commands(tmp_path) if wrote(c["command"])]
    assert len(written) == layouts
    assert "runtime=30" in written[0]["command"]
    assert all(bool(m.samples) is measured for m in measurements)
    if layouts == 2:
        assert "runtime=" not in written[1]["command"]
        assert written[1]["timeout_s"] == 1  # of the fake
    if not measured:
        assert all(
            "16.8 MB at 0 B/s" in (m.reason or "") and "limit of 120 min" in (m.reason or "") for m in measurements
        )


def test_files_that_were_not_written_in_this_run_are_not_measured(tmp_path: Path) -> None:
    """The document of the run that wrote them is taken away: nothing proves that they have data."""
    measure(tmp_path, StorageNodes(ARCHITECTURE), "storage/nfs-tcp/write", "storage/nfs-tcp/read")
    bodies = [(r.kind, r.body) for r in read_records(tmp_path)]
    without = [(kind, body) for kind, body in bodies if not (kind is Kind.COMMAND and wrote(body["command"]))]
    faults = BENCH.faults(tmp_path, chained(without))
    assert len(faults) == sum(kind is Kind.MEASUREMENT for kind, _ in without)
    assert all("nothing wrote its files before" in fault for fault in faults.values())


def test_a_number_that_names_another_reader_is_invalid(tmp_path: Path) -> None:
    measure(tmp_path, StorageNodes(ARCHITECTURE), "storage/nfs-tcp/read")
    bodies = [
        (r.kind, r.body | ({"reader": "fio"} if r.kind is Kind.MEASUREMENT else {})) for r in read_records(tmp_path)
    ]
    faults = BENCH.faults(tmp_path, chained(bodies))
    assert set(faults.values()) == {"its reader is 'fio', expected fio-proven"}


def test_what_fio_says_of_a_client_is_its_reason(tmp_path: Path) -> None:
    words = "<gpu-02> fio: /mnt/nfs-tcp/rackproof-bench/gpu-02 is not a directory\n<gpu-02> fio: job x dropped\n"

    def without_second(document: Document) -> None:
        document["client_stats"] = [e for e in document["client_stats"] if e["hostname"] != socket_of("gpu-02")]

    nodes = StorageNodes(ARCHITECTURE, change=without_second, before=words)
    by_node = {m.members: m for m in measure(tmp_path, nodes, "storage/nfs-tcp/read")}
    expected = "gpu-02: fio: /mnt/nfs-tcp/rackproof-bench/gpu-02 is not a directory; job x dropped"
    assert by_node[("gpu-02",)].reason == expected
    assert by_node[("gpu-01",)].conditions["clients"] == 1  # measured again without the other
    assert by_node["gpu-01", "gpu-02"].reason == expected


def test_all_clients_refused_are_named_with_fios_words(tmp_path: Path) -> None:
    words = "<gpu-01> fio: /mnt/x is not a directory\n<gpu-02> fio: pid file is locked\n"
    nodes = StorageNodes(ARCHITECTURE, change=lambda d: d["client_stats"].clear(), before=words)
    by_node = {m.members: m.reason for m in measure(tmp_path, nodes, "storage/nfs-tcp/read")}
    assert by_node[("gpu-01",)] == "gpu-01: fio: /mnt/x is not a directory"
    assert by_node[("gpu-02",)] == "gpu-02: fio: pid file is locked"


def test_unknown_text_before_the_document_is_kept_and_shown(tmp_path: Path) -> None:
    nodes = StorageNodes(ARCHITECTURE, before="<gpu-01> fio: clock is unstable\nnew warning\n")
    (first, *_) = measure(tmp_path, nodes, "storage/nfs-tcp/read")
    assert first.conditions["fio_said"] == ["gpu-01: clock is unstable", "new warning"]
    assert BENCH.faults(tmp_path) == {}


@pytest.mark.parametrize(
    ("fault", "conditions"),
    [
        ({}, {"io": "O_DIRECT", "cache": "cold", "client_cache": "dropped before, empty at the start, bypassed"}),
        (
            {"cached_after": 30_000_000},
            {
                "io": "buffered",
                "client_cache": "dropped before, empty at the start, used although O_DIRECT was asked for",
            },
        ),
        (
            {"cached": 8_388_608},
            {
                "cache": "warm on clients",
                "io": "buffered",
                "client_cache": "dropped before, 50 % of the files cached at the start, used although O_DIRECT was "
                "asked for",
            },
        ),
        ({"cached": None}, {"cache": "unknown on clients", "io": "O_DIRECT"}),
    ],
)
def test_conditions_state_what_was_observed(tmp_path: Path, fault: Mapping[str, Any], conditions: Document) -> None:
    (first, *_) = measure(tmp_path, StorageNodes(ARCHITECTURE, **fault), "storage/nfs-tcp/read")
    assert {key: first.conditions[key] for key in conditions} == conditions
    assert first.conditions["mount"] == "10.77.0.11:/srv/nfs on /mnt/nfs-tcp, nfs4, tcp, 4 connections"


@pytest.mark.parametrize(("fstype", "known"), [("gpfs", False), ("fuse.daos", False), ("ceph", True)])
def test_a_file_system_with_a_cache_of_its_own_is_not_called_cold(fstype: str, known: bool) -> None:
    own = ARCHITECTURE.storage["cephfs"].model_copy(update={"fstype": fstype})
    other = ARCHITECTURE.model_copy(update={"storage": {**ARCHITECTURE.storage, "cephfs": own}})
    runs = runs_of(recorded_run(StorageNodes(other), "cephfs", JOB, {"gpu-01": "10.77.0.21"}))
    conditions = conditions_of(runs, ["gpu-01"], own, 1)
    assert ("cache of its own" in conditions["client_cache"]) is not known
    assert conditions["cache"] != "cold"


def test_a_server_that_did_not_drop_its_cache_is_not_called_cold(tmp_path: Path) -> None:
    nodes = StorageNodes(ARCHITECTURE)

    def answer(node: str, command: str) -> CommandResult | None:
        return reply(node, command, rc=1) if node == "storage-01" else nodes.answer(node, command)

    (first, *_) = BENCH.measure(tmp_path, answer, [STEPS["storage/nfs-tcp/read"]])
    assert first.conditions["cache"] == "cold on clients, unknown on servers"
    assert first.conditions["server_cache"] == "unknown"


def test_a_failed_client_does_not_cost_the_others_theirs(tmp_path: Path) -> None:
    """fio ends with status 1 when one client fails; the others are measured again without it."""

    def second_fails(document: Document) -> None:
        for entry in document["client_stats"]:
            entry["error"] = 5 if entry["hostname"] == socket_of("gpu-02") else 0
        nodes.rc = int(any(entry["error"] for entry in document["client_stats"]))

    nodes = StorageNodes(ARCHITECTURE, change=second_fails)
    made = {m.members: m for m in measure(tmp_path, nodes, "storage/nfs-tcp/read")}
    assert made[("gpu-01",)].samples
    assert made[("gpu-02",)].reason == "gpu-02: fio error 5"
    assert BENCH.faults(tmp_path) == {}


CONTAINER = "container/nfs-tcp/read"


def test_a_healthy_container_is_measured_on_files_written_before(tmp_path: Path) -> None:
    measurements = measure(tmp_path, StorageNodes(ARCHITECTURE), CONTAINER)
    assert all(m.samples for m in measurements)
    assert {m.samples for m in measurements if m.metric == "container.read_over_host"} == {(1.0,)}
    asked = [command["command"] for command in commands(tmp_path) if command["node"] == "gpu-01"]
    words = ("rackproof-layout", "state before", "rackproof-container", "state after", "fio")
    own = (command for command in asked if "fio --output" in command or ": storage-state" in command)
    kinds = [next(word for word in words if word in command) for command in own]
    by_run = [["state before", run, "state after"] for run in ("fio", "rackproof-container")]
    assert kinds == ["state after", "rackproof-layout", *by_run[0], *by_run[1]]
    dropped = [command["node"] for command in commands(tmp_path) if command["command"] == DROP]
    assert dropped == ["storage-01"] * 2, "the server's memory has what the node read before"
    assert {m.conditions["server_cache"] for m in measurements} == {"dropped before"}
    assert BENCH.faults(tmp_path) == {}
    # evidence of earlier versions: one state before and after both runs, and caches of clients only
    records, seen = [], Counter[str]()
    for record in read_records(tmp_path):
        body = record.body
        command = str(body.get("command", ""))
        if command == DROP:
            continue
        if ": storage-state" in command and body["node"].startswith("gpu"):
            seen[body["node"]] += 1
            if seen[body["node"]] in (3, 4):  # after the first run and before the second
                continue
        if record.kind is Kind.MEASUREMENT:
            body = body | {"conditions": {k: v for k, v in body["conditions"].items() if k != "server_cache"}}
        records.append((record.kind, body))
    assert BENCH.faults(tmp_path, chained(records)) == {}


def test_another_fio_in_the_container_is_named(tmp_path: Path) -> None:
    versions = ["fio-3.39"] * 2 + ["fio-3.28"] * 2  # two nodes, then their containers
    nodes = StorageNodes(ARCHITECTURE, change=lambda document: document.update({"fio version": versions.pop(0)}))
    made = measure(tmp_path, nodes, CONTAINER)
    assert {m.conditions["fio"] for m in made} == {"3.39 on the node, 3.28 in the container"}
    assert BENCH.faults(tmp_path) == {}


def test_all_clients_of_a_large_rack_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    purposes = at_once(monkeypatch)
    measure(tmp_path, StorageNodes(ARCHITECTURE), CONTAINER)
    assert [purpose.count("fio --output") for purpose in purposes] == [2] * 3, "the files, the node, the container"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"rc": 1}, "fio on the node: fio failed (exit status 1)"),
        ({"change": reported(bs="4096")}, "fio on the node: expected bs=1048576, actual 4096"),
        ({"change": reported(direct="0")}, "expected direct=1, actual 0"),
        ({"change": figures(runtime=1000)}, "expected a run of 3 s, actual 1 s"),
        ({"counted": 0.4}, "the mount counted"),
        ({"allocated": 0.4}, "B allocated"),
        ({"mountinfo": replaced("10.77.0.11:/srv/nfs", "10.77.0.11:/srv/fast")}, "actual 10.77.0.11:/srv/fast"),
        ({"mountstats": replaced("xprt:\ttcp", "xprt:\trdma")}, "expected tcp, actual rdma"),
        (
            {"mountinfo_after": replaced(" 0:47 ", " 0:77 ")},
            "changed during the run: device 0:47 before it, 0:77 after",
        ),
    ],
)
def test_a_container_that_measured_something_else_is_no_number(
    tmp_path: Path, fault: Mapping[str, Any], reason: str
) -> None:
    for measurement in measure(tmp_path, StorageNodes(ARCHITECTURE, **fault), CONTAINER):
        assert measurement.samples == ()
        assert reason in (measurement.reason or "")


@pytest.mark.parametrize(("rate", "layouts", "measured"), [(0.3e6, 2, True), (1e3, 1, False)])
def test_slow_storage_of_containers(tmp_path: Path, rate: float, layouts: int, measured: bool) -> None:
    nodes = StorageNodes(ARCHITECTURE, {"write": rate, "read": 60e6})
    assert all(bool(m.samples) is measured for m in measure(tmp_path, nodes, CONTAINER))
    written = [c for c in commands(tmp_path) if "name=rackproof-layout" in c["command"]]
    assert len(written) == 2 * layouts  # on each of two nodes


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"rc": 1}, "exit status 1"),
        ({"change": reported(bs="4096")}, "expected bs=1048576, actual 4096"),
        ({"mountinfo": replaced("10.0.0.9:/srv", "10.0.0.9:/fast")}, "actual 10.0.0.9:/fast"),
        ({"mountinfo": lambda text: f"{text}9 1 0:60 / /mnt rw - tmpfs tmpfs rw\n"}, "hidden by a later mount on /mnt"),
        ({"mountinfo_after": lambda text: f"9 1 0:60 / /mnt rw - tmpfs tmpfs rw\n{text}"}, "hidden by a later mount"),
        ({"mountstats": replaced("\tbytes:\t", "\tpages:\t")}, "/mnt/nfs has no count of bytes"),
        ({"change": lambda d: d["client_stats"].append(d["client_stats"][0])}, "it reports gpu-01 twice"),
        ({"allocated": 0.1}, "B allocated"),
    ],
)
def test_no_such_run_is_certified(world: World, fault: dict[str, Any], words: str) -> None:
    world.clients = fault
    result = world.certify()
    assert result.exit_code == 2
    assert world.certificate()["outcome"] == "INCOMPLETE"
    assert words in world.page()
    assert words in result.output
