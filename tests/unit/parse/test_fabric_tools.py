"""getent, ping of two sizes, and files of RDMA ports."""

from __future__ import annotations

import pytest

from rackproof.parse import ParseError
from rackproof.parse.getent import parse_ahosts, parse_named_ahosts
from rackproof.parse.ping import parse_answered_sizes
from rackproof.parse.rdma_ports import parse_pkeys, parse_rdma_counters

TWO_NAMES = """10.77.0.11      STREAM storage-01
10.77.0.11      DGRAM
10.77.0.11      RAW
10.77.0.12      STREAM gpu-01.rack
10.77.0.13      STREAM
"""


def test_the_first_address_of_each_name() -> None:
    assert parse_ahosts(TWO_NAMES) == ("10.77.0.11", "10.77.0.12")


def test_a_name_that_does_not_resolve() -> None:
    output = "gpu-01 10.77.0.12      STREAM gpu-01.rack\ngpu-02 \n"
    assert parse_named_ahosts(output, ("gpu-01", "gpu-02")) == {"gpu-01": "10.77.0.12", "gpu-02": None}
    with pytest.raises(ParseError, match="unexpected line"):
        parse_named_ahosts(output, ("gpu-01",))


def test_answered_sizes() -> None:
    assert parse_answered_sizes("small 0\nlarge 1\n") == ("small",)
    assert parse_answered_sizes("small 1\nlarge 1\n") == ()
    for output in ("small 0\n", "small 0\nlarge 2\n", "small 0\nlarge 1"):
        with pytest.raises(ParseError, match="unexpected answer"):
            parse_answered_sizes(output)


def test_counters_and_partition_keys_by_port() -> None:
    counters = parse_rdma_counters(
        {
            "mlx5_0/ports/1/counters/symbol_error": ("3",),
            "mlx5_0/ports/1/hw_counters/out_of_buffer": ("12",),
            "mlx5_0/ports/1/counters/VL15_dropped": ("N/A (no PMA)",),
        }
    )
    assert counters == {("mlx5_0", 1): {"symbol_error": 3, "out_of_buffer": 12}}
    keys = parse_pkeys({"mlx5_0/ports/1/pkeys/0": ("0xffff",), "mlx5_0/ports/1/pkeys/1": ("0x0000",)})
    assert keys == {("mlx5_0", 1): frozenset({0xFFFF})}
