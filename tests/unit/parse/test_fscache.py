"""Reads that FS-Cache answered, as kernels of three generations count them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rackproof.parse import ParseError
from rackproof.parse.client_state import parse_client_state
from rackproof.parse.fscache import CACHE_DRIVE, CacheReads, cache_reads, parse_fscache_stats
from rackproof.parse.mounts import parse_mountstats
from tests.unit.refusals import refuses, refuses_parts

from . import tool_output

OLD, MIDDLE, NEW = (tool_output(f"fscache-stats-{version}.txt") for version in ("5.15", "6.1", "6.12"))
PAGES = (512, 256)


def reads(text: str, pages: tuple[int, int] | None = None) -> CacheReads:
    return cache_reads(parse_fscache_stats(text), pages)


def test_each_generation_has_its_counters() -> None:
    assert reads(OLD, PAGES)[:2] == (96, 64), "pages in mountstats are wrong there"
    assert reads(MIDDLE, PAGES)[:2] == (768, 512)
    assert reads(NEW)[:2] == (97, 64), "one of 65 reads failed and was loaded"
    assert [reads(*case).counter.partition(":")[0] for case in ((OLD,), (MIDDLE, PAGES), (NEW,))] == [
        "requests of the node", "pages of its mounts", "requests of the node",
    ]  # fmt: skip
    of_68 = NEW.replace("DownOps", "Netfs  ").replace("CaRdOps", "Netfs  ").replace("-- ", "").replace(" --", "")
    assert reads(of_68) == reads(NEW)


def test_counters_without_reads_of_nfs_give_none() -> None:
    """IO: rd counts pages that the cache did not have, too."""
    assert reads(MIDDLE)[:2] == (0, 0)
    for text, missing in ((NEW.replace("CaRdOps", "Others"), "RD"), (NEW.replace(" rf=1", ""), "rf"),
                          (OLD.replace("n=96 ok=64", "n=96"), "ok")):  # fmt: skip
        with pytest.raises(ParseError, match=f"expected one counter {missing}"):
            reads(text)


test_other_words_are_refused = refuses(
    parse_fscache_stats,
    (NEW.replace("-- FS-Cache statistics --", "FS-Cache"), "expected FS-Cache statistics"),
    (NEW.replace("DL=32", "DL=many"), "expected counters"),
    (NEW.replace("ds=32", "DL=32"), "listed twice"),
    (NEW.removesuffix("\n"), "cut off"),
    ("cat: /proc/fs/fscache/stats: No such file or directory\n", "expected FS-Cache statistics"),
)


def test_the_mounts_own_line_counts_pages() -> None:
    whole = tool_output("mountstats.txt")
    assert [mount.local_pages for mount in parse_mountstats(whole)] == [None, None]
    line = next(line for line in whole.splitlines() if line.strip().startswith("bytes:"))
    cached = whole.replace(line, f"{line}\n\tfsc:\t512 256 250 6 0 ", 1)
    assert [mount.local_pages for mount in parse_mountstats(cached)] == [PAGES, None]
    for counters in ("512 256", "512 many 250 6 0"):
        with pytest.raises(ParseError, match=r"expected 5 counters of pages|not an integer"):
            parse_mountstats(cached.replace("512 256 250 6 0", counters))


STATE = (
    f"ram_bytes 1\n-- mountinfo\n{tool_output('mountinfo.txt')}-- mountstats\n"
    f"-- fscache\n{NEW}status 0\n-- cachedrive\n10 0 2048 3 20 0 4096 5 0 6 7\n-- files\n-- end\n"
)


test_no_part_of_a_state_has_other_numbers = refuses_parts((parse_client_state, STATE))


def test_a_state_has_both() -> None:
    whole = parse_client_state(STATE)
    assert whole.cache_stats is not None
    assert (parse_fscache_stats(whole.cache_stats.body), whole.cache_drive_read_bytes) == (
        parse_fscache_stats(NEW), 1048576,
    )  # fmt: skip
    older = parse_client_state(f"-- mountinfo\n{tool_output('mountinfo.txt')}-- end\n")
    assert (older.cache_stats, older.cache_drive_read_bytes) == (None, None)


def test_the_drive_is_the_one_below_the_caches_folder(tmp_path: Path) -> None:
    """awk, findmnt and cat stand in for a node whose cache is on 259:3."""
    for name, text in (
        ("awk", "echo /raid/cache"), ("findmnt", '[ "$*" = "-rno MAJ:MIN -T /raid/cache" ] && echo 259:3'),
        ("cat", 'echo "$*"'),
    ):  # fmt: skip
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", CACHE_DRIVE], capture_output=True, text=True, env=path, check=True)
    assert done.stdout == "/sys/dev/block/259:3/stat\n"
