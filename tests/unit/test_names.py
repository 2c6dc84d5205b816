"""One concern has one name: deploy, package, validators, key of the inventory, section of the architecture.

Templates have none: their tree mirrors the paths on a node.
"""

from __future__ import annotations

import re

import pytest

from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.known_inputs import MODELS, PLAIN
from rackproof.configure.settings import read_inputs
from rackproof.core.architecture import Architecture
from rackproof.core.rack import FORMER_KEYS, Node
from rackproof.errors import InventoryError
from tests.unit.test_words import ROOT, files

DEPLOYS = {path.stem for path in (ROOT / "deploys").glob("[a-z]*.py")}
VALIDATORS = {path.stem.removeprefix("test_") for path in (ROOT / "validators").glob("test_*.py")}
ACTIONS = {"cluster", "driver_swap", "preflight", "reboot", "rollback", "unmount"}
"""Deploys that set nothing that a validator could ask for."""
HARDWARE = {"cpu", "drives", "memory", "pcie"}
"""Validators of what no deploy sets."""
VALIDATED_BY = {"health_check": "slurm"}
"""Slurm calls the health check: one question about slurm.conf answers for both."""
WITHOUT_PACKAGE = {"cluster", "tools", "unmount"}
"""``cluster`` only calls others; tools are packages of ``base``, and ``unmount`` plans with ``storage_client``."""
MECHANISMS = {"package_transaction"}
"""Packages that several deploys use."""
OF_BENCHMARKS = {"collectives", "guest", "ingest"}
"""Inputs of the inventory that benchmarks read: of launchers, and of virtual machines. No deploy reads them."""
SECTIONS = {"links": "fabric", "storage": "storage_client", "system": "base"}
"""Sections of an architecture that belong to several deploys: the first of them."""
ABOUT = {
    *("apiVersion", "extends", "metadata", "roles", "drop", "overrides"),  # the file
    *("profiles", "claims", "scale", "workloads", "sizing", "level"),  # what is measured
    *("criteria", "curves", "outliers"),
    *("checks", "required_checks"),
}
"""Keys of an architecture that no deploy sets on a node."""


def test_a_deploy_has_validators_of_its_name() -> None:
    """``test_X.py``, and ``test_X_ASPECT.py`` beside it."""
    assert {VALIDATED_BY.get(name, name) for name in DEPLOYS - ACTIONS} <= VALIDATORS
    assert {name for name in VALIDATORS if not any(f"{name}_".startswith(f"{of}_") for of in DEPLOYS)} == HARDWARE


def test_a_deploy_has_a_package_of_its_name() -> None:
    packages = {path.parent.name for path in (ROOT / "rackproof" / "configure").glob("*/__init__.py")}
    assert packages - MECHANISMS - OF_BENCHMARKS == DEPLOYS - WITHOUT_PACKAGE


def test_keys_of_inventory_and_architecture_have_the_name_of_a_deploy() -> None:
    assert set(MODELS) - OF_BENCHMARKS <= DEPLOYS
    assert {SECTIONS.get(name, name) for name in set(Architecture.model_fields) - ABOUT} <= DEPLOYS


def test_an_exception_is_one() -> None:
    """An entry of a list of exceptions whose reason is gone would hide the next exception."""
    assert not ACTIONS & VALIDATORS
    assert not OF_BENCHMARKS & DEPLOYS
    assert ACTIONS | WITHOUT_PACKAGE | set(VALIDATED_BY) <= DEPLOYS
    assert not set(VALIDATED_BY) & VALIDATORS
    assert not (set(SECTIONS) | ABOUT) & DEPLOYS
    assert set(SECTIONS) | ABOUT <= set(Architecture.model_fields)
    assert set(FORMER_KEYS.values()) <= {*MODELS, *PLAIN}
    assert not set(FORMER_KEYS) & {*MODELS, *PLAIN}


@pytest.mark.parametrize(("former", "key"), FORMER_KEYS.items())
def test_an_inventory_with_a_former_key_still_loads(former: str, key: str) -> None:
    assert Node("gpu-01", ("gpu",), {former: {"a": 1}, "virtual": True}).data == {key: {"a": 1}, "virtual": True}
    with pytest.raises(InventoryError, match=f"^gpu-01: {former} is the former name of {key}; both"):
        Node("gpu-01", ("gpu",), {former: {}, key: {}})


def test_inputs_are_read_from_a_former_key() -> None:
    assert read_inputs(Node("gpu-01", ("gpu",), {"gpu_stack": {"driver": "570"}}), GpuInputs).driver == "570"
    with pytest.raises(InventoryError, match=r"^gpu-01: gpu\.drver: no such input; did you mean 'driver'"):
        read_inputs(Node("gpu-01", ("gpu",), {"gpu_stack": {"drver": "570"}}), GpuInputs)


def test_former_keys_are_written_in_one_place() -> None:
    former = re.compile(rf"\b_?({'|'.join(FORMER_KEYS)})\b")
    assert {name for name, text in files() if former.search(text)} == {
        "CHANGELOG.md", "rackproof/core/rack.py", "tests/unit/test_names.py",
    }  # fmt: skip
