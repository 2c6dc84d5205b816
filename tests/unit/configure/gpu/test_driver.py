"""Which driver which GPU gets, and every combination that cannot work."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.configure.gpu.driver import Choice, choose, gpudirect_warning, secure_boot_problem
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.preflight.node import gpu_problems
from rackproof.core.gpu_generations import (
    GENERATIONS,
    UnsupportedGpu,
    generation_of,
    generation_of_model,
    support_problem,
)
from rackproof.core.machine import Pci
from tests.unit.configure.gpu.machines import declared_gpu, machine
from tests.unit.refusals import refuses

ADAPTER = Pci("0000:40:00.0", "15b3", "1021", "020000")


@dataclass(frozen=True)
class Lock:
    version: str = "580.126.20"
    flavour: str = "open"
    precompiled: bool = False
    repository: str = "cuda"


def stack(**inputs: object) -> GpuInputs:
    return GpuInputs.model_validate(inputs)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("102d", "Kepler"), ("17fd", "Maxwell"), ("15f9", "Pascal"), ("1b38", "Pascal"), ("1db1", "Volta"),
        ("1df6", "Volta"), ("1eb8", "Turing"), ("2182", "Turing"), ("20b2", "Ampere"), ("20f1", "Ampere"),
        ("2236", "Ampere"), ("25b6", "Ampere"), ("2330", "Hopper"), ("2335", "Hopper"), ("233B", "Hopper"),
        ("2342", "Grace Hopper"), ("26b9", "Ada"), ("27b8", "Ada"), ("2901", "Blackwell"), ("29bc", "Blackwell"),
        ("2941", "Grace Blackwell"), ("2bb5", "Blackwell"), ("3182", "Blackwell"), ("31c2", "Grace Blackwell"),
        ("2e12", "Grace Blackwell"),
    ],
)  # fmt: skip
def test_generation_by_id(device: str, name: str) -> None:
    assert generation_of(device).name == name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA H200", "Hopper"), ("NVIDIA H100 80GB HBM3", "Hopper"), ("Tesla V100-SXM2-32GB", "Volta"),
        ("NVIDIA L40S", "Ada"), ("NVIDIA L4", "Ada"), ("NVIDIA GB200", "Grace Blackwell"), ("NVIDIA B200", "Blackwell"),
        ("NVIDIA GH200 480GB", "Grace Hopper"), ("NVIDIA A100-SXM4-80GB", "Ampere"), ("Simulated", None),
    ],
)  # fmt: skip
def test_generation_by_name(model: str, name: str | None) -> None:
    generation = generation_of_model(model)
    assert (generation.name if generation else None) == name


@pytest.mark.parametrize("device", ["0020", "1ac2", "22a3", "2b00", "4000", "ffff"])
def test_unknown_ids_are_refused_with_the_way_out(device: str) -> None:
    with pytest.raises(UnsupportedGpu, match=rf"10de:{device}.*gpu\.generations"):
        generation_of(device)


def test_the_inventory_names_a_generation_that_is_not_in_the_table() -> None:
    assert generation_of("4000", {"4000": "Blackwell"}).name == "Blackwell"
    assert generation_of("2335", {"2335": "Ada"}).name == "Ada"
    with pytest.raises(UnsupportedGpu, match="did you mean 'Blackwell'"):
        generation_of("4000", {"4000": "blackwel"})


@given(st.integers(0, 0xFFFF))
def test_every_id_has_one_generation_or_is_refused(number: int) -> None:
    try:
        generation = generation_of(f"{number:04x}").name
    except UnsupportedGpu as error:
        generation = str(error)
    assert generation in GENERATIONS or f"10de:{number:04x}: set its generation" in generation


@pytest.mark.parametrize(
    ("device", "branch", "words"),
    [
        ("1db1", 590, "Volta.*after branch 580"),
        ("15f9", 595, "Pascal.*after branch 580"),
        ("2901", 550, "Blackwell.*needs a driver of branch 570 or newer, actual 550"),
        ("2330", 515, "Hopper.*525 or newer"),
        ("20b2", 440, "Ampere.*450 or newer"),
    ],
)
def test_branches_that_do_not_know_a_gpu(device: str, branch: int, words: str) -> None:
    target = machine("ubuntu 24.04", device)
    with pytest.raises(UnsupportedGpu, match=words):
        choose(target, declared_gpu(1, driver=f"{branch}.10.01"), stack())


def test_branches_that_know_it() -> None:
    assert support_problem(GENERATIONS["Volta"], "1db1", 580) is None
    assert support_problem(GENERATIONS["Blackwell"], "2901", 570) is None


@pytest.mark.parametrize(
    ("os", "gpus", "declared", "inputs", "expected"),
    [
        # Open where nothing else works, or where it is the default of the branch.
        ("ubuntu 24.04", ["2335"], {"driver": "580.126.20"}, {}, ("cuda", 580, "580.126.20", "open")),
        ("ubuntu 22.04", ["2330"], {"driver": "550.127.08"}, {}, ("cuda", 550, "550.127.08", "proprietary")),
        ("ubuntu 22.04", ["2330"], {"driver": "550.127.08", "gpudirect": "dmabuf"}, {},
         ("cuda", 550, "550.127.08", "open")),
        ("rocky 9.4", ["2901"], {"driver": ">=570.86"}, {}, ("cuda", 580, None, "open")),
        ("rhel 9.4", ["20b2"], {}, {"flavour": "proprietary"}, ("cuda", 580, None, "proprietary")),
        ("rocky 9.4", ["20b2"], {"driver": ">=595.10"}, {}, ("cuda", 595, None, "open")),
        # Volta has no open ones, whatever the branch.
        ("debian 12", ["1db1"], {}, {}, ("distribution", 535, None, "proprietary")),
        ("debian 12", ["1db1"], {"driver": "580.126.20"}, {}, ("cuda", 580, "580.126.20", "proprietary")),
        ("debian 13", ["26b9"], {}, {}, ("distribution", 550, None, "proprietary")),
        ("debian 13", ["26b9"], {}, {"source": "cuda"}, ("cuda", 580, None, "open")),
        ("debian 13", ["26b9"], {"driver": "580.126.20"}, {"driver": "580"}, ("cuda", 580, "580.126.20", "open")),
    ],
)  # fmt: skip
def test_choice(os: str, gpus: list[str], declared: dict, inputs: dict, expected: tuple) -> None:  # type: ignore[type-arg]
    choice = choose(machine(os, *gpus), declared_gpu(len(gpus), **declared), stack(**inputs))
    assert (choice.source, choice.branch, choice.version, choice.flavour) == expected


@pytest.mark.parametrize(
    ("os", "gpus", "declared", "inputs", "words"),
    [
        ("ubuntu 24.04", ["1db1"], {}, {"flavour": "open"}, "No devices were found"),
        ("ubuntu 24.04", ["2901"], {}, {"flavour": "proprietary"}, "No devices were found"),
        ("ubuntu 24.04", ["1db1", "2901"], {}, {}, "no driver serves both"),
        ("ubuntu 24.04", ["2335"], {}, {"flavour": "proprietary", "driver": "620"}, "no proprietary kernel modules"),
        ("ubuntu 24.04", ["20b2"], {}, {"flavour": "open", "driver": "510"}, "515 is the first"),
        ("ubuntu 24.04", ["1db1"], {"gpudirect": "dmabuf"}, {}, "declare peermem"),
        ("ubuntu 24.04", ["2335"], {"driver": "580.95.05"}, {"driver": "580.126.20"}, "make both the same"),
        ("ubuntu 24.04", ["2335"], {"driver": ">=590.10"}, {"driver": "580"}, "requires 590.10 or newer"),
        ("ubuntu 24.04", [], {}, {}, "no GPU of NVIDIA on the PCI bus, 8 are declared"),
        ("ubuntu 20.04", ["2335"], {}, {}, "no driver packages are known for ubuntu 20.04; supported: debian 12/13"),
        ("fedora 42", ["2335"], {}, {}, "no driver packages are known for fedora 42"),
        ("rocky 8.10", ["2335"], {}, {}, "no driver packages are known for rocky 8.10"),
        ("rocky 9.4", ["2335"], {}, {"source": "distribution"}, "gpu.source: cuda"),
        ("debian 13", ["26b9"], {"driver": "580.126.20"}, {"source": "distribution"}, "branch 550 only"),
        ("debian 13", ["2901"], {}, {"source": "distribution"}, "needs a driver of branch 570"),
        ("debian 13", ["26b9"], {}, {"precompiled": True}, "Debian has none"),
        ("ubuntu 24.04", ["2335"], {}, {"precompiled": True}, "gpu.source: distribution"),
        ("rocky 9.4", ["2901"], {}, {"precompiled": True}, "NVIDIA signs proprietary ones only"),
        ("ubuntu 24.04", ["2335"], {}, {"module_options": {"NVreg_EnableGpuFirmware": "0"}}, "need GSP"),
    ],
)
def test_what_cannot_work(os: str, gpus: list[str], declared: dict, inputs: dict, words: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(UnsupportedGpu, match=words):
        choose(machine(os, *gpus), declared_gpu(8, **declared), stack(**inputs))


def test_dma_buf_needs_a_kernel_that_has_it() -> None:
    old = machine("ubuntu 22.04", "2335", kernel="5.4.0-100-generic")
    with pytest.raises(UnsupportedGpu, match=r"needs Linux 5\.12"):
        choose(old, declared_gpu(1, gpudirect="dmabuf"), stack())


@pytest.mark.parametrize(
    ("os", "gpus", "switches", "switch", "expected"),
    [
        ("ubuntu 24.04", ["2335"] * 8, 4, "22a3", (True, False, False)),
        ("rocky 9.4", ["20b2"] * 8, 6, "1af1", (True, False, False)),
        ("ubuntu 24.04", ["2331"] * 8, 0, "", (False, False, False)),  # H100 PCIe: a fabric manager only complains
        ("rocky 9.4", ["2901"] * 8, 0, "", (True, True, False)),  # switches behind a bridge, no PCI devices
        ("ubuntu 24.04", ["3182"] * 8, 0, "", (True, True, False)),
        ("ubuntu 24.04", ["2941"] * 4, 0, "", (False, False, True)),  # the switches are another machine's
        ("ubuntu 24.04", ["26b9"] * 2, 0, "", (False, False, False)),
    ],
)
def test_services_by_hardware(
    os: str, gpus: list[str], switches: int, switch: str, expected: tuple[bool, bool, bool]
) -> None:
    choice = choose(machine(os, *gpus, switches=switches, switch=switch), declared_gpu(len(gpus)), stack())
    assert (choice.fabric_manager, choice.nvlsm, choice.imex) == expected


def test_debian_alone_cannot_drive_switches() -> None:
    target = machine("debian 13", *["20b2"] * 8, switches=6, switch="1af1")
    assert choose(target, declared_gpu(), stack()).source == "cuda"
    with pytest.raises(UnsupportedGpu, match="no fabric manager"):
        choose(target, declared_gpu(), stack(source="distribution"))
    assert not choose(target, declared_gpu(), stack(source="distribution", fabric_manager=False)).fabric_manager


def test_a_version_set_decides() -> None:
    choice = choose(machine("ubuntu 24.04", "2335"), declared_gpu(1), stack(), Lock())
    assert (choice.version, choice.source, choice.flavour) == ("580.126.20", "cuda", "open")
    signed = Lock(precompiled=True, repository="distribution")
    assert choose(machine("ubuntu 24.04", "2335"), declared_gpu(1), stack(), signed).precompiled
    with pytest.raises(UnsupportedGpu, match="for which the version set asks"):
        choose(machine("ubuntu 24.04", "1db1"), declared_gpu(1), stack(), Lock())
    with pytest.raises(UnsupportedGpu, match=r"version set.*make both the same"):
        choose(machine("ubuntu 24.04", "2335"), declared_gpu(1, driver="570.172.08"), stack(), Lock())


def pick(os: str, **inputs: object) -> Choice:
    return choose(machine(os, "2335"), declared_gpu(1), stack(**inputs))


@pytest.mark.parametrize(
    ("os", "words"),
    [
        ("ubuntu 24.04", "precompiled: true"),
        ("rocky 9.4", "NVIDIA signed"),
        ("debian 13", "no signed modules exist"),
    ],
)
def test_secure_boot_and_modules_of_ones_own(os: str, words: str) -> None:
    inputs = {"source": "cuda"} if os.startswith("debian") else {}
    problem = secure_boot_problem(machine(os, "2335", secure_boot=True), pick(os, **inputs))
    assert problem is not None
    assert words in problem
    assert "mokutil --import" in problem
    assert "switch Secure Boot off" in problem
    enrolled = secure_boot_problem(machine(os, "2335", secure_boot=True), pick(os, **inputs), key_enrolled=True)
    assert enrolled is None


def test_secure_boot_and_signed_modules() -> None:
    signed = pick("ubuntu 24.04", source="distribution", precompiled=True, driver="580")
    assert secure_boot_problem(machine("ubuntu 24.04", "2335", secure_boot=True), signed) is None
    assert secure_boot_problem(machine("ubuntu 24.04", "2335", secure_boot=None), pick("ubuntu 24.04")) is None


def test_preflight_says_everything_at_once() -> None:
    target = machine("ubuntu 24.04", *["2330"] * 7, switches=3, secure_boot=True)
    problems = [p.what for p in gpu_problems(target, declared_gpu(8, pci_ids=["2335"], nvswitches=4), stack(), None)]
    assert len(problems) == 4
    assert "Secure Boot" in problems[0]
    assert problems[1] == "GPUs on the PCI bus: expected 8, actual 7"
    assert problems[2].startswith("GPUs: expected 10de:2335, actual 10de:2330 at 0000:10:00.0")
    assert problems[3] == "NVSwitches: expected 4, actual 3"
    assert list(gpu_problems(machine("ubuntu 24.04", "2335"), declared_gpu(1), stack(), None)) == []


def test_adapters_that_cannot_reach_gpu_memory_are_reported() -> None:
    target = machine("debian 13", "26b9", further=[ADAPTER])
    assert gpudirect_warning(target, declared_gpu(1), "proprietary")
    assert gpudirect_warning(target, declared_gpu(1), "open") is None
    assert gpudirect_warning(target, declared_gpu(1, gpudirect="peermem"), "proprietary") is None
    assert gpudirect_warning(machine("debian 13", "26b9"), declared_gpu(1), "proprietary") is None


test_invalid_inputs_are_refused = refuses(
    lambda inputs: stack(**inputs),
    {"module_options": {"EnableGpuFirmware": "0"}},
    {"flavour": "open", "module_options": {"NVreg_EnableGpuFirmware": "0"}},
    {"driver": "latest"},
    {"repository": {"url": "https://x.example/cuda", "key_url": "https://x.example/key"}},
    {"generations": {"10de:2335": "Hopper"}},
    {"runtime": "docker"},
    error=ValueError,
    says=r"GSP|NVreg|pattern|Extra|required",
)
