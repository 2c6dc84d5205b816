from __future__ import annotations

from rackproof.parse.port_counters import counters_command, parse_port_counters
from tests.unit.refusals import refuses

ANSWER = """\
/proc/sys/kernel/hostname:gpu-01
/proc/net/snmp:Ip: Forwarding DefaultTTL
/proc/net/snmp:Ip: 2 64
/proc/net/snmp:Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs
/proc/net/snmp:Tcp: 1 -1 4711 12
/sys/class/net/fabric0/statistics/rx_bytes:1000
/sys/class/net/fabric0/statistics/tx_bytes:18446744073709551615
/sys/class/infiniband/rxe0/ports/1/counters/port_xmit_data:N/A (no PMA)
/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts:77
status 0
"""


def test_counters_of_interfaces_devices_and_tcp() -> None:
    counters = parse_port_counters(ANSWER)
    assert counters.hostname == "gpu-01"
    assert counters.netdevs == {"fabric0": {"rx_bytes": 1000, "tx_bytes": 2**64 - 1}}
    assert counters.rdma == {"rxe0": {"sent_pkts": 77}}, "what a device lacks is absent, not 0"
    assert counters.tcp == {"RtoAlgorithm": 1, "OutSegs": 4711, "RetransSegs": 12}


def test_the_command_quotes_names_and_keeps_patterns() -> None:
    command = counters_command(["a b"], ["rxe0"])
    assert "'a b'/statistics/*" in command
    assert "/rxe0/ports/1/hw_counters/*" in command


test_what_is_incomplete_is_refused = refuses(
    parse_port_counters,
    ("", "no output"),
    (ANSWER.replace("status 0\n", ""), "cut off"),
    (ANSWER.replace("status 0", "status 127"), "exit status 127"),
    (ANSWER.replace("/proc/sys/kernel/hostname:gpu-01\n", ""), "name is missing"),
    (ANSWER.replace("Tcp: 1 -1 4711 12", "Tcp: 1 -1"), "no TCP counters"),
)
