"""Scaled architectures: a bar follows from the published one and declared factors, or the file is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.core.architecture import Architecture
from rackproof.core.architecture.scaled_claims import against_published, scale_problems
from tests.unit import judging

CLAIMS = {
    "A1": {"says": "It reads fast.", "figure": "20 GB/s", "source": "us"},
    "A2": {"says": "It is grey.", "source": "us", "not_checkable": "Nothing looks at it."},
}
FACTORS = {
    "drives": {"title": "One drive", "published": 20, "here": 0.02, "unit": "GB/s", "reason": "It is emulated."},
    "nodes": {"title": "Nodes", "published": 4, "here": 2, "unit": "1", "reason": "There are two."},
}
SCALED = {"of": "big.read", "value": 20, "unit": "GB/s", "by": ["drives", "nodes"]}
BAR = {"op": "ge", "value": 10, "unit": "MB/s"}
ALTERNATIVE = {
    "metric": "storage.write_bandwidth", "where": {"storage": "nfs"}, "scope": "rack",
    "pass": {"op": "ge", "value": 20, "unit": "GB/s"},
}  # fmt: skip


def published(level: str | None = None, **bar: Any) -> Architecture:
    own = judging.criterion(id="big.read", claim="A1", bar={"op": "ge", "value": 20, "unit": "GB/s"} | bar)
    return judging.architecture(own, claims=CLAIMS, **({"level": level} if level else {}))


def here(entry: dict[str, Any] | None = None, **fields: Any) -> Architecture:
    own = {"claim": "A1", "scaled": SCALED, "pass": BAR} | (entry or {})
    document = {"claims": CLAIMS, "scale": {"of": "small", "factors": FACTORS}} | fields
    return Architecture.model_validate(judging.document(judging.criterion(**own), **document))


def wrong(file: Architecture) -> list[str]:
    return [problem.message for problem in scale_problems(file)]


def test_a_bar_that_follows_from_the_published_one() -> None:
    assert wrong(here()) == []
    assert list(against_published(published(), here())) == []
    assert wrong(published()) == []


@pytest.mark.parametrize(
    ("entry", "fields", "why"),
    [
        ({"scaled": None}, {}, "names a claim of a larger system"),
        ({"pass": BAR | {"value": 9}}, {}, "20 times 0.0005 is 10 MB/s, the bar is 9"),
        ({"pass": BAR | {"unit": "1/s"}}, {}, "GB/s"),
        ({"scaled": SCALED | {"by": ["drives"]}}, {}, "20 times 0.001 is 20 MB/s, the bar is 10"),
        ({"scaled": SCALED | {"by": ["drives", "node"]}}, {}, "unknown factor 'node'"),
        ({"scaled": SCALED | {"value": None}}, {}, "expected a value, as in the bar"),
        ({"pass": BAR | {"tolerance_pct": 5}}, {}, "the tolerance is 5 %: say why it is larger"),
        ({}, {"scale": None}, "the file has no scale"),
    ],
)  # fmt: skip
def test_a_scaled_criterion_without_its_factors_is_refused(
    entry: dict[str, Any], fields: dict[str, Any], why: str
) -> None:
    assert any(why in message for message in wrong(here(entry, **fields))), wrong(here(entry, **fields))


def test_a_factor_that_scales_nothing_is_refused() -> None:
    more = FACTORS | {"colour": FACTORS["nodes"]}
    assert wrong(here(scale={"of": "small", "factors": more})) == [
        "scales nothing: no criterion, curve, link or drive names it"
    ]


def test_a_curve_is_scaled_by_its_efficiency() -> None:
    curve = {
        "id": "grow", "title": "Growth", "metric": "storage.read_bandwidth", "where": {"storage": "nfs"}, "claim": "A1",
        "over": "clients", "points": [1, 2], "baseline": 1, "efficiency_min": 0.9, "source": "us",
        "reason": "Because it is so.", "hint": "Look at it.", "scaled": {"of": "big.grow", "value": 0.9},
    }  # fmt: skip
    assert wrong(here(curves=[curve])) == []
    curve["efficiency_min"] = 0.5
    assert wrong(here(curves=[curve])) == ["0.9 times 1 is 0.9 ratio, the bar is 0.5"]


@pytest.mark.parametrize(
    ("entry", "fields", "why"),
    [
        ({"scaled": SCALED | {"of": "big.write"}}, {}, "unknown entry of small 'big.write'"),
        ({"scaled": SCALED | {"value": 10, "by": ["drives"]}}, {}, "big.read of small has 20.0, here 10.0"),
        ({"scaled": SCALED | {"tolerance_pct": 3}}, {}, "big.read of small has 0.0, here 3.0"),
        ({"pass": BAR | {"op": "eq"}}, {}, "big.read of small has 'ge', this entry has 'eq'"),
        ({"claim": "A2"}, {}, "big.read of small is about A1"),
        ({"claim": []}, {}, "big.read of small is about A1"),
        ({"any_of": [ALTERNATIVE]}, {}, "big.read of small has no such alternative"),
        ({}, {"claims": {"A1": CLAIMS["A1"]}}, "small has also A2"),
        ({}, {"claims": CLAIMS | {"A3": CLAIMS["A1"]}}, "is no claim of small"),
        ({}, {"claims": CLAIMS | {"A1": CLAIMS["A1"] | {"figure": "2 GB/s"}}}, "small says: 20 GB/s"),
        ({}, {"claims": CLAIMS | {"A2": {"says": "It is grey.", "source": "us"}}}, "small calls it not checkable"),
    ],
)  # fmt: skip
def test_another_bar_or_claim_than_published_is_refused(
    entry: dict[str, Any], fields: dict[str, Any], why: str
) -> None:
    messages = [problem.message for problem in against_published(published(), here(entry, **fields))]
    assert any(why in message for message in messages), messages


def test_an_alternative_stays_as_published() -> None:
    own = judging.criterion(id="big.read", claim="A1", bar={"op": "ge", "value": 20, "unit": "GB/s"})
    large = judging.architecture(own | {"any_of": [ALTERNATIVE]}, claims=CLAIMS)
    assert list(against_published(large, here({"any_of": [ALTERNATIVE]}))) == []
    assert list(against_published(large, here())) == []
    weaker = ALTERNATIVE | {"pass": {"op": "ge", "value": 2, "unit": "GB/s"}}
    (problem,) = against_published(large, here({"any_of": [weaker]}))
    assert problem.message == "big.read of small has no such alternative"


def larger() -> Architecture:
    """The published system with a second criterion, and a third about no claim."""
    bar = {"op": "ge", "value": 20, "unit": "GB/s"}
    ids = {"big.read": "A1", "big.write": "A1", "big.calm": []}
    return judging.architecture(
        *(judging.criterion(id=id_, claim=claim, bar=bar) for id_, claim in ids.items()), claims=CLAIMS
    )


LEFT = [
    {"of": ["big.write"], "claims": "A1", "reason": "Nothing writes here."},
    {"of": ["big.calm"], "reason": "Nothing is calm here."},
]


def without(*parts: dict[str, Any]) -> list[str]:
    file = here(scale={"of": "small", "factors": FACTORS, "left_out": list(parts)})
    return [problem.message for problem in against_published(larger(), file)]


def test_every_published_entry_is_scaled_or_left_out_with_a_reason() -> None:
    assert without(*LEFT) == []
    assert without() == [
        "small has also big.write, Reading: scale it, or say why not",
        "small has also big.calm, Reading: scale it, or say why not",
    ]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([*LEFT, {"of": ["big.wrote"], "reason": "It is unknown."}], "unknown entry of small 'big.wrote'"),
        ([*LEFT, {"of": ["big.read"], "claims": "A1", "reason": "It is scaled."}], "big.read is scaled: see "),
        ([*LEFT, LEFT[1]], "big.calm is left out twice"),
        ([LEFT[0], LEFT[1] | {"claims": "A1"}], "they are about no claim in small"),
        ([LEFT[0] | {"claims": []}, LEFT[1]], "they are about A1 in small"),
    ],
)  # fmt: skip
def test_what_is_left_out_is_told_truly(parts: list[dict[str, Any]], why: str) -> None:
    (message,) = without(*parts)
    assert message.startswith(why)


def test_an_entry_of_fewer_workloads_says_why() -> None:
    bar = {"op": "ge", "value": 20, "unit": "GB/s"}
    both = judging.criterion(id="big.read", claim="A1", bar=bar, where={"storage": ["nfs", "local"]})
    large = judging.architecture(both, claims=CLAIMS)
    (problem,) = against_published(large, here())
    assert problem.message == "big.read of small judges 2 of them, this entry 1: say why"
    assert list(against_published(large, here({"scaled": SCALED | {"note": "There is one storage."}}))) == []


def test_the_level_that_must_be_reached_is_the_published_bar() -> None:
    levels = {"value": None, "levels": {"low": 12, "high": 20}}
    assert list(against_published(published(level="high", **levels), here())) == []
    assert list(against_published(published(level="low", **levels), here()))


FABRIC = {"kind": "roce", "mtu": 9000}
LINK = {"published": 40, "unit": "Gb/s", "by": ["nodes"], "reason": "As published.", "role": "gpu"}
DRIVE = {"published": 40, "unit": "GB/s", "by": ["nodes"], "reason": "As published.", "storage": "nfs"}


@pytest.mark.parametrize(
    ("links", "drives", "why"),
    [
        (LINK, DRIVE, ""),
        (LINK, DRIVE | {"unit": "IOPS"}, ""),
        (LINK | {"unit": "IOPS"}, DRIVE, "IOPS is no unit of a rate"),
        (LINK, DRIVE | {"unit": "ms"}, "ms is no unit of a rate"),
        (LINK | {"role": "gpus"}, DRIVE, "unknown role 'gpus'"),
        (LINK | {"rail": 8}, DRIVE, "expected less than"),
        (LINK | {"by": ["node"]}, DRIVE, "unknown factor 'node'"),
        (LINK, DRIVE | {"storage": "nsf"}, "unknown storage 'nsf'"),
    ],
)
def test_a_limit_of_what_is_not_there_is_refused(links: dict[str, Any], drives: dict[str, Any], why: str) -> None:
    scale = {"of": "small", "factors": FACTORS, "links": {"port": links}, "drives": {"drive": drives}}
    file = here(scale=scale, fabric=FABRIC)
    messages = wrong(file)
    assert messages == [] if not why else any(why in message for message in messages), messages


NFS = {
    "class": "nfs", "fstype": "nfs4", "source": "/srv", "mountpoint": "/mnt/nfs", "server_role": "storage",
    "client_roles": [], "transport": "tcp", "port": 2049,
}  # fmt: skip
EACH = LINK | {"role": "storage", "each_connection_of": "nfs"}


@pytest.mark.parametrize(
    ("link", "storage", "further", "why"),
    [
        ({}, {}, {}, []),
        ({}, {}, {"published": 20}, []),
        ({}, {}, {"role": "gpu", "each_connection_of": None}, []),
        ({"each_connection_of": "nsf"}, {}, {"role": "gpu", "each_connection_of": None}, ["unknown storage 'nsf'"]),
        ({"role": "gpu"}, {}, {}, ["nfs is not NFS over TCP with a port that gpu serves"]),
        ({}, {"transport": "rdma"}, {}, ["nfs is not NFS over TCP"] * 2),
        ({}, {"port": None}, {}, ["nfs is not NFS over TCP"] * 2),
        ({}, {}, {"each_connection_of": None}, ["further limits the same port otherwise"]),
        ({}, {}, {"each_connection_of": None, "rail": 1}, []),
    ],
)  # fmt: skip
def test_connections_with_a_limit_lead_to_their_storage_alone(
    link: dict[str, Any], storage: dict[str, Any], further: dict[str, Any], why: list[str]
) -> None:
    scale = {"of": "small", "factors": FACTORS, "links": {"each": EACH | link, "further": EACH | further}}
    messages = wrong(here(scale=scale, fabric=FABRIC | {"rails": 2}, storage={"nfs": NFS | storage}))
    assert [message[: len(text)] for message, text in zip(messages, why, strict=True)] == why


def test_a_factor_of_a_limit_alone_is_used() -> None:
    more = FACTORS | {"port": FACTORS["nodes"]}
    scale = {"of": "small", "factors": more}
    assert any("scales nothing" in message for message in wrong(here(scale=scale)))
    assert wrong(here(scale=scale | {"links": {"port": LINK | {"by": ["port"]}}}, fabric=FABRIC)) == []
