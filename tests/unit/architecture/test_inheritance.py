"""Files that extend others, and sites that change a threshold."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from rackproof.architectures import LoadedArchitecture, load, stored
from rackproof.errors import ArchitectureError
from tests.unit.judging import criterion, document
from tests.unit.refusals import error_of

H200 = Path(__file__).parents[3] / "architectures/h200-single.yaml"
PARENT = document(
    criterion(),
    criterion(id="nfs.write", metric="storage.write_bandwidth"),
    fabric={"kind": "soft-roce", "mtu": 9000},
    tools={"packages": ["fio"], "programs": ["fio"]},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(PARENT, sort_keys=False))
    return tmp_path


def child(folder: Path, text: str, name: str = "child", extends: str = "small") -> LoadedArchitecture:
    head = f"apiVersion: refarch/v1\nextends: {extends}\nmetadata: {{id: {name}, version: 2.0.0}}\n"
    (folder / f"{name}.yaml").write_text(head + dedent(text))
    return load(name, [folder])


def refusal(folder: Path, text: str, **named: Any) -> str:
    return error_of(ArchitectureError, child, folder, text, **named).replace(f"{folder}/", "")


def test_a_child_has_what_its_parent_has(folder: Path) -> None:
    model = child(folder, "").model
    assert (model.metadata.id, model.metadata.version, model.metadata.title) == ("child", "2.0.0", "Small rack")
    assert [c.id for c in model.criteria] == ["nfs.read", "nfs.write"]
    assert model.storage["nfs"].mountpoint == "/mnt/nfs"


def test_mappings_merge_and_lists_replace(folder: Path) -> None:
    model = child(
        folder,
        """
        storage: {nfs: {mountpoint: /data, options: [ro]}}
        fabric: {mtu: 4200}
        tools: {packages: [iperf3]}
        overrides:
          storage.nfs: {reason: Nothing is written here.}
          fabric.mtu: {reason: A switch of the old rack is on the way.}
          tools.packages: {reason: fio is built here.}
    """,
    ).model
    assert model.storage["nfs"].mountpoint == "/data"
    assert model.storage["nfs"].server_role == "storage"
    assert model.fabric is not None
    assert (model.fabric.kind, model.fabric.mtu) == ("soft-roce", 4200)
    assert model.tools.packages == ("iperf3",)
    assert model.tools.programs == ("fio",)


def test_entries_merge_by_id_new_ones_are_added_and_dropped_ones_go(folder: Path) -> None:
    model = child(
        folder,
        """
        criteria:
          - {id: nfs.read, pass: {value: 30}}
          - {id: more, title: More, metric: storage.random_read_iops, where: {storage: nfs}, scope: node,
             pass: {op: ge, value: 10, unit: 1/s}, source: us, reason: Because., hint: Look.}
        drop: [{id: nfs.write, reason: Nothing is written here.}]
    """,
    ).model
    assert [c.id for c in model.criteria] == ["nfs.read", "more"]
    assert model.criteria[0].pass_.value == 30
    assert model.criteria[0].pass_.unit == "MB/s"


def test_null_takes_a_value_away(folder: Path) -> None:
    reason = "overrides: {fabric: {reason: One node has none.}}\n"
    assert child(folder, f"fabric: null\n{reason}").model.fabric is None


def test_null_takes_an_entry_away_with_a_reason(folder: Path) -> None:
    """Entries of mappings whose keys the file chooses; what it stores is read again without its parent."""
    text = """
        profiles: {full: {gpu: {diagnoses: {targeted_power: null}}}}
        workloads: {resnet50: null}
        system: {sysctl: {vm.swappiness: null}}
        drop: [{id: ingest.resnet50, reason: No data set of it is here.}]
        criteria: [{id: gpu.diagnosed, where: {test: [memory_bandwidth, diagnostic, targeted_stress]}}]
    """
    reasons = """
        overrides:
          gpu.diagnosed: {reason: The room has no power for it.}
          profiles.full.gpu.diagnoses.targeted_power: {reason: The room has no power for it.}
          system.sysctl.vm.swappiness: {reason: It has no swap.}
          workloads.resnet50: {reason: No data set of it is here.}
    """
    assert "weakens h200-single" in refusal(folder, text, name="plain", extends=str(H200))
    made = child(folder, dedent(text) + dedent(reasons), extends=str(H200))
    for model in (made.model, stored(made.text, "stored").model):
        gpu = model.profiles["full"].gpu
        assert gpu is not None
        assert "targeted_power" not in gpu.diagnoses
        assert len(gpu.diagnoses) == 3
        assert model.workloads == {}
        assert "vm.swappiness" not in model.system.sysctl


def test_null_for_what_no_parent_has_is_named(folder: Path) -> None:
    assert "child.yaml:4: workloads.unet3d: expected a mapping, actual nothing" in refusal(
        folder, "workloads: {unet3d: null}"
    )


def test_grandchildren_and_paths(folder: Path) -> None:
    reason = "overrides: {fabric.mtu: {reason: A switch of the old rack is on the way.}}\n"
    child(folder, f"fabric: {{mtu: 4200}}\n{reason}", name="middle")
    (folder / "deep").mkdir()
    path = folder / "deep" / "leaf.yaml"
    path.write_text(
        "apiVersion: refarch/v1\nextends: ../middle.yaml\nmetadata: {id: leaf, version: 3.0.0}\nfabric: {rails: 2}\n"
    )
    loaded = load(path, [folder])
    assert loaded.model.fabric is not None
    assert (loaded.model.fabric.rails, loaded.model.fabric.mtu) == (2, 4200)
    assert yaml.safe_load(loaded.text)["metadata"]["derived_from"] == ["../middle.yaml", "small"]


def test_what_a_run_stores_needs_no_other_file(folder: Path) -> None:
    loaded = child(folder, "overrides: {nfs.read: {value: 15, reason: Old switches.}}\n")
    again = stored(loaded.text, "evidence")
    assert again.sha256 == loaded.sha256
    assert again.model.criteria == loaded.model.criteria
    assert again.model.criteria[0].changed == "Old switches."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drop: [{id: nfs.reed, reason: Typing.}]", "child.yaml:4: drop[nfs.reed].id: unknown entry of small.yaml"),
        ("fabric: {mtu: many}", "child.yaml:4: fabric.mtu: expected an integer, actual 'many'"),
        ("criteria: [{id: nfs.read, pass: {valeu: 3}}]", "child.yaml:4: criteria[nfs.read].pass.valeu: unknown key"),
        ("criteria: [{id: new}]", "child.yaml:4: criteria[new]"),
        ("criteria: 3", "child.yaml:4: criteria: expected a list, actual 3"),
        ("colour: red", "child.yaml:4: colour: unknown key"),
    ],
)
def test_a_mistake_of_the_child_is_shown_in_its_file(folder: Path, text: str, message: str) -> None:
    assert refusal(folder, text).startswith(message)


def test_a_mistake_of_the_parent_is_shown_there(folder: Path) -> None:
    text = (folder / "small.yaml").read_text().replace("mtu: 9000", "mtu: none")
    (folder / "small.yaml").write_text(text)
    line = text[: text.index("mtu: none")].count("\n") + 1
    assert refusal(folder, "").startswith(
        f"small.yaml:{line}: fabric.mtu: expected an integer, actual 'none' (extended by"
    )


@pytest.mark.parametrize("extends", ["child", "other"])
def test_a_circle_is_refused(folder: Path, extends: str) -> None:
    (folder / "other.yaml").write_text(
        "apiVersion: refarch/v1\nextends: child\nmetadata: {id: other, version: 1.0.0}\n"
    )
    message = refusal(folder, "", extends=extends)
    assert "extends in a circle: child.yaml → " in message
    assert message.endswith("→ child.yaml")


def test_an_unknown_parent_is_named_with_the_nearest(folder: Path) -> None:
    message = refusal(folder, "", extends="smal")
    assert message == "child.yaml:2: extends smal: no reference architecture 'smal'; did you mean 'small'?"


@pytest.mark.parametrize("extends", ["[small]", "3"])
def test_extends_is_a_name(folder: Path, extends: str) -> None:
    assert "extends: expected an id or a path" in refusal(folder, "", extends=extends)


@pytest.mark.parametrize("key", ["criteria", "curves", "outliers", "overrides", "checks"])
@pytest.mark.parametrize("value", ["4", "true", "text", "[gpu.d2h, 4, null, [a]]", "{a: [b]}"])
def test_a_block_of_the_wrong_kind_is_refused_in_child_and_parent(folder: Path, key: str, value: str) -> None:
    assert refusal(folder, f"{key}: {value}\n").startswith(f"child.yaml:4: {key}")
    (folder / "odd.yaml").write_text(yaml.safe_dump(PARENT | {key: yaml.safe_load(value)}, sort_keys=False))
    message = refusal(folder, "", extends="odd")
    assert message.startswith("odd.yaml:")
    assert f": {key}" in message


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ('"a/\\0b"', "child.yaml:2: extends a/\\x00b: a/\\x00b: cannot be read: embedded null byte"),
        (f"a/{'x' * 5000}", "cannot be read: File name too long"),
        ("x" * 5000, "no reference architecture"),
        ("./", "cannot be read: Is a directory"),
        ("./binary.yaml", "not UTF-8 text"),
        ("./not-there.yaml", "cannot be read: No such file or directory"),
        ('""', "no reference architecture ''"),
    ],
)
def test_a_parent_that_cannot_be_read(folder: Path, extends: str, message: str) -> None:
    (folder / "binary.yaml").write_bytes(bytes(range(1, 256)))
    (folder / "a").mkdir()
    line = refusal(folder, "", extends=extends)
    assert message in line
    assert line.startswith("child.yaml:2: extends ")
    assert len(line) < 700


def test_an_entry_that_stands_twice_in_a_child_is_named(folder: Path) -> None:
    twice = "criteria:\n- {id: nfs.read, severity: advisory}\n- {id: nfs.read, severity: required}\n"
    assert refusal(folder, twice) == "child.yaml:6: criteria[nfs.read].id: 'nfs.read' is in line 5 already"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("{}", "metadata.id: expected one of its own, not small.yaml's (and 1 more)"),
        ("{id: child}", "metadata.version: expected one of its own, not small.yaml's"),
        ("{version: 2.0.0}", "metadata.id: expected one of its own, not small.yaml's"),
        ("{id: small, version: 2.0.0}", "metadata.id: 'small' is the id of a file that it extends"),
        ("null", "metadata: expected an id and a version of its own, not only its parent's"),
    ],
)
def test_a_child_has_an_identity_of_its_own(folder: Path, metadata: str, message: str) -> None:
    path = folder / "own.yaml"
    path.write_text(f"apiVersion: refarch/v1\nextends: small\nmetadata: {metadata}\n")
    refused = error_of(ArchitectureError, load, path, [folder]).replace(f"{folder}/", "")
    assert refused == f"own.yaml:3: {message.removesuffix(' (and 1 more)')}"


def test_a_grandchild_has_another_id_than_the_first_parent(folder: Path) -> None:
    child(folder, "", name="middle")
    path = folder / "leaf.yaml"
    path.write_text("apiVersion: refarch/v1\nextends: middle\nmetadata: {id: small, version: 3.0.0}\n")
    with pytest.raises(ArchitectureError, match="'small' is the id of a file that it extends"):
        load(path, [folder])


class TestInheritedOverrides:
    @pytest.fixture
    def site(self, folder: Path) -> Path:
        (folder / "site.yaml").write_text(
            "apiVersion: refarch/v1\nextends: small\nmetadata: {id: site, version: 1.0.0}\n"
            "overrides:\n"
            "  nfs.read: {value: 60, reason: Tightened., by: Ada}\n"
            "  nfs.write: {value: 50, reason: Tightened as well.}\n"
        )
        return folder

    def test_a_parents_override_holds_in_the_child(self, site: Path) -> None:
        loaded = child(site, "", extends="site")
        assert [(c.pass_.value, c.changed) for c in loaded.model.criteria] == [
            (60, "Tightened. (Ada)"),
            (50, "Tightened as well."),
        ]
        assert loaded.model.criteria[0].published == "≥ 20 MB/s"
        assert stored(loaded.text, "evidence").model.criteria == loaded.model.criteria

    def test_the_childs_own_wins_with_its_own_reason(self, site: Path) -> None:
        read, write = child(
            site, "overrides: {nfs.read: {value: 30, reason: One pod only.}}\n", extends="site"
        ).model.criteria
        assert (read.pass_.value, read.changed) == (30, "One pod only.")
        assert (write.pass_.value, write.changed) == (50, "Tightened as well.")

    def test_null_takes_it_away(self, site: Path) -> None:
        read = child(site, "overrides: {nfs.read: null}\n", extends="site").model.criteria[0]
        assert (read.pass_.value, read.changed) == (20, None)

    def test_that_of_a_dropped_entry_goes(self, site: Path) -> None:
        model = child(site, "drop: [{id: nfs.write, reason: Not here.}]\n", extends="site").model
        assert list(model.overrides) == ["nfs.read"]

    def test_a_mistake_in_it_is_shown_where_it_stands(self, site: Path) -> None:
        (site / "site.yaml").write_text((site / "site.yaml").read_text().replace("nfs.read", "nfs.reed"))
        message = refusal(site, "", extends="site")
        assert message.startswith("site.yaml:5: overrides.nfs.reed: unknown criterion, curve or outlier 'nfs.reed'")

    def test_a_child_cannot_loosen_a_bar_beneath_its_parents_override(self, site: Path) -> None:
        message = refusal(site, "criteria: [{id: nfs.read, pass: {value: 5}}]\n", extends="site")
        assert message.startswith("child.yaml:4: criteria[nfs.read].pass: site.yaml overrides it; override it here too")
        reason = "criteria.nfs.read.pass: {reason: Old switches.}"
        both = f"criteria: [{{id: nfs.read, pass: {{value: 15}}}}]\noverrides: {{nfs.read: null, {reason}}}\n"
        assert child(site, both, extends="site").model.criteria[0].pass_.value == 15


class TestOverrides:
    def test_the_new_bar_counts_and_the_old_one_is_remembered(self, folder: Path) -> None:
        model = child(folder, "overrides: {nfs.read: {value: 15, reason: Old switches., by: Ada}}\n").model
        changed, untouched = model.criteria
        assert changed.pass_.value == 15
        assert changed.published == "≥ 20 MB/s"
        assert changed.changed == "Old switches. (Ada)"
        assert untouched.published is None

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            (
                "{nfs.reed: {value: 3, reason: No.}}",
                "overrides.nfs.reed: unknown criterion, curve or outlier 'nfs.reed'",
            ),
            ("{nfs.read: {reason: Nothing.}}", "overrides.nfs.read: changes nothing"),
            ("{nfs.read: {rel_pct: 3, reason: No.}}", "overrides.nfs.read.rel_pct: nfs.read has no rel_pct"),
            ("{nfs.read: {low: 3, reason: No.}}", "overrides: criteria[nfs.read].pass.low: belongs to 'range'"),
            ("{nfs.read: {value: -3, reason: No.}}", "overrides: criteria[nfs.read].pass.value: no metric can be"),
            ("{nfs.read: {value: 3}}", "overrides.nfs.read.reason: required key is missing"),
        ],
    )
    def test_an_override_that_makes_no_sense_is_refused(self, folder: Path, override: str, message: str) -> None:
        assert message in refusal(folder, f"overrides: {override}\n")

    def test_a_file_cannot_pretend_that_its_bar_was_published(self, folder: Path) -> None:
        message = refusal(folder, "criteria: [{id: nfs.read, published: ≥ 90 MB/s}]\n")
        assert message.startswith("child.yaml:4: criteria[nfs.read].published: is set by overrides")

    def test_an_override_above_the_ceiling_is_refused_too(self, folder: Path) -> None:
        text = """
            metadata: {id: child, version: 2.0.0}
            links: {port: {title: One port, each: {value: 1, unit: Gb/s, source: us}}}
            criteria: [{id: nfs.read, ceiling: {link: port}}]
            overrides: {nfs.read: {value: 200, reason: Hope.}}
        """
        (folder / "child.yaml").write_text("apiVersion: refarch/v1\nextends: small\n" + dedent(text))
        with pytest.raises(ArchitectureError, match="200 MB/s is more than its link can carry"):
            load("child", [folder])

    @pytest.mark.parametrize("value", ["efficiency_min: 0", "efficiency_min: -1", "r2_min: 2", "rel_pct: 500"])
    def test_an_override_keeps_to_what_the_key_may_be(self, folder: Path, value: str) -> None:
        assert "expected" in refusal(folder, f"overrides: {{nfs.read: {{{value}, reason: No.}}}}\n")

    def test_an_override_that_nothing_can_miss_is_refused(self, folder: Path) -> None:
        assert "at least 0 cannot be missed" in refusal(folder, "overrides: {nfs.read: {value: 0, reason: No.}}\n")


def test_a_severity_of_an_unknown_check(folder: Path) -> None:
    (folder / "site.yaml").write_text(
        "apiVersion: refarch/v1\nextends: small\nmetadata: {id: site, version: 1.0.0}\n"
        "required_checks: {gpu: [site.badge]}\n"
        "checks: {gpu.count: advisory, site.badge: advisory, nic.mtus: advisory}\n"
        "overrides: {checks: {reason: The badges are on their way.}}\n"
    )
    validators = ("gpu.count", "nic.mtu")
    with pytest.raises(ArchitectureError, match=r"site.yaml:5: checks.nic.mtus: unknown check.*did you mean 'nic.mtu'"):
        load("site", [folder], validators)
    assert load("site", [folder], (*validators, "nic.mtus")).model.metadata.id == "site"
