from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackproof.cli.main import cli
from rackproof.configure.known_inputs import MODELS, described, misspelled, plain_inputs
from rackproof.configure.settings import Inputs

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("key", sorted(MODELS))
def test_every_input_says_what_it_is_and_has_a_default(key: str) -> None:
    model = MODELS[key]
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


def test_every_model_with_a_key_is_listed() -> None:
    for path in (ROOT / "rackproof/configure").rglob("*.py"):
        if "KEY: ClassVar" in path.read_text() and path.name != "settings.py":
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    ours = [model for model in _subclasses(Inputs) if model.__module__.startswith("rackproof.")]
    assert sorted(model.KEY for model in ours if "KEY" in vars(model)) == sorted(MODELS)


def _subclasses(model: type[Inputs]) -> Iterator[type[Inputs]]:
    for each in model.__subclasses__():
        yield each
        yield from _subclasses(each)


def test_a_misspelled_key_is_noticed_and_a_sites_own_is_not() -> None:
    assert misspelled(["gpu_stak", "rack_unit", "fake_responses", "ssh_user", "gpu_stack"]) == {"gpu_stak": "gpu_stack"}


def test_the_command_says_it_all() -> None:
    done = CliRunner().invoke(cli, ["inputs", "reboot"])
    assert done.exit_code == 0, done.output
    assert "reboot.allowed: bool = False" in done.output
    assert "reboot.serial: int = 1" in done.output
    found = json.loads(CliRunner().invoke(cli, ["inputs", "--json"]).output)
    assert {each["key"].partition(".")[0] for each in found} >= set(MODELS)
    done = CliRunner().invoke(cli, ["inputs", "gpu_stak"])
    assert done.exit_code != 0
    assert "did you mean 'gpu_stack'" in done.output
