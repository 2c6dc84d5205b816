"""The state of a storage client, as one command prints it."""

from __future__ import annotations

import pytest

from rackproof.bench.storage.commands import DROP, drop_and_state, state_after, state_of
from rackproof.core.architecture import Storage
from rackproof.parse import ParseError
from rackproof.parse.client_state import Tree, parse_client_state
from tests.unit.refusals import refuses

from . import tool_output

STATE = (
    "ram_bytes 1026392064\npage_cache_bytes 52428800\ncached_bytes 4096 2\n"
    f"-- mountinfo\n{tool_output('mountinfo.txt')}-- mountstats\n{tool_output('mountstats.txt')}"
    "-- device\n/dev/nvme0n1\n-- block\n  10 0 2048 3 20 0 4096 5 0 6 7 0 0 0 0 0 0\n"
    "-- files\n1048576 2048 512 /mnt/a b/rackproof.0\n1048576 0 512 /mnt/a b/rackproof.1\n-- end\n"
)
NFS = Storage.model_validate(
    {"class": "nfs", "mountpoint": "/mnt/n~f~s", "fstype": "nfs4", "source": "/srv", "server_role": "storage"}
)


def test_every_part_of_a_state() -> None:
    state = parse_client_state(STATE)
    assert (state.ram_bytes, state.page_cache_bytes, state.cached_bytes) == (1026392064, 52428800, 4096)
    assert (state.device, state.device_read_bytes, state.device_written_bytes) == ("/dev/nvme0n1", 1048576, 2097152)
    assert [(file.path, file.size, file.allocated) for file in state.files] == [
        ("/mnt/a b/rackproof.0", 1048576, 1048576),
        ("/mnt/a b/rackproof.1", 1048576, 0),
    ]
    assert state.mounts
    assert [mount.protocol for mount in state.nfs] == ["tcp", "rdma"]


@pytest.mark.parametrize("end", ["\f", "\v", "\x85", "\u2028"])
def test_a_name_that_a_user_mounts_ends_no_line(end: str) -> None:
    """The kernel escapes blanks, tabs and newlines in it, no other ends of lines."""
    line = f"99 1 0:99 / /home/ada/m rw - fuse.x a{end}b rw\n"
    state = parse_client_state(STATE.replace("-- mountstats\n", f"{line}-- mountstats\n"))
    assert state.mounts[-1].source == f"a{end}b"


def test_what_a_node_cannot_tell_is_none() -> None:
    state = parse_client_state(f"-- mountinfo\n{tool_output('mountinfo.txt')}-- mountstats\n-- files\n-- end\n")
    assert (state.ram_bytes, state.cached_bytes, state.device, state.device_read_bytes) == (None, None, None, None)
    assert (state.nfs, state.files) == ((), ())


def test_a_count_of_cached_bytes_that_leaves_files_out_is_none() -> None:
    assert parse_client_state(STATE.replace("cached_bytes 4096 2", "cached_bytes 4096 1")).cached_bytes is None
    assert parse_client_state(STATE.replace("cached_bytes 4096 2", "cached_bytes 4096")).cached_bytes is None


def test_a_tree_is_counted_instead_of_listed() -> None:
    head, _, _ = STATE.partition("-- files")
    state = parse_client_state(f"{head}-- tree\n2 2097152\n-- end\n")
    assert (state.tree, state.cached_bytes, state.files) == (Tree(2, 2097152), 4096, ())
    assert parse_client_state(f"{head}-- tree\n3 2097152\n-- end\n").cached_bytes is None
    for text in ("-- tree\n2\n-- end\n", "-- tree\n-- end\n", "-- tree\n2 many\n-- end\n"):
        with pytest.raises(ParseError, match=r"expected numbers of files|is not an integer"):
            parse_client_state(head + text)


test_an_unreadable_state_raises_with_the_reason = refuses(
    parse_client_state,
    ("", "no output"),
    (STATE.removesuffix("-- end\n"), "cut off"),
    (STATE.replace("1048576 2048 512", "1048576 512"), "expected a file"),
    (STATE.replace("1048576 2048 512", "1048576 many 512"), "size of a file is not an integer"),
    (STATE.replace("-- mountinfo\n", "-- mounts\n"), "no output"),
)


def test_the_command_says_when_and_which_addresses_are_expected() -> None:
    before = drop_and_state(NFS, ["/mnt/n~f~s/x"], ["10.0.0.1", "10.0.0.2"])
    assert state_of(before) == ("before", ("10.0.0.1", "10.0.0.2"))
    assert DROP in before
    assert "'/mnt/n~f~s/x'" in before
    after = state_after(NFS, ["/mnt/n~f~s/x"], [])
    assert state_of(after) == ("after", ())
    assert DROP not in after
    assert state_of("echo storage-state before") is None
