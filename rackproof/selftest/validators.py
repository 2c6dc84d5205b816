"""The current validators, loaded outside of pytest."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from rackproof.errors import SelfTestError
from rackproof.validation.checks import Check, checks_in

Function = Callable[..., None]
Validators = dict[str, tuple[Check, Function]]

_PURE = ("rackproof.parse.", "rackproof.validation.answers")
_REMEMBERED = 32


def load_validators(folder: Path) -> Validators:
    """Every check of a folder by id, in the order of files and their text. Raises SelfTestError."""
    found: Validators = {}
    for path in sorted(folder.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"rackproof_validators_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise SelfTestError(f"{path}: no Python module")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise SelfTestError(f"{path}: {type(error).__name__}: {error}") from error
        _remember_parsers(module)
        for check, function in checks_in(module):
            if check.id in found:
                raise SelfTestError(f"{path}: there is another check {check.id}")
            found[check.id] = check, function
    if not found:
        raise SelfTestError(f"{folder}: no checks there (test_*.py)")
    return found


def _remember_parsers(module: ModuleType) -> None:
    """Parsers are pure and the same answer is read by many checks: parse it once."""
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__.startswith(_PURE):
            setattr(module, name, _remembered(value))


def _remembered(parser: Function) -> Function:
    cached = lru_cache(_REMEMBERED)(parser)

    @wraps(parser)
    def parse(*arguments: Any, **options: Any) -> Any:
        try:
            return cached(*arguments, **options)
        except TypeError:  # an argument that cannot be looked up
            return parser(*arguments, **options)

    return parse
