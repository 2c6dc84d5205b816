"""Secrets of an inventory file, from the environment or from a file with mode 600. Never printed."""

from __future__ import annotations

import os
from pathlib import Path

from rackproof.core.secret import Secret
from rackproof.inventories.records import SourceError
from rackproof.read_file import read_private


def secret(variable: str | None = None, *, file: str | Path | None = None) -> Secret:
    """Value of an environment variable, or content of a file that only its owner can access.

    Raises SourceError, which names the source, never the content.
    """
    if (variable is None) == (file is None):
        raise SourceError("secret(): pass either the name of an environment variable or file=")
    if variable is not None:
        value = os.environ.get(variable, "")
        if not value:
            raise SourceError(f"secret({variable!r}): the variable is not set; export it before the run")
        return Secret(value)
    path = Path(os.path.expanduser(str(file)))
    try:
        value = read_private(path).decode("utf-8").strip("\n")
    except OSError as error:
        raise SourceError(f"secret(): {path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SourceError(f"secret(): {path}: not UTF-8") from None
    if not value:
        raise SourceError(f"secret(): {path}: the file is empty")
    return Secret(value)
