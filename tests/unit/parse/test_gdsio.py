"""gdsio's line, as NVIDIA's guide and others show it."""

from __future__ import annotations

from rackproof.parse.gdsio import GdsResult, parse_gdsio
from tests.unit.refusals import refuses, refuses_parts

LONG = (
    "IoType: READ XferType: GPUD Threads: 8 DataSetSize: 818796544/4096000(KiB) IOSize: 1024(KiB) Throughput: 6.524658"
    " GiB/sec, Avg_Latency: 1197.370995 usecs ops: 799606 total_time 119.679102 secs\n"
)
OTHERS = (
    "IoType: READ XferType: CPUONLY Threads: 4 DataSetSize: 4187136/4194304(KiB) IOSize: 1024(KiB) Throughput: 3.227660"
    " GiB/sec, Avg_Latency: 1209.149901 usecs ops: 4089 total_time 1.237170 secs\n",
    "IoType: WRITE XferType: GPUD Threads: 8 DataSetSize: 54675456/8388608(KiB) IOSize: 1024(KiB) Throughput: 5.655563"
    " GiB/sec, Avg_Latency: 1381.371828 usecs ops: 53394 total_time 9.219697 secs\n",
)


def test_every_figure_of_a_read() -> None:
    result = parse_gdsio(f"url index :0, urlname :192.168.0.1\n{LONG}")
    assert result == GdsResult("READ", "GPUD", 8, 818796544 * 1024, 1048576, 6.524658 * 1024**3, 119.679102)
    assert [parse_gdsio(text).transfer for text in OTHERS] == ["CPUONLY", "GPUD"]


test_every_truncation_is_refused = refuses_parts((parse_gdsio, LONG))


test_what_is_no_result_or_contradicts_itself_is_refused = refuses(
    parse_gdsio,
    (LONG + LONG, "actual 2"),
    ("Verifying data\n", "actual 0"),
    ("cuFileDriverOpen error: GPUDirect Storage not supported\n", "actual 0"),
    (LONG.replace("6.524658", "65.24658"), "its rate × time"),
    (LONG.replace("799606", "79960"), "its requests"),
    (LONG.replace("6.524658", "nan"), "cut off"),
)
