"""Parts of inputs that several concerns share."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rackproof.configure.inputs import Download, Repository, SecretSource

KEY = {"url": "https://vendor.example/key", "sha256": "a" * 64}


@pytest.mark.parametrize(
    ("source", "deb"),
    [
        ("https://vendor.example/x", ("https://vendor.example/x", "/", ())),
        ("https://vendor.example/x noble main extra", ("https://vendor.example/x", "noble", ("main", "extra"))),
    ],
)
def test_a_repository_for_apt(source: str, deb: tuple[str, str, tuple[str, ...]]) -> None:
    assert Repository.model_validate({"source": source, "key": KEY}).deb == deb


def test_the_older_spelling_of_a_repository() -> None:
    older = {"url": "https://vendor.example/x", "key_url": KEY["url"], "key_sha256": KEY["sha256"]}
    new = Repository.model_validate({"source": "https://vendor.example/x", "key": KEY})
    assert Repository.model_validate(older) == new
    with pytest.raises(ValidationError, match="sha256\n  Field required"):
        Repository.model_validate({name: value for name, value in older.items() if name != "key_sha256"})
    with pytest.raises(ValidationError, match="url\n  Extra inputs"):
        Repository.model_validate({**older, "key": KEY, "source": "https://vendor.example/x"})


@pytest.mark.parametrize(
    ("model", "plain"),
    [
        (Repository, {"source": "https://vendor.example/x\nenabled=1", "key": KEY}),
        (Repository, {"source": "https://vendor.example/x"}),
        (Download, {**KEY, "url": "ftp://vendor.example/x"}),
        (Download, {**KEY, "sha256": "a" * 63}),
        (SecretSource, {}),
        (SecretSource, {"environment": "NAME", "file": "/path"}),
    ],
)
def test_inputs_that_are_refused(model: type[Any], plain: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(plain)
