"""Processes: ``/proc/PID/stat`` and ``ps``, and the sockets that they listen at."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt

_LISTEN: Final = "0A"
"""State of a listening socket."""


def parse_process(stat: str) -> tuple[str, list[str]]:
    """``/proc/PID/stat``: the name, and the fields from the state on (proc(5)): state, parent, group, session …"""
    end = stat.rfind(")")  # a name may have any character
    return stat[stat.find("(") + 1 : end], stat[end + 2 :].split()


def parse_thread_states(output: str, program: str) -> frozenset[str]:
    """``ps -L -o state=,comm=``: states of the threads of a program."""
    rows = (line.split() for line in output.splitlines())
    return frozenset(row[0] for row in rows if row[1:] == [program])


def parse_process_ids(output: str) -> tuple[str, ...]:
    """``ps -o pid=``; may be empty. Raises ParseError for anything else."""
    words = output.split()
    if strange := [word for word in words if not word.isdecimal()]:
        raise ParseError("ps", f"expected process ids, got {excerpt(strange[0])}")
    return tuple(words)


def parse_listening(table: str, ports: Collection[int]) -> frozenset[str]:
    """``/proc/net/tcp``: sockets that listen at these ports, as links of /proc/PID/fd name them."""
    rows = (line.split() for line in table.splitlines()[1:])
    return frozenset(
        f"socket:[{row[9]}]"
        for row in rows
        if len(row) > 9 and row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) in ports
    )
