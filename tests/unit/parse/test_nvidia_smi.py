from __future__ import annotations

import re

from rackproof.parse.nvidia_smi import EccErrors, RemappedRows, parse_nvidia_smi, parse_nvidia_smi_list
from tests.unit.refusals import refuses

from . import TOOLS, tool_output

HOPPER = tool_output("nvidia-smi-590-2gpu.xml")


def written(path: str) -> str:
    return (TOOLS.parent / "written" / path).read_text()


def test_driver_590() -> None:
    report = parse_nvidia_smi(HOPPER)
    assert (report.driver, report.cuda, report.attached_gpus, report.missing) == ("590.48.01", "13.1", 2, 0)
    assert report.messages == ()
    good, bad = report.gpus
    assert (good.bus_id, good.name, good.serial) == ("00000000:18:00.0", "NVIDIA H200", "0165424000000")
    assert good.uuid == "GPU-00000000-1111-2222-3333-444444444444"
    assert (good.persistence, good.mig, good.ecc) == ("Enabled", "Disabled", "Enabled")
    assert good.memory_total_mib == 143771
    assert (good.pcie_generation, good.pcie_generation_max, good.pcie_width) == (5, 5, 16)
    assert (good.sm_clock_mhz, good.sm_clock_max_mhz) == (345, 1980)
    assert (good.fabric_state, good.fabric_status, good.recovery_action) == ("Completed", "Success", "None")
    assert good.throttle_reasons == ("gpu_idle",)
    assert bad.throttle_reasons == ("gpu_idle", "hw_thermal_slowdown")
    assert good.problems == ()


def test_driver_580_of_a_real_gpu() -> None:
    report = parse_nvidia_smi(tool_output("nvidia-smi-580-h200.xml"))
    (gpu,) = report.gpus
    assert (report.driver, report.cuda, report.attached_gpus, report.messages) == ("580.159.04", "13.0", 1, ())
    assert (gpu.bus_id, gpu.name, gpu.memory_total_mib) == ("00000000:00:06.0", "NVIDIA H200", 143771)
    assert (gpu.pcie_generation, gpu.pcie_width, gpu.power_limit_w, gpu.sm_clock_max_mhz) == (5, 16, 700, 1980)
    assert gpu.ecc_volatile == EccErrors(corrected=0, uncorrected=0)
    assert gpu.ecc_aggregate == EccErrors(corrected=0, uncorrected=6)
    assert (gpu.throttle_reasons, gpu.problems) == (("gpu_idle",), ())


def test_power_of_drivers_that_print_no_power_draw_is_the_instantaneous_one() -> None:
    gpu = parse_nvidia_smi(HOPPER).gpus[0]
    assert (gpu.power_limit_w, gpu.default_power_limit_w) == (700, 700)


def test_ecc_counters_are_summed_over_memories() -> None:
    good, bad = parse_nvidia_smi(HOPPER).gpus
    assert good.ecc_volatile == EccErrors(corrected=0, uncorrected=0)
    assert bad.ecc_volatile == EccErrors(corrected=2, uncorrected=1)
    assert bad.ecc_aggregate == EccErrors(corrected=3, uncorrected=1)
    assert bad.remapped_rows == RemappedRows(corrected=0, uncorrected=1, pending=True, failed=False)


def test_not_available_is_none_and_never_0() -> None:
    gpu = parse_nvidia_smi(HOPPER).gpus[0]
    assert gpu.retired_pages_single_bit is None
    unknown = HOPPER.replace("correctable>0<", "correctable>N/A<").replace("parity>0<", "parity>N/A<")
    unknown = unknown.replace("secded>0<", "secded>N/A<")
    assert parse_nvidia_smi(unknown).gpus[0].ecc_volatile == EccErrors(corrected=None, uncorrected=None)


def test_driver_510() -> None:
    (gpu,) = parse_nvidia_smi(tool_output("nvidia-smi-510-p100.xml")).gpus
    assert gpu.serial == "0324217000001", "a serial number keeps its leading zero"
    assert gpu.power_limit_w == 200, "the enforced limit is the one in force"
    assert (gpu.pcie_generation, gpu.pcie_width) == (1, 8)
    assert gpu.ecc_aggregate == EccErrors(corrected=3, uncorrected=0)
    assert (gpu.retired_pages_single_bit, gpu.retired_pages_double_bit) == (1, 0)
    assert gpu.throttle_reasons == ("hw_slowdown",)
    assert gpu.remapped_rows is None
    assert (gpu.mig, gpu.fabric_state) == (None, None)


def test_gpus_that_are_attached_but_not_described_are_counted_and_not_invented() -> None:
    report = parse_nvidia_smi(tool_output("nvidia-smi-590-one-missing.xml"))
    assert (report.attached_gpus, len(report.gpus), report.missing) == (8, 2, 6)
    assert report.messages == ("WARNING: infoROM is corrupted at gpu 0000:2A:00.0",)


def test_errors_in_place_of_values_are_listed() -> None:
    lost, good = parse_nvidia_smi(tool_output("nvidia-smi-590-lost.xml")).gpus
    assert set(lost.problems) == {"temperature/gpu_temp: GPU is lost", "utilization/gpu_util: [Unknown Error]"}
    assert good.problems == ()


def test_a_node_whose_driver_counts_no_gpu() -> None:
    report = parse_nvidia_smi(tool_output("nvidia-smi-no-gpu.xml"))
    assert report.attached_gpus == 0
    assert report.gpus == ()


test_bad_output_raises_with_the_reason = refuses(
    parse_nvidia_smi,
    ("empty", "", "no output"),
    ("no driver", "NVIDIA-SMI has failed because it couldn't communicate\n", "no XML report; .*couldn't communicate"),
    ("no devices", "No devices were found\n", "No devices were found"),
    ("cut off", HOPPER[:4000], "cut off"),
    ("closing tag lost", HOPPER.replace("</gpu>", "", 1), "damaged"),
    ("two reports", HOPPER * 2, "damaged"),
    ("attached but none described", HOPPER[: HOPPER.index("\t<gpu ")] + "</nvidia_smi_log>", "describes no GPU"),
    ("the same GPU twice", HOPPER.replace("2A:00.0", "18:00.0"), "a GPU twice"),
    ("no name", HOPPER.replace("NVIDIA H200", ""), "no name"),
    ("memory in another unit", HOPPER.replace("143771 MiB", "140 GiB"), "fb_memory_usage/total is not an integer"),
    (
        "temperature is text",
        HOPPER.replace("56 C</gpu_temp_tlimit>", "warm</gpu_temp_tlimit>"),
        "gpu_temp_tlimit is not a number of C",
    ),
    ("odd yes", HOPPER.replace("Yes", "Maybe"), "neither Yes nor No"),
    (
        "entities",
        HOPPER.replace('SYSTEM "nvsmi_device_v12.dtd"', '[<!ENTITY a "x">]').replace("NVIDIA H200", "&a;"),
        "damaged",
    ),
)


def test_list_of_gpus() -> None:
    gpus = parse_nvidia_smi_list(tool_output("nvidia-smi-L.txt"))
    assert [gpu.index for gpu in gpus] == list(range(8))
    assert (gpus[7].name, gpus[7].uuid) == ("NVIDIA H200", "GPU-00000007-1111-2222-3333-444444444444")


def test_list_with_mig_devices() -> None:
    first, second = parse_nvidia_smi_list(tool_output("nvidia-smi-L-mig.txt"))
    assert [(device.profile, device.index) for device in first.mig] == [("3g.71gb", 0), ("1g.18gb", 1)]
    assert first.mig[0].uuid.startswith("MIG-")
    assert second.mig == ()


test_bad_list_raises_with_the_reason = refuses(
    parse_nvidia_smi_list,
    ("", "no output"),
    ("No devices found.\n", "No devices found"),
    (
        tool_output("nvidia-smi-L.txt") + "Unable to determine the device handle for gpu 0000:DB:00.0: GPU is lost.\n",
        "GPU is lost",
    ),
    (tool_output("nvidia-smi-L.txt")[:-5], "cut off"),
)


def test_identity_and_settings_of_a_whole_report() -> None:
    (gpu, *others) = parse_nvidia_smi(written("hgx-h200-roce/gpu-01/gpu/query.xml")).gpus
    assert len(others) == 7
    assert (gpu.pci_id, gpu.inforom, gpu.part_number) == ("2335", "G520.0280.00.05", "692-2G520-0280-501")
    assert (gpu.mig, gpu.mig_pending) == ("Disabled", "Disabled")
    assert gpu.application_clocks_mhz == gpu.default_application_clocks_mhz == (1980, 3201)
    assert gpu.temperature_margin_c == 58, "56 K to the limit, and slowing down begins 2 K behind it"
    assert gpu.page_retirement_pending is None
    assert gpu.fabric_health == {}


def test_flags_that_ask_for_a_repair_are_problems() -> None:
    text = written("hgx-h200-roce/gpu-01/gpu/query.xml").replace("tpc_repair_pending>No", "tpc_repair_pending>Yes", 1)
    assert parse_nvidia_smi(text).gpus[0].problems == ("a TPC repair is pending",)


def test_programs_on_gpus() -> None:
    entry = (
        "<process_info><gpu_instance_id>N/A</gpu_instance_id><pid>4711</pid><type>C</type>"
        "<process_name>python3</process_name></process_info>"
    )
    closing = "</gpu>"
    busy = re.sub(r"(?s)<processes>.*?</processes>|<processes/>", "", HOPPER)
    busy = busy.replace(closing, f"<processes>{entry}</processes>{closing}", 1)
    first, *_ = parse_nvidia_smi(busy).gpus
    assert list(map(str, first.processes)) == ["python3 (4711)"]
