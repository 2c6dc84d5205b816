"""Load validators outside of pytest."""

from __future__ import annotations

import inspect
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from rackproof.errors import RunError, SelfTestError
from rackproof.parse.memory import remembered
from rackproof.validation.known import Checks, Function, load_checks

_PURE = "rackproof.parse."
_CACHE_SIZE = 32


def load_validators(folder: Path) -> Checks:
    """Load every check of a folder, by id, in the order of files and of their text. Raises SelfTestError."""
    try:
        checks = load_checks(folder, _cache_parsers)
    except RunError as error:
        raise SelfTestError(str(error)) from error
    if not checks:
        raise SelfTestError(f"{folder}: no checks (test_*.py)")
    return checks


def _cache_parsers(module: ModuleType) -> None:
    """Cache the results of parsers: they are pure, and many checks read the same answer."""
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__.startswith(_PURE):
            setattr(module, name, _cached(value))


def _cached(parser: Function) -> Function:
    cached = remembered(_CACHE_SIZE)(parser)

    @wraps(parser)
    def parse(*arguments: Any, **options: Any) -> Any:
        try:
            return cached(*arguments, **options)
        except TypeError:  # an argument is not hashable
            return parser(*arguments, **options)

    return parse
