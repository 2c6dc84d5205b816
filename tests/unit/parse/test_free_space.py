"""Free space of file systems, as df prints it."""

from __future__ import annotations

import pytest

from rackproof.parse.errors import ParseError
from rackproof.parse.free_space import parse_free_mib


@pytest.mark.parametrize(
    ("line", "free"),
    [
        ("/ /dev/nvme0n1p2 921000000 41000000 833000000 5% /", 813476),
        ("/ //server/a share 2048 0 2048 0% /mnt/a b", 2),
        ("/ overlay 0 0 0 - /", 0),
        ("/ ", None),
        ("/", None),
        ("/ Filesystem 1024-blocks Used Available Capacity Mounted on", None),
        ("/ /dev/vda2 2048 1024", None),
        ("/ /dev/vda2 2048 4096 -2048 200% /", None),
    ],
)
def test_only_a_whole_answer_is_a_number(line: str, free: int | None) -> None:
    assert parse_free_mib([line]) == {"/": free}


@pytest.mark.parametrize("lines", [["status 0"], [""], ["/ a 1 0 1 0% /", "/ a 1 0 1 0% /"]])
def test_other_lines_are_no_answer(lines: list[str]) -> None:
    with pytest.raises(ParseError):
        parse_free_mib(lines)
