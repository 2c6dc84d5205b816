"""The knee on storages whose knee is known, and evidence of a search that does not give its number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rackproof.bench.relay import socket_of
from rackproof.bench.storage import knee
from rackproof.bench.storage.knee_reader import OUTSTANDING, UTILISATION, long_enough
from rackproof.core.architecture import Architecture, KneeProfile
from rackproof.core.evidence import Measurement
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from tests.unit.benchmarked import Bench, commands, of_storage
from tests.unit.fakes import virtual_rack
from tests.unit.judging import architecture, bar, criterion, document, judged, verdicts
from tests.unit.storage_nodes import Document, StorageNodes

pytestmark = pytest.mark.few(6)

ROOT = Path(__file__).parents[3]
KNEE = KneeProfile(block_bytes=4096, file_bytes=16777216, processes=4, most_outstanding=256, runtime_s=10)


def asking(knee: KneeProfile) -> Bench:
    """A rack with a criterion for the load at the knee, too."""
    bench = of_storage(knee=knee)
    entry = criterion(id="share", metric=UTILISATION, scope="rack", bar=bar("ge", 5, "percent"))
    document = bench.architecture.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    model = Architecture.model_validate(document | {"criteria": [entry], "curves": [], "outliers": []})
    return replace(bench, architecture=model)


BENCH = asking(KNEE)
ARCHITECTURE = BENCH.architecture


def search(folder: Path, nodes: StorageNodes, bench: Bench = BENCH) -> dict[str, Measurement]:
    return {m.metric.split("_")[1]: m for m in bench.measure(folder, nodes.answer)}


@pytest.mark.parametrize("servers", [6, 20, 50])
def test_the_knee_of_a_rack_is_found_within_20_percent(tmp_path: Path, servers: int) -> None:
    measured = search(tmp_path, StorageNodes(ARCHITECTURE, servers=servers))
    outstanding, share = measured["outstanding"], measured["utilisation"]
    assert outstanding.samples[0] == pytest.approx(2 * 2 * servers, rel=0.2)  # two clients
    assert share.samples[0] == pytest.approx(52.5, rel=0.2)
    assert set(outstanding.companions) >= {"iops", "latency_s", "outstanding", "cached_bytes_start", "dataset_bytes"}
    assert "outstanding" not in share.companions
    (curve,) = outstanding.conditions["curves"]
    assert curve["peak_rate"] == pytest.approx(2 * servers / 0.001, rel=0.05)
    assert {step["load"] for step in curve["steps"]} > {1, 4, 16}
    for step in (*curve["steps"], *share.conditions["curves"][0]["steps"]):
        assert 0 < step["p50_us"] < step["p95_us"] < step["p99_us"] < step["p99.9_us"]
    assert outstanding.conditions["cache"] == "cold"
    assert outstanding.conditions["clients"] == share.conditions["clients"] == 2
    assert BENCH.faults(tmp_path) == {}


def test_rates_are_searched_where_an_entry_asks_for_them(tmp_path: Path) -> None:
    bench = of_storage(knee=KNEE)
    measured = search(tmp_path, StorageNodes(bench.architecture, servers=20), bench)
    assert list(measured) == ["outstanding"]
    assert measured["outstanding"].samples
    assert not [command for command in commands(tmp_path) if "-open-" in command]
    assert bench.faults(tmp_path) == {}


def test_a_storage_without_a_knee_gives_a_lower_bound_and_no_share(tmp_path: Path) -> None:
    def flat(document: Document) -> None:
        for entry in document["client_stats"]:
            entry["read"]["clat_ns"]["percentile"]["99.000000"] = 3e6

    measured = search(tmp_path, StorageNodes(ARCHITECTURE, servers=20, change=flat))
    assert measured["outstanding"].samples == (512.0,)
    assert "lower bound" in measured["outstanding"].conditions["curves"][0]["knee"]
    assert not measured["utilisation"].samples or measured["utilisation"].samples[0] < 100
    assert BENCH.faults(tmp_path) == {}
    higher = of_rack(measured["outstanding"], 513)
    assert higher.status is Status.INVALID, "the knee may be above the bar"
    assert higher.message.startswith("latency has not doubled with 512 requests in flight")
    assert of_rack(measured["outstanding"], 512).status is Status.PASS
    known = measured["outstanding"].model_copy(update={"conditions": {}})
    assert of_rack(known, 513).status is Status.FAIL
    local = {"labels": known.labels | {"storage": "local"}}
    assert of_rack(known, 1, known.model_copy(update=local)).status is Status.PASS
    share = of_rack(known, 1, measured["outstanding"].model_copy(update=local))
    assert share.status is Status.INVALID, "the knee that it is a share of may be higher"


def test_a_knee_below_the_bar_fails(tmp_path: Path) -> None:
    measurement = search(tmp_path, StorageNodes(ARCHITECTURE, servers=6))["outstanding"]
    assert of_rack(measurement, 100).status is Status.FAIL


def of_rack(measurement: Measurement, least: float, *reference: Measurement) -> Verdict:
    """Verdict on a knee that must be at so many requests in flight, or at so large a share of a local one."""
    where = {"storage": "nfs-tcp", "block_bytes": KNEE.block_bytes}
    asked = bar("ge", least, "1")
    if reference:
        local = {"metric": OUTSTANDING, "scope": "rack", "where": where | {"storage": "local"}}
        asked = bar("ge", least, "ratio", of=local)
    entry = criterion(metric=OUTSTANDING, where=where, scope="rack", bar=asked)
    storage = document()["storage"]
    made = architecture(entry, storage=storage | {"nfs-tcp": storage["nfs"] | {"mountpoint": "/mnt/nfs-tcp"}})
    return verdicts(judged(made, measurement, *reference))["rack"]


def without_percentiles(document: Document) -> None:
    for entry in document["client_stats"]:
        entry["read"]["clat_ns"].pop("percentile")


def refusing(document: Document) -> None:
    for entry in document["client_stats"]:
        entry["error"] = 5 if entry["hostname"] == socket_of("gpu-02") else 0


def one_after_another(document: Document) -> None:
    for number, entry in enumerate(document["client_stats"]):
        entry["job_start"] += number * 11_000


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (StorageNodes(ARCHITECTURE, servers=20, change=one_after_another), "its clients began up to 11 s apart"),
        (StorageNodes(ARCHITECTURE, servers=20, change=without_percentiles), "no 99th percentile of gpu-01"),
        (StorageNodes(ARCHITECTURE, servers=20, change=refusing), "gpu-02 missing: gpu-02: fio error 5"),
        (StorageNodes(ARCHITECTURE, servers=20, counted=0.2), "the mount counted"),
        (StorageNodes(ARCHITECTURE, servers=20, allocated=0.1), "allocated"),
        (StorageNodes(ARCHITECTURE, servers=20, rc=1), "exit status 1"),
    ],
)
def test_a_search_without_proof_has_no_knee(tmp_path: Path, nodes: StorageNodes, reason: str) -> None:
    for measurement in search(tmp_path, nodes).values():
        assert not measurement.samples
        assert reason in (measurement.reason or "")


def test_runs_at_a_low_rate_last_until_they_have_enough_arrivals(tmp_path: Path) -> None:
    """In a second a client has 300 requests at 5 % of its highest rate, and 1,000 with one in flight."""
    short = asking(KNEE.model_copy(update={"runtime_s": 1, "runs": 2}))
    measured = search(tmp_path, StorageNodes(short.architecture, servers=6), short)
    assert [round(sample) for sample in measured["outstanding"].samples] == [24, 24]
    assert measured["utilisation"].samples == pytest.approx([52.5, 52.5], rel=0.2)
    lowest = [command for command in commands(tmp_path) if "-open-5of" in command and "runtime=" in command]
    assert lowest
    assert all("runtime=2" in command for command in lowest)
    assert short.faults(tmp_path) == {}


def test_too_few_arrivals_at_a_low_rate_leave_the_number_of_requests_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knee, "long_enough", lambda runtime_s, arrivals: runtime_s)
    short = asking(KNEE.model_copy(update={"runtime_s": 1, "runs": 2}))
    measured = search(tmp_path, StorageNodes(short.architecture, servers=6), short)
    assert [round(sample) for sample in measured["outstanding"].samples] == [24, 24]
    assert not measured["utilisation"].samples
    assert "at load 5 are too few for a 99th percentile" in (measured["utilisation"].reason or "")
    assert not [command for command in commands(tmp_path) if "-knee2-open-" in command]


def test_a_run_with_too_few_requests_in_flight_is_repeated_for_longer(tmp_path: Path) -> None:
    """With 50 ms for a request a client has 200 of them in 10 s with one in flight, and 400 with two."""
    slow = StorageNodes(ARCHITECTURE, servers=20, service_s=0.05)
    measured = search(tmp_path, slow)
    assert measured["outstanding"].samples[0] == pytest.approx(80, rel=0.2)
    assert measured["outstanding"].conditions["workload"]["runtime_s"] == 10
    runs = [command for command in commands(tmp_path) if "-closed-1of" in command and "runtime=" in command]
    assert ["runtime=10" in run for run in runs] == [True, False] * 2  # the search asks twice for its lowest load
    assert BENCH.faults(tmp_path) == {}


def test_a_run_with_too_few_requests_counts_as_missing_where_no_longer_one_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knee, "long_enough", lambda runtime_s, per_second: runtime_s)
    for measurement in search(tmp_path, StorageNodes(ARCHITECTURE, servers=20, service_s=0.05)).values():
        assert "200 requests of gpu-01 at load 1 are too few" in (measurement.reason or "")


@pytest.mark.parametrize(("arrivals", "seconds"), [(1000, 30), (20, 30), (15, 40), (2, 300), (0, 300)])
def test_a_run_lasts_for_500_random_arrivals_within_limits(arrivals: int, seconds: int) -> None:
    assert long_enough(30, arrivals) == seconds


def unlawful(part: str) -> Callable[[Document], None]:
    """Latencies of jobs with this part of a name that contradict Little's law."""

    def change(document: Document) -> None:
        for entry in document["client_stats"]:
            if part in entry["jobname"]:
                entry["read"]["lat_ns"]["mean"] *= 1.2

    return change


def test_a_load_that_breaks_littles_law_is_measured_again_and_then_fails_the_gate(tmp_path: Path) -> None:
    measured = search(tmp_path, StorageNodes(ARCHITECTURE, servers=20, change=unlawful("-closed-16of")))["outstanding"]
    own = {name: numbers[0] for name, numbers in measured.companions.items()}
    assert own["iops"] * own["latency_s"] / own["outstanding"] == pytest.approx(1.2, rel=0.01)
    assert sum("-closed-16of" in command and "fio --eta" in command for command in commands(tmp_path)) == 3


def test_a_knee_that_breaks_littles_law_is_invalid_whether_an_entry_names_the_gate_or_not(tmp_path: Path) -> None:
    """Also below a share of it, and with evidence that has no numbers of the law."""
    lawful = search(tmp_path / "lawful", StorageNodes(ARCHITECTURE, servers=20))["outstanding"]
    broken = search(tmp_path / "broken", StorageNodes(ARCHITECTURE, servers=20, change=unlawful("-closed-16of")))
    local = {"labels": lawful.labels | {"storage": "local"}}
    assert of_rack(lawful, 1).status is Status.PASS
    assert of_rack(lawful, 1, lawful.model_copy(update=local)).status is Status.PASS
    invalid = [
        of_rack(broken["outstanding"], 1),
        of_rack(broken["outstanding"], 1000),
        of_rack(lawful, 1, broken["outstanding"].model_copy(update=local)),
        of_rack(lawful.model_copy(update={"companions": {}}), 1),
    ]
    assert [verdict.status for verdict in invalid] == [Status.INVALID] * 4
    assert all("littles_law" in verdict.message for verdict in invalid)


def test_an_unlawful_search_meets_no_entry_of_the_virtual_rack(tmp_path: Path) -> None:
    published = yaml.safe_load((ROOT / "architectures" / "virtual-rack-storage.yaml").read_text())["criteria"]
    knees = [one for one in published if one["id"] in ("depth.knee", "depth.knee-share")]
    assert [one["metric"] for one in knees] == [OUTSTANDING, UTILISATION]
    storage = document()["storage"]
    mounts = storage | {"nfs-tcp": storage["nfs"] | {"mountpoint": "/mnt/nfs-tcp"}}
    where = {"storage": "nfs-tcp", "block_bytes": KNEE.block_bytes}
    made = architecture(*(one | {"where": where, "source": "us"} for one in knees), storage=mounts)

    def statuses(folder: Path, nodes: StorageNodes) -> list[Status]:
        judgement = judged(made, *search(folder, nodes).values())
        return [verdict.status for one in knees for verdict in judgement.verdicts if verdict.id == one["id"]]

    assert statuses(tmp_path / "lawful", StorageNodes(ARCHITECTURE, servers=20)) == [Status.PASS, Status.PASS]
    broken = StorageNodes(ARCHITECTURE, servers=20, change=unlawful("-closed-"))
    assert statuses(tmp_path / "broken", broken) == [Status.INVALID, Status.UNMEASURED]


def test_arrivals_are_no_share_of_a_highest_rate_that_breaks_littles_law(tmp_path: Path) -> None:
    share = search(tmp_path, StorageNodes(ARCHITECTURE, servers=20, change=unlawful("-closed-")))["utilisation"]
    assert share.samples == ()
    assert "the highest rate, of which arrivals are a share, contradicts Little's law" in (share.reason or "")


def test_another_profile_did_not_ask_for_this_search(tmp_path: Path) -> None:
    search(tmp_path, StorageNodes(ARCHITECTURE, servers=20))
    faults = asking(KNEE.model_copy(update={"most_outstanding": 1024})).faults(tmp_path)
    assert all("most_outstanding: the profile asks for 1024" in why for why in faults.values())
    assert len(faults) == 2


def test_profiles_without_a_knee_keep_their_digests() -> None:
    profile = virtual_rack().profiles["lab"].storage
    assert profile is not None
    assert set(profile.model_dump(mode="json")) == {"jobs", "storages"}
