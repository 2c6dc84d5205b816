"""Wrong types are refused with the key, before any node is contacted."""

from __future__ import annotations

from typing import Any

import pytest

from rackproof.configure.known_inputs import MODELS, PLAIN, PYINFRAS
from rackproof.configure.reboot.inputs import OLD_KEY
from rackproof.configure.settings import NodeSettings
from rackproof.core.node_data import TESTS, wrong


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssh_port", "22; id"),
        ("ssh_port", 10**30),
        ("ssh_port", 0),
        ("ssh_port", True),
        ("ssh_port", "²"),
        ("ssh_hostname", "10.0.0.1 -oProxyCommand=id"),
        ("ssh_hostname", "-oProxyCommand=id"),
        ("ssh_hostname", ["10.0.0.1"]),
        ("ssh_hostname", "a" * 5000),
        ("ssh_user", "-l root"),
        ("ssh_user", 5),
        ("ssh_key", {}),
        ("ssh_key", "a\nb"),
        ("ssh_password", 17),
        ("ssh_known_hosts_file", ""),
        ("_sudo", "yes"),
        ("_sudo_user", ["root"]),
        ("fabric_addresses", "10.0.0.1/24"),
        ("fabric_addresses", [5]),
        ("fabric_addresses", ["10.0.0.1/99"]),
        ("fabric_second_addresses", {"a": 1}),
        ("fabric_second_addresses", ["fe80::1%$(id)/64"]),
        ("fabric_addresses", ["fe80::1%a\n10.0.0.1/64"]),
        ("management_address", "10.0.0.1; id"),
        ("management_address", "10.0.0.1/24"),
        ("containers", "hunter2"),
        ("gpu", [1]),
        ("reboot", "yes"),
        ("nic_ports", ["a"]),
        ("fabric_macs", "a0:88:c2:00:00:01"),
        ("virtual", "false"),
        ("architecture", 5),
    ],
)
def test_a_wrong_value_is_named_with_its_key(key: str, value: Any) -> None:
    problem = wrong({"gpus": 8, key: value})
    assert problem is not None
    assert problem.startswith(f"{key}: expected ")
    assert len(problem) < 200
    assert ("password" not in key and value != "hunter2") or str(value) not in problem


def test_every_mapping_of_the_deploys_is_a_mapping() -> None:
    for key in MODELS:
        assert wrong({key: 5}) == f"{key}: expected a mapping, actual int"


def test_every_key_of_the_kit_is_checked_and_no_other() -> None:
    """``take_over`` is checked by the deploy that reads it, and the former name of ``reboot`` is still read."""
    own = {*MODELS, *PLAIN, *NodeSettings.model_fields} - {"take_over"} | {OLD_KEY}
    assert {key for key in TESTS if not key.startswith(PYINFRAS)} == own
    assert {key for key, (expected, _) in TESTS.items() if expected == "a mapping"} == {*MODELS, OLD_KEY}


def test_what_racks_use_is_accepted() -> None:
    assert wrong({
        "ssh_port": 2222, "ssh_hostname": "fe80::1%eth0", "ssh_user": r"LAB\ann", "_sudo": True, "virtual": False,
        "reboot": "allowed", "containers": {}, "management_address": "10.0.0.1",
        "fabric_addresses": ["10.0.0.1/24", "fd00::1/64"], "fabric_macs": [], "ssh_key": "~/.ssh/id key",
    }) is None  # fmt: skip
    assert wrong(dict.fromkeys(TESTS)) is None
