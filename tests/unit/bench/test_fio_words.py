"""fio's useful words reach the reader, whatever its exit status and document are. Outputs of fio 3.33."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rackproof.bench.storage.fio_clients import addresses_of, failures, launch_command
from rackproof.bench.storage.fio_launch import RUN, launches
from rackproof.remote.command import CommandResult

CLIENTS = {"/run/a": "gpu-01", "/run/b": "gpu-02"}
NO_JOB = json.dumps({"fio version": "fio-3.33", "timestamp": 1795447236, "client_stats": []})


def entry(client: str, moved: int = 4096, error: int = 0) -> dict[str, Any]:
    latency = {"min": 1, "max": 1, "mean": 1.0, "stddev": 0.0, "N": 1}
    read = {
        "io_bytes": moved, "io_kbytes": moved // 1024, "bw_bytes": moved, "bw": 4, "iops": 1.0, "runtime": 1000,
        "total_ios": moved // 4096, "slat_ns": latency, "clat_ns": latency, "lat_ns": latency,
    }  # fmt: skip
    return {"jobname": "x", "error": error, "job options": {}, "hostname": client, "port": 0, "read": read}


def document(*entries: dict[str, Any]) -> str:
    return json.dumps({"fio version": "fio-3.33", "timestamp": 1795447236, "client_stats": list(entries)})


def reasons(out: str, rc: int = 0, err: str = "") -> dict[str, str]:
    return failures(CommandResult("gpu-01", "fio", rc, out.encode(), err.encode()), CLIENTS)


@pytest.mark.parametrize("rc", [0, 1])
def test_a_refused_job_has_its_servers_words(rc: int) -> None:
    words = "<gpu-02> fio: /mnt/x is not a directory\n<gpu-02> fio: failed parsing directory=/mnt/x\n"
    why = reasons(words + NO_JOB, rc)
    assert why["gpu-02"].startswith("gpu-02: fio: /mnt/x is not a directory; failed parsing directory=/mnt/x")
    assert "document reports no job" not in why["gpu-02"]
    assert why["gpu-01"].startswith("gpu-01: fio returned no result for it")
    assert ("exit status 1" in why["gpu-02"]) is bool(rc)


@pytest.mark.parametrize("out", [NO_JOB, "", '{\n  "fio version" : "fio-3.33",\n  "client_stats" : [\n'])
def test_the_launchers_words_are_in_the_reason(out: str) -> None:
    why = reasons(f"fio: failed to setup shm segment\n{out}")
    assert set(why) == {"gpu-01", "gpu-02"}
    assert all("failed to setup shm segment" in text for text in why.values())


def test_an_error_of_a_request_is_named() -> None:
    words = "<gpu-02> fio: io_u error on file /mnt/x/rackproof.0: Input/output error: read offset=0, buflen=4096\n"
    why = reasons(words + document(entry("/run/a"), entry("/run/b", error=5)), 1)
    assert set(why) == {"gpu-02"}
    assert "fio error 5: io_u error on file /mnt/x/rackproof.0: Input/output error" in why["gpu-02"]


def test_a_process_that_was_killed_before_its_first_byte_is_named() -> None:
    words = "<gpu-02> fio: pid=29763, got signal=9\n"
    why = reasons(words + document(entry("/run/a"), entry("/run/b", moved=0)))
    assert why == {"gpu-02": "gpu-02: fio moved no byte: pid=29763, got signal=9"}


def test_a_good_run_is_no_failure() -> None:
    assert reasons(document(entry("/run/a"), entry("/run/b"))) == {}


def test_a_client_with_another_version_of_fio_is_named() -> None:
    """Output of fio 3.39 as launcher and on gpu-01, with fio 3.33 on gpu-02."""
    err = (
        "fio: bad server cmd version 97\nfio: client/server version mismatch (97 != 109)\n"
        "fio: server bad crc on command (got 0, wanted bacf)\n" * 2
    )
    why = reasons(f"client: host=/run/b disconnected\n{document(entry('/run/a'))}", 1, err)
    expected = "fio: client/server version mismatch (97 != 109): install one version of fio on all clients"
    assert why == {"gpu-02": f"gpu-02: {expected}"}
    assert expected in reasons(f"<gpu-01> fio: a word of its own\n{NO_JOB}", 1, err)["gpu-02"]


ALONE = launch_command({"gpu-01": "[x]\nrw=read\n"})
NOT_A_FOLDER = "fio: /mnt/x is not a directory\nfio: failed parsing directory=/mnt/x\nfio: job x dropped\n"
FULL = "fio: io_u error on file /mnt/x/rackproof.0: No space left on device: write offset=0, buflen=4096\n"


def alone(out: str, rc: int = 0, err: str = "") -> dict[str, str]:
    """One client runs fio without its server: no line names a host."""
    answer = CommandResult("gpu-01", ALONE, rc, out.encode(), err.encode())
    (launch,) = launches([answer])
    assert launch.clients == addresses_of(["gpu-01"]) == {"": "gpu-01"}
    return failures(answer, launch.clients)


def own_document(**changes: Any) -> str:
    job = entry("") | changes
    del job["hostname"], job["port"]
    return json.dumps({"fio version": "fio-3.33", "timestamp": 1795447236, "jobs": [job]})


@pytest.mark.parametrize(
    ("node", "command"),
    [
        ("gpu-02", ALONE),
        ("gpu-01", f"{ALONE} | cat"),
        ("gpu-01", ALONE.replace(RUN, f"{RUN}--client gpu-02 ")),
        ("gpu-01", ALONE.replace("&& fio", '&& printf %s x > "$d/gpu-02.fio" && fio')),
    ],
)
def test_a_result_is_that_of_the_node_which_ran_its_own_job(node: str, command: str) -> None:
    assert command != ALONE or node != "gpu-01"
    (launch,) = launches([CommandResult(node, command, 0, own_document().encode())])
    assert launch.clients == {}
    assert list(launch.entries) == []


def test_a_good_run_of_one_client_is_no_failure() -> None:
    assert alone(own_document()) == {}


@pytest.mark.parametrize("out", [NO_JOB, "", own_document()[:80]])
def test_a_refused_job_of_one_client_has_fios_words(out: str) -> None:
    why = alone(out, 1, NOT_A_FOLDER)["gpu-01"]
    assert why.startswith("gpu-01: fio: /mnt/x is not a directory; failed parsing directory=/mnt/x; job x dropped")
    assert "exit status 1" in why


def test_an_error_of_one_client_is_named_with_its_words() -> None:
    line = "fio: pid=13471, err=28/file:io_u.c:1876, func=io_u error, error=No space left on device"
    out = f"{line}\n{own_document(error=28)}"
    assert alone(out, 1, FULL)["gpu-01"].startswith("gpu-01: fio error 28: ")
    assert "No space left on device" in alone(out, 1, FULL)["gpu-01"]


def test_one_client_that_was_killed_before_its_first_byte_is_named() -> None:
    """fio ends with status 0 and error 0."""
    killed = own_document(read=entry("", moved=0)["read"])
    why = alone(killed, 0, "fio: pid=13478, got signal=9\nfio: file hash not empty on exit\n")
    assert why == {"gpu-01": "gpu-01: fio moved no byte: pid=13478, got signal=9; file hash not empty on exit"}


def test_one_client_with_a_document_of_servers_has_no_result() -> None:
    assert "fio returned no result for it" in alone(document(entry("/run/a")))["gpu-01"]
