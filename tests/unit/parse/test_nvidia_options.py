"""Options of the driver, drivers of GPUs, nccl.conf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.parse import ParseError
from rackproof.parse.nvidia_driver import parse_bound, parse_nccl_conf, parse_parameters
from tests.unit.refusals import refuses


def test_options_with_and_without_quotes() -> None:
    options = parse_parameters('RmProfilingAdminOnly: 1\nRegistryDwords: "a=1;b=2"\nExcludedGpus: ""\n')
    assert options == {"RmProfilingAdminOnly": "1", "RegistryDwords": "a=1;b=2", "ExcludedGpus": ""}


test_no_options = refuses(parse_parameters, "", "\n", "RmProfilingAdminOnly\n", "cat: no such file\n", says="")


def test_drivers_of_gpus() -> None:
    drivers = parse_bound("0000:19:00.0 nvidia\n0000:3b:00.0 \n0001:00:00.0 vfio-pci\n")
    assert drivers == {"0000:19:00.0": "nvidia", "0000:3b:00.0": "", "0001:00:00.0": "vfio-pci"}
    assert parse_bound("") == {}
    with pytest.raises(ParseError, match="unexpected line"):
        parse_bound("19:00.0 nvidia\n")


def test_nccl_conf_as_nccl_reads_it() -> None:
    text = "# NCCL_IB_TC=1\nNCCL_IB_HCA==mlx5_0,mlx5_1\n NCCL_IB_TC = 106 \nnonsense\nNCCL_IB_TC=41\n"
    assert parse_nccl_conf(text) == {"NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_IB_TC": "41"}
    assert parse_nccl_conf("") == {}


@given(st.text())
def test_anything_else_is_refused_or_read_as_text(output: str) -> None:
    for parse in (parse_parameters, parse_bound, parse_nccl_conf):
        try:
            parsed = parse(output)
        except ParseError:
            continue
        assert all(isinstance(value, str) for value in parsed.values())
