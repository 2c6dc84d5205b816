from __future__ import annotations

import pytest

from rackproof.core.collective import OPS, busbw_factor


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
