"""GPUs that ask for help: memory errors, throttling, complaints of the driver, Xids in the kernel's log."""

from __future__ import annotations

from collections import Counter

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.parse.answer import STATUS, parse_answer
from rackproof.parse.dcgm import parse_dcgm_diag
from rackproof.parse.nvidia_smi import Gpu
from rackproof.parse.xid import parse_driver_log
from rackproof.validation import Unmeasured, check
from rackproof.validation.gpus import (
    expect_each,
    expect_within,
    has_ecc,
    promised,
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
"""Reasons for low clocks that no healthy GPU has; idle, the power cap and clock settings are none."""

RETIRED_PAGES_MAX = 59
"""A GPU has room for 64 (NVIDIA GPU Memory Error Management, "Row Remapping"); operators exchange it from 60 on."""


@check(
    "gpu.ecc_errors",
    reads="gpu.ecc",
    roles=("gpu",),
    when=has_ecc,
    protects="A GPU with uncorrectable errors ends jobs at random.",
    hint="nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU; errors that come back are a case for an exchange.",
)
def test_ecc_errors(host: Host) -> None:
    expect_each(host, 0, lambda gpu: gpu.ecc_volatile.uncorrected)


@check(
    "gpu.ecc_corrected",
    reads="gpu.ecc_corrected_max",
    protects="Memory that needs correcting all the time is about to have errors that cannot be corrected.",
    hint="nvidia-smi -q -d ECC; watch how fast it grows, look at the temperature of the memory.",
)
def test_ecc_corrected(host: Host, arch: Architecture) -> None:
    expect_within(
        host, promised(arch).ecc_corrected_max or 0, " errors", lambda gpu: gpu.ecc_volatile.corrected, least=False
    )


@check(
    "gpu.ecc_lifetime",
    reads="gpu.ecc_uncorrected_lifetime_max",
    protects="A GPU that has lost data again and again will do so in the next job, too.",
    hint="nvidia-smi -q -d ECC: Aggregate; ask the vendor to exchange a GPU that comes with errors.",
)
def test_ecc_lifetime(host: Host, arch: Architecture) -> None:
    limit = promised(arch).ecc_uncorrected_lifetime_max or 0
    expect_within(host, limit, " errors", lambda gpu: gpu.ecc_aggregate.uncorrected, least=False)


@check(
    "gpu.row_remapping",
    reads="gpu.ecc",
    roles=("gpu",),
    when=has_ecc,
    protects="A row that waits to be replaced is still in use; a replacement that failed means that no spare is left.",
    hint="Pending: reset the GPU. Failed: have it exchanged.",
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
    protects="Every replaced row is a spare less; a GPU that uses them up has failing memory.",
    hint="nvidia-smi -q -d ROW_REMAPPER; have it exchanged.",
)
def test_remapped_rows(host: Host, arch: Architecture) -> None:
    limit = promised(arch).remapped_rows_max or 0
    expect_within(
        host, limit, " rows", lambda gpu: gpu.remapped_rows.uncorrected if gpu.remapped_rows else None, least=False
    )


@check(
    "gpu.page_retirement",
    reads="gpu.ecc",
    roles=("gpu",),
    when=has_ecc,
    protects="A page that waits for its retirement is still in use, and ends the next job that touches it.",
    hint="nvidia-smi -q -d PAGE_RETIREMENT; reset the GPU; with 60 pages or more have it exchanged.",
)
def test_page_retirement(host: Host) -> None:
    def state(gpu: Gpu) -> str | None:
        pages = (gpu.retired_pages_single_bit, gpu.retired_pages_double_bit)
        if gpu.page_retirement_pending:
            return "pending"
        if gpu.page_retirement_pending is None or None in pages:
            # Ampere and later replace rows instead; what tells is whether one of the two is reported.
            return None if gpu.remapped_rows is None else "nothing pending"
        retired = sum(count for count in pages if count is not None)
        return "nothing pending" if retired <= RETIRED_PAGES_MAX else f"{retired} pages retired"

    expect_each(host, "nothing pending", state)


@check(
    "gpu.throttling",
    reads="gpu",
    protects="A GPU that slows itself down makes all the others of a job wait, with no error anywhere.",
    hint="Ask again. Thermal: fans, filters, cold plate. Power brake, hardware slowdown: power supplies, the BMC.",
)
def test_throttling(host: Host) -> None:
    def state(gpu: Gpu) -> str | None:
        if gpu.throttle_reasons is None:
            return None
        active = [words for reason, words in FAULTY_THROTTLING.items() if reason in gpu.throttle_reasons]
        return " and ".join(active) or "no slowdown"

    expect_each(host, "no slowdown", state)


@check(
    "gpu.temperature",
    reads="gpu.temperature_margin_min_c",
    protects="A GPU that is hot before the load has begun slows down in it.",
    hint="nvidia-smi -q -d TEMPERATURE; fans, filters, the cold plate, what blows into the node.",
)
def test_temperature(host: Host, arch: Architecture) -> None:
    margin = promised(arch).temperature_margin_min_c or 0
    expect_within(host, margin, " K below its limit", lambda gpu: gpu.temperature_margin_c, least=True)


@check(
    "gpu.healthy",
    reads="gpu",
    protects="A GPU for which the driver prints an error, or asks for a reset, ends the next job that gets it.",
    hint="nvidia-smi -q and dmesg for Xid messages; do what the driver asks for.",
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
        raise AssertionError(f"expected no complaint of the driver, actual {'; '.join(problems)}")


@check(
    "gpu.xid",
    reads="gpu.xid_allowed",
    roles=("gpu",),
    when=real_gpus,
    protects="An Xid is the first, and often the only, sign of failing memory, links or firmware of a GPU.",
    hint="Look the number up in NVIDIA's catalogue of Xid errors and do what it says; a reboot clears the log.",
)
def test_xid(host: Host, arch: Architecture) -> None:
    """Since boot. Errors of applications (13, 31, 43, 45 …) are none of the machine's; see ``rackproof.parse.xid``."""
    answer = parse_answer("journalctl", host.run(DRIVER_LOG).stdout)
    log = parse_driver_log(answer.body.splitlines())
    allowed = promised(arch).xid_allowed
    xids = Counter(
        (xid.code, xid.bus_id, xid.text) for xid in log.xids if not xid.of_application and xid.code not in allowed
    )
    by_code: dict[tuple[int, str], str] = {}
    for code, bus_id, text in xids:
        by_code.setdefault((code, bus_id), text)
    problems = [f"Xid {code} on {bus_id}: {text}" for (code, bus_id), text in sorted(by_code.items())]
    problems += [f"SXid {e.code} on {e.bus_id}: {e.text}" for e in log.switch_errors if e.fatal]
    problems += [f"{bus_id} has fallen off the bus" for bus_id in log.lost]
    if problems:
        raise AssertionError(f"expected no Xid of the machine's, actual {'; '.join(problems)}")
    if answer.status != 0 or not log.loaded:
        raise Unmeasured("the kernel's log does not reach back to the loading of the driver, or cannot be read")


@check(
    "gpu.dcgm",
    reads="gpu.dcgm_level",
    protects="DCGM knows of libraries, permissions and old faults that stop CUDA and that nvidia-smi does not show.",
    hint="dcgmi diag -r 1 names the test; dcgmi diag -r 3 on the empty node tells more.",
)
def test_dcgm(host: Host) -> None:
    answer = parse_answer("dcgmi", host.run(DIAG).stdout)
    results = parse_dcgm_diag(answer.body)
    bad = [
        f"{result.test}{f' on GPU {result.gpus}' if result.gpus else ''}: {result.status} {result.says}".rstrip()
        for result in results
        if result.status in ("Fail", "Warn")
    ]
    if bad:
        raise AssertionError(f"expected Pass of all tests, actual {'; '.join(bad)}")
    if answer.status != 0 or not any(result.status == "Pass" for result in results):
        raise Unmeasured(f"dcgmi: exit status {answer.status} without a failed test, or every test was skipped")
