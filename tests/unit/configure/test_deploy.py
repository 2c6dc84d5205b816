"""The frame of deploys and operations: an error of the declaration is one line with the node's name."""

from __future__ import annotations

import pytest
from pyinfra.api.exceptions import DeployError

from rackproof.configure import deploy, operation
from rackproof.configure.operation import one_line
from rackproof.errors import DeclarationError, InventoryError, RackproofError, Refused, VersionSetError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DeclarationError("nfs_drive: none"), "gpu-01: nfs_drive: none"),
        (VersionSetError("no platform"), "gpu-01: no platform"),
        (InventoryError("gpu-02: nic: no mapping"), "gpu-02: nic: no mapping"),
    ],
)
def test_errors_of_the_declaration_are_one_line(
    monkeypatch: pytest.MonkeyPatch, error: RackproofError, line: str
) -> None:
    monkeypatch.setattr(operation, "host", type("Host", (), {"name": "gpu-01"}))
    with pytest.raises(DeployError) as raised, one_line():
        raise error
    assert str(raised.value) == line


def test_a_defect_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), one_line():
        raise ZeroDivisionError


def test_a_refusal_fails_its_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: list[dict[str, str]] = []
    monkeypatch.setattr(deploy, "refused", lambda **given: refusals.append(given))

    @deploy.deploy("GPU driver")
    def driver() -> None:
        raise Refused("no driver serves both")

    driver._inner()
    assert refusals == [{"name": "Refused", "reason": "no driver serves both"}]
