"""The current validators, loaded outside of pytest."""

from __future__ import annotations

import inspect
from functools import lru_cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from rackproof.errors import RunError, SelfTestError
from rackproof.validation.known import Checks, Function, load_checks

Validators = Checks

_PURE = "rackproof.parse."
_REMEMBERED = 32


def load_validators(folder: Path) -> Validators:
    """Every check of a folder by id, in the order of files and their text. Raises SelfTestError."""
    try:
        found = load_checks(folder, _remember_parsers)
    except RunError as error:
        raise SelfTestError(str(error)) from error
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
