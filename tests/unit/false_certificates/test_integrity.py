"""Checksummed files: one wrong byte is a number with file and offset, and nothing unproven is 0."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench import waiting
from rackproof.bench.relay import socket_of
from rackproof.bench.storage.client_runs import StorageClients
from rackproof.bench.storage.fio_launch import is_launch
from rackproof.core.architecture import Gate, WholeFile
from rackproof.core.evidence import Measurement
from rackproof.core.judging.gates import fault_of
from rackproof.evidence.store import read_records
from rackproof.parse import ParseError, fio
from rackproof.remote.command import CommandResult
from tests.unit.benchmarked import Bench, commands, of_storage
from tests.unit.fakes import Answer as Replies
from tests.unit.fakes import hanging, reply
from tests.unit.storage_nodes import JOB, Document, StorageNodes

pytestmark = pytest.mark.few(9)

CLIENTS = ("gpu-01", "gpu-02", "gpu-03")
FILE = WholeFile(block_bytes=1048576, iodepth=4, file_bytes=33554432)
EIO, EILSEQ = 5, 84


BENCH = of_storage(3, integrity=FILE)
NFS = BENCH.architecture
Change = Callable[[CommandResult], CommandResult]


def changed(end: str, change: Change) -> Replies:
    """Nodes whose answer to one of the runs is another."""
    nodes = StorageNodes(NFS)

    def answer(node: str, command: str) -> CommandResult | None:
        result = nodes.answer(node, command)
        return change(result) if result is not None and f"-integrity-{end}]" in command else result

    return answer


def damaged(reader: str, place: str | None, error: int = EILSEQ, rc: int = 1, beside: str = "") -> Change:
    """As fio 3.33 and 3.39 print it for a flipped byte; ``place``: file and offset. Reads of ``beside`` fail."""

    def fail(clients: list[Document]) -> None:
        for entry in clients:
            if entry["hostname"] == socket_of(reader):
                entry["error"] = error
            elif beside and entry["hostname"] == socket_of(beside):
                entry["error"] = EIO

    words = (
        f"<{reader}> crc32c: verify failed at file {place}, length 4096 (requested block: offset=2097152,"
        f" length=1048576, flags=8)\n<{reader}>        Expected CRC: 1010406e\n"
    )
    return edited(fail, words if place else "", rc)


def measure(folder: Path, answer: Replies, bench: Bench = BENCH) -> dict[str, Measurement]:
    every = bench.measure(folder, answer)
    assert bench.faults(folder) == {}
    return {m.subject: m for m in every if m.metric == "storage.damaged_places"}


def test_every_client_reads_its_own_file_and_that_of_another(tmp_path: Path) -> None:
    measured = measure(tmp_path, StorageNodes(NFS).answer)
    assert {subject: m.samples for subject, m in measured.items()} == dict.fromkeys((*CLIENTS, "rack"), (0.0,))
    own, other = (next(c for c in commands(tmp_path) if f"-integrity-{end}]" in c) for end in ("own", "other"))
    for node, neighbour in zip(CLIENTS, (*CLIENTS[1:], CLIENTS[0]), strict=True):
        for command, owner in ((own, node), (other, neighbour)):
            job = command.partition(f'> "$d/{node}.fio"')[0].rpartition("[nfs-tcp-")[2]
            assert f"directory=/mnt/nfs-tcp/rackproof-bench/{owner}\n" in job
            assert "verify=crc32c\n" in job
            assert "verify_fatal=1\n" in job
    assert measured["rack"].conditions["read_back_by"].startswith("the writer and another client")
    assert measured["rack"].companions["dataset_bytes"] == (6 * FILE.file_bytes,)


@pytest.mark.parametrize("end", ["own", "other"])
def test_files_that_are_read_back_from_memory_are_invalid_with_their_share(tmp_path: Path, end: str) -> None:
    """The counters prove the bytes of every read, where checksums alone would pass."""

    class FromMemory(StorageNodes):
        def answer(self, node: str, command: str) -> CommandResult | None:
            self.counted = 0.25 if f"-integrity-{end}]" in command else 1.0
            return super().answer(node, command)

    measured = measure(tmp_path, FromMemory(NFS).answer)
    assert [(m.samples, m.invalid) for m in measured.values()] == [((), True)] * 4
    why = "75 % of 33.6 MB that it read came from the client's memory: the mount counted 8.39 MB"
    assert why in (measured["rack"].reason or "")


def test_the_bytes_of_every_read_are_recorded_with_their_counters(tmp_path: Path) -> None:
    rack = measure(tmp_path, StorageNodes(NFS).answer)["rack"]
    assert rack.companions["application_bytes"] == rack.companions["counter_bytes"] == (6 * FILE.file_bytes,)
    assert rack.conditions["server_memory"].startswith("none: ")
    assert fault_of([Gate.SERVER_DRIVES], rack.companions, 1) is None
    assert rack.companions["clients_read_bytes"] == (6 * FILE.file_bytes,)


def test_files_that_the_servers_memory_gave_back_say_nothing_of_their_drives(tmp_path: Path) -> None:
    rack = measure(tmp_path, StorageNodes(NFS, drives=0.5).answer)["rack"]
    assert rack.samples == (0.0,)
    fault = fault_of([Gate.SERVER_DRIVES], rack.companions, 1)
    assert "from the servers' drives, actual 50 %" in (fault or "")


def test_a_local_drive_is_read_by_its_own_node_only(tmp_path: Path) -> None:
    local = of_storage(3, integrity=FILE, storages=("local",))
    measured = measure(tmp_path, StorageNodes(local.architecture).answer, local)
    assert measured["rack"].samples == (0.0,)
    assert not any("-integrity-other]" in command for command in commands(tmp_path))


@pytest.mark.parametrize(("end", "reader", "owner"), [("own", "gpu-02", "gpu-02"), ("other", "gpu-01", "gpu-02")])
def test_a_flipped_byte_is_counted_with_its_file_and_offset(tmp_path: Path, end: str, reader: str, owner: str) -> None:
    place = f"/mnt/nfs-tcp/rackproof-bench/{owner}/rackproof.0 offset 2998272"
    measured = measure(tmp_path, changed(end, damaged(reader, place)))
    assert measured[reader].samples == measured["rack"].samples == (1.0,)
    named = [f"{place.replace(' offset', ', offset')}, written by {owner}, read by {reader}"]
    assert measured[reader].conditions["damage"] == measured["rack"].conditions["damage"] == named
    assert all(measured[node].samples == (0.0,) for node in CLIENTS if node != reader)


@pytest.mark.parametrize(("end", "owner"), [("own", "gpu-02"), ("other", "gpu-03")])
def test_a_flipped_byte_counts_where_another_client_fails(tmp_path: Path, end: str, owner: str) -> None:
    place = f"/mnt/nfs-tcp/rackproof-bench/{owner}/rackproof.0 offset 2998272"
    measured = measure(tmp_path, changed(end, damaged("gpu-02", place, beside="gpu-01")))
    assert measured["gpu-02"].samples == measured["rack"].samples == (1.0,)
    assert f"rackproof-bench/{owner}/rackproof.0, offset 2998272" in str(measured["rack"].conditions["damage"])
    assert "gpu-01: fio error 5" in (measured["gpu-01"].reason or "")
    assert not measured["gpu-03"].samples


def test_a_client_that_fails_beside_sound_reads_leaves_no_number(tmp_path: Path) -> None:
    def fail(clients: list[Document]) -> None:
        clients[0]["error"] = EIO

    measured = measure(tmp_path, changed("own", edited(fail, rc=1)))
    assert not any(m.samples for m in measured.values())


def test_what_the_writer_finds_itself_is_not_the_other_readers_damage(tmp_path: Path) -> None:
    place = "/mnt/nfs-tcp/rackproof-bench/gpu-02/rackproof.0 offset 2998272"
    own = changed("own", damaged("gpu-02", place))
    other = damaged("gpu-01", place)

    def answer(node: str, command: str) -> CommandResult | None:
        result = own(node, command)
        return other(result) if result is not None and "-integrity-other]" in command else result

    measured = measure(tmp_path, answer)
    assert measured["gpu-02"].samples == measured["rack"].samples == (1.0,)
    assert measured["gpu-03"].samples == (0.0,)
    assert not measured["gpu-01"].samples  # its read of the file was cut off
    assert "the file's writer finds damaged too" in (measured["gpu-01"].reason or "")


ONE_WAY = pytest.mark.parametrize(
    ("place", "error", "rc"),
    [
        (None, EILSEQ, 1),  # fio names no place
        ("/mnt/nfs-tcp/rackproof-bench/{}/rackproof.0 offset 0", 0, 0),  # fio 3.33 without verify_fatal
    ],
)


@ONE_WAY
def test_damage_that_fio_tells_in_one_way_only_is_counted(
    tmp_path: Path, place: str | None, error: int, rc: int
) -> None:
    measured = measure(tmp_path, changed("own", damaged("gpu-02", place and place.format("gpu-02"), error, rc)))
    assert measured["gpu-02"].samples == (1.0,)


@ONE_WAY
def test_damage_that_a_single_client_tells_in_one_way_only_is_counted(
    tmp_path: Path, place: str | None, error: int, rc: int
) -> None:
    """Its fio runs without a server and names places on standard error."""

    def change(result: CommandResult) -> CommandResult:
        document: Document = json.loads(result.stdout)
        document["jobs"][0]["error"] = error
        words = "crc32c: verify failed at file {}, length 4096 (requested block: offset=0, length=1048576, flags=8)\n"
        where = "" if place is None else words.format(place.format("gpu-01"))
        return reply(result.node, result.command, json.dumps(document), rc, where)

    measured = measure(tmp_path, changed("own", change), of_storage(1, integrity=FILE))
    assert measured["gpu-01"].samples == (1.0,)
    assert place is None or "rackproof.0, offset 0" in str(measured["gpu-01"].conditions)


def test_a_single_client_reads_its_own_file_without_damage(tmp_path: Path) -> None:
    measured = measure(tmp_path, StorageNodes(NFS).answer, of_storage(1, integrity=FILE))
    assert measured["gpu-01"].samples == (0.0,)


def crashed(result: CommandResult) -> CommandResult:
    return reply(result.node, result.command, result.stdout.decode(), 139, "Segmentation fault")


def edited(change: Callable[[list[Document]], object], before: str = "", rc: int = 0) -> Change:
    """fio's document with other clients; ``before``: what fio prints before it."""

    def change_result(result: CommandResult) -> CommandResult:
        document: Document = json.loads(result.stdout)
        change(document["client_stats"])
        return reply(result.node, result.command, before + json.dumps(document), rc)

    change_result.__name__ = change.__name__
    return change_result


def half(clients: list[Document]) -> None:
    for way in ("read", "write"):
        for key in ("io_bytes", "total_ios", "bw_bytes", "iops"):
            clients[1][way][key] //= 2


def unverified(clients: list[Document]) -> None:
    for entry in clients:
        entry["job options"].pop("verify")


def full(clients: list[Document]) -> None:
    clients[0]["error"] = 28


def vanished(clients: list[Document]) -> None:
    del clients[2]


NO_SPACE = "<gpu-01> fio: io_u error on file /mnt/nfs-tcp/x/rackproof.0: No space left on device: write\n"


def absent(result: CommandResult) -> CommandResult:
    return reply(result.node, result.command, rc=127, err="sh: 1: fio: not found")


@pytest.mark.parametrize(
    ("end", "change", "why"),
    [
        ("own", crashed, "exit status 139"),
        ("other", crashed, "exit status 139"),
        ("write", edited(half), "expected 33554432 B of gpu-02's files, actual 16777216 B"),
        ("own", edited(half), "expected 33554432 B of gpu-02's files, actual 16777216 B"),
        ("write", edited(full, NO_SPACE, 1), "No space left on device"),
        ("write", edited(unverified), "expected verify=crc32c, actual not set"),
        ("other", edited(unverified), "expected verify=crc32c, actual not set"),
        ("own", edited(vanished), "gpu-03 missing"),
        ("write", absent, "fio is not installed"),
        ("other", hanging, "no answer within"),
    ],
)
def test_a_run_that_does_not_end_well_is_no_number(tmp_path: Path, end: str, change: Change, why: str) -> None:
    rack = measure(tmp_path, changed(end, change))["rack"]
    assert not rack.samples
    assert why in (rack.reason or "")


def test_a_read_that_never_ran_is_no_number(tmp_path: Path) -> None:
    """A record without the run of another client."""
    measure(tmp_path, StorageNodes(NFS).answer)
    records = [r for r in read_records(tmp_path) if "-integrity-other]" not in str(r.body.get("command", ""))]
    why = BENCH.faults(tmp_path, records)
    assert len(why) == 4
    assert all("expected 3 runs, actual 2" in reason for reason in why.values())


def test_a_bind_mount_in_the_mounts_place_is_no_number(tmp_path: Path) -> None:
    nodes = StorageNodes(NFS, mountinfo_after=lambda text: text.replace(" / /mnt/nfs-tcp ", " /srv /mnt/nfs-tcp "))
    assert not any(m.samples for m in measure(tmp_path, nodes.answer).values())


def test_smaller_files_than_the_profiles_are_disproven(tmp_path: Path) -> None:
    measure(tmp_path, StorageNodes(NFS).answer)
    larger = of_storage(3, integrity=FILE.model_copy(update={"file_bytes": 67108864}))
    why = "file_bytes: the profile asks for 67108864, the run had 33554432"
    assert set(larger.faults(tmp_path).values()) == {why}


def starved_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose first attempt at each step counts for nothing."""
    monkeypatch.setattr(waiting, "PAUSE_S", 0.0)
    causes = iter([{step.id: "starved" for step in BENCH.steps()}, {}, {}])
    BENCH.measure(folder, StorageNodes(NFS).answer, starved=lambda: next(causes))


def runs_of(folder: Path) -> list[str]:
    """Which runs of fio were launched, in order."""
    ends = ("layout", "read", "write", "own", "other")
    return [next(end for end in ends if f"-{end}]" in c) for c in commands(folder) if is_launch(c)]


def test_files_with_checksums_are_written_again_for_the_next_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that is lost must not leave the blocks of an earlier test, which have good checksums."""
    starved_once(tmp_path, monkeypatch)
    assert runs_of(tmp_path).count("layout") == 2


def test_files_are_also_written_again_after_a_write_that_broke_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, broken = StorageClients.run, []

    def breaks_off(clients: StorageClients, *args: Any, **options: Any) -> list[str]:
        ready = run(clients, *args, **options)
        if not broken:
            broken.append(ready)
            raise ParseError("fio", "its answer broke off")
        return ready

    monkeypatch.setattr(StorageClients, "run", breaks_off)
    starved_once(tmp_path, monkeypatch)
    assert runs_of(tmp_path) == ["layout", "write", "layout", "write", "own", "other"]


def test_other_steps_do_not_read_files_with_checksums(tmp_path: Path) -> None:
    both = of_storage(3, integrity=FILE, jobs={"read": JOB})
    measure(tmp_path, StorageNodes(both.architecture).answer, both)
    assert runs_of(tmp_path) == ["layout", "read", "write", "own", "other"]


def test_places_are_read_from_every_form_of_fios_words() -> None:
    words = (
        "<vm> verify: bad header offset 5243136, wanted 5242880 at file /m/a b/rackproof.1 offset 5242880, length 4096"
        " (requested block: offset=5242880, length=1048576)\n"
        "crc32c: verify failed at file /m/rackproof.1 offset 3149824, length 4096 (requested block: offset=3145728,"
        " length=1048576, flags=8)\n"
        "crc32c: verify failed at file /m/rackproof.1 offset 3149824, length 4096 (requested block: offset=3145728,"
        " length=1048576, flags=8)\n"
    )
    assert fio.damages(words) == (fio.Damage("/m/a b/rackproof.1", 5242880), fio.Damage("/m/rackproof.1", 3149824))


@pytest.mark.parametrize("update", [{"file_bytes": 1048577}, {"block_bytes": 1000}])
def test_a_file_that_is_not_of_whole_blocks_is_refused(update: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="multiple"):
        WholeFile.model_validate(FILE.model_dump() | update)
