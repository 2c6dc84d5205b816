"""Whose words are shown as a plan's reasons."""

from __future__ import annotations

from pathlib import Path

import pyinfra.api.facts
import pytest

from rackproof.configure import operations
from rackproof.run import plan_reader


def test_reasons_are_the_packages_own_words() -> None:
    assert plan_reader.is_own(operations.__file__)
    assert not plan_reader.is_own(pyinfra.api.facts.__file__)


def test_a_checkout_whose_folder_is_called_rackproof_has_no_other_reasons(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """pyinfra lies in an environment below it then."""
    checkout = tmp_path / "rackproof"
    monkeypatch.setattr(plan_reader, "PACKAGE", checkout / "rackproof")
    assert plan_reader.is_own(str(checkout / "rackproof/configure/operations.py"))
    assert not plan_reader.is_own(str(checkout / ".venv/lib/python3.11/site-packages/pyinfra/api/facts.py"))
    assert not plan_reader.is_own(str(checkout / "deploys/base.py"))
