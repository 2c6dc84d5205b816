from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rackproof.bench import collectives
from rackproof.core.architecture import BesideProfile, CollectiveProfile
from rackproof.core.collective import ABSENT, OPS, busbw_factor


@pytest.mark.parametrize(
    ("op", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_reduce", 72, 142 / 72),
        ("all_gather", 16, 15 / 16),
        ("reduce_scatter", 16, 15 / 16),
        ("alltoall", 4, 0.75),
        ("gather", 4, 0.75),
        ("scatter", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("reduce", 8, 1.0),
        ("sendrecv", 8, 1.0),
        ("all_reduce", 1, 0.0),
    ],
)
def test_factors_of_nccl_tests(op: str, ranks: int, factor: float) -> None:
    assert busbw_factor(op, ranks) == pytest.approx(factor)
    assert op in OPS


def test_an_unknown_operation_or_no_ranks_raise() -> None:
    with pytest.raises(ValueError, match="no bus bandwidth is defined for 'all_reduce_perf'"):
        busbw_factor("all_reduce_perf", 8)
    with pytest.raises(ValueError, match="at least one rank"):
        busbw_factor("all_reduce", 0)


@pytest.mark.parametrize(("engine", "program"), [("mpi", "collectives.py"), ("torch", "torch_collectives.py")])
def test_an_engine_has_what_its_program_has(engine: str, program: str) -> None:
    source = (Path(collectives.__file__).parent / program).read_text()
    assert {op for op in OPS if f'"{op}"' not in source} == set(ABSENT[engine])


SWEEP = {"min_bytes": 8, "max_bytes": 64, "iterations": 1, "warmup": 0}
SPLIT = {"min_bytes": 8, "max_bytes": 64}


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"engine": "mpi", "ops": ["all_reduce", "gather"]}, "ops: the engine mpi has no gather; nccl-tests has"),
        ({"engine": "mpi", "ops": ["broadcast", "scatter"]}, "ops: the engine mpi has no broadcast, scatter;"),
        ({"engine": "torch", "ops": ["scatter"]}, "ops: the engine torch has no scatter;"),
        ({"engine": "torch", "ops": ["broadcast"]}, ""),
        ({"engine": "mpi", "ops": ["reduce", "sendrecv"]}, ""),
        ({"engine": "nccl-tests", "ops": list(OPS)}, ""),
        (
            {"engine": "torch", "ops": ["all_reduce"], "node": {"ops": ["gather"], **SPLIT}},
            "node.ops: the engine torch has no gather;",
        ),
        (
            {"engine": "mpi", "ops": ["all_reduce"], "rails": {"ops": ["scatter"], **SPLIT}},
            "rails.ops: the engine mpi has no scatter;",
        ),
    ],
)
def test_a_profile_asks_its_engine_for_what_it_has(parts: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(says)) if says else nullcontext():
        CollectiveProfile.model_validate({**SWEEP, **parts})


def test_beside_storage_an_engine_does_what_it_has() -> None:
    parts = {"block_bytes": 1048576, "file_bytes": 1048576, "runtime_s": 1, "message_bytes": 1048576}
    assert BesideProfile.model_validate({**parts, "engine": "torch", "op": "broadcast"})
    with pytest.raises(ValidationError, match="op: the engine mpi has no broadcast"):
        BesideProfile.model_validate({**parts, "engine": "mpi", "op": "broadcast"})
