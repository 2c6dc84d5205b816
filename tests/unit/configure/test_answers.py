"""Every fact refuses an answer that is cut off or damaged, with pyinfra's own error."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyinfra.api.exceptions import FactProcessError

from rackproof import configure
from rackproof.configure.fact_prefetch import END
from rackproof.configure.facts import Answer

pytestmark = pytest.mark.few(40)

ARGUMENTS: dict[str, tuple[Any, ...]] = {"PackageStates": (["a"], "debian"), "GpuFacts": (["a"], "debian", True)}
"""Arguments of facts whose parser reads what the command was asked for."""


def facts() -> Iterator[type[Answer[Any]]]:
    for module in pkgutil.walk_packages(configure.__path__, f"{configure.__name__}."):
        importlib.import_module(module.name)
    waiting = list(Answer.__subclasses__())
    while waiting:
        fact = waiting.pop()
        waiting += fact.__subclasses__()
        if fact.__module__.startswith("rackproof."):
            yield fact


def asked(fact: type[Answer[Any]]) -> Answer[Any]:
    instance = fact()
    if fact.__name__ in ARGUMENTS:
        instance.command(*ARGUMENTS[fact.__name__])
    return instance


FACTS = sorted(facts(), key=lambda fact: fact.__name__)
EACH_FACT = pytest.mark.parametrize("fact", FACTS, ids=[fact.__name__ for fact in FACTS])
WORDS = st.sampled_from(
    ["--", "--flint", "status 0", "status", "device=/dev/sda", "kernel 6.12", "port a", "adapter 0000:3b:00.0", "array",
     "run\t/a/1.b", "part\t0", "user a:x:1:1::/:/bin/sh", "held a b c d", "host ssh-ed25519 A", "/a b", "0 0", "[]"]
)  # fmt: skip
LINES = st.lists(WORDS | st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=20), max_size=8)


def test_every_fact_is_tried() -> None:
    assert len(FACTS) > 40


@EACH_FACT
def test_an_answer_without_its_end_is_refused(fact: type[Answer[Any]]) -> None:
    for lines in ([], ["--"], [END, "--"], ["1"]):
        with pytest.raises(FactProcessError):
            asked(fact).process(lines)


@EACH_FACT
@settings(suppress_health_check=list(HealthCheck))
@given(lines=LINES)
def test_a_damaged_answer_is_read_or_refused(fact: type[Answer[Any]], lines: list[str]) -> None:
    with suppress(FactProcessError):
        asked(fact).process([*lines, END])
