"""Where the kit's own files are, in a checkout and in a wheel."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from rackproof import kit
from rackproof.errors import InventoryError
from tests.unit.refusals import error_of

CHECKOUT = Path(__file__).parents[2]


def test_the_wheel_has_everything_that_the_package_looks_for_and_nothing_else() -> None:
    wheel = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {name: f"rackproof/{kit.DATA}/{name}" for name in (*kit.FOLDERS, kit.LOCK)}


def test_in_a_checkout_everything_is_beside_the_package() -> None:
    assert kit.root() == CHECKOUT
    assert all(kit.folder(name).is_dir() for name in kit.FOLDERS)
    assert (kit.root() / kit.LOCK).is_file()
    assert all(kit.deploy_file(name).is_file() for name in (kit.CLUSTER, kit.ROLLBACK))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with data of its own, and an empty working directory."""
    package = tmp_path / "site-packages" / "rackproof"
    deploys = package / kit.DATA / "deploys"
    deploys.mkdir(parents=True)
    for name in ("__init__", "cluster", "fabric"):
        (deploys / f"{name}.py").touch()
    monkeypatch.setattr(kit, "PACKAGE", package)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return package / kit.DATA


def test_an_installed_package_uses_its_own_data(installed: Path) -> None:
    assert kit.folder("validators") == installed / "validators"
    assert kit.deploy_file("deploys/fabric.py") == installed / "deploys" / "fabric.py"


def test_deploys_of_the_working_directory_come_first(installed: Path) -> None:
    Path("deploys").mkdir()
    for name in ("fabric", "mine"):
        Path(f"deploys/{name}.py").touch()
    assert kit.deploy_file("deploys/fabric.py") == Path("deploys/fabric.py")
    assert kit.deploy_file("deploys/mine.py") == Path("deploys/mine.py")
    assert kit.deploy_file("deploys/cluster.py") == installed / "deploys" / "cluster.py"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("deploys/fabrik.py", "did you mean 'deploys/fabric.py'?"),
        ("cluster.py", "did you mean 'deploys/cluster.py'?"),
        ("/deploys/fabric.py", "did you mean 'deploys/fabric.py'?"),
        ("zzz", "known: deploys/cluster.py, deploys/fabric.py"),
    ],
)
def test_an_unknown_deploy_file_is_refused_with_the_nearest(installed: Path, name: str, hint: str) -> None:
    assert error_of(InventoryError, kit.deploy_file, name) == f"{name}: no such deploy file; {hint}"


def test_an_absent_inventory_is_refused_with_examples(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InventoryError, match=f"rack.py: no such inventory file .examples: {installed}/inventories"):
        kit.inventory_file("rack.py")
    monkeypatch.setattr(kit, "PACKAGE", CHECKOUT / "rackproof")
    monkeypatch.chdir(CHECKOUT)
    with pytest.raises(InventoryError, match=r"rack.py: no such inventory file .examples: inventories"):
        kit.inventory_file("rack.py")


def test_deploys_can_import_each_other_after_those_of_the_site(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["first"])
    kit.make_deploys_importable()
    kit.make_deploys_importable()
    assert sys.path == ["first", str(installed)]
