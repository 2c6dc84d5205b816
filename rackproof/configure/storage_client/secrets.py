"""Reads secrets on the controller, from an environment variable or from a file that only its owner can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rackproof.configure.inputs import SecretSource
from rackproof.errors import DeclarationError


def read_secret(secret: SecretSource, key: str) -> bytes:
    """The secret, which no message contains. The content of a file is returned unchanged.

    Raises DeclarationError when it is missing or empty, or others may read or write the file.
    """
    if secret.environment:
        value = os.environ.get(secret.environment, "")
        if not value:
            raise DeclarationError(f"{key}.environment: {secret.environment} is not set on the controller")
        return value.encode()
    path = Path(secret.file).expanduser()
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except OSError as error:
        raise DeclarationError(f"{key}.file: {path}: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DeclarationError(f"{key}.file: {path}: others may read it; chmod 600 {path}")
    if not content:
        raise DeclarationError(f"{key}.file: {path} is empty")
    return content
