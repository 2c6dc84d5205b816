"""Reads and validates YAML files of the self-test; errors are one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from rackproof.core.architecture.nesting import LOADER, check_size
from rackproof.errors import SelfTestError
from rackproof.read_file import read_input

DocumentModel = TypeVar("DocumentModel", bound=BaseModel)


class Strict(BaseModel):
    """Base class of documents that reject unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def load_yaml(path: Path) -> Any:
    """Content of a file. Raises SelfTestError, one line."""
    text = read_input(path, SelfTestError)
    try:
        check_size(text, str(path))
        return yaml.load(text, Loader=LOADER)  # noqa: S506  (a safe loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise SelfTestError(f"{where}: {getattr(error, 'problem', None) or error}") from None


def as_model(model: type[DocumentModel], plain: Any, where: str) -> DocumentModel:
    """A validated document. Raises SelfTestError with ``where``, the key and the error."""
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise SelfTestError(f"{where}: {key + ': ' if key else ''}{first['msg']}") from None
