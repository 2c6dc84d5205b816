"""Outputs that end too early: every parser refuses them or reads part of the truth, and no table passes as complete.

The outputs are those of tests/data/tools and, where ``RACKPROOF_SAMPLES`` names a folder of outputs of real hardware
(``make`` sets it where that folder is beside the checkout), all of those that a parser reads.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from rackproof.parse import ParseError, kernel_log, nccl_tests, slurm, xid
from rackproof.parse.text import whole_lines

from . import TOOLS
from .test_honesty import CASES, PARSERS, Parser, attempt, part_of

SAMPLES = os.environ.get("RACKPROOF_SAMPLES")
QUICK: Final = 12
"""Ends inside lines, and at most twice as many ends of lines, of one output in ``make test-unit``."""
ENDLESS: Final = frozenset({
    "bandwidth", "nvidia-smi -L", "nvlink", "nvlink -e", "gdscheck", "mountinfo", "proc mounts", "mountstats",
    "fscache", "rdma link", "ibv_devinfo", "sources", "ethtool -S", "lspci", "mlxconfig", "mlxlink", "dmidecode",
    "loaded modules", "governors", "aer", "link counters", "packages", "systemctl show", "kernel log",
    "slurm config", "slurm ping", "slurm partitions", "driver log",
})  # fmt: skip
"""Parsers of lists whose tool prints no end, so that a shorter list reads like a whole one. The kit's commands print a
mark behind them, or the judge knows the number of entries."""

OF_SAMPLES: dict[str, str | tuple[str, Parser]] = {
    "fio/*.json": "fio",
    "ib-perftest/ib_*_bw-*.txt": "bandwidth",
    "ib-perftest/ib_*_lat-*.txt": "latency",
    "iperf3/*": "iperf3",
    "nccl-tests/*": ("nccl", lambda output: nccl_tests.parse_nccl_tests(output, "all_reduce")),
    "nvbandwidth/*.json": "nvbandwidth",
    "nvidia-smi-xml/*": "nvidia-smi",
    "nvidia-smi-nvlink/*": "nvlink",
    "nvidia-smi-topo/*": "topology",
    "proc-mounts/mountinfo*": "mountinfo",
    "proc-mounts/rhel6*": "proc mounts",
    "proc-mounts/mountstats*": "mountstats",
    "slurm/scontrol-show-config.txt": ("slurm config", slurm.parse_scontrol_config),
    "slurm/scontrol-show-config*": ("slurm ping", slurm.parse_scontrol_ping),
    "slurm/scontrol-show-partition*": (
        "slurm partitions", lambda output: slurm.parse_scontrol_records(output, "PartitionName")
    ),
    "rdma-link/*": "rdma link",
    "ibv_devinfo/*": "ibv_devinfo",
    "ethtool/driver-info*": "ethtool -i",
    "lspci/*": "lspci",
    "mlnx_qos/*": "mlnx_qos",
    "mlxconfig/*": "mlxconfig",
    "mlxlink/*": "mlxlink",
    "lscpu/*": "lscpu",
    "dcgmi-diag/*": "dcgm",
    "gdscheck/*": "gdscheck",
    "dmesg/xid*": ("driver log", lambda output: xid.parse_driver_log(whole_lines("dmesg", output))),
}  # fmt: skip
"""Files of samples: the name of their parser in ``PARSERS``, or another one."""
NO_KERNEL_LOG: Final = ("dmesg/kmsg-peermem.txt", "dmesg/syslog-ib-flap-azure.txt")
"""Records of /dev/kmsg and lines of rsyslog have no time since boot in brackets. No command of the kit prints them."""


class Sample(NamedTuple):
    name: str
    """Result of its parser."""
    parser: Parser
    path: Path


def _samples() -> Iterator[Sample]:
    names = {id(parser): name for name, (parser, _) in PARSERS.items()}
    for case in CASES:
        yield Sample(names[id(case.values[0])], case.values[0], TOOLS / str(case.values[1]))  # type: ignore[arg-type]
    for pattern, read in OF_SAMPLES.items() if SAMPLES else ():
        name, parser = (read, PARSERS[read][0]) if isinstance(read, str) else read
        for path in sorted(Path(SAMPLES or "").glob(pattern)):
            yield Sample(name, parser, path)


ALL = [pytest.param(sample, id=f"{sample.name}-{sample.path.name}") for sample in _samples()]


def untrue(sample: Sample, raw: bytes, ends: list[int]) -> list[str]:
    """Errors in the results of the output up to each of these ends."""
    whole = sample.parser(raw)
    wrong = []
    for end in ends:
        part = attempt(sample.parser, raw[:end])
        if part is None or part == whole:
            continue
        if not part_of(part, whole):
            wrong.append(f"{end}: not part of the whole")
        elif part_of(whole, part):
            continue  # remarks behind the document
        elif sample.name not in ENDLESS and getattr(part, "complete", True):
            wrong.append(f"{end}: passes as complete")
    return wrong


def readable(path: Path) -> bytes:
    """The output with the line end that its publisher may have cut."""
    raw = path.read_bytes()
    return raw if raw.endswith(b"\n") else raw + b"\n"


@pytest.mark.parametrize("sample", ALL)
def test_a_truncated_output_is_refused_or_part_of_the_truth(sample: Sample) -> None:
    raw = readable(sample.path)
    chosen = random.Random(sample.path.name)  # noqa: S311  (a repeatable one)
    lines = [place + 1 for place, byte in enumerate(raw) if byte == 10][:-1]
    inside = [chosen.randrange(len(raw)) for _ in range(QUICK)]
    assert untrue(sample, raw, chosen.sample(lines, min(len(lines), 2 * QUICK)) + inside) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("sample", ALL)
def test_every_truncation_is_refused_or_part_of_the_truth(sample: Sample) -> None:
    raw = readable(sample.path)
    assert untrue(sample, raw, list(range(len(raw)))) == []


@pytest.mark.skipif(not SAMPLES, reason="RACKPROOF_SAMPLES names no folder of outputs")
def test_every_pattern_names_samples() -> None:
    assert [pattern for pattern in OF_SAMPLES if not list(Path(SAMPLES or "").glob(pattern))] == []


@pytest.mark.skipif(not SAMPLES, reason="RACKPROOF_SAMPLES names no folder of outputs")
@pytest.mark.parametrize("name", NO_KERNEL_LOG)
def test_logs_of_other_formats_are_refused(name: str) -> None:
    """Without messages such a log would read like a healthy kernel's."""
    with pytest.raises(ParseError, match="expected kernel messages with timestamps"):
        kernel_log.parse_kernel_log(readable(Path(SAMPLES or "") / name))


def lenient(read: Callable[[bytes], Any]) -> Sample:
    return Sample("table", read, TOOLS / "nccl-unchecked.txt")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (lambda raw: tuple(raw.split(b"\n")[:-1]), "passes as complete"),
        (lambda raw: (len(raw),), "not part of the whole"),
        (lambda raw: tuple(raw.split()), "not part of the whole"),  # half a number
    ],
)
def test_a_parser_that_reads_what_is_left_is_found(read: Callable[[bytes], Any], why: str) -> None:
    raw = b"8 1.5\n16 2.75\n32 4.125\n"
    assert any(why in text for text in untrue(lenient(read), raw, list(range(1, len(raw)))))


def test_a_parser_that_refuses_is_not() -> None:
    def read(raw: bytes) -> bytes:
        if not raw.endswith(b"32 4\n"):
            raise ParseError("table", "no end")
        return raw

    assert untrue(lenient(read), b"8 1\n32 4\n", list(range(8))) == []
