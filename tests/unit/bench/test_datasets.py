"""Data sets: pictures like photographs, formats that others read, and no damage that goes unseen."""

from __future__ import annotations

import importlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rackproof.bench.ingest import photographs_node as photographs
from rackproof.bench.ingest import records_node as records
from rackproof.bench.ingest.datasets import (
    DataSets,
    answer_of,
    command,
    folder_of,
    is_of_content,
    made_of,
    spec_of,
    writing,
)
from rackproof.bench.step import BenchContext
from rackproof.bench.user import Account
from rackproof.core.architecture import DataSet
from rackproof.errors import DataSetError
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult
from tests.unit.bench import node_programs
from tests.unit.fakes import scripted, virtual_rack
from tests.unit.refusals import refuses
from tests.unit.storage_nodes import StorageNodes

pytestmark = pytest.mark.few(15)

PROGRAMS = sorted(node_programs.BENCH.glob("*_node.py"))
SPEC: dict[str, Any] = {
    "format": "tfrecord", "samples": 10, "copies": 2, "per_shard": 4, "mean_bytes": 3000, "large": False, "seed": 7,
}  # fmt: skip


@pytest.fixture(scope="module")
def pictures() -> list[Any]:
    """Luma of four pictures."""
    return [
        np.asarray(photographs.photograph(np.random.default_rng(seed), 256, 256).split()[0], float) for seed in range(4)
    ]


class TestPhotographs:
    def test_the_spectrum_falls_like_that_of_scenes(self, pictures: list[Any]) -> None:
        """Power over frequency has a slope near -2; white noise has 0. Source: Field 1987, amplitudes of 1/f."""
        power = sum(np.abs(np.fft.fft2(picture - picture.mean())) ** 2 for picture in pictures)
        f = np.hypot(np.fft.fftfreq(256)[:, None], np.fft.fftfreq(256)[None, :])
        rings = [(0.02 * 1.3**k, 0.02 * 1.3 ** (k + 1)) for k in range(9)]
        means = [power[(low <= f) & (f < high)].mean() for low, high in rings]
        slope = np.polyfit(np.log([low for low, _ in rings]), np.log(means), 1)[0]
        assert -3.2 < slope < -1.5

    def test_neighbours_are_mostly_alike_with_sharp_edges_between(self, pictures: list[Any]) -> None:
        """Differences of neighbours have heavy tails; those of white noise have a kurtosis of 3."""
        steps = np.concatenate([np.diff(picture, axis=1).ravel() for picture in pictures])
        assert ((steps - steps.mean()) ** 4).mean() / steps.var() ** 2 > 6

    def test_jpegs_have_the_requested_mean_size_and_scatter(self) -> None:
        spec = {**SPEC, "samples": 24, "per_shard": 24, "mean_bytes": 12000}
        camera = photographs.Camera(spec, 0)
        jpegs = [camera.jpeg(number)[0] for number in range(24)]
        sizes = np.array([len(jpeg) for jpeg in jpegs])
        assert sizes.mean() == pytest.approx(12000, rel=0.08)
        assert 0.15 < sizes.std() / sizes.mean() < 0.9
        picture = Image.open(io.BytesIO(jpegs[0]))
        assert picture.mode == "RGB"
        noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (picture.height, picture.width, 3), np.uint8))
        out = io.BytesIO()
        noise.save(out, "JPEG", quality=96, subsampling=2)
        assert len(jpegs[0]) < 0.7 * len(out.getvalue())

    def test_large_pictures_have_three_times_the_sides_and_all_of_their_chroma(self) -> None:
        jpeg, (width, height) = photographs.Camera({**SPEC, "large": True, "mean_bytes": 40000}, 0).jpeg(0)
        picture = Image.open(io.BytesIO(jpeg))
        assert picture.size == (width, height)
        assert width % 3 == height % 3 == 0
        assert {component[1:3] for component in picture.layer} == {(1, 1)}  # type: ignore[attr-defined]


class TestRecords:
    @pytest.mark.parametrize(
        ("data", "crc"), [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (b"", 0)]
    )
    def test_checksums_are_those_of_the_standard(self, data: bytes, crc: int) -> None:
        """Vectors of RFC 3720, B.4."""
        assert records.crc32c(data) == crc

    @given(st.binary(max_size=1100))
    def test_lanes_give_what_a_loop_gives(self, data: bytes) -> None:
        register = 0xFFFFFFFF
        for byte in data:
            register ^= byte
            for _ in range(8):
                register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
        assert records.crc32c(data) == register ^ 0xFFFFFFFF

    @given(st.binary(max_size=200), st.integers(0, 2**20))
    def test_what_is_written_is_read(self, jpeg: bytes, label: int) -> None:
        text = records.record(records.example(jpeg, (5, 300), label, "a.jpg"))
        payload, size = records.read_record(io.BytesIO(text))
        assert size == len(text)
        assert records.encoded(payload) == jpeg

    def test_no_truncation_is_a_shorter_file(self) -> None:
        text = records.record(records.example(b"jpeg" * 9, (5, 5), 3, "a.jpg"))
        for cut in range(1, len(text)):
            with pytest.raises(records.Damaged):
                records.read_record(io.BytesIO(text[:cut]))

    @given(st.binary(max_size=80))
    def test_other_bytes_are_damage_and_no_crash(self, data: bytes) -> None:
        with pytest.raises(records.Damaged):
            records.encoded(data)


def spec(folder: Path, **changes: Any) -> str:
    return json.dumps({**SPEC, "folder": str(folder), **changes})


def ask(action: str, text: str, *more: str, **options: Any) -> dict[str, Any]:
    own = () if action in ("state", "seal") else more or ("0", "1", "1")
    return node_programs.document("dataset_node.py", action, text, *own, **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed data set of five shards with two copies."""
    folder = tmp_path_factory.mktemp("set") / "photos"
    text = spec(folder, samples=10)
    for action in ("state", "distinct", "copies", "seal"):
        assert "error" not in ask(action, text)
    return folder


class TestProgram:
    def test_a_process_that_the_kernel_kills_ends_the_program(self, tmp_path: Path) -> None:
        words = ("distinct", spec(tmp_path / "photos", samples=4000, per_shard=2), "0", "1", "2")
        program = [sys.executable, "-I", str(node_programs.BENCH / "dataset_node.py"), *words]
        assert "error" not in ask("state", words[1])
        with subprocess.Popen(program, stdout=subprocess.PIPE) as running:
            children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
            while len(own := children.read_text().split()) < 2:
                assert running.poll() is None
                time.sleep(0.02)
            os.kill(int(own[0]), signal.SIGKILL)
            answer = json.loads(running.communicate(timeout=120)[0])
        assert answer["error"].startswith("one of its processes died")
        assert not [pid for pid in own if Path(f"/proc/{pid}/environ").exists()]

    def test_a_file_system_that_takes_no_byte_any_longer_ends_the_program(self, tmp_path: Path) -> None:
        """Its process waits in ``fsync``, as if in the kernel."""
        text = spec(tmp_path / "photos")
        assert "error" not in ask("state", text)
        program = f"""
import sys, time
sys.path.insert(0, {str(node_programs.BENCH)!r})
import dataset_node as own
own.STALL_S, own.POLL_S = 2.0, 0.1
own.os.fsync = lambda file: time.sleep(60)
sys.exit(own.main(["distinct", {text!r}, "0", "1", "1"]))
"""
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
        assert json.loads(ended.stdout)["error"] == "no byte was read or written for 2 s: its file system hangs"
        assert ended.returncode == 1

    @pytest.mark.parametrize(("moves", "hangs"), [(1, False), (0, True)])
    def test_a_shard_that_takes_longer_is_waited_for_while_bytes_move(
        self, monkeypatch: pytest.MonkeyPatch, moves: int, hangs: bool
    ) -> None:
        monkeypatch.syspath_prepend(str(node_programs.BENCH))
        own, now = importlib.import_module("dataset_node"), [0.0]
        monkeypatch.setattr(own, "time", SimpleNamespace(monotonic=lambda: now[0]))

        class Slow:
            """Ready after three times the limit."""

            def result(self, seconds: float) -> str:
                now[0] += seconds
                own.MOVED.value += moves
                if now[0] < 3 * own.STALL_S:
                    raise own.Unfinished
                return "ready"

        if hangs:
            with pytest.raises(own.Stalled, match="no byte was read or written for 600 s"):
                list(own._results([Slow()]))
            assert own.STALL_S < now[0] < own.STALL_S + 3 * own.POLL_S
        else:
            assert list(own._results([Slow()])) == ["ready"]

    @pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
    def test_no_program_waits_for_a_process_that_was_killed(self, program: Path) -> None:
        """As ``multiprocessing.Pool`` does. Forked processes have the default action for SIGTERM: one that waits for a
        lock does not run a handler of Python's."""
        text = program.read_text()
        assert ".Pool(" not in text
        if 'get_context("fork")' in text and "signal.SIGTERM, lambda" in text:
            assert "signal.SIGTERM, signal.SIG_DFL" in text

    def test_the_index_counts_what_is_there(self, made: Path) -> None:
        index = json.loads((made / "index.json").read_text())
        shards = sorted(made.glob("rackproof.*"))
        assert (index["samples"], index["distinct"], index["copies"]) == (20, 10, 2)
        assert [entry["name"] for entry in index["shards"]] == [path.name for path in shards]
        assert index["bytes"] == sum(path.stat().st_size for path in shards)
        assert shards[0].read_bytes() == shards[3].read_bytes()
        assert shards[0].stat().st_ino != shards[3].stat().st_ino
        with shards[0].open("rb") as file:
            sizes = [len(records.encoded(records.read_record(file)[0])) for _ in range(4)]
            assert records.read_record(file) is None
        assert sizes == index["shards"][0]["sizes"]

    def test_a_second_call_writes_nothing_and_a_lost_entry_one_shard(self, made: Path) -> None:
        text = spec(made)
        before = (made / "rackproof.000001.tfrecord").read_bytes()
        assert ask("distinct", text)["done"] == 0
        (made / "index" / "000001.json").unlink()
        (made / "rackproof.000001.tfrecord.part").write_bytes(b"of a killed run")
        assert ask("state", text)["complete"] == 5
        assert "1 of 6 shards are missing" in ask("seal", text)["error"]
        assert ask("distinct", text)["done"] == 1
        assert (made / "rackproof.000001.tfrecord").read_bytes() == before
        assert not list(made.glob("*.part"))
        assert ask("seal", text)["samples"] == 20

    def test_other_formats_have_the_same_samples(self, made: Path, tmp_path: Path) -> None:
        expected = json.loads((made / "index.json").read_text())["samples_sha256"]
        for form in ("files", "tar-gz"):
            text = spec(tmp_path / form, format=form)
            for action in ("state", "distinct", "copies"):
                assert "error" not in ask(action, text)
            assert ask("seal", text)["samples_sha256"] == expected
        assert len(list((tmp_path / "files").glob("shard-*/*.jpg"))) == 20
        with tarfile.open(tmp_path / "tar-gz" / "rackproof.000000.tar.gz") as archive:
            assert archive.getnames()[:2] == ["000000000.jpg", "000000000.cls"]

    def test_another_set_in_its_place_is_kept(self, made: Path) -> None:
        assert "holds another data set" in ask("state", spec(made, mean_bytes=4000))["error"]

    @pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
    def test_check_names_the_shard(self, made: Path, damage: str) -> None:
        path = made / "rackproof.000002.tfrecord"
        whole = path.read_bytes()
        try:
            if damage == "gone":
                path.unlink()
            else:
                path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if damage == "changed" else whole[:-9])
            answer = ask("check", spec(made))
        finally:
            path.write_bytes(whole)
        (fault,) = answer["faults"]
        assert "rackproof.000002.tfrecord" in fault
        assert {"changed": "others than", "cut": "expected", "gone": "No such file"}[damage] in fault

    def test_a_file_system_that_takes_no_more_is_named_and_leaves_no_part(self, tmp_path: Path) -> None:
        text = spec(tmp_path / "full", copies=1)
        ask("state", text)

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

        error = ask("distinct", text, preexec_fn=limit)["error"]
        assert "rackproof.00000" in error
        assert "File too large" in error
        assert not list((tmp_path / "full").glob("*.part"))


class TestKit:
    DATASET = DataSet(storage="nfs-tcp", format="tfrecord", samples=6, copies=2, per_shard=2, mean_bytes=3000)

    @pytest.fixture
    def context(self, tmp_path: Path) -> Iterator[BenchContext]:
        nodes = StorageNodes(virtual_rack())
        (tmp_path / "mount").mkdir()

        def answer(node: str, command: str) -> CommandResult | None:
            return node_programs.answer(node, command, "/mnt/nfs-tcp", tmp_path / "mount") or nodes.answer(
                node, command
            )

        with scripted(tmp_path / "run", answer) as session:
            self.lines: list[str] = []
            self.nodes = nodes
            yield BenchContext(session, self.lines.append)

    def test_all_nodes_write_their_share(self, context: BenchContext, tmp_path: Path) -> None:
        gpus = ["gpu-01", "gpu-02"]
        made, raw = DataSets.of(context).make("photos", self.DATASET, gpus)
        assert (made.samples, made.distinct, made.copies) == (12, 6, 2)
        assert "2 copies of 6 distinct ones, which nfs-tcp must not deduplicate" in made.text("nfs-tcp")
        assert raw
        asked = [(node, text) for node, text in context.session.fleet.asked if " distinct " in text]  # type: ignore[attr-defined]
        assert [node for node, _ in asked] == gpus
        assert all("--no-new-privs" in text for _, text in asked)
        assert self.lines == ["photos: 0 of 6 shards there, 42 kB to write"]
        assert DataSets.of(context).check("photos", self.DATASET, gpus) == []
        shown = writing(virtual_rack().storage["nfs-tcp"], "photos", self.DATASET, len(gpus))
        ran = [text for node, text in context.session.fleet.asked if node == "gpu-01"]  # type: ignore[attr-defined]
        assert len(shown) == 4, "what is there, both parts of writing, and what is there then"
        assert all(any(text.endswith(command) for text in ran) for command in shown)

    def test_a_set_without_space_is_refused(self, context: BenchContext, tmp_path: Path) -> None:
        huge = self.DATASET.model_copy(update={"samples": 10**6, "mean_bytes": 10**9, "per_shard": 10**6})
        with pytest.raises(DataSetError, match=r"photos: needs 2\.06 PB more .* on gpu-01, which has"):
            DataSets.of(context).make("photos", huge, ["gpu-01", "gpu-02"])

    def test_nothing_is_written_beside_a_mount(self, context: BenchContext) -> None:
        self.nodes.mountinfo = lambda text: text.replace("nfs4", "ext4")
        with pytest.raises(DataSetError, match="gpu-01: mount: before the run"):
            DataSets.of(context).make("photos", self.DATASET, ["gpu-01"])


test_errors_of_a_node_have_its_name = refuses(
    answer_of,
    CommandResult("gpu-01", "c", 1, b'{"rackproof_dataset": 1, "error": "a: Read-only file system"}\n', b""),
    CommandResult("gpu-01", "c", None, b"", b"", error="connection lost"),
    CommandResult("gpu-01", "c", 1, b"", b"ModuleNotFoundError: No module named 'PIL'\n"),
    error=DataSetError,
    says=r"^gpu-01: .*(Read-only|lost|PIL)",
)


def test_no_answer_is_no_data_set() -> None:
    with pytest.raises(ParseError):
        answer_of(CommandResult("gpu-01", "c", 0, b"", b""))
    whole = {"samples": 4, "bytes": 100, "distinct": 2, "copies": 2, "samples_sha256": "0"}
    for key in whole:
        with pytest.raises(ParseError):
            made_of({name: value for name, value in whole.items() if name != key})
    with pytest.raises(ParseError, match="impossible"):
        made_of({**whole, "samples": 5})


@pytest.mark.parametrize("action", ["state", "distinct", "copies", "seal"])
def test_only_the_summary_may_be_that_of_several_steps(action: str) -> None:
    """Steps, and repetitions of one, share a data set: its summary is the same in each of them."""
    storage = virtual_rack().storage["cephfs"]
    spec = spec_of(
        storage, "photos", DataSet(storage="cephfs", format="tfrecord", samples=8, per_shard=4, mean_bytes=9000)
    )
    text = command(action, storage, spec, Account(999, 991))
    assert is_of_content(text) is (action == "seal")
    assert not is_of_content(f"{text}; cat other")
    assert not is_of_content(text.replace("dataset_node.py", "ingest_node.py"))


def test_data_sets_of_one_name_share_a_folder_only_when_they_have_the_same_samples() -> None:
    """Several architectures are certified on one rack, each with a data set `photos`."""
    storage = virtual_rack().storage["cephfs"]
    own = DataSet(storage="cephfs", format="tfrecord", samples=8, per_shard=4, mean_bytes=9000)
    folder = folder_of(storage, "photos", own)
    assert folder_of(storage, "photos", own.model_copy(update={"copies": 9})) == folder
    others: list[dict[str, Any]] = [
        {"format": "tar"}, {"samples": 12}, {"per_shard": 2}, {"mean_bytes": 9001}, {"large": True}, {"seed": 2},
    ]  # fmt: skip
    assert {name for change in others for name in change} == DataSet.model_fields.keys() - {"storage", "copies"}
    folders = {folder_of(storage, "photos", own.model_copy(update=change)) for change in others}
    assert len(folders - {folder}) == len(others)
