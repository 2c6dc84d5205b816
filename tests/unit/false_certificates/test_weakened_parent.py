"""A file that demands less than the published architecture that it extends never passes for it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rackproof import kit
from rackproof.architectures import SUMS, LoadedArchitecture, load, stored
from rackproof.cli.main import cli
from rackproof.core.architecture import Alternative, Architecture, Criterion, Curve, Outlier
from rackproof.core.architecture.published import PUBLISHED
from rackproof.core.architecture.smoke import SMOKE
from rackproof.core.architecture.strength import free, rule_of
from rackproof.core.architecture.weakening import weakenings, weakens
from rackproof.core.status import Outcome
from rackproof.errors import ArchitectureError
from rackproof.report.statements import headline, origin
from tests.unit.cli.test_judge import answer, here, judge, record
from tests.unit.false_certificates.racks import World
from tests.unit.refusals import error_of

pytestmark = pytest.mark.few(10)

__all__ = ["here"]

H100 = load("nvidia-dgx-h100").model
REASON = "{reason: Until the spare parts are here., by: Ada}"


def site(folder: Path, text: str, extends: str = "nvidia-dgx-h100", name: str = "our-pod") -> LoadedArchitecture:
    path = folder / f"{name}.yaml"
    path.write_text(f"apiVersion: refarch/v1\nextends: {extends}\nmetadata: {{id: {name}, version: 1.0.0}}\n{text}\n")
    return load(path, [folder, kit.folder("architectures")])


def refusal(folder: Path, text: str, **named: Any) -> str:
    return error_of(ArchitectureError, site, folder, text, **named).replace(f"{folder}/", "")


WEAKER = {
    # what a site writes: the weakening's path
    "criteria: [{id: gpu.d2h, pass: {value: 1}}]": "criteria.gpu.d2h.pass.value",
    "criteria: [{id: gpu.d2h, pass: {warn: null}}]": "criteria.gpu.d2h.pass.warn",
    "criteria: [{id: gpu.d2h, statistic: mean, pass: {op: range, value: null, warn: null, low: 1, high: 50}}]": (
        "criteria.gpu.d2h.pass.op"
    ),
    "criteria: [{id: gpu.d2h, pass: {tolerance_pct: 20}}]": "criteria.gpu.d2h.pass.tolerance_pct",
    "criteria: [{id: gpu.d2h, severity: advisory}]": "criteria.gpu.d2h.severity",
    "criteria: [{id: gpu.d2h, max_cv_pct: 50}]": "criteria.gpu.d2h.max_cv_pct",
    "criteria: [{id: gpu.d2h, min_samples: 2}]": "criteria.gpu.d2h.min_samples",
    "criteria: [{id: gpu.d2h, warmup: 1}]": "criteria.gpu.d2h.warmup",
    "criteria: [{id: gpu.d2h, statistic: median}]": "criteria.gpu.d2h.statistic",
    "criteria: [{id: gpu.d2h, reduce: median}]": "criteria.gpu.d2h.reduce",
    "criteria: [{id: gpu.d2h, ceiling: null}]": "criteria.gpu.d2h.ceiling",
    "criteria: [{id: gpu.d2h, measure: dcgm-diag}]": "criteria.gpu.d2h.measure",
    "criteria: [{id: gpu.d2h, metric: gpu.host_to_device_bandwidth}]": "criteria.gpu.d2h.metric",
    "gpu: {count: 7, topology: null}": "gpu.count",
    "gpu: {memory_mib: null}": "gpu.memory_mib",
    "gpu: {driver: '>=470.10'}": "gpu.driver",
    "gpu: {xid_allowed: [79]}": "gpu.xid_allowed",
    "gpu: {pci_ids: []}": "gpu.pci_ids",
    "gpu: {nvlink: null}": "gpu.nvlink",
    "gpu: {ecc: Disabled}": "gpu.ecc",
    "gpu: {gpudirect: null}": "gpu.gpudirect",
    "roles: {gpu: {count: {min: 1}}}": "roles.gpu.count.min",
    "roles: {gpu: {count: {max: null}}}": "roles.gpu.count.max",
    "roles: {gpu: {expect: {cpu: null}}}": "roles.gpu.expect.cpu",
    "roles: {gpu: {expect: {services: []}}}": "roles.gpu.expect.services",
    "roles: {gpu: {expect: {memory: {tolerance_pct: 20}}}}": "roles.gpu.expect.memory.tolerance_pct",
    "roles: {gpu: {expect: {nics: []}}}": "roles.gpu.expect.nics.compute",
    "system: {time: {max_offset_ms: 5000}}": "system.time.max_offset_ms",
    "system: {sysctl: {vm.swappiness: '60'}}": "system.sysctl.vm.swappiness",
    "system: {cpu_governor: null}": "system.cpu_governor",
    "links: {port: {each: {value: 390}}}": "links.port.each.value",
    "storage: {hps: {min_free_gb: 0}}": "storage.hps.min_free_gb",
    "storage: {local: {fstype: tmpfs}}": "storage.local.fstype",
    "checks: {gpu.xid: advisory}": "checks.gpu.xid",
    "required_checks: {gpu: [gpu.xid]}": "required_checks.gpu.gpu.healthy",
    "profiles: {full: {links: {runs: 1}}}": "profiles.full.links.runs",
    "profiles: {full: {storage: {jobs: {read: {runtime_s: 1}}}}}": "profiles.full.storage.jobs.read.runtime_s",
    "profiles: {full: {collectives: null}}": "profiles.full.collectives",
    "profiles: {short: {}}": "profiles.short",
    "workloads: {resnet50: {batch_per_gpu: 1}}": "workloads.resnet50.batch_per_gpu",
}


REASON_KEYS = {
    "gpu.count": "gpu",
    "criteria.gpu.d2h.pass.op": "criteria.gpu.d2h",
    "roles.gpu.expect.nics.compute": "roles.gpu.expect.nics",
    "required_checks.gpu.gpu.healthy": "required_checks.gpu",
}
"""Where the weakening itself is not the key of its reason."""


@pytest.mark.few(10)
@pytest.mark.parametrize(("text", "path"), WEAKER.items())
def test_a_weakening_is_refused_without_a_reason_and_listed_with_one(tmp_path: Path, text: str, path: str) -> None:
    message = refusal(tmp_path, text)
    assert message.startswith("our-pod.yaml:4: ")
    assert "weakens nvidia-dgx-h100: published " in message
    assert "say why: overrides: {" in message
    metadata = site(tmp_path, f"{text}\noverrides: {{{REASON_KEYS.get(path, path)}: {REASON}}}").model.metadata
    assert metadata.compared_with == f"nvidia-dgx-h100 {H100.metadata.version}"
    weakenings = {weakening.path: weakening for weakening in metadata.weakened}
    assert path in weakenings
    assert {(w.reason, w.by) for w in weakenings.values()} == {("Until the spare parts are here.", "Ada")}


def test_a_dropped_entry_is_listed_with_its_reason(tmp_path: Path) -> None:
    (weakening,) = site(
        tmp_path, "drop: [{id: gpu.d2h, reason: We copy nothing back., by: Ada}]"
    ).model.metadata.weakened
    assert (weakening.id, weakening.key, weakening.here) == ("criteria.gpu.d2h", "", "dropped")
    assert (weakening.reason, weakening.by) == ("We copy nothing back.", "Ada")


STRONGER = (
    "criteria: [{id: gpu.d2h, pass: {value: 50, warn: 52}}]",
    "gpu: {gpudirect: peermem}",
    "criteria: [{id: gpu.d2h, pass: {value: 48000, warn: 50000, unit: MB/s}}]",
    "criteria: [{id: gpu.d2h, max_cv_pct: 0.5, min_samples: 20, title: Another title}]",
    "gpu: {memory_tolerance_pct: 0.5, driver: '580.95.05', remapped_rows_max: 0}",
    "roles: {gpu: {count: {min: 8, max: 16}}, login: {count: {min: 1}}}",
    "system: {sysctl: {vm.dirty_ratio: '10'}, time: {server_role: gpu, max_offset_ms: 10}, swap: false}",
    "storage: {hps: {fstype: wekafs, source: ours, mountpoint: /weka, options: [readcache], options_required: [rw]}}",
    "fabric: {loss_max_pct: 0}",
    "profiles: {full: {links: {runs: 6}}}",
    "required_checks: {storage: [base.kernel]}\nroles: {storage: {}}",
    "checks: {gpu.count: required}",
)


@pytest.mark.parametrize("text", STRONGER)
def test_demanding_more_needs_no_reason(tmp_path: Path, text: str) -> None:
    metadata = site(tmp_path, text).model.metadata
    assert metadata.weakened == ()
    assert metadata.compared_with == f"nvidia-dgx-h100 {H100.metadata.version}"


def test_a_chain_is_compared_with_the_published_architecture(tmp_path: Path) -> None:
    """Two small steps are one large one, and a reason of the file between holds for what it weakened."""
    site(tmp_path, f"gpu: {{memory_tolerance_pct: 2}}\noverrides: {{gpu: {REASON}}}", name="middle")
    message = refusal(tmp_path, "system: {time: {max_offset_ms: 500}}", extends="middle")
    assert "system.time.max_offset_ms: weakens nvidia-dgx-h100: published 100.0, here 500.0" in message
    metadata = site(tmp_path, "", extends="middle").model.metadata
    assert [(w.path, w.by) for w in metadata.weakened] == [("gpu.memory_tolerance_pct", "Ada")]
    assert metadata.derived_from == ("middle", "nvidia-dgx-h100")


BETWEEN = {
    # what the file between weakens, the key of its reason, what the file below it weakens: that weakening's path
    ("gpu: {memory_tolerance_pct: 2}", "gpu", "gpu: {count: 7, topology: null}"): "gpu.count",
    ("gpu: {memory_tolerance_pct: 2}", "gpu", "gpu: {memory_tolerance_pct: 9}"): "gpu.memory_tolerance_pct",
    ("criteria: [{id: gpu.d2h, warmup: 1}]", "criteria.gpu.d2h", "criteria: [{id: gpu.d2h, severity: advisory}]"): (
        "criteria[gpu.d2h].severity"
    ),
    ("criteria: [{id: gpu.d2h, warmup: 1}]", "criteria.gpu.d2h", "criteria: [{id: gpu.d2h, pass: {value: 9}}]"): (
        "criteria[gpu.d2h].pass.value"
    ),
}


@pytest.mark.parametrize(("texts", "path"), BETWEEN.items())
def test_a_reason_of_the_file_between_explains_nothing_of_the_file_below(
    tmp_path: Path, texts: tuple[str, str, str], path: str
) -> None:
    between, key, below = texts
    site(tmp_path, f"{between}\noverrides: {{{key}: {REASON}}}", name="middle")
    assert f"{path}: weakens nvidia-dgx-h100: " in refusal(tmp_path, below, extends="middle")
    own = "{reason: No more of them fit., by: Bob}"
    loaded = site(tmp_path, f"{below}\noverrides: {{{key}: {own}}}", extends="middle")
    assert {w.by for w in loaded.model.metadata.weakened} == {"Bob"}  # it replaces the parent's reason
    site(tmp_path, "", extends="our-pod", name="third")


def test_a_stored_text_that_weakens_more_than_it_tells_is_told_anew(tmp_path: Path) -> None:
    loaded = site(tmp_path, f"gpu: {{memory_tolerance_pct: 2}}\noverrides: {{gpu: {REASON}}}")
    text = loaded.text.replace("memory_tolerance_pct: 2", "memory_tolerance_pct: 50")
    assert text != loaded.text
    (weakening,) = stored(text, "evidence").model.metadata.weakened
    assert (weakening.path, weakening.here) == ("gpu.memory_tolerance_pct", "50.0")


def test_what_a_file_between_dropped_stays_listed(tmp_path: Path) -> None:
    site(tmp_path, "drop: [{id: gpu.d2h, reason: We copy nothing back.}]", name="middle")
    (weakening,) = site(tmp_path, "", extends="middle").model.metadata.weakened
    assert (weakening.path, weakening.reason) == ("criteria.gpu.d2h", "We copy nothing back.")


def test_the_kits_own_files_are_published_and_no_others() -> None:
    assert {path.stem for path in kit.folder("architectures").glob("*.yaml")} == PUBLISHED
    for id_ in ("nvidia-dgx-h200", "hgx-h100-roce"):
        assert load(id_).model.metadata.compared_with is None


def test_a_changed_copy_with_a_published_id_is_compared_with_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the working directory comes before the kit's of the same id."""
    text = (kit.folder("architectures") / "h200-single.yaml").read_text()
    monkeypatch.chdir(tmp_path)
    Path("architectures").mkdir()
    Path("architectures/h200-single.yaml").write_text(text.replace("value: 48, warn: 52", "value: 0.7, warn: 52"))
    with pytest.raises(ArchitectureError, match=r"criteria\[gpu.h2d\].pass.value: weakens h200-single"):
        load("h200-single")
    Path("architectures/h200-single.yaml").write_text(text)
    assert load("h200-single").model.metadata.weakened == ()


def test_a_changed_copy_of_the_parent_is_not_what_a_file_is_compared_with(tmp_path: Path) -> None:
    """The nearest file of the parent's name wins, and it may be the site's."""
    text = (kit.folder("architectures") / "h200-single.yaml").read_text()
    (tmp_path / "h200-single.yaml").write_text(text.replace("value: 48, warn: 52", "value: 0.7, warn: 52"))
    message = refusal(tmp_path, "", extends="h200-single")
    assert "weakens h200-single: published ≥ 48 GB/s (warns below 52), here ≥ 0.7 GB/s" in message
    (tmp_path / "h200-single.yaml").write_text(text)
    assert site(tmp_path, "", extends="h200-single").model.metadata.weakened == ()


@pytest.fixture
def edited_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kit whose own nvidia-dgx-h100 was edited in place."""
    shutil.copytree(kit.folder("architectures"), tmp_path / "kit/architectures")
    path = tmp_path / "kit/architectures/nvidia-dgx-h100.yaml"
    path.write_text(path.read_text().replace("max_offset_ms: 100", "max_offset_ms: 9000"))
    monkeypatch.setattr(kit, "folder", lambda name: tmp_path / "kit" / name)
    return path


def test_the_kits_own_file_edited_in_place_is_named(edited_kit: Path) -> None:
    metadata = load(edited_kit).model.metadata
    assert (metadata.edited, metadata.compared_with) == (True, None)
    assert headline(Outcome.CERTIFIED, metadata) == "CERTIFIED against nvidia-dgx-h100, edited after it was published"
    assert origin(metadata) == "edited after rackproof published it"
    assert load(edited_kit.with_name("nvidia-dgx-h200.yaml")).model.metadata.edited  # it extends the edited one
    assert not load(edited_kit.with_name("virtual-rack.yaml")).model.metadata.edited


def test_a_file_that_extends_an_edited_one_says_so(edited_kit: Path, tmp_path: Path) -> None:
    loaded = site(tmp_path, "drop: [{id: gpu.d2h, reason: We copy nothing back.}]")
    assert stored(loaded.text, "evidence").model.metadata.edited
    assert headline(Outcome.CERTIFIED, loaded.model.metadata) == (
        "CERTIFIED against our-pod, which weakens 1 criterion of nvidia-dgx-h100, edited after it was published"
    )


def test_the_sums_are_those_of_the_files() -> None:
    """After a change of an architecture: ``cd architectures && sha256sum *.yaml > SHA256SUMS``."""
    folder = kit.folder("architectures")
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.yaml")}
    assert {name: sha256 for sha256, name in map(str.split, (folder / SUMS).read_text().splitlines())} == sums


@pytest.mark.parametrize("key", ["edited: no", "derived_from: [x]", "compared_with: small 1.0.0", "weakened: []"])
def test_a_file_cannot_say_itself_what_it_weakens(tmp_path: Path, key: str) -> None:
    path = tmp_path / "our-pod.yaml"
    path.write_text(f"apiVersion: refarch/v1\nextends: virtual-rack\nmetadata: {{id: x, version: 1.0.0, {key}}}\n")
    with pytest.raises(ArchitectureError, match="is set by the kit, never in a file"):
        load(path)


def test_a_reason_for_nothing_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, f"overrides: {{gpu.count: {REASON}}}")
    assert message.startswith("our-pod.yaml:4: overrides.gpu.count: changes nothing")


def test_one_reason_for_all_criteria_is_none(tmp_path: Path) -> None:
    message = refusal(tmp_path, f"criteria: [{{id: gpu.d2h, severity: advisory}}]\noverrides: {{criteria: {REASON}}}")
    assert "criteria[gpu.d2h].severity: weakens nvidia-dgx-h100" in message


def test_the_reason_for_a_bar_is_none_for_a_severity(tmp_path: Path) -> None:
    bar = "overrides: {gpu.d2h: {value: 40, reason: Measured since delivery.}}"
    message = refusal(tmp_path, f"criteria: [{{id: gpu.d2h, severity: advisory}}]\n{bar}")
    assert "criteria[gpu.d2h].severity: weakens" in message


def test_what_a_run_stores_says_what_is_weaker(tmp_path: Path) -> None:
    loaded = site(tmp_path, f"gpu: {{memory_mib: null}}\noverrides: {{gpu: {REASON}}}")
    assert stored(loaded.text, "evidence").model.metadata == loaded.model.metadata


def without(value: Any, path: tuple[str, ...]) -> Any:
    return {key: without(inner, path[1:]) if len(path) > 1 and key == path[0] else inner
            for key, inner in value.items() if (key,) != path}  # fmt: skip


def keys(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return []
    return [longer for key, inner in value.items() for longer in ((*path, key), *keys(inner, (*path, key)))]


MORE_WITHOUT = (("storage", "hps", "managed"), ("profiles", "full", "drives", "uses"))
"""Without them more is asked: of a storage that is managed, and of drives of all uses."""
SECTIONS = ("roles", "system", "fabric", "links", "storage", "gpu", "tools", "required_checks", "profiles", "claims")


@pytest.mark.parametrize("section", SECTIONS)
def test_no_key_can_be_left_out_in_silence(section: str) -> None:
    """Every key of every section: without it the file is invalid, or the same, or weaker."""
    published = H100.model_copy(update={"profiles": {k: v for k, v in H100.profiles.items() if k != SMOKE}})
    whole = published.model_dump(mode="json", by_alias=True)
    for path in keys(whole[section], (section,)):
        try:
            here = Architecture.model_validate(without(whole, path))
        except ValueError:
            continue
        if path in MORE_WITHOUT:
            continue
        if here != published and rule_of(path) is not free:
            assert weakenings(published, here), path


DEMANDS_MORE_WITHOUT = {"warmup", "severity", "any_of", "min_peers"}
"""Keys of entries whose default demands at least as much as any value."""


BAR = {"value", "low", "high"}
"""Without these a bar is refused, not compared."""


@pytest.mark.parametrize("section", ["criteria", "curves", "outliers"])
def test_no_key_of_an_entry_can_be_left_out_in_silence(section: str) -> None:
    kind = {"criteria": Criterion, "curves": Curve, "outliers": Outlier}[section]
    for index, entry in enumerate(getattr(H100, section)):
        whole = entry.model_dump(mode="json", by_alias=True)
        for path in keys(whole):
            if path[0] in DEMANDS_MORE_WITHOUT or path[-1] == "tolerance_pct" or path[-1] in BAR or "levels" in path:
                continue
            try:
                changed = kind.model_validate(without(whole, path))
            except ValueError:
                continue
            listed = getattr(H100, section)
            here = H100.model_copy(update={section: (*listed[:index], changed, *listed[index + 1 :])})
            if changed != entry and rule_of((section, entry.id, *path)) is not free:
                assert weakenings(H100, here), (entry.id, path)


CURVE = next(curve for curve in H100.curves if curve.efficiency_min is not None)
OUTLIER = H100.outliers[0]


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        (CURVE.model_copy(update={"efficiency_min": 0.01}), "efficiency_min"),
        (CURVE.model_copy(update={"points": CURVE.points[:2]}), "points"),
        (OUTLIER.model_copy(update={"rel_pct": 90.0}), "rel_pct"),
        (OUTLIER.model_copy(update={"z": 9.0}), "z"),
        (OUTLIER.model_copy(update={"min_peers": 50}), "min_peers"),
    ],
)
def test_curves_and_outliers_are_compared_too(changed: Curve | Outlier, key: str) -> None:
    section = "curves" if isinstance(changed, Curve) else "outliers"
    listed = getattr(H100, section)
    here = tuple(changed if entry.id == changed.id else entry for entry in listed)
    (weakening,) = weakenings(H100, H100.model_copy(update={section: here}))
    assert (weakening.id, weakening.key) == (f"{section}.{changed.id}", key)
    left = tuple(entry for entry in listed if entry.id != changed.id)
    (weakening,) = weakenings(H100, H100.model_copy(update={section: left}))
    assert (weakening.id, weakening.key, weakening.here) == (f"{section}.{changed.id}", "", "dropped")


def test_a_lower_level_is_weaker_and_a_higher_one_is_not() -> None:
    best = H100.model_copy(update={"level": "best"})
    (weakening,) = weakenings(best, H100)
    assert (weakening.id, weakening.published, weakening.here) == ("level", "best", "good")
    assert weakenings(H100, best) == ()


def test_a_further_way_of_meeting_a_criterion_is_weaker() -> None:
    first = H100.criteria[0]
    way = Alternative.model_validate(
        {"metric": first.metric, "scope": first.scope, "pass": {"op": "ge", "value": 1, "unit": "GB/s"}}
    )
    here = H100.model_copy(update={"criteria": (first.model_copy(update={"any_of": (way,)}), *H100.criteria[1:])})
    (weakening,) = weakenings(H100, here)
    assert weakening.path == f"criteria.{first.id}.any_of"
    assert weakenings(here, H100) == ()


def test_fewer_values_of_a_label_and_another_label_are_weaker() -> None:
    rails = next(c for c in H100.criteria if c.id == "rdma.pair")
    for where in ({"rail": ("0",)}, {}, {**rails.where, "other": "1"}):
        here = tuple(c.model_copy(update={"where": where}) if c is rails else c for c in H100.criteria)
        (weakening,) = weakenings(H100, H100.model_copy(update={"criteria": here}))
        assert weakening.path.startswith("criteria.rdma.pair.where")


def test_a_claim_that_is_no_longer_checked_is_weaker() -> None:
    dell = load("dell-isilon-f800-dgx1").model
    id_, claim = next(iter(dell.claims.items()))
    told = claim.model_copy(update={"not_checkable": "We did not look."})
    here = dell.model_copy(update={"claims": dell.claims | {id_: told}})
    assert [w.path for w in weakenings(dell, here)] == [f"claims.{id_}.not_checkable"]
    less = {name: other for name, other in dell.claims.items() if name != id_}
    assert [w.path for w in weakenings(dell, dell.model_copy(update={"claims": less}))] == [f"claims.{id_}"]


class TestCertificate:
    """The virtual rack's judge on the evidence of a small rack, against a child that weakens it."""

    def test_the_headline_and_the_first_page_say_it(self, here: World) -> None:
        folder = record(here, read=15.0)
        assert answer("a")["outcome"] == "NOT CERTIFIED"
        (here.folder / "architectures/our-pod.yaml").write_text(
            "apiVersion: refarch/v1\nextends: small\nmetadata: {id: our-pod, version: 1.0.0}\n"
            "criteria: [{id: nfs.read, pass: {value: 0.001}}]\n"
            f"overrides: {{criteria.nfs.read: {REASON}}}\n"
        )
        told = answer("a", "--architecture", "our-pod")
        assert (told["outcome"], told["exit_status"]) == ("CERTIFIED", 0)
        assert told["headline"] == "CERTIFIED against our-pod, which weakens 1 criterion of small"
        certificate = json.loads((folder / "certificate.json").read_text())
        assert certificate["headline"] == told["headline"]
        assert certificate["architecture"]["weakened"] == [
            {
                "id": "criteria.nfs.read", "key": "pass.value", "published": "≥ 20 MB/s", "here": "≥ 0.001 MB/s",
                "reason": "Until the spare parts are here.", "by": "Ada",
            }
        ]  # fmt: skip
        page = (folder / "certificate.html").read_text()
        first = page[: page.index("<main>")]
        for text in (told["headline"], "≥ 0.001 MB/s", "≥ 20 MB/s", "Until the spare parts are here.", "Ada"):
            assert text in first
        for name in ("junit.xml", "metrics.prom"):
            assert told["headline"] in (folder / name).read_text()
        printed = " ".join(judge("a", "--architecture", "our-pod").output.replace("│", " ").split())
        for text in ("weakens 1 criterion of small", "nfs.read", "Until the spare parts are here."):
            assert text in printed

    def test_the_parents_title_never_stands_alone(self, here: World) -> None:
        folder = record(here)
        (here.folder / "elsewhere").mkdir()
        (here.folder / "elsewhere/pod.yaml").write_text(
            "apiVersion: refarch/v1\nextends: ../architectures/small.yaml\n"
            "metadata: {id: our-pod, version: 1.0.0, title: Small rack}\n"
        )
        assert answer("a", "--architecture", "elsewhere/pod.yaml")["headline"] == "CERTIFIED against our-pod"
        page = (folder / "certificate.html").read_text()
        assert "<b>our-pod</b>" in page
        assert "extends <code>small 1.2.3</code>" in page
        printed = " ".join(judge("a", "--architecture", "elsewhere/pod.yaml").output.replace("│", " ").split())
        assert "our-pod 1.0.0 (Small rack), extends small 1.2.3" in printed


def test_the_sentence_counts_criteria_and_other_keys() -> None:
    changed = H100.model_copy(update={"criteria": H100.criteria[2:], "gpu": None})
    assert weakens(weakenings(H100, changed), "nvidia-dgx-h100") == (
        "weakens 2 criteria and 1 other key of nvidia-dgx-h100"
    )


def test_check_of_a_file_prints_what_it_weakens(tmp_path: Path) -> None:
    site(tmp_path, "drop: [{id: gpu.d2h, reason: We copy nothing back.}]")
    result = CliRunner().invoke(cli, ["arch", "check", str(tmp_path / "our-pod.yaml")])
    assert result.exit_code == 0
    assert "weakens 1 criterion of nvidia-dgx-h100" in result.output
    assert "criteria.gpu.d2h: published ≥ 48 GB/s (warns below 50), here dropped" in result.output
