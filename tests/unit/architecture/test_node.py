"""Limits, accounts and arrays in an architecture: what they ask for, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rackproof import architectures
from rackproof.core.architecture import Architecture, Limits, System
from rackproof.core.architecture.consistency import problems
from rackproof.core.architecture.expectations import expected_checks, items_of
from tests.unit.refusals import refuses
from tests.unit.validation.checking import ROOT

WRITTEN = ROOT / "tests/data/written/hgx-h200-roce/architecture.yaml"


@pytest.fixture(scope="module")
def arch() -> Architecture:
    return architectures.load(WRITTEN).model


def test_each_key_asks_for_its_check(arch: Architecture) -> None:
    asked = {(entry.role, entry.check, entry.item) for entry in expected_checks(arch)}
    assert {
        ("all", "os.limits_login", ""),
        ("all", "os.limits_services", ""),
        ("gpu", "os.limits_daemon", "slurmd.service"),
        ("all", "os.users", ""),
        ("all", "os.irq_affinity", ""),
        ("all", "os.next_boot", ""),
        ("all", "os.reboot_pending", ""),
        ("gpu", "scratch.array", ""),
        ("gpu", "scratch.mounted", ""),
    } <= asked
    assert items_of(arch, "os.limits_daemon", ("gpu",)) == ("slurmd.service",)


def test_no_check_is_required_without_its_key(arch: Architecture) -> None:
    bare = arch.model_copy(update={"system": System()})
    asked = {entry.check for entry in expected_checks(bare)}
    assert not {check for check in asked if check.startswith("os.")}


def test_limits_of_a_service_that_no_role_expects_would_never_be_looked_at(arch: Architecture) -> None:
    limits = Limits(nofile=1024, services=("slurmdd.service",))
    odd = arch.model_copy(update={"system": arch.system.model_copy(update={"limits": limits})})
    (problem,) = [problem for problem in problems(odd) if problem.path[:2] == ("system", "limits")]
    assert "unknown service that a role expects 'slurmdd.service'" in problem.message


test_what_cannot_be_is_refused = refuses(
    System.model_validate,
    ({"limits": {}}, "is empty"),
    ({"limits": {"nofile": "unlimited"}}, "valid integer"),
    ({"irq_affinity": "local"}, "needs irqbalance: false"),
    ({"users": [{"name": "a"}, {"name": "a"}]}, "duplicate name a"),
    ({"users": [{"name": "a", "uid": 2000}, {"name": "b", "uid": 2000}]}, "duplicate uid 2000"),
    ({"users": [{"name": "root", "uid": 0}]}, "greater than or equal to 1000"),
    error=ValidationError,
)
