"""nvidia-smi: ``-q -x`` of drivers 510 to 590, and ``-L``. Topology and NVLink are in ``nvidia_topology``."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from rackproof.parse.errors import ParseError
from rackproof.parse.memory import remembered
from rackproof.parse.nvidia_xml import TOOL, integer_at, is_denied, is_problem, real_at, text_at, yes_at
from rackproof.parse.text import excerpt, last_words, text_of, whole_lines


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
    """No spare row was left: replace the GPU."""


class Process(NamedTuple):
    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.pid})"


class ClockPair(NamedTuple):
    sm: float
    memory: float


@dataclass(frozen=True, slots=True)
class Gpu:
    """One ``<gpu>`` element. None means that the driver reports nothing for it."""

    bus_id: str
    """PCI address as printed, domain with 8 digits: ``00000000:18:00.0``."""
    name: str
    uuid: str | None
    serial: str | None
    """A string: leading zeros are significant."""
    vbios: str | None
    inforom: str | None
    """Image version of the InfoROM; None also where it cannot be read."""
    part_number: str | None
    """Part number of the board."""
    pci_id: str | None
    """PCI device id, four hexadecimal digits in lower case: ``2335``."""
    persistence: str | None
    mig: str | None
    mig_pending: str | None
    """After the next reset."""
    ecc: str | None
    """Enabled or Disabled, in force now; a pending change is not."""
    ecc_pending: str | None
    """After the next reset."""
    performance_state: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    compute_mode: str | None
    """``Default``, ``Exclusive_Process``, ``Prohibited``."""
    pcie_replays: int | None
    slowdowns_us: Mapping[str, int]
    """Time at reduced clocks by reason, since the driver was loaded or the GPU reset; empty for older drivers."""
    temperature_margin_c: float | None
    """Distance of the hottest spot from the slowdown limit (T.Limit); negative above the limit."""
    power_limit_w: float | None
    """In force now."""
    default_power_limit_w: float | None
    pcie_generation: int | None
    """Current; an idle GPU may lower it."""
    pcie_generation_max: int | None
    pcie_width: int | None
    sm_clock_mhz: float | None
    sm_clock_max_mhz: float | None
    memory_clock_max_mhz: float | None
    application_clocks_mhz: ClockPair | None
    """Application clocks; None where the driver has no such setting (newer ones dropped it)."""
    default_application_clocks_mhz: ClockPair | None
    throttle_reasons: tuple[str, ...] | None
    """Active reasons, without prefix: ``hw_thermal_slowdown`` …; None when none are reported."""
    throttle_reasons_known: frozenset[str]
    """Reasons that the driver reports as active or not active."""
    ecc_volatile: EccErrors
    """Since the driver was loaded."""
    ecc_aggregate: EccErrors
    """Over the life of the GPU."""
    remapped_rows: RemappedRows | None
    retired_pages_single_bit: int | None
    retired_pages_double_bit: int | None
    page_retirement_pending: bool | None
    """Before Ampere: pages that are taken out of use at the next reset, or were listed for it."""
    fabric_state: str | None
    """NVSwitch systems: Completed when the fabric manager has registered the GPU."""
    fabric_status: str | None
    fabric_health: Mapping[str, str]
    """Newer drivers: further fields on the GPU's fabric health (``bandwidth``, ``route_unhealthy`` …)."""
    processes: tuple[Process, ...]
    """Programs that use the GPU; empty also where the driver does not list them."""
    recovery_action: str | None
    """Recovery action requested by the driver: the string None, Reset, Reboot …"""
    flags_known: frozenset[str]
    """Flags that request a repair or a replacement, and the recovery action, as far as the driver reports them."""
    problems: tuple[str, ...]
    """Elements in which the driver prints an error instead of a value, as ``path: text``; flags that request a repair
    or a replacement."""
    denied: tuple[str, ...]
    """Elements that the driver does not show to this login, as ``path: text``."""


@dataclass(frozen=True, slots=True)
class NvidiaSmi:
    driver: str | None
    cuda: str | None
    attached_gpus: int | None
    """Number of GPUs that the driver reports."""
    gpus: tuple[Gpu, ...]
    """GPUs in the report, in bus order."""
    messages: tuple[str, ...]
    """Lines around the document, such as ``WARNING: infoROM is corrupted …``."""

    @property
    def missing(self) -> int:
        """Number of attached GPUs that the report does not describe; a query of one GPU omits the others."""
        return 0 if self.attached_gpus is None else self.attached_gpus - len(self.gpus)


@dataclass(frozen=True, slots=True)
class MigDevice:
    profile: str
    """``1g.10gb``."""
    index: int
    uuid: str


@dataclass(frozen=True, slots=True)
class GpuInstances:
    """A GPU and its MIG devices, which only ``nvidia-smi -L`` lists."""

    index: int
    name: str
    uuid: str
    mig: tuple[MigDevice, ...]


_LISTED_GPU: Final = re.compile(r"GPU (\d{1,4}): (.+) \(UUID: (\S+)\)\s*")
"""Index, name and UUID."""
_REASON: Final = re.compile(r"clocks_(?:throttle|event)_reason_(\w+)")


@remembered(16)  # several checks read the same output
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
    attached = integer_at(root, "attached_gpus")
    gpus = tuple(_gpu(element) for element in root.findall("gpu"))
    if not gpus and attached != 0:
        raise ParseError(TOOL, "report describes no GPU")
    if len({gpu.bus_id for gpu in gpus}) != len(gpus):
        raise ParseError(TOOL, "report describes a GPU twice")
    around = text[:start] + "\n" + text[end + len(closing) :]
    lines = (line.strip() for line in around.splitlines())
    return NvidiaSmi(
        driver=text_at(root, "driver_version"),
        cuda=text_at(root, "cuda_version"),
        attached_gpus=attached,
        gpus=gpus,
        messages=tuple(line for line in lines if line and not line.startswith(("<?xml", "<!DOCTYPE"))),
    )


def parse_nvidia_smi_list(output: str | bytes) -> tuple[GpuInstances, ...]:
    """Read ``nvidia-smi -L``; an error line (a lost GPU, no GPU) raises ParseError with that line."""
    gpus = lines_by_gpu(output, r".*\(UUID: \S+\)")
    return tuple(GpuInstances(int(gpu[1]), gpu[2], gpu[3], tuple(map(_mig, lines))) for gpu, lines in gpus)


def _mig(line: str) -> MigDevice:
    match = re.fullmatch(r"\s+MIG (\S+)\s+Device\s+(\d{1,4}): \(UUID: (\S+)\)\s*", line)
    if match is None:
        raise ParseError(TOOL, f"unexpected line {excerpt(line, 160)}")
    return MigDevice(match[1], int(match[2]), match[3])


def lines_by_gpu(output: str | bytes, closing: str) -> list[tuple[re.Match[str], list[str]]]:
    """Match (index, name, UUID) and lines of each GPU, without blank ones. ``closing``: as of ``whole_lines``.

    Raises ParseError where no GPU is listed, and for lines before the first one.
    """
    gpus: list[tuple[re.Match[str], list[str]]] = []
    for line in whole_lines(TOOL, output, closing=closing):
        if gpu := _LISTED_GPU.fullmatch(line):
            gpus.append((gpu, []))
        elif line.strip() and not gpus:
            raise ParseError(TOOL, f"unexpected line {excerpt(line, 160)}")
        elif line.strip():
            gpus[-1][1].append(line)
    if not gpus:
        raise ParseError(TOOL, "no GPU listed")
    return gpus


def _gpu(element: ET.Element) -> Gpu:
    bus_id, name = element.get("id", "").strip(), text_at(element, "product_name")
    if not bus_id or not name:
        raise ParseError(TOOL, "a GPU has no bus id or no name")
    power = "gpu_power_readings" if element.find("gpu_power_readings") is not None else "power_readings"
    link = "pci/pci_gpu_link_info"
    return Gpu(
        bus_id=bus_id,
        name=name,
        uuid=text_at(element, "uuid"),
        serial=text_at(element, "serial"),
        vbios=text_at(element, "vbios_version"),
        inforom=text_at(element, "inforom_version/img_version"),
        part_number=text_at(element, "board_part_number") or text_at(element, "gpu_part_number"),
        pci_id=_pci_id(element),
        persistence=text_at(element, "persistence_mode"),
        mig=text_at(element, "mig_mode/current_mig"),
        mig_pending=text_at(element, "mig_mode/pending_mig"),
        ecc=text_at(element, "ecc_mode/current_ecc"),
        ecc_pending=text_at(element, "ecc_mode/pending_ecc"),
        performance_state=text_at(element, "performance_state"),
        memory_total_mib=integer_at(element, "fb_memory_usage/total", " MiB"),
        memory_used_mib=integer_at(element, "fb_memory_usage/used", " MiB"),
        compute_mode=text_at(element, "compute_mode"),
        pcie_replays=integer_at(element, "pci/replay_counter"),
        slowdowns_us=_slowdowns(element),
        temperature_margin_c=_temperature_margin(element),
        power_limit_w=_first_power(element, power, ("current_power_limit", "enforced_power_limit", "power_limit")),
        default_power_limit_w=_first_power(element, power, ("default_power_limit",)),
        pcie_generation=integer_at(element, f"{link}/pcie_gen/current_link_gen"),
        pcie_generation_max=integer_at(element, f"{link}/pcie_gen/max_link_gen"),
        pcie_width=integer_at(element, f"{link}/link_widths/current_link_width", "x"),
        sm_clock_mhz=real_at(element, "clocks/sm_clock", " MHz"),
        sm_clock_max_mhz=real_at(element, "max_clocks/sm_clock", " MHz"),
        memory_clock_max_mhz=real_at(element, "max_clocks/mem_clock", " MHz"),
        application_clocks_mhz=_clocks(element, "applications_clocks"),
        default_application_clocks_mhz=_clocks(element, "default_applications_clocks"),
        throttle_reasons=_throttle_reasons(element),
        throttle_reasons_known=frozenset(name for name, text in _reasons(element) if text is not None),
        ecc_volatile=_ecc(element.find("ecc_errors/volatile")),
        ecc_aggregate=_ecc(element.find("ecc_errors/aggregate")),
        remapped_rows=_remapped_rows(element.find("remapped_rows")),
        retired_pages_single_bit=integer_at(element, "retired_pages/multiple_single_bit_retirement/retired_count"),
        retired_pages_double_bit=integer_at(element, "retired_pages/double_bit_retirement/retired_count"),
        page_retirement_pending=_page_retirement_pending(element),
        fabric_state=text_at(element, "fabric/state"),
        fabric_status=text_at(element, "fabric/status"),
        fabric_health=_fabric_health(element.find("fabric/health")),
        processes=_processes(element),
        recovery_action=text_at(element, "gpu_recovery_action"),
        flags_known=frozenset(path for path in (*_FLAGS, "gpu_recovery_action") if text_at(element, path) is not None),
        problems=(*_places(element, "", is_problem), *_flags(element)),
        denied=tuple(_places(element, "", is_denied)),
    )


def _processes(element: ET.Element) -> tuple[Process, ...]:
    listed = []
    for entry in element.findall("processes/process_info"):
        pid, name = integer_at(entry, "pid"), text_at(entry, "process_name")
        if pid is not None:
            listed.append(Process(pid, name or "?"))
    return tuple(listed)


def _pci_id(element: ET.Element) -> str | None:
    """``233510DE``: device, then vendor."""
    text = text_at(element, "pci/pci_device_id")
    if text is None:
        return None
    match = re.fullmatch(r"(?:0x)?([0-9A-F]{4})10DE", text, re.IGNORECASE)
    if match is None:
        raise ParseError(TOOL, f"pci_device_id is not an NVIDIA device: {excerpt(text)}")
    return match[1].lower()


def _clocks(element: ET.Element, section: str) -> ClockPair | None:
    sm, memory = (real_at(element, f"{section}/{name}", " MHz") for name in ("graphics_clock", "mem_clock"))
    return None if sm is None or memory is None else ClockPair(sm, memory)


def _temperature_margin(element: ET.Element) -> float | None:
    """Newer drivers print the margin (T.Limit), older ones temperature and limit."""
    margin = real_at(element, "temperature/gpu_temp_tlimit", " C")
    if margin is not None:
        threshold = real_at(element, "temperature/gpu_temp_slow_tlimit_threshold", " C")
        return None if threshold is None else margin - threshold
    temperature = real_at(element, "temperature/gpu_temp", " C")
    limit = real_at(element, "temperature/gpu_temp_slow_threshold", " C")
    return None if temperature is None or limit is None else limit - temperature


def _page_retirement_pending(element: ET.Element) -> bool | None:
    names = ("pending_retirement", "pending_blacklist")
    flags = [yes_at(element, path) for name in names if element.find(path := f"retired_pages/{name}") is not None]
    if not flags or None in flags:
        return True if True in flags else None
    return any(flags)


def _fabric_health(element: ET.Element | None) -> Mapping[str, str]:
    children = () if element is None else element
    return MappingProxyType({child.tag: text for child in children if (text := text_at(child, ".")) is not None})


def _first_power(element: ET.Element, section: str, names: Iterable[str]) -> float | None:
    values = (real_at(element, f"{section}/{name}", " W") for name in names)
    return next((value for value in values if value is not None), None)


def _throttle_reasons(element: ET.Element) -> tuple[str, ...] | None:
    texts = _reasons(element)
    return tuple(name for name, text in texts if text not in (None, "Not Active")) if texts else None


def _reasons(element: ET.Element) -> list[tuple[str, str | None]]:
    """Every reason and its text; empty where none is reported."""
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = element.find(section)
        if reasons is None or not len(reasons):
            continue
        texts = [(match[1], text_at(reasons, r.tag)) for r in reasons if (match := _REASON.fullmatch(r.tag))]
        if any(text is not None for _, text in texts):
            return texts
    return []


def _slowdowns(element: ET.Element) -> Mapping[str, int]:
    section = "clocks_event_reasons_counters"
    names = [counter.tag.removeprefix(f"{section}_") for counter in element.findall(f"{section}/*")]
    times = {name: integer_at(element, f"{section}/{section}_{name}", " us") for name in names}
    return {name: time for name, time in times.items() if time is not None}


def _ecc(counters: ET.Element | None) -> EccErrors:
    """Counters of three layouts: totals of single and double bits, SRAM and DRAM, SRAM by parity and SECDED."""
    if counters is None:
        return EccErrors(None, None)
    if counters.find("single_bit") is not None:
        return EccErrors(_sum(counters, ("single_bit/total",)), _sum(counters, ("double_bit/total",)))
    parts = ("sram_uncorrectable_parity", "sram_uncorrectable_secded")
    sram = parts if any(counters.find(part) is not None for part in parts) else ("sram_uncorrectable",)
    return EccErrors(
        _sum(counters, ("sram_correctable", "dram_correctable")), _sum(counters, (*sram, "dram_uncorrectable"))
    )


def _sum(counters: ET.Element, paths: Iterable[str]) -> int | None:
    """None unless every counter has a number: ``N/A`` is not 0."""
    counts = [integer_at(counters, path) for path in paths]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _remapped_rows(element: ET.Element | None) -> RemappedRows | None:
    if element is None or not len(element):
        return None
    return RemappedRows(
        corrected=integer_at(element, "remapped_row_corr"),
        uncorrected=integer_at(element, "remapped_row_unc"),
        pending=yes_at(element, "remapped_row_pending"),
        failed=yes_at(element, "remapped_row_failure"),
    )


def _places(element: ET.Element, path: str, matches: Callable[[str], bool]) -> Iterable[str]:
    """Elements below whose text matches, as ``path: text``."""
    if not any(below.text and matches(below.text.strip()) for below in element.iter()):
        return
    for child in element:
        here = f"{path}/{child.tag}".lstrip("/")
        text = (child.text or "").strip()
        if matches(text):
            yield f"{here}: {text}"
        yield from _places(child, here, matches)


_NO_DRIVER: Final = re.compile(
    r"No devices were found|couldn't communicate with the NVIDIA driver|Driver/library version mismatch"
    r"|Failed to initialize NVML|GPU is lost|Unable to determine the device handle",
    re.IGNORECASE,
)


def parse_refusal(output: str) -> str | None:
    """nvidia-smi's error where the driver offers no GPU at all; None where it printed a report or something else."""
    lines = [] if "<nvidia_smi_log" in output else [line for line in output.splitlines() if _NO_DRIVER.search(line)]
    return last_words("\n".join(lines)) if lines else None


_FLAGS: Final = {
    "ecc_errors/aggregate/sram_threshold_exceeded": "more SRAM errors than the vendor's threshold",
    "ecc_errors/channel_repair_pending": "a memory channel repair is pending",
    "ecc_errors/tpc_repair_pending": "a TPC repair is pending",
    "ecc_errors/unrepairable_memory": "memory that cannot be repaired",
    "gpu_reset_status/reset_required": "a reset is required",
    "gpu_reset_status/drain_and_reset_recommended": "a drain and a reset are recommended",
}


def _flags(element: ET.Element) -> Iterable[str]:
    """Flags that request a repair or a replacement; older drivers have none. An unknown word is a problem, too."""
    for path, complaint in _FLAGS.items():
        text = text_at(element, path)
        if text == "Yes":
            yield complaint
        elif text not in (None, "No"):
            yield f"{path}: {text}"
