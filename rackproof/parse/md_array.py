"""Linux software RAID: an md array in /sys/block."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from rackproof.parse.answer import STATUS, parse_answer
from rackproof.parse.errors import ParseError
from rackproof.parse.sysfs import files_of
from rackproof.parse.text import excerpt


@dataclass(frozen=True, slots=True)
class MdArray:
    """An md array in the kernel."""

    device: str
    """``/dev/md127``; the target of its /dev/md link."""
    level: str
    drives: int
    """Configured number of members."""
    state: str
    chunk_bytes: int
    members: Mapping[str, str]
    """Drive: ``in_sync``, ``faulty`` …"""


def md_array_command(label: str) -> str:
    """Command that prints the state of the array of this name."""
    return (
        f'd=$(readlink -f -- {shlex.quote(f"/dev/md/{label}")}); if [ -b "$d" ]; then echo "array $d";'
        ' cd "/sys/block/${d##*/}" &&'
        ' grep -sH "" md/level md/raid_disks md/array_state md/chunk_size md/dev-*/state;'
        f" else echo no array; fi{STATUS}"
    )


def parse_md_array(output: str) -> MdArray | None:
    """Output of ``md_array_command``; None when there is no such array."""
    answer = parse_answer("mdadm", output)
    if (answer.body, answer.status) == ("no array\n", 0):
        return None
    head, _, rest = answer.body.partition("\n")
    device = re.fullmatch(r"array (/dev/\S+)", head)
    if device is None or answer.status != 0:
        raise ParseError("/sys/block", f"expected an array, got {excerpt(answer.body)}")
    values = {path: lines[0] if len(lines) == 1 else "" for path, lines in files_of(rest).items()} if rest else {}
    members = {
        path.removeprefix("md/dev-").removesuffix("/state"): state
        for path, state in values.items()
        if path.startswith("md/dev-")
    }
    asked = ("md/level", "md/raid_disks", "md/array_state", "md/chunk_size")
    missing = [path for path in asked if not values.get(path)]
    if missing or not members or not (values["md/raid_disks"].isdigit() and values["md/chunk_size"].isdigit()):
        raise ParseError("/sys/block", f"{device[1]} has no {', '.join(missing) or 'its members'}")
    return MdArray(
        device=device[1],
        level=values["md/level"],
        drives=int(values["md/raid_disks"]),
        state=values["md/array_state"],
        chunk_bytes=int(values["md/chunk_size"]),
        members=members,
    )
