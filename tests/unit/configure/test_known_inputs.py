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
    for described_input in described(key):
        assert described_input.text, f"{described_input.key} has no text"


def test_types_are_named_without_the_machinery_behind_them() -> None:
    types = {described_input.key: described_input.type for key in MODELS for described_input in described(key)}
    assert not [key for key, text in types.items() if "Annotated" in text or "Constraints" in text]
    assert types["gpu.driver"] == "str | None"
    assert types["nic.source"] == "'doca' | 'mlnx_ofed' | 'inbox' | None"
    assert types["preflight.free_mib"] == "dict[str, int]"


def test_mistakes_inside_lists_and_mappings_are_reported() -> None:
    by_key = {described_input.key: described_input for key in MODELS for described_input in described(key)}
    assert by_key["nic.ports.NAME.purpose"].type == "str | None"
    assert by_key["nic.bonds.NAME.mode"].default == "802.3ad"
    assert by_key["node.users[].name"].default == "required"
    assert by_key["containers.packages[].sha256"].text


def test_settings_of_a_node_are_described() -> None:
    by_key = {plain_input.key: plain_input for plain_input in plain_inputs() if plain_input.text}
    assert {"data_drive", "fabric_addresses", "architecture"} <= set(by_key)
    assert by_key["nfs_threads"].default == "16"
    assert by_key["time_upstreams"].type == "tuple[str, ...]"
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
    for subclass in model.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def test_a_misspelled_key_is_noticed_and_a_sites_own_is_not() -> None:
    assert misspelled(["storage_clint", "gpus", "rack_unit", "fake_responses", "ssh_user", "gpu", "gpu_stak"]) == {
        "storage_clint": "storage_client", "gpu_stak": "gpu",
    }  # fmt: skip


def test_the_command_says_it_all() -> None:
    done = CliRunner().invoke(cli, ["inputs", "reboot"])
    assert done.exit_code == 0, done.output
    assert "reboot.allowed: bool = False" in done.output
    assert "reboot.serial: int = 1" in done.output
    listed = json.loads(CliRunner().invoke(cli, ["inputs", "--json"]).output)
    assert {listed_input["key"].partition(".")[0] for listed_input in listed} >= set(MODELS)
    done = CliRunner().invoke(cli, ["inputs", "storage_clint"])
    assert done.exit_code != 0
    assert "did you mean 'storage_client'" in done.output
