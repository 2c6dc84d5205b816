"""Parallel file systems that were reached over another transport, or moved other bytes, give no number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof.bench.reading import Reading
from rackproof.bench.storage.reader import read_storage
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement, Scope
from rackproof.parse import ParseError
from tests.unit import transfer_answers
from tests.unit.refusals import refuses
from tests.unit.storage_nodes import JOB, StorageNodes, recorded_run
from tests.unit.transfer_answers import counters

pytestmark = pytest.mark.few(16)

WRITTEN = Path(__file__).parents[2] / "data/written/hgx-h200-roce/architecture.yaml"
ARCHITECTURE = Architecture.model_validate(yaml.safe_load(WRITTEN.read_text()))
CEPH = {"class": "parallel", "fstype": "ceph", "mountpoint": "/mnt/ceph", "source": "rackfs", "transport": "tcp"}
PARALLEL = [name for name, storage in ARCHITECTURE.storage.items() if storage.class_ == "parallel"]


def architecture(name: str, **changed: Any) -> Architecture:
    """With a storage changed; ``ceph`` is one more."""
    document = yaml.safe_load(WRITTEN.read_text())
    document["storage"]["ceph"] = CEPH
    document["storage"][name] = document["storage"][name] | changed
    return Architecture.model_validate(document)


def read(name: str, changed: dict[str, Any] | None = None, **fault: Any) -> Reading:
    """One run on one client. Raises ParseError."""
    made = architecture(name, **(changed or {}))
    answers = recorded_run(StorageNodes(made, **fault), name, JOB, {"gpu-01": "10.0.0.1"})
    labels = {"storage": name, "block_bytes": str(JOB.block_bytes)}
    return read_storage(answers, made)(
        Measurement(metric="storage.read_bandwidth", scope=Scope.NODE, members=("gpu-01",), labels=labels,
                    unit="MB/s", step=f"storage/{name}/read")
    )  # fmt: skip


BYTES = {
    "lustre": "by the client and the node's RDMA devices",
    "beegfs": "by the node's RDMA devices; not proven: nothing counts them",
    "gpfs": "by the client and the node's RDMA devices",
    "weka": "by the node's adapters; not proven: nothing counts them",
    "daos": "by the node's RDMA devices; not proven: nothing counts them",
    "ceph": "by the client and the node's ports",
}


@pytest.mark.parametrize("name", BYTES)
def test_what_is_proven_of_each_file_system(name: str) -> None:
    reading = read(name)
    assert reading.conditions["bytes"] == BYTES[name]
    assert reading.conditions["mount"].endswith(", tcp" if name == "ceph" else ", rdma")
    assert ("counter_bytes" in reading.companions) is ("client" in BYTES[name])


@pytest.mark.parametrize("name", PARALLEL)
@pytest.mark.parametrize("when", ["transport", "transport_after"])
def test_another_transport_is_no_number(name: str, when: str) -> None:
    with pytest.raises(ParseError, match=f"{'after' if 'after' in when else 'before'} the run: transport in use: "):
        read(name, **{when: "tcp"})


test_one_connection_over_another_transport_is_no_number = refuses(
    lambda name: read(name, transport="rdma tcp"), "lustre", "beegfs", "weka", "daos", says="expected rdma, actual "
)


test_a_client_that_does_not_tell_its_transport_gives_no_number = refuses(
    lambda name: read(name, clients_rc=1), *BYTES, says="exit status 1"
)


@pytest.mark.parametrize("name", BYTES)
def test_without_a_required_transport_the_condition_says_that_it_is_not_proven(name: str) -> None:
    assert "transport not proven: " in read(name, {"transport": None}, clients_rc=1).conditions["mount"]


def test_connections_may_be_missing_before_the_first_request_only() -> None:
    assert read("beegfs", transport="", transport_after="rdma").samples
    with pytest.raises(ParseError, match="after the run: transport in use: expected rdma, actual no connection"):
        read("beegfs", transport_after="")


def test_a_file_system_whose_client_tells_nothing() -> None:
    with pytest.raises(ParseError, match="its client does not tell the transport"):
        read("beegfs", {"fstype": "fuse.other", "source": "other"}, clients_rc=1, transport="")
    assert read("beegfs", {"fstype": "fuse.other", "source": "other", "transport": None}).conditions["bytes"] == (
        "by the node's ports; not proven: nothing counts them"
    )


test_bytes_that_the_client_did_not_ask_for_are_named = refuses(
    lambda name: read(name, counted=0.1), "lustre", "gpfs", "ceph", says="the client counted"
)


def test_a_ceph_client_that_counts_reads_as_0_bytes_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Linux 6.12 counts buffered reads: the bytes are those of the ports, or there is no number."""

    def counted(fstype: str, name: str, read: int, written: int) -> str | None:
        text = counters(fstype, name, read, written)
        return text and re.sub(r"(?m)(read .*)\b\d+$", r"\g<1>0", text)

    monkeypatch.setattr("tests.unit.transfer_answers.counters", counted)
    reading = read("ceph")
    assert reading.conditions["bytes"].startswith("by the node's ports; not proven: ceph: the client counted ")
    assert reading.conditions["bytes"].endswith(" reads as 0 B")
    assert "counter_bytes" not in reading.companions
    with pytest.raises(ParseError, match="the node's ports counted"):
        read("ceph", ports={"kernel": 0.5, "rdma": 1.0})


@pytest.mark.parametrize(
    ("name", "ports", "words"),
    [
        # RDMA is asked for, and the bytes went over TCP
        *((name, {"kernel": 1.0, "rdma": 0.1}, "RDMA devices counted") for name in PARALLEL if name != "weka"),
        # what came from a cache or from the node itself
        ("ceph", {"kernel": 0.5, "rdma": 1.0}, "the node's ports counted"),
        ("weka", {"kernel": 1.0, "rdma": 1.0, "wire": 0.5}, "the node's adapters counted"),
        ("beegfs", {"kernel": 0.5}, "the node's ports counted"),
    ],
)  # fmt: skip
def test_bytes_that_the_ports_did_not_carry_are_named(name: str, ports: dict[str, float], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        read(name, ports=ports)


@pytest.mark.parametrize(
    ("name", "ports", "words"),
    [
        ("beegfs", {"kernel": 1.0}, "by the node's ports; not proven"),  # RDMA in software
        ("weka", {"kernel": 0.0, "rdma": 0.0}, "not proven: nothing counts them"),
        ("lustre", {"kernel": 0.01}, "by the client"),  # adapters that do not count RDMA
    ],
)
def test_ports_that_cannot_tell_do_not_fail(name: str, ports: dict[str, float], words: str) -> None:
    assert words in read(name, ports=ports).conditions["bytes"]


@pytest.mark.parametrize("name", ["gpfs", "daos"])
@pytest.mark.parametrize(
    ("changed", "ports", "words"),
    [
        ({}, {"kernel": 1.0}, "no RDMA device counts bytes"),  # all of it went over TCP
        ({}, {"kernel": 1.0, "wire": 1.1}, "no RDMA device counts bytes"),
        ({"server_role": "gpu"}, {"kernel": 1.0, "rdma": 1.0}, "the node's ports carry a server's bytes, too"),
    ],
)
def test_a_client_that_tells_no_connection_needs_counters_of_rdma(
    name: str, changed: dict[str, Any], ports: dict[str, float], words: str
) -> None:
    with pytest.raises(ParseError, match=f"does not report which transport it uses, and {words}"):
        read(name, changed, ports=ports)


@pytest.mark.parametrize("name", ["beegfs", "gpfs", "ceph"])
def test_a_port_that_appears_in_the_run_proves_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It brings what it has moved in a container; the client's own count, where it has one, still proves the bytes."""
    told = transfer_answers.ports
    seen: list[str] = []

    def ports(*counts: Any) -> str:
        seen.append(told(*counts))
        device = "/sys/class/infiniband/mlx5_9/ports/1/counters"
        paths = (f"{device}/port_xmit_data", f"{device}/port_rcv_data", "/sys/class/net/vf9/statistics/rx_bytes")
        rows = "".join(f"{path}:{10**12}\n" for path in paths)
        return told(*counts) + (rows if len(seen) > 1 else "")

    monkeypatch.setattr("tests.unit.transfer_answers.ports", ports)
    if name == "ceph":
        assert read(name, ports={"kernel": 0.1, "rdma": 0.1}).conditions["bytes"] == "by the client"
        return
    with pytest.raises(ParseError, match=r"port counters: /sys/class/.* was not there before the run"):
        read(name, ports={"kernel": 0.1, "rdma": 0.1})


def test_a_client_that_is_a_server_too_needs_no_port() -> None:
    """Part of the bytes are its own."""
    assert read("ceph", {"server_role": "gpu"}, ports={"kernel": 0.3}).conditions["bytes"] == "by the client"
