"""Parts of inputs that several concerns share: a download, a package repository, the source of a secret."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, StringConstraints, model_validator

from rackproof.configure.settings import Inputs
from rackproof.core.texts import SHA256, Environment, Line, Url


def _digest(value: str) -> str:
    if not re.fullmatch(SHA256, value.lower()):
        raise ValueError("expected 64 hexadecimal digits: the sha256sum of the file from a source that you trust")
    return value.lower()


Digest = Annotated[str, AfterValidator(_digest)]


class Download(Inputs):
    """One file from a web server (or ``file://``), used only when its digest matches."""

    url: Url
    """URL of the file; in a rack without Internet access, of the site's mirror."""
    sha256: Digest
    """SHA-256 of the file in hexadecimal digits, compared before the file is used."""


class Repository(Inputs):
    """A signed package repository of a vendor."""

    source: Annotated[
        str,
        StringConstraints(
            pattern=r"^(https?|file)://[A-Za-z0-9._~:/?#@!&+,=%\[\]*-]+( [A-Za-z0-9./][A-Za-z0-9._/-]*)*$"
        ),
    ]
    """Debian: the end of a ``deb`` line (``https://host/path suite component``); a URL alone is a flat repository
    (suite ``/``). RHEL: baseurl."""
    key: Download
    """The signing key that the vendor publishes. Pinned: a changed key stops the run on the node."""

    @model_validator(mode="before")
    @classmethod
    def _older_spelling(cls, plain: Any) -> Any:
        """Former keys of ``gpu.repository``: ``url``, ``key_url`` and ``key_sha256``."""
        if not isinstance(plain, dict) or "url" not in plain or {"source", "key"} & set(plain):
            return plain
        key = {name.removeprefix("key_"): value for name, value in plain.items() if name.startswith("key_")}
        rest = {name: value for name, value in plain.items() if name != "url" and not name.startswith("key_")}
        return {"source": plain["url"], "key": key, **rest}

    @property
    def deb(self) -> tuple[str, str, tuple[str, ...]]:
        """URL, suite and components for apt."""
        url, suite, *components = self.source.split() if " " in self.source else (self.source, "/")
        return url, suite, tuple(components)


class SecretSource(Inputs):
    """Source of a secret on the controller: ``environment`` or ``file``. The secret itself is never in the inventory,
    shown or recorded."""

    environment: Environment | Literal[""] = ""
    """Name of an environment variable of the controller."""
    file: Line | Literal[""] = ""
    """Path of a file on the controller; mode 600 or stricter."""

    @model_validator(mode="after")
    def _one(self) -> SecretSource:
        if bool(self.environment) == bool(self.file):
            raise ValueError("give either environment or file")
        return self
