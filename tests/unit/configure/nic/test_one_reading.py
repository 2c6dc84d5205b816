"""Validators read a port's classes as the program that sets them does, tool by tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.configure.nic import ports
from rackproof.parse import dcb
from rackproof.parse.mlnx_qos import Qos, parse_mlnx_qos
from tests.unit.configure.nic.tree import DCB, MLNX_QOS, Tree

SETTINGS = [
    {},
    {"trust": "dscp"},
    {"dscp.26": "3", "dscp.48": "6", "trust": "dscp", "pfc": "0,0,0,1,0,0,0,0"},
    {"trust": "dscp", "pfc": "1,0,0,1,0,0,0,1"},
]


def by_validators(tree: Tree, nvidia: bool) -> Qos:
    command = "mlnx_qos -i rail0" if nvidia else dcb.command("rail0")
    completed = tree.sh(command)
    assert completed.returncode == 0
    return parse_mlnx_qos(completed.stdout) if nvidia else dcb.parse_dcb(completed.stdout)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("nvidia", [True, False], ids=["mlnx_qos", "dcb"])
def test_both_read_the_same(tmp_path: Path, nvidia: bool, settings: dict[str, str]) -> None:
    tree = Tree(tmp_path)
    tree.port("rail0", "0000:1a:00.0", "mlx5_0", nvidia)
    tree.program("mlnx_qos" if nvidia else "dcb", MLNX_QOS if nvidia else DCB)
    tree.write("/etc/rackproof/ports/rail0", ports.declaration(settings))
    tree.run("port", "apply", "rail0")

    script = ports.parse_states(tree.run("port", "state", "rail0").stdout.splitlines())["rail0"]
    read = by_validators(tree, nvidia)
    assert script.get("trust") == read.trust
    assert script.get("pfc") == ",".join("1" if n in read.pfc else "0" for n in range(8))
    marks = {int(key.removeprefix("dscp.")): int(value) for key, value in script.items() if key.startswith("dscp.")}
    assert marks == read.dscp_priority
