from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rackproof.parse.fio import Direction, Message, complaints, file_complaint, parse_fio
from tests.unit.refusals import refuses

from . import tool_output


def document(name: str) -> dict[str, Any]:
    text = tool_output(name)
    return json.loads(text[text.index("\n{") + 1 :] if not text.startswith("{") else text)  # type: ignore[no-any-return]


def direction(value: Direction | None) -> Direction:
    assert value is not None
    return value


def test_numbers_of_fio_3_are_its_own_to_the_last_digit() -> None:
    name = "fio-3.33-two-clients.txt"
    result, raw = parse_fio(tool_output(name)), document(name)["client_stats"]
    assert result.version == "3.33"
    assert result.clients == ("gpu-01", "gpu-02")
    for job, entry in zip(result.jobs, raw, strict=False):
        read = direction(job.read)
        assert (job.jobname, job.client, job.port, job.error) == ("seqread", entry["hostname"], 8765, 0)
        assert read.bandwidth_bytes_per_s == entry["read"]["bw_bytes"]
        assert read.iops == entry["read"]["iops"]
        assert read.io_bytes == entry["read"]["io_bytes"]
        assert read.runtime_ms == entry["read"]["runtime"]
        assert read.total_ios == entry["read"]["total_ios"]
        assert read.clat_ns is not None
        assert read.clat_ns == entry["read"]["clat_ns"]["mean"]


def test_the_sum_over_all_clients_is_no_job() -> None:
    assert len(parse_fio(tool_output("fio-3.33-two-clients.txt")).jobs) == 2
    assert len(parse_fio(tool_output("fio-3.33-one-client.txt")).jobs) == 1


def test_a_client_that_fio_dropped_is_missing_and_its_complaint_is_kept() -> None:
    result = parse_fio(tool_output("fio-3.33-client-dropped.txt"))
    assert result.clients == ("gpu-01",)
    assert any("is not a directory" in message for message in result.messages)


def test_a_direction_that_did_nothing_has_no_latency() -> None:
    write = direction(parse_fio(tool_output("fio-3.33-one-client.txt")).jobs[0].write)
    assert (write.bandwidth_bytes_per_s, write.io_bytes) == (0, 0)
    assert write.clat_ns is None
    assert write.lat_ns is None


def test_latency_that_fio_was_told_not_to_measure_is_absent_instead_of_0() -> None:
    read = direction(parse_fio(tool_output("fio-3.33-no-latency.json")).jobs[0].read)
    assert read.io_bytes > 0
    assert read.clat_ns is None


def test_unified_directions_and_the_note_before_the_document() -> None:
    result = parse_fio(tool_output("fio-3.33-mixed.txt"))
    (job,) = result.jobs
    assert job.read is None
    assert job.write is None
    mixed = direction(job.mixed)
    assert (mixed.io_bytes, mixed.bandwidth_bytes_per_s) == (262144, 131072000)
    assert mixed.clat_ns is not None
    assert mixed.lat_ns is not None
    assert mixed.lat_ns >= mixed.clat_ns
    assert result.messages[0].startswith("note: both iodepth >= 1")


def test_fio_2_counts_kib_and_microseconds() -> None:
    result = parse_fio(tool_output("fio-2.1-two-jobs.json"))
    assert result.version == "2.1.11"
    assert result.clients == ()
    read = direction(result.jobs[0].read)
    assert read.bandwidth_bytes_per_s == 131072 * 1024
    assert read.io_bytes == 524288 * 1024
    assert read.io_bytes / read.runtime_ms * 1000 == pytest.approx(read.bandwidth_bytes_per_s)
    assert read.total_ios is None
    assert read.clat_ns is not None
    assert read.clat_ns == pytest.approx(1_203_410)


def test_jobs_with_an_error_are_listed() -> None:
    assert [(job.jobname, job.error) for job in parse_fio(tool_output("fio-2.1-two-jobs.json")).failed] == [
        ("seqwrite", 28)
    ]


def test_fio_2_client_mode_with_unified_directions() -> None:
    result = parse_fio(tool_output("fio-2.6-two-clients-mixed.json"))
    assert result.clients == ("gpu-01", "gpu-02")
    first = direction(result.jobs[0].mixed)
    assert (first.bandwidth_bytes_per_s, first.clat_ns, first.lat_ns) == (8192 * 1024, None, 1_800_500)


def edit(change: Callable[[dict[str, Any]], object]) -> str:
    value = document("fio-3.33-two-clients.txt")
    change(value)
    return json.dumps(value)


def entry(value: dict[str, Any]) -> Any:
    return value["client_stats"][0]


test_bad_output_raises_with_the_reason = refuses(
    parse_fio,
    ("empty", "", "no output"),
    ("only messages", "fio: connect: Connection refused\n", "no JSON document; .*Connection refused"),
    ("cut off", tool_output("fio-3.33-two-clients.txt")[:9000], "cut off or damaged"),
    ("cut off by one character", tool_output("fio-3.33-no-latency.json").rstrip()[:-1], "cut off or damaged"),
    ("another tool's document", '{"start": {}, "end": {}}\n', "no JSON document"),
    ("twice", tool_output("fio-3.33-no-latency.json") * 2, "more than one"),
    ("no job", edit(lambda d: d["client_stats"].clear()), "reports no job"),
    ("no list of jobs", edit(lambda d: d.pop("client_stats")), "either jobs or client_stats"),
    ("no version", edit(lambda d: d.update({"fio version": "3.33"})), "not a version"),
    ("no direction", edit(lambda d: [entry(d).pop(k) for k in ("read", "write")]), "read, write and mixed are missing"),
    ("no host", edit(lambda d: entry(d).pop("hostname")), "hostname is missing"),
    ("no error", edit(lambda d: entry(d).pop("error")), r"client_stats\[0\].error is missing"),
    ("bandwidth is text", edit(lambda d: entry(d)["read"].update(bw_bytes="fast")), "bw_bytes is not a number"),
    ("negative", edit(lambda d: entry(d)["read"].update(bw_bytes=-1)), "below 0"),
    ("latency is a list", edit(lambda d: entry(d)["read"].update(clat_ns=[1])), "clat_ns is not an object"),
    ("two sums", edit(lambda d: d["client_stats"].append(d["client_stats"][2])), "2 sums"),
)


def test_the_options_that_fio_reports_are_kept_with_the_global_ones() -> None:
    (job, _) = parse_fio(tool_output("fio-3.33-two-clients.txt")).jobs
    assert job.options == {"ioengine": "psync", "size": "4m", "bs": "64k", "runtime": "1", "time_based": "1",
                           "rw": "read"}  # fmt: skip


def test_what_fio_says_beside_a_normal_run_is_kept_with_the_host_that_said_it() -> None:
    dropped = complaints(tool_output("fio-3.33-client-dropped.txt"))
    assert any("is not a directory" in line.text for line in dropped)
    assert all(line.host for line in dropped)
    assert complaints(tool_output("fio-3.33-two-clients.txt")) == ()
    text = f"warning: something new\n{tool_output('fio-3.33-no-latency.json')}"
    assert complaints(text) == (Message(None, "warning: something new"),)
    assert file_complaint(text) is None
    assert (
        file_complaint(f"{text}\n x: Laying out IO file (1 file / 1MiB)\n") == "x: Laying out IO file (1 file / 1MiB)"
    )
