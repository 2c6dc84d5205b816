"""Shell commands of storage benchmarks on clients, before and after fio."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from rackproof.bench.user import USER, Account
from rackproof.core.architecture import Storage
from rackproof.core.fiojob import TEST_FILE
from rackproof.parse.answer import STATUS
from rackproof.parse.client_transfer import PORTS, bytes_command, transport_command
from rackproof.parse.fscache import CACHE_DRIVE, STATS
from rackproof.parse.parallel_fs import DFUSE
from rackproof.shell import script

BEFORE, AFTER = "before", "after"
_MARK = re.compile(r": storage-state (before|after)((?: [^ ;]+)*); ")
DROP = "sync; echo 3 > /proc/sys/vm/drop_caches"
"""Drops a node's caches."""
_DRIVES = 'for d in /sys/block/*/device; do d=${d%/device}; [ -e "$d/stat" ] && echo "${d##*/} $(cat "$d/stat")"; done'
_MEMORY = (
    'awk \'/^MemTotal:/ {printf "ram_bytes %.0f\\n", $2 * 1024}'
    ' /^Cached:/ {printf "page_cache_bytes %.0f\\n", $2 * 1024}\' /proc/meminfo'
)


def mounted(points: Sequence[str]) -> str:
    """Command that fails for a mount point without a mount: fio would fill the root disk."""
    words = " ".join(map(shlex.quote, points))
    return f'for m in {words}; do mountpoint -q "$m" || {{ echo "$m is not mounted" >&2; exit 1; }}; done'


def folders_of(storage: Storage, node: str) -> tuple[str, ...]:
    """The benchmarks' folder of a node on each mount of a storage."""
    return tuple(f"{point}/rackproof-bench/{node}" for point in storage.mountpoints)


def empty_folders(storage: Storage, folders: Sequence[str], user: str) -> str:
    """Command that makes folders and removes files of earlier benchmarks, all with the prefix ``user``."""
    words = " ".join(map(shlex.quote, folders))
    files = " ".join(f"{shlex.quote(folder)}/{TEST_FILE}.*" for folder in folders)
    return f"{mounted(storage.mountpoints)}; {user}mkdir -p -- {words} && {user}rm -f -- {files}"


def own_folders(storage: Storage, folders: Sequence[str], account: Account, stem: str = TEST_FILE) -> str:
    """Command that makes folders which belong to the account that measures, without files of earlier benchmarks, whose
    names begin with ``stem`` and a dot."""
    made = script(__name__, "folders", *folders, uid=account.uid, gid=account.gid, user=USER, stem=stem)
    return f"{mounted(storage.mountpoints)}\n{made}"


def drop_and_state(storage: Storage, folders: Sequence[str], addresses: Sequence[str], *, tree: bool = False) -> str:
    """Command that drops the client's caches, then prints its state.

    ``addresses``: allowed NFS servers, part of the command, so that they are in the evidence. ``tree``: the folders'
    files are counted, not listed, and caches are dropped once more, because the count has filled those of names.
    """
    check = mounted(storage.mountpoints)
    state = _state(storage, folders, tree=tree) + (f" && {{ {DROP}; }}" if tree else "")
    return f"{_mark(BEFORE, addresses)}{check}; {{ {DROP}; }} || exit 1; {state}"


def state_after(storage: Storage, folders: Sequence[str], addresses: Sequence[str]) -> str:
    """Command that prints the client's state after a run."""
    return f"{_mark(AFTER, addresses)}{_state(storage, folders)}"


def server_state(when: str) -> str:
    """Command on a storage server that prints what ``parse_server_state`` reads, ``when``: before or after a run."""
    return f": storage-server {when}; echo -- drives; {_DRIVES}; echo -- ports; {PORTS}; echo -- end"


def state_of(command: str) -> tuple[str, tuple[str, ...]] | None:
    """``before`` or ``after``, and the expected addresses; None for another command."""
    match = _MARK.match(command)
    return (match[1], tuple(match[2].split())) if match else None


def _mark(when: str, addresses: Sequence[str]) -> str:
    return f": storage-state {' '.join([when, *map(shlex.quote, addresses)])}; "


def _state(storage: Storage, folders: Sequence[str], *, tree: bool = False) -> str:
    """Prints what ``parse_client_state`` reads. Files that cannot be listed give no line; without folders none are."""
    words = " ".join(map(shlex.quote, folders))
    files = f"find {words} -type f -name '{TEST_FILE}.*'"
    cached = (
        f"c=$(command -v fincore >/dev/null && {files} -exec fincore --bytes --noheadings --output RES {{}} +)"
        ' && [ "$c" ] && echo "$c" | awk \'{s += $1} END {printf "cached_bytes %.0f %d\\n", s, NR}\''
    )
    sections = ["mountinfo", "cat /proc/self/mountinfo", "mountstats", "cat /proc/self/mountstats 2>/dev/null"]
    if storage.class_ == "local":
        sections += [
            *("device", f"readlink -f -- {shlex.quote(f'/dev/disk/by-label/{storage.source}')}"),
            *("block", f'cat "/sys/dev/block/$(mountpoint -d {shlex.quote(storage.mountpoint)})/stat" 2>/dev/null'),
        ]
    if storage.local_cache:
        sections += ["fscache", f"{STATS}{STATUS}", "cachedrive", CACHE_DRIVE]
    if storage.fstype == "fuse.daos":
        sections += ["dfuse", DFUSE]
    if storage.class_ == "parallel":
        sections += ["transport", transport_command(storage)]
        sections += ["counters", command] if (command := bytes_command(storage)) else []
        sections += ["ports", PORTS] if storage.server_role not in storage.client_roles else []
    if tree:
        count = "awk '{s += $1} END {printf \"%d %.0f\\n\", NR, s}'"
        sections += ["tree", f"{files} -printf '%s\\n' 2>/dev/null | {count}"]
    elif folders:
        sections += ["files", f"{files} -exec stat -c '%s %b %B %n' {{}} + 2>/dev/null"]
    parts = [f"echo -- {part}" if number % 2 == 0 else part for number, part in enumerate(sections)]
    return "; ".join([_MEMORY, *([cached] if folders else []), *parts, "echo -- end"])
