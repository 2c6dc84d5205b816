from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.configure.storage_client.vendor import Bench, Vendor, vendor


@pytest.fixture
def server() -> Iterator[Vendor]:
    with vendor() as it:
        yield it


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
