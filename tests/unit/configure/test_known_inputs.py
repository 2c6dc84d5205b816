from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.cli.main import cli
from rackproof.configure.known_inputs import MODELS, described, misspelled, model_of, plain_inputs
from rackproof.configure.settings import Inputs

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("key", sorted(MODELS))
def test_every_input_says_what_it_is_and_has_a_default(key: str) -> None:
    model = model_of(key)
    assert issubclass(model, Inputs)
    model()  # an inventory need not say anything
    for each in described(key):
        assert each.text, f"{each.key} has no text"


def test_types_are_said_without_the_machinery_behind_them() -> None:
    types = {each.key: each.type for key in MODELS for each in described(key)}
    assert not [key for key, text in types.items() if "Annotated" in text or "Constraints" in text]
    assert types["gpu_stack.driver"] == "str | None"
    assert types["nic_stack.source"] == "'doca' | 'mlnx_ofed' | 'inbox' | None"
    assert types["preflight.free_mib"] == "dict[str, int]"


def test_what_stands_inside_lists_and_by_names_is_said_too() -> None:
    found = {each.key: each for key in MODELS for each in described(key)}
    assert found["nic_stack.ports.NAME.purpose"].type == "str | None"
    assert found["nic_stack.bonds.NAME.mode"].default == "802.3ad"
    assert found["node.users[].name"].default == "required"
    assert found["containers.packages[].sha256"].text


def test_settings_of_a_node_are_described() -> None:
    found = {each.key: each for each in plain_inputs() if each.text}
    assert {"data_drive", "fabric_addresses", "architecture"} <= set(found)
    assert found["nfs_threads"].default == "16"
    assert found["time_upstreams"].type == "tuple[str, ...]"
    assert misspelled(["time_upstream", "nfs_thread"]) == {
        "time_upstream": "time_upstreams", "nfs_thread": "nfs_threads",
    }  # fmt: skip


def read_keys() -> set[str]:
    """Keys of mappings that the code reads: the second argument of ``read_inputs(node, "key", Model)``, or ``KEY``."""
    found = set()
    for path in [*(ROOT / "rackproof" / "configure").rglob("*.py"), *(ROOT / "deploys").glob("*.py")]:
        tree = ast.parse(path.read_text())
        keys = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            name = getattr(getattr(node, "func", None), "attr", getattr(getattr(node, "func", None), "id", ""))
            if isinstance(node, ast.Call) and name == "read_inputs" and len(node.args) == 3:
                key = node.args[1]
                if isinstance(key, ast.Constant):
                    found.add(str(key.value))
                elif isinstance(key, ast.Name) and key.id in keys:
                    found.add(str(keys[key.id]))
    return found


def test_no_mapping_is_read_that_is_not_listed() -> None:
    read = read_keys()
    assert len(read) > 4
    assert read <= set(MODELS)


def test_a_misspelled_key_is_noticed_and_a_sites_own_is_not() -> None:
    assert misspelled(["gpu_stak", "rack_unit", "fake_responses", "ssh_user", "gpu_stack"]) == {"gpu_stak": "gpu_stack"}


def test_the_command_says_it_all() -> None:
    done = CliRunner().invoke(cli, ["inputs", "rebooting"])
    assert done.exit_code == 0, done.output
    assert "rebooting." in done.output
    found = json.loads(CliRunner().invoke(cli, ["inputs", "--json"]).output)
    assert {each["key"].partition(".")[0] for each in found} >= set(MODELS)
    done = CliRunner().invoke(cli, ["inputs", "gpu_stak"])
    assert done.exit_code != 0
    assert "did you mean 'gpu_stack'" in done.output
