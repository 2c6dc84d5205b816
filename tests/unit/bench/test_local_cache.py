"""A local cache of NFS beside the page cache: its hits are the kernel's, and never guessed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from rackproof.bench.ingest import steps as ingest
from rackproof.bench.ingest.caches import LOCAL_HITS, renewed
from rackproof.bench.ingest.reader import read_ingest
from rackproof.bench.ingest.runs import TOOL
from rackproof.bench.profile_match import profile_mismatch
from rackproof.bench.reading import Reading
from rackproof.bench.step import BenchContext
from rackproof.bench.storage.commands import DROP, state_of
from rackproof.bench.storage.program_runs import configs_of
from rackproof.bench.user import Account
from rackproof.core.architecture import Architecture, IngestJob, IngestProfile, Profile
from rackproof.core.architecture.consistency import problems
from rackproof.core.evidence import Measurement, Scope
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult
from tests.unit.bench import node_programs
from tests.unit.bench.test_ingest import JOB, NODES, POINT, SET, answers, place, profile
from tests.unit.fakes import lab_rack, reply, scripted, virtual_rack
from tests.unit.storage_nodes import StorageNodes

pytestmark = pytest.mark.few(5)

EPOCHS = IngestJob.model_validate({**JOB.model_dump(), "epochs": 2, "only_local_cache": True})
Counters = tuple[int, int, int]
"""Requests that the server answered, that the cache answered, and sectors read from its drive."""
FIRST, SECOND, THIRD = (100, 40, 0), (140, 40, 8), (150, 70, 408)


def cached_rack() -> Architecture:
    """The virtual rack with a local cache for NFS over TCP."""
    rack = virtual_rack()
    storage = rack.storage["nfs-tcp"].model_copy(update={"local_cache": "fscache"})
    return rack.model_copy(update={"storage": {**rack.storage, "nfs-tcp": storage}})


def stats(counters: Counters) -> str:
    loaded, read, sectors = counters
    return (
        f"-- fscache\nDownOps: DL={loaded} ds={loaded} df=0 di=0\nCaRdOps: RD={read} rs={read} rf=0\n"
        f"-- FS-Cache statistics --\nIO     : rd={read} wr=0\nstatus 0\n-- cachedrive\n1 0 {sectors} 0 1 0 0 0 0 0 0\n"
    )


def with_counters(every: list[CommandResult], text: str) -> list[CommandResult]:
    """States of clients with these sections."""
    return [
        CommandResult(a.node, a.command, 0, a.stdout.replace(b"-- files\n", f"{text}-- files\n".encode()))
        if state_of(a.command)
        else a
        for a in every
    ]


def epochs(
    texts: tuple[str, str, str] = (stats(FIRST), stats(SECOND), stats(THIRD)), given: int = 110_000,
    drop: tuple[str, ...] = NODES,
) -> list[CommandResult]:  # fmt: skip
    """Two epochs; of 440,100 B the storage gives ``given`` in the second. ``texts``: before, between and after."""
    nodes = StorageNodes(cached_rack())
    first, second = answers(nodes=nodes), answers(nodes=nodes, counted=given)
    return [
        *with_counters(first[:5], texts[0]), *with_counters(first[5:], texts[1]),
        *(reply(node, DROP) for node in drop), *with_counters(second[3:], texts[2]),
    ]  # fmt: skip


def reading(every: list[CommandResult], epoch: str = "2", metric: str = LOCAL_HITS) -> Reading:
    return read_ingest(every, cached_rack())(place(metric, ("gpu-01",), "epochs", epoch=epoch))


def test_each_epoch_has_its_hits() -> None:
    assert reading(epochs(), "1").samples == (0.0,)
    second = reading(epochs())
    assert second.samples == (75.0,)  # 30 of 40
    assert second.conditions["local_cache"] == "requests of the node: DL, RD and rf in /proc/fs/fscache/stats"
    assert second.conditions["cache"] == "page cache dropped, local cache as the epoch before left it"
    assert {name: second.companions[name] for name in second.companions if name.startswith("local")} == {
        "local_cache_asked": (40,), "local_cache_answered": (30,), "local_cache_drive_bytes": (400 * 512,),
    }  # fmt: skip


def test_the_page_cache_is_told_apart() -> None:
    """Nothing comes from the storage in the second epoch, and the local cache was hardly asked."""
    silent = stats((140, 49, 8))
    warm = epochs((stats(FIRST), stats(SECOND), silent), given=0, drop=())
    assert reading(warm, metric="ingest.cache_hits").samples == (100.0,)
    with pytest.raises(ParseError, match="asked for 9 reads, the page cache had the others"):
        reading(warm)


def test_hits_of_another_mount_are_none_of_this_one() -> None:
    """The node counts 75 % as answered; the storage gave all bytes, or four fifths."""
    assert reading(epochs(given=440_100)).samples == (0.0,)
    assert reading(epochs(given=352_080)).samples == pytest.approx((20.0,))


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ("", "the counters of the local cache were not read"),
        ("-- fscache\ncat: /proc/fs/fscache/stats: No such file or directory\nstatus 1\n",
         "does not count reads of a local cache: .*No such file"),
        ("-- fscache\nFS-Cache statistics\nIO     : rd=900 wr=0\nstatus 0\n", "expected one counter RD"),
        ("-- fscache\nFS-Cache statistics\nRetrvls: n=900 ok=900\nstatus 0\n", "otherwise than before"),
        (stats((150, 39, 8)), "ran backwards"), (stats((9, 70, 8)), "ran backwards"),
    ],
)  # fmt: skip
def test_missing_counters_are_no_number_and_cost_no_other(last: str, why: str) -> None:
    every = epochs((stats(FIRST), stats(SECOND), last))
    with pytest.raises(ParseError, match=why):
        reading(every)
    assert reading(every, metric="ingest.cache_hits").samples == pytest.approx((75.0,), abs=0.1)


def test_a_storage_without_one_has_none() -> None:
    with pytest.raises(ParseError, match="no local cache"):
        read_ingest(epochs(), virtual_rack())(place(LOCAL_HITS, ("gpu-01",), "epochs", epoch="2"))


def test_an_epoch_with_a_warm_page_cache_is_not_the_profiles() -> None:
    own = Profile(ingest=IngestProfile(datasets={"photos": SET}, jobs={"train": EPOCHS}))
    asked = place(LOCAL_HITS, ("gpu-01",), "epochs", epoch="2")
    cause = "only_local_cache: the profile asks for True, the run had None"
    job = {**reading(epochs()).conditions["job"], "batch": 4, "crop": 32, "seconds": 0, "warmup_s": 0,
           "step_s": EPOCHS.step_s, "slots": 2, "arrivals": 0.0, "accelerators": 2, "workers": 2}  # fmt: skip
    assert profile_mismatch(asked, Reading((1.0,), (), {"job": job}), own) is None
    for drop in ((), ("gpu-01",)):
        told = reading(epochs(drop=drop)).conditions["job"]
        assert "only_local_cache" not in told
    del job["only_local_cache"]
    assert profile_mismatch(asked, Reading((1.0,), (), {"job": job}), own) == cause


class TestPlan:
    def test_its_hits_are_measured_where_there_is_one(self) -> None:
        def hits(rack: Architecture) -> set[tuple[Scope, str]]:
            (step,) = ingest.plan(rack, profile(train=EPOCHS), lab_rack(2))
            return {(one.scope, one.labels["epoch"]) for one in step.expects if one.metric == LOCAL_HITS}

        assert hits(cached_rack()) == {(Scope.NODE, "1"), (Scope.NODE, "2")}
        assert hits(virtual_rack()) == set()

    def test_one_epoch_cannot_show_it(self) -> None:
        with pytest.raises(ValueError, match="only_local_cache is about the second epoch"):
            IngestJob.model_validate({**EPOCHS.model_dump(), "epochs": 1})

    def test_a_storage_without_one_is_refused(self) -> None:
        def faults(rack: Architecture) -> list[str]:
            own = {"ingest": Profile(ingest=profile(train=EPOCHS))}
            every = problems(rack.model_copy(update={"profiles": {**rack.profiles, **own}}))
            return [problem.message for problem in every if problem.path[-1] == "only_local_cache"]

        assert (faults(cached_rack()), faults(virtual_rack())) == ([], ["nfs-tcp has no local_cache"])


def test_a_cold_epoch_reads_every_own_file_from_the_server_again(tmp_path: Path) -> None:
    command = renewed([str(tmp_path), "/x y"], Account(65534, 65534))
    assert command.startswith(Account(65534, 65534).prefix)
    assert "find " in command
    assert "'/x y' -type f -name 'rackproof.*' -exec chmod a+r {} +" in command


def test_two_epochs_from_the_files_to_their_hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node, whose programs really run here; the local cache has everything in the second epoch."""
    nodes, mount, home, order = StorageNodes(cached_rack()), tmp_path / "mount", tmp_path / "home", list[str]()
    counts = {"loaded": 0, "read": 0}
    mount.mkdir()
    home.mkdir()

    def answer(node: str, command: str) -> CommandResult | None:
        if "-exec chmod a+r" in command or command == DROP:
            order.append("renewed" if command != DROP else f"dropped on {node}")
            return reply(node, command)
        result = node_programs.answer(node, command, POINT, mount, home)
        if result is None:
            state = nodes.answer(node, command)
            return with_counters([state], stats((counts["loaded"], counts["read"], 0)))[0] if state else None
        if configs_of(command, TOOL):
            first = order[-1] != "dropped on gpu-01"
            order.append(f"epoch {1 if first else 2}")
            counts["loaded" if first else "read"] += 40
            for own in map(json.loads, result.stdout.decode().splitlines()):
                read = int(own["pipeline"]["bytes"]) + own["dataset"]["index_bytes"] if "error" not in own else 0
                nodes.moved.setdefault((node, POINT), [0, 0])[0] += read if first else 0
        return result

    with scripted(tmp_path / "run", answer, lab_rack(1), cached_rack()) as session:
        (step,) = ingest.plan(cached_rack(), profile(train=EPOCHS), lab_rack(1))

        def run() -> Iterable[Measurement]:
            order.clear()
            return step.execute(BenchContext(session, lambda line: None))

        measured = {m.labels["epoch"]: m for m in node_programs.punctual(monkeypatch, run) if m.metric == LOCAL_HITS}
    assert order == ["renewed", "dropped on storage-01", "epoch 1", "dropped on gpu-01", "epoch 2"]
    assert [(one.samples, one.reason) for one in measured.values()] == [((0.0,), None), ((100.0,), None)]
