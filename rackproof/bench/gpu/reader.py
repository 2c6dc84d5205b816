"""Samples of GPUs, with proof that the requested programs ran on the GPUs that the node lists."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from rackproof.bench.gpu.links import is_sampler, load_conditions
from rackproof.bench.reading import Read, Reading, reader, with_preamble
from rackproof.core.architecture import Architecture
from rackproof.core.evidence import Measurement
from rackproof.core.gpu_links import LinkSample
from rackproof.core.grouping import grouped
from rackproof.parse import Mismatch, ParseError
from rackproof.parse.dcgm import TOOL as DCGM
from rackproof.parse.dcgm import UNREADABLE, Diagnosis, parse_dcgm_diag
from rackproof.parse.gpu_list import LIST, ListedGpu, parse_gpu_list
from rackproof.parse.gpu_load import parse_gpu_links
from rackproof.parse.gpu_program import PRODUCT, TRIAD, GpuRun, parse_gpu_run
from rackproof.parse.gpu_program import TOOL as PROGRAM
from rackproof.parse.nvbandwidth import TOOL as NVBANDWIDTH
from rackproof.parse.nvbandwidth import Matrix, NvBandwidth, parse_nvbandwidth
from rackproof.remote.command import CommandResult, program

TO_DEVICE, TO_HOST = "gpu.host_to_device_bandwidth", "gpu.device_to_host_bandwidth"
PEER_READ: Final = "gpu.peer_read_bandwidth"
MEMORY, PRODUCTS, WRONG = "gpu.memory_bandwidth", "gpu.matmul_rate", "gpu.wrong_values"
DIAGNOSED: Final = "gpu.diagnosed_faults"
TESTS: Final = {
    TO_DEVICE: "host_to_device_memcpy_ce",
    TO_HOST: "device_to_host_memcpy_ce",
    PEER_READ: "device_to_device_memcpy_read_ce",
}
"""nvbandwidth's test by metric. In the last one the row's GPU reads from the column's."""
PAYLOAD: Final = "gpu_program.py"
"""Name of the kit's program on a node."""
WHAT: Final = {PRODUCTS: PRODUCT, MEMORY: TRIAD}


@reader("gpus-proven")
@with_preamble
def read_gpus(answers: Sequence[CommandResult], architecture: Architecture) -> Read:
    """One sample per run of nvbandwidth, or per repetition of the kit's program."""
    by_node = grouped((answer.node, answer) for answer in answers)
    copied = cache(lambda answer: parse_nvbandwidth(answer.stdout))
    diagnosed = cache(lambda answer: parse_dcgm_diag(answer.stdout))
    computed = cache(lambda answer: parse_gpu_run(answer.stdout))

    @cache
    def loads(answer: CommandResult) -> tuple[LinkSample, ...]:
        """Samples; none where they are unreadable, which their own check reports."""
        try:
            return parse_gpu_links(answer.stdout)
        except ParseError:
            return ()

    def read(measurement: Measurement) -> Reading:
        (member,) = measurement.members
        node, _, device = member.partition("/gpu")
        own = by_node.get(node, [])
        listed = [answer for answer in own if answer.command == LIST]
        gpus = _listed(listed, architecture)
        if not device.isdecimal() or int(device) >= len(gpus):
            raise Mismatch(NVBANDWIDTH, f"{node} has {len(gpus)} GPUs, none is gpu{device}")
        index = int(device)
        about: dict[str, Any] = {"uuid": gpus[index].uuid, "bus_id": gpus[index].bus_id, "gpu": gpus[index].name}
        samples = next((loads(answer) for answer in own if is_sampler(answer.command)), ())
        about |= load_conditions(samples, gpus[index].bus_id, measurement.step)
        if measurement.metric == DIAGNOSED:
            run = _only(DCGM, _runs(own, DCGM, lambda command: command.startswith("dcgmi diag "), may_fail=True))
            try:
                diagnosis = diagnosed(run)
            except ParseError as error:
                raise (error if run.ok else ParseError(DCGM, run.why)) from None
            return _diagnosis(measurement.labels["test"], index, run, diagnosis, about)
        if measurement.metric in TESTS:
            runs = _runs(own, NVBANDWIDTH, lambda command: program(command) == NVBANDWIDTH)
            results = [copied(answer) for answer in runs]
            return _copies(measurement.metric, index, gpus, runs, results, about)
        run = _only(PROGRAM, _runs(own, PROGRAM, is_program))
        return _program(measurement, index, gpus, run, computed(run), about)

    return read


def is_program(command: str) -> bool:
    """Whether a command runs the kit's program."""
    return command.startswith("python3 -I ") and f"/{PAYLOAD} " in command


def _listed(answers: Sequence[CommandResult], architecture: Architecture) -> tuple[ListedGpu, ...]:
    if not answers:
        raise ParseError("nvidia-smi", "its GPUs were not listed")
    if not answers[-1].ok:
        raise ParseError("nvidia-smi", answers[-1].why)
    gpus = parse_gpu_list(answers[-1].stdout)
    count = architecture.gpu.count if architecture.gpu else 0
    if len(gpus) != count:
        raise Mismatch("nvidia-smi", f"expected {count} GPUs, actual {len(gpus)}")
    return gpus


def _runs(
    answers: Sequence[CommandResult], tool: str, is_run: Callable[[str], bool], may_fail: bool = False
) -> list[CommandResult]:
    """All runs, with equal parameters. Raises ParseError for a failed one, with ``may_fail`` for one without an end."""
    runs = [answer for answer in answers if is_run(answer.command)]
    if not runs:
        raise ParseError(tool, "no run of it")
    if failed := [answer for answer in runs if not answer.ok and not (may_fail and answer.rc is not None)]:
        raise ParseError(tool, failed[0].why)
    if len({answer.command for answer in runs}) > 1:
        raise Mismatch(tool, "its runs have different parameters")
    return runs


def _only(tool: str, runs: Sequence[CommandResult]) -> CommandResult:
    if len(runs) != 1:
        raise Mismatch(tool, f"expected one run of it, actual {len(runs)}")
    return runs[0]


def _copies(
    metric: str,
    index: int,
    gpus: Sequence[ListedGpu],
    runs: Sequence[CommandResult],
    results: Sequence[NvBandwidth],
    about: Mapping[str, Any],
) -> Reading:
    test, samples, slowest = TESTS[metric], [], []
    for result in results:
        for device, gpu in zip(result.devices, gpus, strict=False):
            if (device.name, device.bus_id) != (gpu.name, gpu.bus_id):
                raise Mismatch(
                    NVBANDWIDTH, f"expected {gpu.name} at {gpu.bus_id}, actual {device.name} at {device.bus_id}"
                )
        if result.devices and len(result.devices) != len(gpus):
            raise Mismatch(NVBANDWIDTH, f"expected {len(gpus)} GPUs, actual {len(result.devices)}")
        cells = cells_of(test, result.matrix(test), index, len(gpus), peers=metric == PEER_READ)
        slowest.append(min(cells, key=lambda column: cells[column]))
        samples.append(cells[slowest[-1]])
    words = shlex.split(runs[0].command)
    conditions = {
        **about,
        "command": runs[0].command,
        "driver": results[0].driver,
        "runs": len(runs),
        "copy_samples": words[words.index("-i") + 1] if "-i" in words[:-1] else "",
    }
    if metric == PEER_READ:
        conditions["slowest_peer"] = f"gpu{slowest[samples.index(min(samples))]}"
    return Reading(tuple(samples), tuple(runs), conditions)


def _diagnosis(test: str, index: int, run: CommandResult, diagnosis: Diagnosis, about: Mapping[str, Any]) -> Reading:
    """Raises ParseError unless the test ran on this GPU, and Mismatch if the tool's exit status has another reason."""
    tests = shlex.split(run.command)[3]
    if test not in tests.split(","):
        raise Mismatch(DCGM, f"{test} was not asked for: {tests}")
    if diagnosis.before:
        raise ParseError(DCGM, f"it also printed: {diagnosis.before}")
    own = [result for result in diagnosis.results if result.named == test and str(index) in _ids(result.gpus)]
    bad = [result for result in own if result.bad]
    open_ = [result for result in own if not result.bad and (result.status != "Pass" or result.warned)]
    if not bad and (open_ or not own):
        cause = next(
            (result for result in [*open_, *diagnosis.results] if result.status != "Pass" or result.warned), None
        )
        why = f"{cause.test}: {cause.status} {cause.says}".rstrip() if cause else "it printed no such result"
        raise ParseError(DCGM, f"no result of {test} on GPU {index}: {why}")
    whole = (one for one in diagnosis.results if not one.gpus and (one.named == test or one.status == UNREADABLE))
    if not bad and (cause := next((one for one in whole if one.status != "Pass" or one.warned), None)):
        raise ParseError(DCGM, f"no result of {test} that holds for every device: {cause.status} {cause.says}".rstrip())
    if not bad and run.rc and not any(result.bad for result in diagnosis.results):
        raise Mismatch(DCGM, f"no test fails, but it ended otherwise: {run.why}")
    conditions = {**about, "command": run.command, "tests": tests}
    if bad:
        conditions["complaint"] = "; ".join(f"{result.status}: {result.says}" for result in bad)
    return Reading((float(len(bad)),), (run,), conditions)


def _ids(gpus: str) -> set[str]:
    return {gpu.strip() for gpu in gpus.split(",")}


def cells_of(test: str, matrix: Matrix, index: int, count: int, *, peers: bool) -> dict[int, float]:
    """GB/s of one GPU, by column: of its row between GPUs, else of its column in the only row, the host's.

    Raises ParseError for a matrix of another size, or without a number in one of the cells.
    """
    rows, columns = len(matrix), len(matrix[0])
    if (rows, columns) != (count if peers else 1, count):
        expected = f"{count if peers else 1} × {count}"
        raise Mismatch(NVBANDWIDTH, f"{test}: expected {expected} cells, actual {rows} × {columns}")
    row = matrix[index] if peers else matrix[0]
    cells = {column: row[column] for column in range(count) if (column != index if peers else column == index)}
    known = {column: cell for column, cell in cells.items() if cell}
    if len(known) != len(cells) or not known:
        missing = next((column for column, cell in cells.items() if not cell), index)
        raise ParseError(
            NVBANDWIDTH, f"{test}: no bandwidth of GPU {index}" + (f" from GPU {missing}" if peers else "")
        )
    return known


def _program(
    measurement: Measurement,
    index: int,
    gpus: Sequence[ListedGpu],
    answer: CommandResult,
    run: GpuRun,
    about: Mapping[str, Any],
) -> Reading:
    asked = shlex.split(answer.command)[3:]
    precision, what = measurement.labels.get("precision"), measurement.labels.get("op") or WHAT[measurement.metric]
    _compare("what it ran", what, asked[0], run.what)
    _compare("precision", precision or run.precision, asked[1], run.precision)
    _compare("repetitions", asked[2], str(run.runs))
    _compare("seconds", float(asked[3]), run.seconds)
    _compare("sizes", asked[4], ",".join(map(str, run.sizes)))
    uuids = [gpu.uuid for gpu in gpus]
    _compare("GPUs", uuids, asked[6:], [gpu.asked for gpu in run.gpus])
    gpu = run.gpus[index]
    if gpu.uuid is not None:
        _compare("GPU", uuids[index].lower(), gpu.uuid.lower())
    _compare("name of the GPU", gpus[index].name, gpu.name)
    conditions = {
        **about,
        "command": answer.command,
        "precision": run.precision,
        "runs": run.runs,
        "seconds": run.seconds,
        "sizes": asked[4],
        "torch": gpu.torch,
        "cuda": gpu.cuda,
    }
    if gpu.best is not None:
        conditions["shape"] = " × ".join(map(str, gpu.best))
    if measurement.metric == WRONG:
        return Reading((float(gpu.wrong),), (answer,), conditions)
    if gpu.wrong:
        raise ParseError(PROGRAM, f"{gpu.wrong} elements of its result are wrong")
    return Reading(gpu.samples, (answer,), conditions)


def _compare(name: str, expected: object, *actual: object) -> None:
    for value in actual:
        if value != expected:
            raise Mismatch(PROGRAM, f"expected {name} {expected}, actual {value}")
