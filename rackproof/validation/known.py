"""Which checks exist: the declarations in ``validators/``, without a rack to ask."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from rackproof.errors import RunError
from rackproof.validation.checks import Check, checks_in


def known_checks(folder: Path) -> dict[str, Check]:
    """Every check by id. Raises RunError where a validator cannot be loaded."""
    found: dict[str, Check] = {}
    for path in sorted(folder.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"rackproof_validators.{path.stem}", path)
        if spec is None or spec.loader is None:
            raise RunError(f"{path}: cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise RunError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
        found |= {check.id: check for check, _ in checks_in(module)}
    return found
