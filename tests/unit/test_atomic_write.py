"""A file is there as a whole or as it was before."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from rackproof.atomic_write import replace_file


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("content", ["", "é\n", b"\x00\xff", "x" * 100_000])
def test_content_replaces_content_and_leaves_nothing_beside(
    tmp_path: Path, content: str | bytes, durable: bool
) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    replace_file(path, content, durable=durable)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("stays")
    (tmp_path / "file").symlink_to("elsewhere")
    replace_file(tmp_path / "file", "new")
    assert (tmp_path / "elsewhere").read_text() == "stays"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize(("mode", "expected"), [(0o666, 0o644), (0o600, 0o600)])
def test_the_mode_is_the_umasks_or_narrower(tmp_path: Path, mode: int, expected: int) -> None:
    before = os.umask(0o022)
    try:
        replace_file(tmp_path / "file", "x", mode=mode)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == expected


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, "new", durable=True)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "missing" / "file", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "folder", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_concurrent_reader_sees_the_old_or_the_new_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, "0" * 5000)

    def write(digit: str) -> None:
        for _ in range(50):
            replace_file(path, digit * 5000)

    writers = [threading.Thread(target=write, args=(digit,)) for digit in "123"]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(path.read_text())
    for writer in writers:
        writer.join()
    assert {len(text) for text in seen} <= {5000}
    assert all(len(set(text)) == 1 for text in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", ["fifo", "link", "socket"])
def test_only_a_regular_file_is_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "results.xml"
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to("/dev/null")
        else:
            server.bind(str(path))
        with pytest.raises(OSError, match="it is no regular file"):
            replace_file(path, "content")
    assert not path.is_file()
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.xml"]


def test_a_link_to_a_file_or_to_nothing_becomes_a_file(tmp_path: Path) -> None:
    for target in ("there", "nowhere"):
        (tmp_path / "there").write_text("kept")
        path = tmp_path / f"link-to-{target}"
        path.symlink_to(tmp_path / target)
        replace_file(path, "new")
        assert (path.read_text(), path.is_symlink(), (tmp_path / "there").read_text()) == ("new", False, "kept")
