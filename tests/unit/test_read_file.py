"""Files that anyone may have made: none is waited for, none fills the memory."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rackproof.core.rack import MOST_NAMES, expand
from rackproof.core.texts import expression
from rackproof.errors import RunError
from rackproof.evidence.store import EVIDENCE, EvidenceStore, read_raw, read_trusted
from rackproof.inventories.nodesets import nodes
from rackproof.inventories.records import SourceError
from rackproof.inventories.table import from_csv
from rackproof.read_file import MIB, read_bytes, read_json_text
from rackproof.remote.recording_folder import read_folder

Make = Callable[[Path], object]


def bomb(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(200):
            file.write(bytes(MIB))


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**12)


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("a.json", os.mkfifo, "it is no regular file"),
        ("a.json", lambda path: path.symlink_to("/dev/zero"), "it is no regular file"),
        ("a.json", Path.mkdir, "Is a directory"),
        ("a.json", sparse, "larger than 128 MiB"),
        ("a.json.gz", bomb, "larger than 128 MiB"),
        ("a.json.gz", lambda path: path.write_bytes(gzip.compress(b"x" * 9999)[:-9]), "truncated or damaged"),
        ("a.json.gz", lambda path: path.write_bytes(b"no gzip"), "truncated or damaged"),
        ("a.json", lambda path: path.write_bytes(b"[" * 5_000_000), "more than 4000000 values"),
        ("a.json", lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    ],
)
def test_a_recording_that_is_no_file_or_too_large_is_one_error(
    tmp_path: Path, name: str, make: Make, words: str
) -> None:
    make(tmp_path / name)
    with pytest.raises(RunError, match=words) as caught:
        read_folder(tmp_path)
    assert name in str(caught.value)


def test_a_file_at_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(MIB)))
    assert read_bytes(path, MIB) == bytes(MIB)
    with pytest.raises(OSError, match="larger than 0 MiB"):
        read_bytes(path, MIB - 1)
    (tmp_path / "b").write_text("[1, 2]")
    assert read_json_text(tmp_path / "b") == "[1, 2]"


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("/dev/full")]
)
def test_evidence_and_outputs_are_regular_files(tmp_path: Path, make: Make) -> None:
    (tmp_path / "raw").mkdir()
    make(tmp_path / "raw" / ("a" * 64))
    with pytest.raises(RunError, match="it is no regular file"):
        read_raw(tmp_path, "a" * 64)
    make(tmp_path / EVIDENCE)
    with pytest.raises(RunError, match="it is no regular file"):
        read_trusted(tmp_path)
    with pytest.raises(Exception, match="it is no regular file"):
        EvidenceStore(tmp_path)


def test_evidence_is_read_line_by_line(tmp_path: Path) -> None:
    sparse(tmp_path / EVIDENCE)
    os.truncate(tmp_path / EVIDENCE, 3 * 10**8)
    assert read_trusted(tmp_path) == ([], "line 1 is damaged", True)


@pytest.mark.parametrize(
    "text",
    ["gpu[1-5000000]", "a[1-2000]b[1-2000]", "gpu[1-999999999999999999999999]", "gpu[" + "0" * 5000 + "1-60000]",
     ",".join(["gpu[1-90000]"] * 3), "gpu[1-4000000/2]"],
)  # fmt: skip
def test_a_set_of_millions_is_counted_before_it_is_expanded(text: str) -> None:
    with pytest.raises(ValueError, match=f"more than {MOST_NAMES} names"):
        expand(text)
    with pytest.raises(SourceError, match=f"more than {MOST_NAMES} names"):
        nodes(text)


def test_large_sets_of_real_racks_are_expanded() -> None:
    assert len(expand("gpu[00001-20000]")) == 20_000
    assert len(expand("r[1-20]n[01-36]g[0-7]")) == 20 * 36 * 8
    assert len(expand(f"gpu[{','.join(map(str, range(5000)))}]")) == 5000
    assert len(expand(",".join(f"gpu{k}" for k in range(5000)))) == 5000


def test_a_template_makes_no_megabytes() -> None:
    with pytest.raises(SourceError, match="expected"):
        nodes("gpu1", address="10.0.0.{n:999999999d}")


@pytest.mark.parametrize("text", ["(a+)+$", "(a|aa)+$", "(.*a){20}", "a*a*a*a*a*b", "((a*)b)*", "(x(ab|a))*", "("])
def test_an_expression_that_may_take_forever_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"repe[at]|no regular"):
        expression(text)


@pytest.mark.parametrize("text", [r"eth(\d+)", r"(?:ens|eth)[0-9]+s?(\d)", r"mlx5_(\d+)(\.\d+)?", "H100.*", "a{3}"])
def test_other_expressions_are_taken(text: str) -> None:
    assert expression(text).pattern == text


def test_columns_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "rack.csv"
    path.write_text("name,role," + ",".join(f"c{k}" for k in range(200_000)) + "\n")
    with pytest.raises(SourceError, match="200002 columns; expected at most 1000"):
        from_csv(path)
