"""Claim by claim: the worst verdict of a claim is the claim's, and nothing passes without a verdict."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from rackproof import kit
from rackproof.architectures import load
from rackproof.bench.step import expected
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import NodeInfo, Scope
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict
from rackproof.report.certificate import document_of
from rackproof.report.claims import claim_by_claim, measured_here, throttles_of
from rackproof.report.document import to_json
from rackproof.report.page import render_page
from rackproof.report.schema import Certificate, ClaimSummary, ClaimWay
from rackproof.report.terminal import summary
from tests.unit.architecture.test_scale import FABRIC, FACTORS, LINK, NFS, here, published
from tests.unit.report.sample import sample


def verdict(status: Status, **fields: Any) -> Verdict:
    own: dict[str, Any] = {
        "id": "nfs.read", "kind": "criterion", "title": "Reading", "subject": "gpu-01", "status": status,
        "required": True, "message": "expected 10 MB/s or more", "value": 12.0, "unit": "MB/s", "claim": ("A1",),
    }  # fmt: skip
    return Verdict(**own | fields)


CHECK = {"id": "mount.options[nfs]", "kind": "check", "value": None, "unit": None}


def status_of(*verdicts: Verdict, file: Architecture | None = None) -> Status | None:
    return claim_by_claim(file or here(), verdicts)[0].status


def test_every_claim_has_its_row() -> None:
    claim, other = claim_by_claim(here(), [verdict(Status.PASS)])
    assert (claim.id, claim.figure, claim.status, claim.document) == ("A1", "20 GB/s", Status.PASS, "ourselves")
    (way,) = claim.ways
    assert (way.published, way.here) == ("≥ 20 GB/s", "≥ 10 MB/s")
    assert way.measured.replace("\u00a0", " ") == "12 MB/s on gpu-01"
    assert [(factor.name, factor.times) for factor in way.scaled] == [("drives", 0.001), ("nodes", 0.5)]
    assert (other.status, other.not_checkable, other.ways) == (None, "Nothing looks at it.", ())


def test_large_figures_keep_their_digits() -> None:
    """One architecture publishes 2,500,000 IOPS, another 1,350,932 B."""
    folder = kit.folder("architectures")
    ways = [
        way
        for name in ("hpe-apollo6500-weka-scaled", "dell-isilon-f800-dgx1-scaled")
        for claim in claim_by_claim(load(str(folder / f"{name}.yaml")).model, [])
        for way in claim.ways
    ]
    texts = {way.published for way in ways} | {way.here for way in ways}
    assert {"≥ 2500000 IOPS", "= 1350932 B, within 1 %"} <= texts
    assert [text for text in texts if "e+" in text or "e-" in text] == []


def test_a_file_that_scales_nothing_has_no_section() -> None:
    assert claim_by_claim(published(), [verdict(Status.PASS, id="big.read")]) == ()


@pytest.mark.parametrize("status", list(Status))
def test_the_worst_verdict_is_the_claims(status: Status) -> None:
    assert status_of(verdict(Status.PASS), verdict(status, subject="gpu-02")) is status


def test_a_claim_without_a_verdict_is_unmeasured() -> None:
    assert status_of() is Status.UNMEASURED
    assert status_of(verdict(Status.PASS, id="other")) is Status.UNMEASURED


@pytest.mark.parametrize(
    ("required", "further", "status"),
    [
        (Status.PASS, Status.PASS, Status.PASS),
        (Status.PASS, Status.WARN, Status.WARN),
        (Status.PASS, Status.FAIL, Status.WARN),
        (Status.PASS, Status.INVALID, Status.INVALID),
        (Status.PASS, Status.UNMEASURED, Status.UNMEASURED),
        (Status.UNMEASURED, Status.FAIL, Status.UNMEASURED),
        (Status.FAIL, Status.UNMEASURED, Status.FAIL),
    ],
)
def test_a_further_verdict_takes_the_pass_away(required: Status, further: Status, status: Status) -> None:
    assert status_of(verdict(required), verdict(further, **CHECK, required=False)) is status


def test_the_only_verdict_decides_although_it_is_not_required() -> None:
    assert status_of(verdict(Status.FAIL, required=False)) is Status.FAIL


def test_checks_count_as_well() -> None:
    claim = claim_by_claim(here(), [verdict(Status.PASS), verdict(Status.FAIL, **CHECK)])[0]
    assert claim.status is Status.FAIL
    assert claim.ways[1].measured == "0 of 1 passed; expected 10 MB/s or more"


def test_a_missing_number_says_why() -> None:
    missing = verdict(Status.UNMEASURED, value=None, message="gpu-01 does not answer")
    assert claim_by_claim(here(), [missing])[0].ways[0].measured == "gpu-01 does not answer on gpu-01"


def with_claims(*verdicts: Verdict) -> tuple[Certificate, dict[str, bytes]]:
    certificate, raw = sample()
    claims = claim_by_claim(here(), verdicts)
    return certificate.model_copy(update={"claims": claims, "scaled_from": "big-rack"}), raw


def test_the_page_shows_every_claim_and_factor() -> None:
    page = render_page(*with_claims(verdict(Status.FAIL, value=4.0)))
    section = page[page.index('<section id="claims">') :]
    section = section[: section.index("</section>")].replace("\u00a0", " ")
    for words in ("A1: It reads fast.", "20 GB/s", "≥ 10 MB/s", "4 MB/s on gpu-01", "FAIL", "It is emulated.",
                  "Nothing looks at it.", "not judged", "big-rack"):  # fmt: skip
        assert words in section
    assert 'href="#claims"' in page
    assert 'id="claims"' not in render_page(*sample())


def test_the_terminal_and_the_json_show_them_too() -> None:
    certificate, _ = with_claims(verdict(Status.PASS))
    console = Console(record=True, width=200, file=io.StringIO())
    summary(certificate, console)
    shown = console.export_text().replace("\u00a0", " ")
    assert "A1" in shown
    assert "12 MB/s on gpu-01, bar ≥ 10 MB/s" in shown
    document = json.loads(to_json(document_of(certificate)))
    assert document["claims"][0]["ways"][0]["scaled"][0]["times"] == 0.001
    assert "claims" not in json.loads(to_json(document_of(sample()[0])))


def test_a_table_shows_numbers_failed_checks_and_how_many_passed() -> None:
    def way(name: str, published: str, measured: str, status: Status) -> ClaimWay:
        return ClaimWay(
            id=name,
            title=f"Check {name}",
            published=published,
            here="≥ 5",
            measured=measured,
            status=status,
            required=True,
        )

    number = way("a", "≥ 10", "7", Status.PASS)
    good, bad = way("mount.a", "", "2 of 2 passed", Status.PASS), way("mount.b", "", "1 of 2 passed; x", Status.FAIL)
    claim = ClaimSummary(id="T1", says="", figure=None, document="", status=None, not_checkable="GPUs", ways=())
    for ways, text in (
        ((), "GPUs"),
        ((number, good, good), "7, bar ≥ 5; 2 checks"),
        ((good,), "1 check"),
        ((number, good, bad), "7, bar ≥ 5; Check mount.b: 1 of 2 passed; x"),
    ):
        assert measured_here(claim.model_copy(update={"ways": ways})) == text


@pytest.mark.parametrize(
    ("samples", "in_force"), [((5.0,), "20 Mb/s on gpu-01; 40 Mb/s on gpu-02"), ((), "nothing was measured under it")]
)
def test_limits_stand_with_what_the_kernels_answered(samples: tuple[float, ...], in_force: str) -> None:
    file = here(scale={"of": "small", "factors": FACTORS, "links": {"port": LINK}}, fabric=FABRIC)
    nodes = [NodeInfo(name=name, groups=("gpu",), virtual=True) for name in ("gpu-01", "gpu-02")]
    nodes.append(NodeInfo(name="storage-01", groups=("storage",), virtual=True))
    rates = {"gpu-01": 20e6, "gpu-02": 40e6, "storage-01": 80e6}
    place = expected("storage.read_bandwidth", Scope.RACK, ["gpu-01"], {}, "storage/nfs/read")
    conditions = {"throttled": {name: {"fabric0": {"bits_per_s": rate}} for name, rate in rates.items()}}
    number = place.model_copy(update={"samples": samples, "conditions": conditions})
    (limit,) = throttles_of(file, nodes, [number])
    assert (limit.title, limit.published, limit.unit) == ("Port of every gpu node, rail 0, both directions", 40, "Gb/s")
    assert (limit.here, limit.here_unit, limit.by) == (20_000, "Mb/s", ("nodes",))
    assert limit.in_force.replace("\u00a0", " ") == in_force
    certificate, _ = sample()
    page = render_page(certificate.model_copy(update={"claims": claim_by_claim(file, []), "throttles": (limit,)}), {})
    section = page[page.index("Ports, connections and drives that were limited") :]
    assert "As published." in section
    assert limit.in_force.split(" on ")[-1] in section


def test_the_limit_of_each_connection_stands_there_too() -> None:
    link = LINK | {"role": "storage", "each_connection_of": "nfs"}
    storage = {"nfs": NFS}
    file = here(scale={"of": "small", "factors": FACTORS, "links": {"each": link}}, fabric=FABRIC, storage=storage)
    nodes = [NodeInfo(name="storage-01", groups=("storage",), virtual=True)]
    place = expected("storage.read_bandwidth", Scope.RACK, ["gpu-01"], {}, "storage/nfs/read")
    conditions = {"throttled": {"storage-01": {"fabric0:2049": {"bits_per_s_each": 6e6}}}}
    (limit,) = throttles_of(file, nodes, [place.model_copy(update={"samples": (5.0,), "conditions": conditions})])
    assert limit.title == "Port of every storage node, rail 0, to each connection of nfs"
    assert limit.in_force.replace("\u00a0", " ") == "6 Mb/s on storage-01"


def test_a_file_without_limits_lists_none() -> None:
    assert throttles_of(here(), [], []) == ()
