"""The example of a GPU rack: every mapping fits its model, and the rack's own checks and plans accept it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof import architectures
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.tools import wanted
from rackproof.configure.known_inputs import MODELS, misspelled
from rackproof.configure.preflight.rack import rack_problems
from rackproof.configure.settings import node_settings, read_inputs
from rackproof.core.rack import Rack
from rackproof.core.versions.consistency import contradictions
from rackproof.errors import VersionSetError
from rackproof.inventories import nodes
from rackproof.inventory import load_rack
from rackproof.run.plan import plan_deploys
from rackproof.version_sets import load_versions, lock_path, versions_of

pytestmark = pytest.mark.usefixtures("warm_python")

ROOT = Path(__file__).parents[3]
EXAMPLE = "inventories/example_gpu_rack.py"
WRITTEN = ROOT / "tests/data/plans/hgx-h200-ubuntu2404-roce"


@pytest.fixture
def rack(monkeypatch: pytest.MonkeyPatch) -> Rack:
    monkeypatch.chdir(ROOT)
    return load_rack(EXAMPLE)


def test_every_mapping_fits_its_model(rack: Rack) -> None:
    first = rack.nodes[0]
    assert {"gpu", "nic", "node", "storage_client", "slurm"} <= set(first.data) & set(MODELS)
    for node in (first, rack.nodes[-1]):
        for key in MODELS:
            read_inputs(node, MODELS[key])
    assert misspelled(first.data) == {}


def test_it_is_the_architectures_rack(rack: Rack) -> None:
    architecture = architectures.load(str(rack.nodes[0].data["architecture"])).model
    assert len(rack.group("gpu")) == 32
    for node in rack.nodes:
        node_settings(node, architecture.rails)
    assert list(rack_problems(rack, architecture)) == []


def test_its_nodes_get_every_program_of_the_benchmarks_that_no_package_has(rack: Rack) -> None:
    """A copy of it could not end CERTIFIED without them."""
    programs = architectures.load(str(rack.nodes[0].data["architecture"])).model.tools.programs
    tools = wanted(read_inputs(rack.nodes[0], GpuInputs))
    assert [tool.name for tool in tools] == ["nvbandwidth", "nccl_tests", "perftest"]
    built = {part for tool in tools for part in tool.parts}
    assert {name for name in programs if name == "nvbandwidth" or name.endswith("_perf")} <= built


def test_numbers_reach_the_mappings_too(rack: Rack) -> None:
    addresses = [node.data["nic"]["bonds"]["bond0"]["address"] for node in rack.nodes]
    assert addresses[0] == "10.60.40.1/24"
    assert len(set(addresses)) == 32
    assert nodes("n[1-2]", tags={"rack": ["r{n+6}"]})[1] == ("n2", {"tags": {"rack": ["r8"]}})


def test_its_version_set_is_a_draft_that_does_not_contradict_itself(rack: Rack) -> None:
    path = lock_path(rack.nodes[0], EXAMPLE)
    assert path is not None
    assert contradictions(load_versions(path, locked=False)) == ()
    with pytest.raises(VersionSetError, match="versions lock"):
        versions_of(rack.nodes[0], EXAMPLE)


def test_its_data_plan_a_written_rack_of_the_same_servers(
    rack: Rack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    folder = tmp_path / "rack"
    shutil.copytree(WRITTEN, folder, ignore=shutil.ignore_patterns("golden"))
    document = yaml.safe_load((folder / "rack.yaml").read_text())
    written: dict[str, Any] = document["nodes"]["gpu-01"]["data"]
    data = {**rack.nodes[0].data, "architecture": None, "versions_lock": None, "preflight": None}
    data = {key: value for key, value in data.items() if value is not None and not key.startswith(("ssh_", "_"))}
    # Its drives and storage are not the example's; without a lock the inventory says where the driver comes from.
    data |= {key: written[key] for key in ("scratch_drives", "storage_client")}
    data["gpu"] = {**data["gpu"], "repository": written["gpu"]["repository"], "runtimes": ["docker"]}
    # The written rack declares something about its storage ports, the example's architecture does not speak of them.
    stack = data["nic"]
    named = {name: {**port, "purpose": "storage"} for name, port in stack["ports"].items()}
    data["nic"] = {**stack, "ports": named}
    document["nodes"] = {"gpu-01": {"groups": ["gpu"], "data": data}}
    (folder / "rack.yaml").write_text(yaml.safe_dump(document))

    plan = plan_deploys([f"@recording/{folder}"], "deploys/cluster.py")[0]

    assert plan.error is None
    node = plan.nodes[0]
    assert node.lost is None
    changing = {operation.name.partition(" | ")[0] for operation in node.changing}
    refused = {operation.name: operation.refused for operation in node.refusals}
    assert {"Base", "Node", "Fabric", "GPU"} <= changing, refused
    assert not refused
    assert "NVreg_RestrictProfilingToAdminUsers" in plan.model_dump_json()
    assert "build perftest of http://mirror.example.org/tools/perftest-" in plan.model_dump_json()
