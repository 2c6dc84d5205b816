"""GPU health: memory errors, throttling, driver messages, Xids in the kernel's log, DCGM."""

from __future__ import annotations

from collections import Counter

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.parse.answer import STATUS
from rackproof.parse.dcgm import parse_dcgm_diag
from rackproof.parse.nvidia_smi import Gpu
from rackproof.parse.xid import parse_driver_log
from rackproof.validation import Unmeasured, answered, check
from rackproof.validation.gpus import (
    counts_ecc,
    expect_each,
    expect_known,
    expect_within,
    gpu_of,
    has_ecc,
    real_gpus,
    report,
)

DRIVER_LOG = f"journalctl -k -b -q --no-pager -o short-monotonic --grep 'NVRM: |SXid '{STATUS}"
DIAG = f"dcgmi diag -r 1 -j{STATUS}"

FAULTY_THROTTLING = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "thermal slowdown by hardware",
    "hw_power_brake_slowdown": "power brake",
    "sw_thermal_slowdown": "thermal slowdown by the driver",
}
"""Throttle reasons of a faulty GPU or cooling; idle, power cap and clock settings are normal."""

RETIRED_PAGES_MAX = 59
"""A GPU has room for 64 (NVIDIA GPU Memory Error Management, "Row Remapping"); operators exchange it from 60 on."""


@check(
    "gpu.ecc_errors",
    reads="gpu.ecc",
    roles=("gpu",),
    when=counts_ecc,
    protects="A GPU with uncorrectable errors ends jobs at random.",
    hint="nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU; exchange the GPU if errors return.",
)
def test_ecc_errors(host: Host) -> None:
    expect_each(host, 0, lambda gpu: gpu.ecc_volatile.uncorrected)


@check(
    "gpu.ecc_corrected",
    reads="gpu.ecc_corrected_max",
    protects="Frequent corrected errors precede uncorrectable ones.",
    hint="nvidia-smi -q -d ECC; watch how fast the counter grows, check the memory temperature.",
)
def test_ecc_corrected(host: Host, arch: Architecture) -> None:
    expect_within(
        host, gpu_of(arch).ecc_corrected_max or 0, " errors", lambda gpu: gpu.ecc_volatile.corrected, least=False
    )


@check(
    "gpu.ecc_lifetime",
    reads="gpu.ecc_uncorrected_lifetime_max",
    protects="A GPU with repeated uncorrectable errors will fail again.",
    hint="nvidia-smi -q -d ECC: Aggregate; ask the vendor to exchange a GPU that comes with errors.",
)
def test_ecc_lifetime(host: Host, arch: Architecture) -> None:
    limit = gpu_of(arch).ecc_uncorrected_lifetime_max or 0
    expect_within(host, limit, " errors", lambda gpu: gpu.ecc_aggregate.uncorrected, least=False)


@check(
    "gpu.row_remapping",
    reads="gpu.ecc",
    roles=("gpu",),
    when=has_ecc,
    protects="A row pending remapping is still in use; a failed remapping means that no spare row is left.",
    hint="Pending: reset the GPU. Failed: exchange it.",
)
def test_row_remapping(host: Host) -> None:
    def state(gpu: Gpu) -> str | None:
        rows = gpu.remapped_rows
        if rows is None or rows.pending is None or rows.failed is None:
            return None
        return "failed" if rows.failed else "pending" if rows.pending else "nothing pending, nothing failed"

    expect_each(host, "nothing pending, nothing failed", state)


@check(
    "gpu.remapped_rows",
    reads="gpu.remapped_rows_max",
    protects="Each remapped row uses a spare; many remapped rows mean failing memory.",
    hint="nvidia-smi -q -d ROW_REMAPPER; exchange the GPU.",
)
def test_remapped_rows(host: Host, arch: Architecture) -> None:
    limit = gpu_of(arch).remapped_rows_max or 0
    expect_within(
        host, limit, " rows", lambda gpu: gpu.remapped_rows.uncorrected if gpu.remapped_rows else None, least=False
    )


@check(
    "gpu.page_retirement",
    reads="gpu.ecc",
    roles=("gpu",),
    when=has_ecc,
    protects="A page pending retirement is still in use and kills the next job that touches it.",
    hint="nvidia-smi -q -d PAGE_RETIREMENT; reset the GPU; with 60 pages or more exchange it.",
)
def test_page_retirement(host: Host) -> None:
    def state(gpu: Gpu) -> str | None:
        pages = (gpu.retired_pages_single_bit, gpu.retired_pages_double_bit)
        if gpu.page_retirement_pending:
            return "pending"
        retired = sum(count for count in pages if count is not None)
        if retired > RETIRED_PAGES_MAX:
            return f"{retired} pages retired"
        values = (gpu.page_retirement_pending, *pages)
        if None in values and (gpu.remapped_rows is None or values != (None, None, None)):
            return None
        return "nothing pending"  # Ampere and later remap rows instead, and report nothing here

    expect_each(host, "nothing pending", state)


@check(
    "gpu.throttling",
    reads="gpu",
    protects="A throttled GPU delays all others of a job without any error.",
    hint="Repeat the check. Thermal: fans, filters, cold plate. Power brake, hardware slowdown: PSUs, BMC.",
)
def test_throttling(host: Host) -> None:
    def state(gpu: Gpu) -> str | None:
        if gpu.throttle_reasons is None:
            return None
        if FAULTY_THROTTLING.keys() - gpu.throttle_reasons_known and not FAULTY_THROTTLING.keys() & {
            *gpu.throttle_reasons
        }:
            return None
        active = [words for reason, words in FAULTY_THROTTLING.items() if reason in gpu.throttle_reasons]
        return " and ".join(active) or "no slowdown"

    expect_each(host, "no slowdown", state)


@check(
    "gpu.temperature",
    reads="gpu.temperature_margin_min_c",
    protects="A GPU that is hot when idle throttles under load.",
    hint="nvidia-smi -q -d TEMPERATURE; fans, filters, the cold plate, the inlet temperature.",
)
def test_temperature(host: Host, arch: Architecture) -> None:
    margin = gpu_of(arch).temperature_margin_min_c or 0
    expect_within(host, margin, " K below its limit", lambda gpu: gpu.temperature_margin_c, least=True)


@check(
    "gpu.healthy",
    reads="gpu",
    protects="A GPU with a driver error or a pending reset fails the next job on it.",
    hint="nvidia-smi -q and dmesg for Xid messages; follow the driver's recovery action.",
)
def test_healthy(host: Host) -> None:
    smi = report(host)
    problems = [f"{gpu.bus_id}: {problem}" for gpu in smi.gpus for problem in gpu.problems]
    problems += [
        f"{gpu.bus_id}: driver asks for {gpu.recovery_action}"
        for gpu in smi.gpus
        if gpu.recovery_action not in (None, "None")
    ]
    problems += [message for message in smi.messages if message.upper().startswith(("WARNING", "ERROR"))]
    if problems:
        raise AssertionError(f"expected no error or warning of the driver, actual {'; '.join(problems)}")
    if denied := [f"{gpu.bus_id}: {place}" for gpu in smi.gpus for place in gpu.denied]:
        raise Unmeasured(f"it needs root: {'; '.join(denied)}")
    if smi.messages:
        raise Unmeasured(f"nvidia-smi also printed: {'; '.join(smi.messages)[:300]}")
    # Older drivers have fewer flags, but the same ones for all GPUs of a node.
    flags = frozenset[str]().union(*(gpu.flags_known for gpu in smi.gpus))
    expect_known({gpu.bus_id: None if flags - gpu.flags_known else "known" for gpu in smi.gpus})


@check(
    "gpu.xid",
    reads="gpu.xid_allowed",
    roles=("gpu",),
    when=real_gpus,
    protects="An Xid is the first, and often the only, sign of failing memory, links or firmware of a GPU.",
    hint="Look the number up in NVIDIA's catalogue of Xid errors and do what it says; a reboot clears the log.",
)
def test_xid(host: Host, arch: Architecture) -> None:
    """Xids since boot, without those that applications cause (13, 31, 43, 45 …); see ``rackproof.parse.xid``."""
    answer = answered(host, DRIVER_LOG, "journalctl", good=None)
    log = parse_driver_log(answer.lines)
    allowed = gpu_of(arch).xid_allowed
    xids = Counter(
        (xid.code, xid.bus_id, xid.text) for xid in log.xids if not xid.of_application and xid.code not in allowed
    )
    by_code: dict[tuple[int, str], str] = {}
    for code, bus_id, text in xids:
        by_code.setdefault((code, bus_id), text)
    problems = [f"Xid {code} on {bus_id}: {text}" for (code, bus_id), text in sorted(by_code.items())]
    problems += [f"SXid {e.code} on {e.bus_id}: {e.text}" for e in log.switch_errors if e.fatal]
    problems += [f"{bus_id} has fallen off the bus" for bus_id in log.lost]
    problems += log.failed
    if problems:
        raise AssertionError(f"expected no hardware Xid and no lost GPU, actual {'; '.join(problems)}")
    if answer.status != 0:
        raise Unmeasured(f"the kernel's log is unreadable: {answer.failure}")
    if not log.loaded:
        raise Unmeasured("the kernel's log does not reach back to the loading of the driver")


@check(
    "gpu.dcgm",
    reads="gpu.dcgm_level",
    protects="DCGM detects missing libraries, permissions and earlier faults that stop CUDA; nvidia-smi does not.",
    hint="dcgmi diag -r 1 names the test; dcgmi diag -r 3 on a drained node tests more.",
)
def test_dcgm(host: Host, arch: Architecture) -> None:
    answer = answered(host, DIAG, "dcgmi", good=None)
    diagnosis = parse_dcgm_diag(answer.printed)
    results = diagnosis.results
    bad = [
        f"{result.test}{f' on GPU {result.gpus}' if result.gpus else ''}: {result.status} {result.says}".rstrip()
        for result in results
        if result.bad
    ]
    beside = f"; dcgmi also printed: {diagnosis.before}" if diagnosis.before else ""
    if bad:
        raise AssertionError(f"expected Pass of all tests, actual {'; '.join(bad)}{beside}")
    if unknown := [f"{result.test}: {result.status}" for result in results if result.status not in ("Pass", "Skip")]:
        raise Unmeasured(f"expected Pass of all tests, actual {'; '.join(unknown)}{beside}")
    if beside:
        raise Unmeasured(beside.removeprefix("; "))
    if answer.status != 0 or not any(result.status == "Pass" for result in results):
        raise Unmeasured(f"no test of dcgmi failed, and none passed or it failed itself: {answer.failure}")
    tested = {gpu.strip() for result in results if result.status == "Pass" for gpu in result.gpus.split(",")} - {""}
    if tested and len(tested) < gpu_of(arch).count:
        raise Unmeasured(f"dcgmi tested {len(tested)} of {gpu_of(arch).count} GPUs")
