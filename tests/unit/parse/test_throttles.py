"""Limits of ports and drives as the virtual rack's kernels print them."""

from __future__ import annotations

import pytest

from rackproof.parse import ParseError
from rackproof.parse.throttles import parse_throttles
from tests.unit.refusals import refuses_parts

QUEUE = '[{"kind":"tbf","handle":"7270:","root":true,"refcnt":2,"options":{"rate":2000000,"burst":52768,"lat":473616}}]'
PORT = f"port fabric0\n{QUEUE}\n\n{QUEUE}\n\n1\n"
DRIVE = (
    "drive nfs-tcp\nuser.slice rbps=1000000 wbps=max riops=50 wiops=max\n"
    "system.slice rbps=1000000 wbps=max riops=50 wiops=max\n"
    "rackproof.slice rbps=1000000 wbps=max riops=50 wiops=max\n"
)
EACH = (
    'connections fabric0:2049\n[{"kind":"prio","handle":"7271:","root":true,"options":{"bands":3}},'
    '{"kind":"fq","handle":"7272:","parent":"7271:3","options":{"limit":10000,"flow_limit":100,"maxrate":750000,"low_rate_threshold":68750}}]\n\n4\n'
)
THREADS = "thread 0::/rackproof.slice\nthread 0::/rackproof.slice\n"
FREE = (
    'connections fabric0:2049\n[{"kind":"fq_codel","handle":"0:","root":true,"options":{}}]\n\n0\n'
    'port fabric0\n[{"kind":"fq_codel","handle":"0:","root":true,"refcnt":2,"options":{"limit":10240}}]\n\n[]\n\n0\n'
    "drive local\nuser.slice none\nsystem.slice none\nrackproof.slice none\n"
)


def answer(*parts: str) -> str:
    return "rackproof throttles 1\n" + "".join(parts) + "end\n"


def test_limits_of_a_port_of_connections_and_of_a_drive() -> None:
    limits = parse_throttles(answer(PORT, EACH, DRIVE, THREADS))
    assert limits.ports == {"fabric0": 16e6}
    assert limits.connections == {"fabric0:2049": 6e6}
    assert limits.drives == {"nfs-tcp": {"bytes_per_s": 1e6, "reads_per_s": 50}}


def test_a_node_without_limits_has_none() -> None:
    assert not any(parse_throttles(answer(FREE)))


test_no_truncated_answer_is_read = refuses_parts((parse_throttles, answer(PORT, EACH, DRIVE, THREADS)))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (f"{QUEUE}\n\n1", "[]\n\n1", "one direction"),
        (f"{QUEUE}\n\n1", f"{QUEUE.replace('2000000', '9000000')}\n\n1", "one direction"),
        (f"{QUEUE}\n\n1", f"{QUEUE}\n\n0", "one direction"),
        (QUEUE, "[{", "unreadable answer of tc"),
        ("}}]\n\n4", "}}]\n\n3", "fabric0:2049: not every connection"),
        ("}}]\n\n4", "}}]\n\n", "fabric0:2049: not every connection"),
        ('"maxrate":750000,', "", "unreadable answer of tc"),
        ("user.slice rbps=1000000", "user.slice rbps=2000000", "not everything"),
        ("system.slice rbps=1000000 wbps=max riops=50 wiops=max", "system.slice none", "not everything"),
        ("rackproof.slice rbps=1000000 wbps=max riops=50 wiops=max", "rackproof.slice none", "not everything"),
        ("thread 0::/rackproof.slice\n", "thread 0::/\n", "not everything"),
        ("system.slice rbps", "other.slice rbps", "system.slice are missing"),
        ("drive nfs-tcp", "device nfs-tcp", "unreadable line"),
    ],
)
def test_what_limits_only_a_part_is_no_limit(old: str, new: str, why: str) -> None:
    text = answer(PORT, EACH, DRIVE, THREADS)
    assert old in text
    with pytest.raises(ParseError, match=why):
        parse_throttles(text.replace(old, new, 1))
