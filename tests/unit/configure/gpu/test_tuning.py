"""Settings of GPUs: compared with what the driver reports, and set by a script that a shell runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.tuning import ECC_MARK, MIG_MARK, SCRIPT, Tuning, differences, tuning
from rackproof.configure.render import templates
from rackproof.errors import DeclarationError
from rackproof.parse.nvidia_smi import ClockPair, Gpu, GpuInstances, MigDevice, NvidiaSmi, Process, parse_nvidia_smi
from tests.unit.configure.gpu.machines import declared_gpu
from tests.unit.configure.gpu.node import FakeNode

ROOT = Path(__file__).parents[4]
REPORT = parse_nvidia_smi((ROOT / "tests/data/written/hgx-h200-roce/gpu-01/gpu/query.xml").read_text())
FIRST = REPORT.gpus[0].bus_id


def changed(**values: object) -> NvidiaSmi:
    first: Gpu = replace(REPORT.gpus[0], **values)  # type: ignore[arg-type]
    return replace(REPORT, gpus=(first, *REPORT.gpus[1:]))


def listed(*profiles: str) -> tuple[GpuInstances, ...]:
    mig = tuple(MigDevice(profile, index, f"MIG-{index}") for index, profile in enumerate(profiles))
    return tuple(GpuInstances(index, gpu.name, gpu.uuid or "", mig) for index, gpu in enumerate(REPORT.gpus))


AS_THEY_ARE = Tuning(power_limit_w=700, ecc=True, mig=False)


def test_nothing_differs() -> None:
    busy = changed(processes=(Process(1, "python3"),))
    actual = differences(AS_THEY_ARE, busy, listed())
    assert (actual.now, actual.pending, actual.busy) == ((), (), ())


@pytest.mark.parametrize(
    ("wanted", "report", "now"),
    [
        (Tuning(power_limit_w=650), REPORT, 8),
        (Tuning(power_limit_w=700), changed(power_limit_w=500.0), 1),
        (Tuning(power_limit_w=700), changed(power_limit_w=700.3), 0),
        (Tuning(ecc=False), REPORT, 8),
        (Tuning(mig=True), REPORT, 8),
        (Tuning(application_clocks_mhz=(3201, 1980)), changed(application_clocks_mhz=ClockPair(1500.0, 3201.0)), 1),
    ],
)
def test_what_can_be_set_at_once(wanted: Tuning, report: NvidiaSmi, now: int) -> None:
    assert len(differences(wanted, report, listed()).now) == now


def test_modes_that_wait_for_a_reset() -> None:
    pending = replace(REPORT, gpus=tuple(replace(gpu, ecc_pending="Disabled") for gpu in REPORT.gpus))
    actual = differences(Tuning(ecc=False), pending, listed())
    assert (actual.now, actual.pending) == ((), (ECC_MARK,))
    pending = replace(REPORT, gpus=tuple(replace(gpu, mig_pending="Enabled") for gpu in REPORT.gpus))
    actual = differences(Tuning(mig=True, mig_profiles=("1g.18gb",)), pending, listed())
    assert (actual.now, actual.pending) == ((), (MIG_MARK,))


def test_partitions() -> None:
    on = replace(REPORT, gpus=tuple(replace(gpu, mig="Enabled", mig_pending="Enabled") for gpu in REPORT.gpus))
    wanted = Tuning(mig=True, mig_profiles=("3g.71gb", "1g.18gb"))
    assert not differences(wanted, on, listed("1g.18gb", "3g.71gb")).now
    busy = replace(on, gpus=(replace(on.gpus[0], processes=(Process(4711, "python3"),)), *on.gpus[1:]))
    actual = differences(wanted, busy, listed("1g.18gb"))
    assert actual.now[0] == f"partitions of {FIRST}: 1g.18gb"
    assert actual.busy == (f"python3 (4711) on {FIRST}",)


def test_from_architecture_and_inventory() -> None:
    clocks = {"application_sm_mhz": 1500, "memory_max_mhz": 3201}
    derived = tuning(
        declared_gpu(8, ecc="Enabled", mig="Enabled", mig_profiles=["3g.71gb"], power_limit_w=650, clocks=clocks),
        GpuInputs(locked_memory_clocks_mhz=(3201,)),
    )
    assert derived == Tuning(650, (3201, 1500), None, (3201,), True, True, ("3g.71gb",), False)
    assert not tuning(declared_gpu(8), GpuInputs())


@pytest.mark.parametrize(
    ("declared", "inputs", "words"),
    [
        ({"clocks": {"application_sm_mhz": 1500}}, {}, "set together"),
        ({"mig": "Disabled", "mig_profiles": ["1g.18gb"]}, {}, r"gpu\.mig: Enabled"),
        ({"clocks": {"sm_max_mhz": 1980}}, {"locked_clocks_mhz": (1000, 1500)}, "hold GPUs down"),
    ],
)
def test_contradictions(declared: dict[str, object], inputs: dict[str, object], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        tuning(declared_gpu(8, **declared), GpuInputs.model_validate(inputs))


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """Two GPUs without MIG; what is set is remembered in files."""
    fake = FakeNode(tmp_path)
    fake.program(
        "nvidia-smi",
        'case "$*" in *query-gpu=index*) echo 0; echo 1;; *ecc.mode.pending*) echo Enabled;;'
        " *mig.mode.pending*) [ -e /run/rackproof/mig ] && echo Enabled || echo Disabled;;"
        " *mig.mode.current*) [ -e /run/rackproof/mig ] && echo Enabled || echo Disabled;;"
        " *-mig*) mkdir -p /run/rackproof; : >/run/rackproof/mig;;"
        " *-pl*) [ ! -e /run/rackproof/refuse ] ||"
        ' { echo "Provided power limit 900.00 W is not a valid one"; exit 2; };;'
        " esac",
    )
    return fake


def run(node: FakeNode, wanted: Tuning) -> tuple[int, str, list[str]]:
    done = node.run(templates.text(SCRIPT, tuning=wanted))
    return done.returncode, done.stderr, [call for call in node.calls if "query" not in call and "-L" not in call]


def test_script_sets_what_is_declared(node: FakeNode) -> None:
    code, stderr, calls = run(node, Tuning(650, (3201, 1500), (1000, 1500), (3201,), ecc=True))
    assert (code, stderr) == (0, "")
    assert calls == [
        "nvidia-smi -pl 650",
        "nvidia-smi -ac 3201,1500",
        "nvidia-smi -lgc 1000,1500",
        "nvidia-smi -lmc 3201",
    ]


def test_script_makes_partitions(node: FakeNode) -> None:
    code, _, calls = run(node, Tuning(mig=True, mig_profiles=("3g.71gb", "1g.18gb")))
    assert code == 0
    assert calls.count("nvidia-smi -i 0 -mig 1") == 1
    assert "nvidia-smi mig -i 1 -cgi 3g.71gb,1g.18gb -C" in calls


def test_script_tries_everything_and_says_what_failed(node: FakeNode) -> None:
    node.file("/run/rackproof/refuse")
    code, stderr, calls = run(node, Tuning(power_limit_w=900, locked_clocks_mhz=(1000,)))
    assert code == 1
    assert "nvidia-smi -pl 900: Provided power limit 900.00 W is not a valid one" in stderr
    assert "nvidia-smi -lgc 1000" in calls


def test_script_without_gpus(node: FakeNode) -> None:
    node.program("nvidia-smi", "echo 'No devices were found'; exit 6")
    code, stderr, _ = run(node, Tuning(power_limit_w=650))
    assert code == 1
    assert "lists no GPU" in stderr
