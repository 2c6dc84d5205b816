"""Load the checks that ``validators/`` declares, without a rack."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Iterator
from inspect import isfunction
from pathlib import Path
from types import ModuleType

from rackproof.errors import RunError
from rackproof.validation.checks import Check, check_of, checks_in

Function = Callable[..., None]
Checks = dict[str, tuple[Check, Function]]


def modules_in(folder: Path) -> Iterator[tuple[Path, ModuleType]]:
    """Load all modules of checks again, sorted by file name. Raises RunError."""
    for path in sorted(folder.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"rackproof_validators.{path.stem}", path)
        if spec is None or spec.loader is None:
            raise RunError(f"{path}: cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise RunError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
        yield path, module


def load_checks(folder: Path, prepare: Callable[[ModuleType], None] = lambda module: None) -> Checks:
    """Checks and their functions by id, in file and source order; ``prepare`` is called with each module first.

    Raises RunError, also for a duplicate id and for a test without a declaration.
    """
    checks: Checks = {}
    for path, module in modules_in(folder):
        prepare(module)
        for name, value in vars(module).items():
            if name.startswith("test_") and isfunction(value) and check_of(value) is None:
                raise RunError(f"{path}: {name} is not a check: it lacks @check(…)")
        for check, function in checks_in(module):
            if check.id in checks:
                raise RunError(f"{path}: duplicate check {check.id}")
            checks[check.id] = check, function
    return checks


def digest_of(folder: Path) -> str:
    """sha256 of a folder's Python files: names and contents."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def known_checks(folder: Path) -> dict[str, Check]:
    """Checks by id. Raises RunError if a validator cannot be loaded."""
    return {id: check for id, (check, _) in load_checks(folder).items()}
