"""Shell commands of storage benchmarks on clients, before and after fio."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from rackproof.bench.user import USER, Account
from rackproof.configure.storage_client.cephfs import declared_fsid
from rackproof.core.architecture import Architecture, Storage
from rackproof.core.fiojob import TEST_FILE
from rackproof.core.rack import Rack
from rackproof.parse.answer import STATUS
from rackproof.parse.client_transfer import PORTS, bytes_command, nfs_ports_command, transport_command
from rackproof.parse.fscache import CACHE_DRIVE, STATS
from rackproof.parse.parallel_fs import DFUSE
from rackproof.shell import script

BEFORE, RAMP, AFTER = "before", "ramp", "after"
_MARK = re.compile(r": storage-state (before|ramp|after)((?: [^ ;]+)*); ")
FSID = "fsid="
"""Before an FSID among the words of an origin."""
DROP = "sync; echo 3 > /proc/sys/vm/drop_caches"
"""Drops a node's caches."""
_DRIVES = 'for d in /sys/block/*/device; do d=${d%/device}; [ -e "$d/stat" ] && echo "${d##*/} $(cat "$d/stat")"; done'
_SERVED = f"echo -- drives; {_DRIVES}; echo -- ports; {PORTS}"
SERVER = ": storage-server "
"""Begin of the commands that read a server's counters."""
_SERVER_IN_RAMP = f"{SERVER}ramp; "
_BYTES_OF_NFS = (
    "sed -n '/^device .* with fstype nfs/p; /^\\t\\(opts\\|bytes\\|xprt\\):/p; /^\\tper-op/p'"
    " /proc/self/mountstats 2>/dev/null"
)
"""Lines of mountstats that ``parse_mountstats`` needs for bytes, without the operations' counters."""
_LEAD_S = 2
"""Seconds before the ramp's end, as if fio began with the command, from which counters are read."""
_STARTING_S = 6
_STARTED_A_SECOND = 20
"""Seconds in which fio begins on one client, beside one more for so many clients, which its launcher asks in turn."""
_EVERY_S = 0.3
"""Seconds between two readings in a ramp: with 0.2 s for a reading no more than ``runs.RECENT`` of a run of 10 s."""
_MEMORY = (
    'awk \'/^MemTotal:/ {printf "ram_bytes %.0f\\n", $2 * 1024}'
    ' /^Cached:/ {printf "page_cache_bytes %.0f\\n", $2 * 1024}\' /proc/meminfo'
)


def mounted(points: Sequence[str]) -> str:
    """Command that fails for a mount point without a mount: fio would fill the root disk."""
    words = " ".join(map(shlex.quote, points))
    return f'for m in {words}; do mountpoint -q "$m" || {{ echo "$m is not mounted" >&2; exit 1; }}; done'


def benchmark_roots(storage: Storage) -> tuple[str, ...]:
    """Folder with the benchmarks' folders of all nodes on each mount of a storage."""
    return tuple(f"{point}/rackproof-bench" for point in storage.mountpoints)


def folders_of(storage: Storage, node: str) -> tuple[str, ...]:
    """The benchmarks' folder of a node on each mount of a storage."""
    return tuple(f"{root}/{node}" for root in benchmark_roots(storage))


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


def drop_and_state(storage: Storage, folders: Sequence[str], origin: Sequence[str], *, tree: bool = False) -> str:
    """Command that drops the client's caches, then prints its state.

    ``origin``: see ``origin_of``; it is part of the command, so that it is in the evidence. ``tree``: the folders'
    files are counted, not listed, and caches are dropped once more, because the count has filled those of names.
    """
    check = mounted(storage.mountpoints)
    state = _state(storage, folders, tree=tree) + (f" && {{ {DROP}; }}" if tree else "")
    return f"{_mark(BEFORE, origin)}{check}; {{ {DROP}; }} || exit 1; {state}"


def state_after(storage: Storage, folders: Sequence[str], origin: Sequence[str]) -> str:
    """Command that prints the client's state after a run."""
    return f"{_mark(AFTER, origin)}{_state(storage, folders)}"


def counters_in_ramp(storage: Storage, origin: Sequence[str], ramp_s: int, clients: int) -> str:
    """Command that prints a client's counters again and again around the end of a ramp, for ``parse_timed``."""
    sections = ["mountstats", _BYTES_OF_NFS, "ports", nfs_ports_command(storage)]
    if storage.class_ == "local":
        sections = _block(storage)
    elif storage.class_ == "parallel":
        sections = _of_client(storage)
    return f"{_mark(RAMP, origin)}{_in_ramp(_printed(sections), ramp_s, clients)}"


def _in_ramp(state: str, ramp_s: int, clients: int) -> str:
    """Prints a state until all of so many clients must have ended their ramp."""
    first_s = max(0, ramp_s - _LEAD_S)
    most_s = ramp_s - first_s + _STARTING_S + clients // _STARTED_A_SECOND
    again = f'{state}; echo -- time; date +%s%3N; echo -- end; [ "$(date +%s)" -lt "$e" ]'
    return f"sleep {first_s}; e=$(($(date +%s) + {most_s})); while {{ {again}; }}; do sleep {_EVERY_S}; done"


def server_state(when: str) -> str:
    """Command on a storage server that prints what ``parse_server_state`` reads, ``when``: before or after a run."""
    return f"{SERVER}{when}; {_SERVED}; echo -- end"


def server_in_ramp(ramp_s: int, clients: int) -> str:
    """Command that prints a server's state again and again around the end of a ramp, for ``parse_timed``."""
    return f"{_SERVER_IN_RAMP}{_in_ramp(_SERVED, ramp_s, clients)}"


def is_server_in_ramp(command: str) -> bool:
    """Whether a command is ``server_in_ramp``."""
    return command.startswith(_SERVER_IN_RAMP)


def state_of(command: str) -> tuple[str, tuple[str, ...]] | None:
    """``before``, ``ramp`` or ``after``, and the words of ``origin_of``; None for another command."""
    match = _MARK.match(command)
    return (match[1], tuple(match[2].split())) if match else None


def origin_of(
    architecture: Architecture, rack: Rack, storage: Storage, addresses: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Origins that a client's mounts may have, a word each: addresses of servers (None: the declared ones), and the
    FSIDs of Ceph's cluster that the architecture or the clients' inputs give."""
    clients = (rack.node(name) for name in storage.clients(rack))
    fsids = dict.fromkeys(declared_fsid(architecture, rack, node, storage) for node in clients)
    return (*(storage.addresses(rack) if addresses is None else addresses), *(f"{FSID}{one}" for one in fsids if one))


def _mark(when: str, origin: Sequence[str]) -> str:
    return f": storage-state {' '.join([when, *map(shlex.quote, origin)])}; "


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
        sections += ["device", f"readlink -f -- {shlex.quote(f'/dev/disk/by-label/{storage.source}')}"]
        sections += _block(storage)
    if storage.class_ == "nfs":
        sections += ["ports", nfs_ports_command(storage)]
    if storage.local_cache:
        sections += ["fscache", f"{STATS}{STATUS}", "cachedrive", CACHE_DRIVE]
    if storage.fstype == "fuse.daos":
        sections += ["dfuse", DFUSE]
    if storage.class_ == "parallel":
        sections += ["transport", transport_command(storage), *_of_client(storage)]
    if tree:
        count = "awk '{s += $1} END {printf \"%d %.0f\\n\", NR, s}'"
        sections += ["tree", f"{files} -printf '%s\\n' 2>/dev/null | {count}"]
    elif folders:
        sections += ["files", f"{files} -exec stat -c '%s %b %B %n' {{}} + 2>/dev/null"]
    return "; ".join([_MEMORY, *([cached] if folders else []), _printed(sections), "echo -- end"])


def _printed(sections: Sequence[str]) -> str:
    """Prints sections; each is a name, then its command."""
    return "; ".join(f"echo -- {part}" if number % 2 == 0 else part for number, part in enumerate(sections))


def _block(storage: Storage) -> list[str]:
    """Section with the counters of a local storage's device."""
    return ["block", f'cat "/sys/dev/block/$(mountpoint -d {shlex.quote(storage.mountpoint)})/stat" 2>/dev/null']


def _of_client(storage: Storage) -> list[str]:
    """Sections with the counters of a parallel file system's client, and of its node's ports."""
    counters = ["counters", command] if (command := bytes_command(storage)) else []
    return [*counters, *(["ports", PORTS] if storage.server_role not in storage.client_roles else [])]
