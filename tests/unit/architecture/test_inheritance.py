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
    with pytest.raises(ArchitectureError) as caught:
        child(folder, text, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{folder}/", "")


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
    assert child(folder, "fabric: null\n").model.fabric is None


def test_grandchildren_and_paths(folder: Path) -> None:
    child(folder, "fabric: {mtu: 4200}\n", name="middle")
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
