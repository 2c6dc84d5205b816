"""Caches of network file systems: /proc/fs/fscache/caches, or the daemons that hold one, and what they answered.

Which reads of NFS the kernel counts (fs/fscache/stats.c, fs/netfs/stats.c, fs/nfs/fscache.c of these releases):

* up to 5.16: ``Retrvls`` of /proc/fs/fscache/stats, one request for all pages that are read ahead at once; ``ok`` only
  where the cache had all of them. The pages in mountstats are wrong there: a request that the cache answered in part
  counts all of its pages as answered.
* 5.17 to 6.3: that line is gone, ``IO: rd`` also counts pages that the cache did not have, and NFS does not use the
  helpers behind ``RdHelp``. The mount's own line ``fsc:`` in mountstats counts each page.
* from 6.4: NFS uses the helpers; mountstats has no ``fsc:``. Requests that were read from the cache (RD, of which rf
  failed) and from the server (DL) are in ``RdHelp``, from 6.8 in ``Netfs``, later in ``CaRdOps`` and ``DownOps``.

All but mountstats count every mount with a local cache. Kernels without CONFIG_FSCACHE_STATS have no such file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from rackproof.parse.errors import ParseError
from rackproof.parse.text import ended_lines, excerpt, matched, whole_lines

FSCACHE: Final = "cat /proc/fs/fscache/caches"
_END: Final = "end of descriptors"
CACHE_DAEMONS: Final = f"find /proc/[0-9]*/fd -lname /dev/cachefiles 2>/dev/null; echo {_END}"
"""Descriptors of /dev/cachefiles: cachefilesd keeps one as long as its cache is bound, and ends otherwise
(cachefilesd(8))."""
STATS: Final = "cat /proc/fs/fscache/stats 2>&1"
CACHE_DRIVE: Final = (
    "d=$(awk '$1 == \"dir\" {print $2}' /etc/cachefilesd.conf 2>/dev/null);"
    ' cat "/sys/dev/block/$(findmnt -rno MAJ:MIN -T "${d:-/var/cache/fscache}")/stat" 2>/dev/null'
)
"""Counters of the block device that holds the cache; nothing where its file system has none of its own (btrfs)."""
_STATES: Final = {"-": "absent", "P": "preparing", "A": "active", "E": "broken", "W": "withdrawn"}


def parse_fscache(output: str) -> tuple[str, ...]:
    """/proc/fs/fscache/caches: the state of every cache; empty without one."""
    lines = whole_lines("fscache", output)
    if lines[0].split()[:1] != ["CACHE"] or len(lines) < 2 or not lines[1].startswith("==="):
        raise ParseError("fscache", f"expected a table of caches, got {excerpt(lines[0])}")
    states = []
    for line in lines[2:]:
        words = line.split()
        if len(words) < 6 or words[5] not in _STATES or not re.fullmatch(r"[0-9a-f]+", words[0]):
            raise ParseError("fscache", f"expected a cache, got {excerpt(line)}")
        states.append(_STATES[words[5]])
    return tuple(states)


def parse_cache_daemons(output: str) -> tuple[str, ...]:
    """Output of ``CACHE_DAEMONS``: ``active`` for each daemon that holds a cache."""
    lines = ended_lines("fscache", output, _END)
    for line in lines:
        matched("fscache", r"/proc/\d+/fd/\d+", line, "a descriptor")
    return tuple("active" for _ in lines)


class CacheReads(NamedTuple):
    """Reads since the kernel began."""

    asked: int
    """Reads that the page cache did not answer."""
    answered: int
    """Reads that the local cache answered."""
    counter: str
    """Name of the counter, and its unit."""


_TITLES: Final = ("FS-Cache statistics", "-- FS-Cache statistics --")
_COUNTERS: Final = re.compile(r"([A-Z][A-Za-z]*) *:((?: \w+=-?\d{1,20})+)", re.ASCII)


def parse_fscache_stats(output: str | bytes) -> dict[str, dict[str, int]]:
    """/proc/fs/fscache/stats of any kernel: counters by class and event."""
    tool = "fscache stats"
    counters: dict[str, dict[str, int]] = {}
    lines = whole_lines(tool, output)
    if not set(_TITLES) & set(lines):
        raise ParseError(tool, f"expected {_TITLES[0]}, got {excerpt(lines[0])}")
    for line in lines:
        if line in _TITLES:
            continue
        match = matched(tool, _COUNTERS, line, "counters")
        events = counters.setdefault(match[1], {})
        for name, _, number in (word.partition("=") for word in match[2].split()):
            if name in events:
                raise ParseError(tool, f"{name} of {match[1]} is listed twice")
            events[name] = int(number)
    return counters


def cache_reads(stats: Mapping[str, Mapping[str, int]], pages: tuple[int, int] | None) -> CacheReads:
    """Reads of NFS, from ``parse_fscache_stats``. ``pages``: those that mountstats counts as answered and as failed;
    None without such a line. Raises ParseError where nothing counts them."""
    if "Retrvls" in stats:
        counter = "requests of the node: Retrvls n and ok in /proc/fs/fscache/stats"
        return CacheReads(_event(stats, "n", "Retrvls"), _event(stats, "ok", "Retrvls"), counter)
    if pages is not None:
        return CacheReads(sum(pages), pages[0], "pages of its mounts: fsc in /proc/self/mountstats")
    counter = "requests of the node: DL, RD and rf in /proc/fs/fscache/stats"
    read, failed, loaded = (_event(stats, name, *_HELPERS) for name in ("RD", "rf", "DL"))
    return CacheReads(read + loaded, read - failed, counter)


_HELPERS: Final = ("RdHelp", "Netfs", "CaRdOps", "DownOps")


def _event(stats: Mapping[str, Mapping[str, int]], name: str, *classes: str) -> int:
    values = [stats[one][name] for one in classes if name in stats.get(one, {})]
    if len(values) != 1:
        raise ParseError("fscache stats", f"expected one counter {name} of {', '.join(classes)}, actual {len(values)}")
    return values[0]
