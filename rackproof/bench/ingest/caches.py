"""Caches of the clients around a run: the page cache, and a local cache on a drive of theirs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from rackproof.bench.ingest.runs import TOOL, Run
from rackproof.bench.storage.commands import BEFORE
from rackproof.bench.storage.conditions import COLD, worst
from rackproof.bench.storage.program_runs import ProgramRun
from rackproof.bench.storage.proof import mounts_of, nfs_of
from rackproof.bench.storage.runs import State
from rackproof.bench.user import Account
from rackproof.core.architecture import Storage
from rackproof.parse import ParseError
from rackproof.parse.fscache import CacheReads, cache_reads, parse_fscache_stats

CACHE_HITS: Final = "ingest.cache_hits"
LOCAL_HITS: Final = "ingest.local_cache_hits"
ASKED: Final = 10
"""Least number of reads for which a share is reported."""


RENEW: Final = "-type f -name 'rackproof.*' -exec chmod a+r {} + 2>/dev/null; true"


def renewed(folders: Sequence[str], account: Account) -> str:
    """Command that changes the times of change of the account's own files of a data set, and nothing else.

    FS-Cache keeps what it has of a file as long as that time is the same (``nfs_fscache_update_auxdata``): what a cold
    epoch reads then comes from the server. Files of other accounts are changed by their nodes.
    """
    words = shlex.join(folders)
    return f"{account.prefix}find {words} {RENEW}"


class LocalReads(NamedTuple):
    """Reads of one node in one run that the page cache left to the local cache."""

    asked: int
    answered: int
    counter: str
    drive_bytes: int | None
    """Bytes that any program read from the cache's drive; None where no drive counts."""

    @property
    def companions(self) -> dict[str, float]:
        """The numbers themselves, for the evidence."""
        drive = {} if self.drive_bytes is None else {"local_cache_drive_bytes": float(self.drive_bytes)}
        return {"local_cache_asked": self.asked, "local_cache_answered": self.answered} | drive

    def share(self, elsewhere: float) -> float:
        """Share that the local cache answered; at most ``elsewhere``, the share of bytes that the storage did not give.

        Counters of the whole node also count other mounts. Raises ParseError for too few reads.
        """
        if self.asked < ASKED:
            raise ParseError(
                TOOL,
                f"the local cache was asked for {self.asked} reads, the page cache had the others; {ASKED} are needed",
            )
        return min(self.answered / self.asked, max(0.0, elsewhere))


def local_reads(storage: Storage, before: State, after: State) -> LocalReads:
    """Growth of the kernel's counters of a storage's local cache. Raises ParseError without them."""
    first, last = (_counted(storage, state) for state in (before, after))
    if first.counter != last.counter:
        raise ParseError(TOOL, "the kernel counts its local cache otherwise than before the run")
    asked, answered = last.asked - first.asked, last.answered - first.answered
    if not 0 <= answered <= asked:
        raise ParseError(TOOL, f"the local cache answered {answered} of {asked} reads: its counters ran backwards")
    drive = (before.client.cache_drive_read_bytes, after.client.cache_drive_read_bytes)
    drive_bytes = None if drive[0] is None or drive[1] is None else drive[1] - drive[0]
    return LocalReads(asked, answered, last.counter, drive_bytes)


def _counted(storage: Storage, state: State) -> CacheReads:
    stats = state.client.cache_stats
    if stats is None:
        raise ParseError(TOOL, "the counters of the local cache were not read")
    if stats.status:
        raise ParseError(TOOL, f"the kernel does not count reads of a local cache: {stats.reason}")
    superblocks = {mount.mountpoint: mount.device for mount in mounts_of(storage, state) if mount is not None}
    # Mounts that share a superblock share its counters.
    by_mount = {superblocks.get(mount.mountpoint): mount.local_pages for mount in nfs_of(storage, state)}
    pages = [one for one in by_mount.values() if one is not None]
    whole = len(pages) == len(by_mount)
    return cache_reads(
        parse_fscache_stats(stats.body), (sum(p[0] for p in pages), sum(p[1] for p in pages)) if whole else None
    )


def cached_share(run: Run) -> float | None:
    """Largest share of a node's listed files in its page cache at the start; None if unknown."""
    shares = []
    for state in (run.state(node, BEFORE) for node in sorted(run.nodes)):
        listed = sum(file.size for file in state.client.files)
        if state.client.cached_bytes is None or not listed:
            return None
        shares.append(state.client.cached_bytes / listed)
    return max(shares)


def cache_state(runs: Sequence[ProgramRun], shares: Sequence[float | None], storage: Storage) -> str:
    """``cold`` only if clients' caches were observed to be empty, and those of servers were dropped.

    ``shares``: share of the files that each run's clients had in their page caches at the start; None if unknown.
    """
    if not all(run.dropped for run in runs):
        if all(run.pages_dropped for run in runs):
            return "page cache dropped, local cache as the epoch before left it"
        return "as the epoch before left it"
    share = worst(shares)
    if share is None:
        return "unknown on clients"
    if share >= COLD:
        return "warm on clients"
    servers = storage.class_ == "local" or all(run.servers_dropped for run in runs)
    return "cold" if servers else "cold on clients, unknown on servers"
