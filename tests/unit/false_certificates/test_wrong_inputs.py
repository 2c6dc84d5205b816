"""Inputs that are not valid are refused before a run begins; keys and users in an inventory are none."""

from __future__ import annotations

import pytest

from rackproof.errors import InventoryError
from tests.unit.false_certificates.racks import World

KEYS = {
    "storage_client": {
        "lustre": {
            "repository": {"source": "http://mirror/lustre ./", "key": {"url": "http://mirror/key", "sha256": "0" * 64}}
        }
    },
    "node": {
        "users": [{"name": "ada", "uid": 2001, "ssh_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample ada@desk"]}]
    },
}


@pytest.mark.parametrize("arguments", [("bench", "a.py"), ("bench", "a.py", "--dry-run"), ("certify", "a.py")])
def test_an_input_that_is_not_valid_is_refused_before_the_run(world: World, arguments: tuple[str, ...]) -> None:
    world.data = {"collectives": {"port": 80}}
    refused = world.run(*arguments).exception
    assert isinstance(refused, InventoryError)
    assert "collectives.port: " in str(refused)
    assert (world.steps, world.deploys, world.validations) == ([], [], 0)


def test_a_run_with_keys_in_its_inventory_is_judged(world: World) -> None:
    world.data = KEYS
    ended = world.run("certify", "a.py", "--quiet")
    assert ended.exit_code == 0, ended.output
    assert world.certificate()["outcome"] == "CERTIFIED"
    assert world.run("judge", "latest").exit_code == 0
