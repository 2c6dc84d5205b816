"""For every unit test."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test says how fast a machine is. The same examples every time, so that a change is what makes a test fail;
# RACKPROOF_EXPLORE=1 looks for new ones.
settings.register_profile(
    "rackproof",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="RACKPROOF_EXPLORE" not in os.environ,
)
settings.load_profile("rackproof")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more worker than processors: some tests wait for timeouts of real commands."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_finish() -> None:
    """What collecting made stays until the end: the collector need not go through it again and again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def separate_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tests use a cache folder of their own, not the user's."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder
