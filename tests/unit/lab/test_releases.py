"""``lab up --release``: which release each node gets, and when disks are made anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.cli.lab import lab as lab_command
from rackproof.errors import LabError
from rackproof.lab import rack as rack_module
from rackproof.lab.image import Image
from rackproof.lab.rack import Lab, UpOptions
from rackproof.lab.state import read_spec


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A rack that runs nowhere, of images that nothing builds."""
    monkeypatch.setattr(rack_module, "ensure_image", lambda release, say: Image(tmp_path / f"{release}-0", {}))
    monkeypatch.setattr(rack_module, "choose", lambda accel, image, say: "tcg")
    folder = tmp_path / ".lab"
    folder.mkdir()
    return Lab(folder)


def of_nodes(lab: Lab, *releases: tuple[str | None, str], gpu_nodes: int | None = None) -> dict[str, str]:
    lab._spec(UpOptions(releases=releases, gpu_nodes=gpu_nodes))
    spec = read_spec(lab.folder)
    assert spec is not None
    assert set(spec.images) == {node.release for node in spec.nodes}
    return {node.name: node.release for node in spec.nodes}


def test_a_release_is_for_all_nodes_or_for_one_and_is_kept(lab: Lab) -> None:
    assert set(of_nodes(lab).values()) == {"trixie"}
    mixed = {"storage-01": "trixie", "gpu-01": "trixie", "gpu-02": "bookworm"}
    assert of_nodes(lab, ("gpu-02", "bookworm")) == mixed
    assert of_nodes(lab) == mixed
    assert of_nodes(lab, gpu_nodes=3) == {**mixed, "gpu-03": "trixie"}
    assert of_nodes(lab, ("gpu-01", "trixie"), (None, "bookworm"))["gpu-01"] == "trixie"
    assert set(of_nodes(lab, (None, "bookworm")).values()) == {"bookworm"}


def test_another_release_makes_new_disks_and_another_node_does_not(lab: Lab) -> None:
    of_nodes(lab)
    disk = lab.node_folder("gpu-01") / "root.qcow2"
    disk.parent.mkdir(parents=True)
    disk.touch()
    of_nodes(lab, gpu_nodes=3)
    assert disk.exists()
    of_nodes(lab, ("gpu-02", "bookworm"))
    assert not disk.exists()


def test_a_node_or_a_release_that_is_unknown_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match="no node gpu-09 in the rack; it has storage-01, gpu-01, gpu-02"):
        of_nodes(lab, ("gpu-09", "bookworm"))
    refused = CliRunner().invoke(lab_command, ["up", "--release", "gpu-01=sarge"])
    assert refused.exit_code == 2
    assert "no release 'sarge'; the lab has trixie, bookworm" in refused.output
