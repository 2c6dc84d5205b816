"""A finished run, and a cache of the tests' own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from rackproof.cli import proof
from tests.unit.false_certificates.racks import world_in
from tests.unit.judging import criterion, document


class Finished(NamedTuple):
    """A certified run, and what stands in for the rack's benchmarks and checks when it is judged."""

    folder: Path
    plan: Callable[..., Any]
    reread: Callable[..., Any]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        made = world_in(folder, patch)
        text = yaml.safe_dump(document(criterion(), profiles={"full": {}}), sort_keys=False)
        (folder / "architectures/small.yaml").write_text(text)
        made.certify()
        return Finished(made.runs[-1].rename(folder / "run"), made.plan, proof.reread)


@pytest.fixture(autouse=True)
def separate_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
