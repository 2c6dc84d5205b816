from __future__ import annotations

import json

import pytest

from rackproof.parse import Unreliable
from rackproof.parse.iperf3 import parse_iperf3
from tests.unit.refusals import refuses

from . import tool_output

TCP = tool_output("iperf3-3.12-two-streams.json")


def test_the_receivers_rate_is_reported_to_the_last_digit() -> None:
    result, end = parse_iperf3(TCP), json.loads(TCP)["end"]
    assert result.received_bits_per_s == end["sum_received"]["bits_per_second"]
    assert result.received_bytes == end["sum_received"]["bytes"]
    assert (result.version, result.protocol, result.streams, result.reverse) == ("3.12", "TCP", 2, False)
    assert result.retransmits == 4


def test_reverse_and_bidirectional_and_udp() -> None:
    assert parse_iperf3(tool_output("iperf3-3.12-reverse.json")).reverse
    both = parse_iperf3(tool_output("iperf3-3.12-bidir.json"))
    assert both.received_bits_per_s == 11652101978.608877
    udp = parse_iperf3(tool_output("iperf3-3.12-udp.json"))
    assert (udp.protocol, udp.retransmits) == ("UDP", None)


test_bad_output_raises_with_the_reason = refuses(
    parse_iperf3,
    ("empty", "", "no output"),
    ("error", tool_output("iperf3-3.12-refused.json"), "unable to connect to server: Connection refused"),
    ("error after numbers", TCP.rstrip()[:-1] + ', "error": "interrupt"}', "interrupt"),
    ("cut off", TCP[:2000], "cut off or damaged"),
    ("no receiver", TCP.replace('"sum_received"', '"sum_got"'), "no summary of the receiver"),
    ("no time", TCP.replace('"seconds":\t1.000931', '"seconds":\t0'), "nothing was measured"),
    ("rate is text", TCP.replace("19893936984.667274", '"high"'), "bits_per_second is not a number"),
    ("no test", TCP.replace('"test_start"', '"start"'), "test_start is missing"),
    ("another document", '{"fio version": "fio-3.33"}', "no JSON document"),
)


def test_a_rate_that_contradicts_its_bytes_is_no_rate() -> None:
    document = json.loads(TCP)
    document["end"]["sum_received"]["bits_per_second"] = 0.0
    with pytest.raises(Unreliable, match="contradict 0 bit/s"):
        parse_iperf3(json.dumps(document))


def test_what_the_tool_was_told() -> None:
    result = parse_iperf3(TCP)
    assert (result.seconds_asked, result.mss_bytes, result.sent_bytes) == (1, 32768, 2489057280)
    assert result.local_hosts == result.remote_hosts == {"127.0.0.1"}
