"""Reads secrets on the controller, from an environment variable or from a file that only its owner can read."""

from __future__ import annotations

import os
from pathlib import Path

from rackproof.configure.inputs import SecretSource
from rackproof.errors import DeclarationError
from rackproof.read_file import read_private


def read_secret(secret: SecretSource, key: str) -> bytes:
    """The secret, which no message contains. The content of a file is returned unchanged.

    Raises DeclarationError when it is missing or empty, or others may read or write the file.
    """
    if secret.environment:
        value = os.environ.get(secret.environment, "")
        if not value:
            raise DeclarationError(f"{key}.environment: {secret.environment} is not set on the controller")
        return value.encode()
    path = Path(os.path.expanduser(secret.file))
    try:
        content = read_private(path)
    except OSError as error:
        raise DeclarationError(f"{key}.file: {path}: {error.strerror}") from None
    if not content:
        raise DeclarationError(f"{key}.file: {path} is empty")
    return content
