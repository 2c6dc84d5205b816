"""Which checks exist: the declarations in ``validators/``, without a rack to ask."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from rackproof.errors import RunError
from rackproof.validation.checks import Check, checks_in

Function = Callable[..., None]


def load_checks(folder: Path) -> dict[str, tuple[Check, Function]]:
    """Every check by id, with its function, in the order of files and text. Raises RunError."""
    found: dict[str, tuple[Check, Function]] = {}
    for path in sorted(folder.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"rackproof_validators.{path.stem}", path)
        if spec is None or spec.loader is None:
            raise RunError(f"{path}: cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise RunError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
        found |= {check.id: (check, function) for check, function in checks_in(module)}
    return found


def known_checks(folder: Path) -> dict[str, Check]:
    """Every check by id. Raises RunError where a validator cannot be loaded."""
    return {id: check for id, (check, _) in load_checks(folder).items()}
