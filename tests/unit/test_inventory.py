"""Inventories: what pyinfra would read, or one line that says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.errors import InventoryError
from rackproof.inventory import load_rack

GOOD = """
from os import path
gpu = [("gpu-01", {"fabric_addresses": ["10.0.0.1/24"], "helper": print}), "gpu-02"]
storage = ["storage-01"]
"""


def write(folder: Path, text: str) -> str:
    path = folder / "rack.py"
    path.write_text(text)
    return str(path)


def test_groups_and_data_are_pyinfras_own(tmp_path: Path) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "gpu.py").write_text("colour = 'green'\n")
    rack = load_rack(write(tmp_path, GOOD))
    assert [n.name for n in rack.group("gpu")] == ["gpu-01", "gpu-02"]
    assert rack.node("gpu-01").fabric_address() == "10.0.0.1"
    assert rack.node("gpu-02").data["colour"] == "green"
    assert rack.node("storage-01").groups == ("storage",)
    assert "helper" not in rack.node("gpu-01").data


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gpu = ['a', 'b', 'a']\n", "group 'gpu' lists a twice"),
        ("gpu = [('a', {}), 'a']\n", "group 'gpu' lists a twice"),
        ("x = 1\ngpu = [missing]\n", "line 2: NameError: name 'missing' is not defined"),
        ("gpu = ['a'\n", "line 1: SyntaxError"),
        ("raise SystemExit('no rack here')\n", "no rack here"),
        ("pass\n", "lists no node"),
        ("gpu = []\n", "lists no node"),
    ],
)
def test_a_bad_inventory_is_one_line_with_its_name(tmp_path: Path, text: str, reason: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InventoryError) as caught:
        load_rack(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_absent_inventory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="no such inventory file"):
        load_rack(str(tmp_path / "absent.py"))


def test_the_lab_inventory_says_which_command_starts_the_rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(__file__).parents[2] / "inventories" / "lab.py"
    (tmp_path / "inventories").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "inventories" / "lab.py").write_text(source.read_text())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InventoryError, match=r"the virtual rack is down: start it with `rackproof lab up`"):
        load_rack("inventories/lab.py")
