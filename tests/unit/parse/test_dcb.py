"""dcb's two lines."""

from __future__ import annotations

import pytest

from rackproof.parse.dcb import parse_dcb
from rackproof.parse.mlnx_qos import Qos
from tests.unit.refusals import refuses

PFC = "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off \n"


def test_pauses_and_marks_are_read() -> None:
    assert parse_dcb(f"dcb\n{PFC}dscp-prio 26:3 48:6 \n") == Qos("dscp", frozenset({3}), {26: 3, 48: 6})


@pytest.mark.parametrize("rest", ["", "dscp-prio \n"])
def test_without_an_entry_the_vlan_tag_is_trusted(rest: str) -> None:
    assert parse_dcb(f"dcb\n{PFC}{rest}").trust == "pcp"


test_anything_else_is_refused = refuses(
    parse_dcb,
    "",
    "dcb\n",
    "status 0\n",
    f"{PFC}",
    "dcb\nprio-pfc 0:off 1:off 2:off 3:on\n",
    f"dcb\n{PFC.replace('3:on', '3:maybe')}",
    f"dcb\n{PFC}dscp-prio 26:3 26:4\n",
    f"dcb\n{PFC}dscp-prio 26:9\n",
    f"dcb\n{PFC}dscp-prio 26:3 4\n",
    f"dcb\n{PFC}dscp-prio 26:3\nmore\n",
    f"dcb\n{PFC}RTNETLINK answers: Operation not supported\n",
    says="",
)
