"""Cached commands of the last run: stored, used, and never trusted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rackproof.core.rack import Node
from rackproof.remote import command_cache
from rackproof.remote.collect import Question, RecordingReader, gather
from rackproof.remote.command import CommandResult
from tests.unit.test_recording_collect import Shell, Shells, Unreachable

NODES = [Node(f"gpu-{k:02d}", ("gpu",)) for k in range(1, 5)]


def check_a() -> None: ...


def check_b() -> None: ...


def test_nodes_of_a_kind_share_a_list_with_placeholders_for_their_own_values(separate_cache: Path) -> None:
    first = command_cache.load("a" * 64)
    assert (first.commands(NODES[0]), first.note) == ((), "")
    used = {node.name: ["uname -r", f"ls /sys/{node.name}", "id"] for node in NODES[:3]}
    first.remember(NODES, used)
    first.save()
    assert first.note == ""

    again = command_cache.load("a" * 64)
    assert again.commands(NODES[0]) == ("uname -r", "id", "ls /sys/gpu-01")
    assert again.commands(NODES[3]) == ("uname -r", "id")  # was not asked yet
    assert again.commands(Node("storage-01", ("storage",))) == ()
    assert command_cache.load("b" * 64).commands(NODES[0]) == ()

    again.remember(NODES, {"gpu-04": ["uname -r"]})
    assert again.commands(NODES[0]) == ("uname -r", "ls /sys/gpu-01")
    assert again.commands(NODES[3]) == ("uname -r",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": "rackproof.commands/v2", "kinds": {"gpu": ["id"]}, "nodes": {}, "breaks": {}}',
        '{"schema": "rackproof.commands/v1", "kinds": {"gpu": "id"}, "nodes": {}, "breaks": {}}',
        '{"schema": "rackproof.commands/v1", "kinds": {"gpu": [1]}, "nodes": {}, "breaks": {}}',
        '{"schema": "rackproof.commands/v1", "kinds": {"gpu": ["a\\u0000b"]}, "nodes": {}, "breaks": {}}',
        '{"schema": "rackproof.commands/v1", "kinds": [], "nodes": {}, "breaks": {}}',
        "[" * 100_000,
        "\udcff",
    ],
)
def test_a_damaged_list_is_ignored_with_a_note(text: str) -> None:
    kept = command_cache.load("c" * 64)
    kept.path.parent.mkdir(parents=True, exist_ok=True)
    kept.path.write_bytes(text.encode("utf-8", "surrogateescape"))
    cached = command_cache.load("c" * 64)
    assert cached.commands(NODES[0]) == ()
    assert "damaged" in cached.note
    assert "\n" not in cached.note
    cached.remember(NODES, {"gpu-01": ["id"]})
    cached.save()
    assert command_cache.load("c" * 64).commands(NODES[0]) == ("id",)


def test_a_list_that_others_may_write_to_is_not_run_on_nodes() -> None:
    kept = command_cache.load("d" * 64)
    kept.remember(NODES, {"gpu-01": ["id"]})
    kept.save()
    assert kept.path.stat().st_mode & 0o077 == 0
    kept.path.chmod(0o666)
    cached = command_cache.load("d" * 64)
    assert cached.commands(NODES[0]) == ()
    assert cached.note.endswith("not used, others may write to it")


def test_a_cache_that_cannot_be_written_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cached = command_cache.load("e" * 64)
    cached.remember(NODES, {"gpu-01": ["id"]})
    cached.save()
    assert "cannot be written" in cached.note


def test_old_lists_are_deleted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(command_cache, "KEPT", 2)
    for age, name in enumerate("xyz"):
        cached = command_cache.load(name * 64)
        cached.save()
        if cached.path.exists():
            os.utime(cached.path, (1000 + age, 1000 + age))
    assert sorted(path.name[0] for path in command_cache.folder().iterdir()) == ["y", "z"]


def test_questions_texts_and_architecture_select_the_list() -> None:
    one = command_cache.subject_of([("a", check_a)], "arch")
    assert one == command_cache.subject_of([("a", check_a)], "arch")
    assert (
        len(
            {
                one,
                command_cache.subject_of([("b", check_b)], "arch"),
                command_cache.subject_of([("a", check_a)], "other"),
            }
        )
        == 3
    )


# Gathering with what is remembered


def fleet_of(*names: str) -> tuple[Shells, dict[str, RecordingReader]]:
    shells = Shells(*(Shell(name) for name in names))
    return shells, {name: RecordingReader(name, shells[name], timeout_s=60) for name in names}


def asking(reader: RecordingReader, commands: Sequence[str], tried: list[str]) -> list[Question]:
    def question(command: str) -> Callable[[], None]:
        def ask() -> None:
            tried.append(reader.node)
            reader.read(command)

        return ask

    return [question(command) for command in commands]


CHAIN = ["echo 1", "echo 2", "echo 3"]


def test_one_node_tries_for_all_of_its_kind() -> None:
    shells, readers = fleet_of("gpu-01", "gpu-02", "gpu-03")
    tried: list[str] = []
    questions = {name: asking(reader, CHAIN, tried) for name, reader in readers.items()}
    gathering = gather(shells, readers, questions, kinds=dict.fromkeys(readers, "gpu"))  # type: ignore[arg-type]
    assert gathering.trips == 1
    assert set(tried) == {"gpu-01"}
    for name, reader in readers.items():
        assert [reader.read(command).text for command in CHAIN] == ["1\n", "2\n", "3\n"]
        assert (reader.misses, shells[name].commands) == (0, ["sh -s"])


def test_cached_commands_are_run_at_once_without_a_trial() -> None:
    shells, readers = fleet_of("gpu-01", "gpu-02")
    tried: list[str] = []
    questions = {name: asking(reader, CHAIN, tried) for name, reader in readers.items()}
    remembered = dict.fromkeys(readers, ("echo 0", *CHAIN))  # one too many
    assert gather(shells, readers, questions, remembered=remembered).trips == 1  # type: ignore[arg-type]
    assert tried == []
    for reader in readers.values():
        assert [reader.read(command).text for command in CHAIN] == ["1\n", "2\n", "3\n"]
        assert reader.misses == 0
        assert list(reader.used) == CHAIN  # what was asked in vain is no evidence


def test_a_list_that_lacks_everything_costs_trips_and_no_answer() -> None:
    shells, readers = fleet_of("gpu-01", "gpu-02", "gpu-03")
    tried: list[str] = []
    questions = {name: asking(reader, CHAIN, tried) for name, reader in readers.items()}
    gathering = gather(shells, readers, questions, remembered=dict.fromkeys(readers, ("id",)))  # type: ignore[arg-type]
    for reader in readers.values():
        assert [reader.read(command).text for command in CHAIN] == ["1\n", "2\n", "3\n"]
        assert reader.misses == 3  # in one trip, and counted
    assert gathering.trips == 3  # the list, the first node that missed something, all the others at once
    assert [shell.commands for shell in shells.connections.values()] == [["sh -s"] * 2] * 3


def test_where_the_first_of_a_kind_cannot_be_reached_the_next_one_tries() -> None:
    shells = Shells(Unreachable("gpu-01"), Shell("gpu-02"), Shell("gpu-03"))
    readers = {name: RecordingReader(name, shells[name], timeout_s=60) for name in shells.connections}

    def chain(reader: RecordingReader) -> Callable[[], None]:
        return lambda: reader.read(reader.read("echo echo deep").text.strip()) and None

    questions: dict[str, list[Question]] = {name: [chain(reader)] for name, reader in readers.items()}
    assert gather(shells, readers, questions, kinds=dict.fromkeys(readers, "gpu")).trips == 2  # type: ignore[arg-type]
    for name in ("gpu-02", "gpu-03"):
        assert readers[name].read("echo deep").text == "deep\n"
        assert readers[name].misses == 0
    assert readers["gpu-01"].read("echo deep").error == "no connection within 20 s"


def test_trips_in_which_something_hangs_do_not_cost_the_answers_of_the_next_ones() -> None:
    reader = RecordingReader("gpu-01", Shell("gpu-01"), timeout_s=60)
    hung = [CommandResult("gpu-01", f"df {k}", None, b"", b"", 5.1, 5.0, "not finished within 5 s") for k in range(9)]
    reader.add(hung)  # one trip
    assert reader.lost is None
    assert reader.read("echo still there").text == "still there\n"
    reader.add(hung[:1])
    reader.add(hung[:1])
    assert reader.lost is not None


def test_the_file_is_readable() -> None:
    kept = command_cache.load("f" * 64)
    kept.remember(NODES, {"gpu-01": ["printf '%s\\n' é"]})
    kept.save()
    assert json.loads(kept.path.read_text(encoding="utf-8"))["kinds"] == {"gpu": ["printf '%s\\n' é"]}
