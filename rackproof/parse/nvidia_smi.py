"""nvidia-smi: ``-q -x`` of drivers 510 to 590, and ``-L``. Topology and NVLink are in ``nvidia_topology``."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, integer, last_words, text_of, whole_lines

TOOL: Final = "nvidia-smi"


@dataclass(frozen=True, slots=True)
class EccErrors:
    """Sums over all memories; None where the GPU reports no count at all (``N/A`` is not 0)."""

    corrected: int | None
    uncorrected: int | None


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """Rows of HBM replaced by spares; absent before Ampere."""

    corrected: int | None
    uncorrected: int | None
    pending: bool | None
    """A reset is needed before the replacement takes effect."""
    failed: bool | None
    """No spare was left: the GPU must be exchanged."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One ``<gpu>`` element. None means that the driver reports nothing for it."""

    bus_id: str
    """PCI address as printed, domain with 8 digits: ``00000000:18:00.0``."""
    name: str
    uuid: str | None
    serial: str | None
    """A text: leading zeros count."""
    minor_number: int | None
    vbios: str | None
    persistence: str | None
    mig: str | None
    ecc: str | None
    """Enabled or Disabled, in force now; a pending change is not."""
    compute_mode: str | None
    performance_state: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    utilization_pct: float | None
    temperature_c: float | None
    memory_temperature_c: float | None
    power_draw_w: float | None
    """Of the GPU: ``power_draw``, else the instantaneous, else the average one."""
    power_limit_w: float | None
    """In force now."""
    default_power_limit_w: float | None
    pcie_generation: int | None
    """Current; an idle GPU may lower it."""
    pcie_generation_max: int | None
    pcie_width: int | None
    pcie_width_max: int | None
    pcie_replays: int | None
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    sm_clock_max_mhz: float | None
    throttle_reasons: tuple[str, ...] | None
    """Active ones, without prefix: ``hw_thermal_slowdown`` …; None when none are reported."""
    ecc_volatile: EccErrors
    """Since the driver was loaded."""
    ecc_aggregate: EccErrors
    """Over the life of the GPU."""
    remapped_rows: RemappedRows | None
    retired_pages_single_bit: int | None
    retired_pages_double_bit: int | None
    fabric_state: str | None
    """NVSwitch systems: Completed when the fabric manager has registered the GPU."""
    fabric_status: str | None
    recovery_action: str | None
    """What the driver asks for: None (the word), Reset, Reboot …"""
    problems: tuple[str, ...]
    """Elements in which the driver prints an error instead of a value, as ``path: text``."""


@dataclass(frozen=True, slots=True)
class NvidiaSmi:
    driver: str | None
    cuda: str | None
    attached_gpus: int | None
    """As the driver counts them."""
    gpus: tuple[Gpu, ...]
    """As described; in bus order."""
    messages: tuple[str, ...]
    """Lines around the document, such as ``WARNING: infoROM is corrupted …``."""

    @property
    def missing(self) -> int:
        """GPUs that are attached but not described (a query of one GPU leaves the others out)."""
        return 0 if self.attached_gpus is None else self.attached_gpus - len(self.gpus)


@dataclass(frozen=True, slots=True)
class MigDevice:
    profile: str
    """``1g.10gb``."""
    index: int
    uuid: str


@dataclass(frozen=True, slots=True)
class ListedGpu:
    index: int
    name: str
    uuid: str
    mig: tuple[MigDevice, ...]


_NOT_AVAILABLE: Final = re.compile(
    r"\[?(?:N/A|Not Supported|Requested functionality has been deprecated)\]?|", re.IGNORECASE
)
_PROBLEM: Final = re.compile(
    r"\[?(?:unknown error|err!|gpu is lost\b.*|gpu requires reset|insufficient permissions?)\]?", re.IGNORECASE
)
_REASON: Final = re.compile(r"clocks_(?:throttle|event)_reason_(\w+)")


def parse_nvidia_smi(output: str | bytes) -> NvidiaSmi:
    """Read the XML of ``nvidia-smi -q -x``."""
    text = text_of(TOOL, output)
    start, closing = text.find("<nvidia_smi_log"), "</nvidia_smi_log>"
    end = text.rfind(closing)
    if start < 0:
        raise ParseError(TOOL, f"no XML report; the output ends with {last_words(text)}")
    if end < start:
        raise ParseError(TOOL, "XML report is cut off")
    try:
        root = ET.fromstring(text[start : end + len(closing)])  # noqa: S314  (no prolog, hence no entities)
    except ET.ParseError as error:
        raise ParseError(TOOL, f"XML report is damaged ({error})") from None
    attached = _integer(root, "attached_gpus")
    gpus = tuple(_gpu(element) for element in root.findall("gpu"))
    if not gpus and attached != 0:
        raise ParseError(TOOL, "report describes no GPU")
    if len({gpu.bus_id for gpu in gpus}) != len(gpus):
        raise ParseError(TOOL, "report describes a GPU twice")
    around = text[:start] + "\n" + text[end + len(closing) :]
    lines = (line.strip() for line in around.splitlines())
    return NvidiaSmi(
        driver=_text(root, "driver_version"),
        cuda=_text(root, "cuda_version"),
        attached_gpus=attached,
        gpus=gpus,
        messages=tuple(line for line in lines if line and not line.startswith(("<?xml", "<!DOCTYPE"))),
    )


def parse_nvidia_smi_list(output: str | bytes) -> tuple[ListedGpu, ...]:
    """Read ``nvidia-smi -L``; a line that names no GPU (one is lost, there is none) raises with that line."""
    gpus: list[ListedGpu] = []
    for line in whole_lines(TOOL, output, closing=r".*\(UUID: \S+\)"):
        if gpu := re.fullmatch(r"GPU (\d{1,4}): (.+) \(UUID: (\S+)\)\s*", line):
            gpus.append(ListedGpu(int(gpu[1]), gpu[2], gpu[3], ()))
        elif gpus and (mig := re.fullmatch(r"\s+MIG (\S+)\s+Device\s+(\d{1,4}): \(UUID: (\S+)\)\s*", line)):
            owner = gpus[-1]
            device = MigDevice(mig[1], int(mig[2]), mig[3])
            gpus[-1] = ListedGpu(owner.index, owner.name, owner.uuid, (*owner.mig, device))
        elif line.strip():
            raise ParseError(TOOL, f"unexpected line {excerpt(line, 160)}")
    if not gpus:
        raise ParseError(TOOL, "no GPU listed")
    return tuple(gpus)


def _gpu(element: ET.Element) -> Gpu:
    bus_id, name = element.get("id", "").strip(), _text(element, "product_name")
    if not bus_id or not name:
        raise ParseError(TOOL, "a GPU has no bus id or no name")
    power = "gpu_power_readings" if element.find("gpu_power_readings") is not None else "power_readings"
    link = "pci/pci_gpu_link_info"
    return Gpu(
        bus_id=bus_id,
        name=name,
        uuid=_text(element, "uuid"),
        serial=_text(element, "serial"),
        minor_number=_integer(element, "minor_number"),
        vbios=_text(element, "vbios_version"),
        persistence=_text(element, "persistence_mode"),
        mig=_text(element, "mig_mode/current_mig"),
        ecc=_text(element, "ecc_mode/current_ecc"),
        compute_mode=_text(element, "compute_mode"),
        performance_state=_text(element, "performance_state"),
        memory_total_mib=_integer(element, "fb_memory_usage/total", " MiB"),
        memory_used_mib=_integer(element, "fb_memory_usage/used", " MiB"),
        utilization_pct=_real(element, "utilization/gpu_util", " %"),
        temperature_c=_real(element, "temperature/gpu_temp", " C"),
        memory_temperature_c=_real(element, "temperature/memory_temp", " C"),
        power_draw_w=_first_power(element, power, ("power_draw", "instant_power_draw", "average_power_draw")),
        power_limit_w=_first_power(element, power, ("current_power_limit", "enforced_power_limit", "power_limit")),
        default_power_limit_w=_first_power(element, power, ("default_power_limit",)),
        pcie_generation=_integer(element, f"{link}/pcie_gen/current_link_gen"),
        pcie_generation_max=_integer(element, f"{link}/pcie_gen/max_link_gen"),
        pcie_width=_integer(element, f"{link}/link_widths/current_link_width", "x"),
        pcie_width_max=_integer(element, f"{link}/link_widths/max_link_width", "x"),
        pcie_replays=_integer(element, "pci/replay_counter"),
        sm_clock_mhz=_real(element, "clocks/sm_clock", " MHz"),
        memory_clock_mhz=_real(element, "clocks/mem_clock", " MHz"),
        sm_clock_max_mhz=_real(element, "max_clocks/sm_clock", " MHz"),
        throttle_reasons=_throttle_reasons(element),
        ecc_volatile=_ecc(element.find("ecc_errors/volatile")),
        ecc_aggregate=_ecc(element.find("ecc_errors/aggregate")),
        remapped_rows=_remapped_rows(element.find("remapped_rows")),
        retired_pages_single_bit=_integer(element, "retired_pages/multiple_single_bit_retirement/retired_count"),
        retired_pages_double_bit=_integer(element, "retired_pages/double_bit_retirement/retired_count"),
        fabric_state=_text(element, "fabric/state"),
        fabric_status=_text(element, "fabric/status"),
        recovery_action=_text(element, "gpu_recovery_action"),
        problems=tuple(_problems(element, "")),
    )


def _text(element: ET.Element, path: str) -> str | None:
    """Text of an element; None when it is absent, says that it is not available, or holds an error."""
    text = (element.findtext(path) or "").strip()
    return None if _NOT_AVAILABLE.fullmatch(text) or _PROBLEM.fullmatch(text) else text


def _real(element: ET.Element, path: str, unit: str = "") -> float | None:
    text = _text(element, path)
    if text is None:
        return None
    if not re.fullmatch(rf"-?\d{{1,15}}(?:\.\d{{1,9}})?{re.escape(unit)}", text, re.ASCII):
        raise ParseError(TOOL, f"{path} is no number{unit and ' of' + unit}: {excerpt(text)}")
    return float(text.removesuffix(unit))


def _integer(element: ET.Element, path: str, unit: str = "") -> int | None:
    text = _text(element, path)
    return None if text is None else integer(TOOL, path, text.removesuffix(unit))


def _first_power(element: ET.Element, section: str, names: Iterable[str]) -> float | None:
    values = (_real(element, f"{section}/{name}", " W") for name in names)
    return next((value for value in values if value is not None), None)


def _throttle_reasons(element: ET.Element) -> tuple[str, ...] | None:
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = element.find(section)
        if reasons is None or not len(reasons):
            continue
        texts = [(match[1], _text(reasons, r.tag)) for r in reasons if (match := _REASON.fullmatch(r.tag))]
        if any(text is not None for _, text in texts):
            return tuple(name for name, text in texts if text == "Active")
    return None


def _ecc(counters: ET.Element | None) -> EccErrors:
    """Counters of three layouts: totals of single and double bits, SRAM and DRAM, SRAM by parity and SECDED."""
    if counters is None:
        return EccErrors(None, None)
    corrected = ("single_bit/total", "sram_correctable", "dram_correctable")
    uncorrected = (
        "double_bit/total",
        "sram_uncorrectable",
        "sram_uncorrectable_parity",
        "sram_uncorrectable_secded",
        "dram_uncorrectable",
    )
    return EccErrors(_sum(counters, corrected), _sum(counters, uncorrected))


def _sum(counters: ET.Element, paths: Iterable[str]) -> int | None:
    counts = [count for path in paths if (count := _integer(counters, path)) is not None]
    return sum(counts) if counts else None


def _remapped_rows(element: ET.Element | None) -> RemappedRows | None:
    if element is None or not len(element):
        return None
    return RemappedRows(
        corrected=_integer(element, "remapped_row_corr"),
        uncorrected=_integer(element, "remapped_row_unc"),
        pending=_yes(element, "remapped_row_pending"),
        failed=_yes(element, "remapped_row_failure"),
    )


def _yes(element: ET.Element, path: str) -> bool | None:
    text = _text(element, path)
    if text is None:
        return None
    if text not in ("Yes", "No"):
        raise ParseError(TOOL, f"{path} is neither Yes nor No: {excerpt(text)}")
    return text == "Yes"


def _problems(element: ET.Element, path: str) -> Iterable[str]:
    for child in element:
        here = f"{path}/{child.tag}".lstrip("/")
        text = (child.text or "").strip()
        if _PROBLEM.fullmatch(text):
            yield f"{here}: {text}"
        yield from _problems(child, here)


def driver_numbers(version: str) -> tuple[int, ...]:
    """``580.95.05`` as numbers that can be compared. Raises ParseError for what is no driver version."""
    parts = version.split(".")
    if not all(part.isdecimal() for part in parts):
        raise ParseError(TOOL, f"{version!r} is no driver version")
    return tuple(int(part) for part in parts)
