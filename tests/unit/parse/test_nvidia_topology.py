from __future__ import annotations

from rackproof.parse.nvidia_topology import parse_nvlink_status, parse_topology
from tests.unit.refusals import refuses

from . import tool_output

TOPOLOGY = tool_output("topology-2gpu-2nic.txt")
NVLINK = tool_output("nvlink-8gpu-one-inactive.txt")


def test_matrix_with_network_cards_and_an_underlined_header() -> None:
    topology = parse_topology(TOPOLOGY)
    assert topology.devices == ("GPU0", "GPU1", "NIC0", "NIC1")
    assert topology.gpus == ("GPU0", "GPU1")
    assert topology.paths["GPU0", "GPU1"] == "NV18"
    assert topology.paths["GPU0", "NIC0"] == "PIX"
    assert topology.paths["NIC1", "GPU0"] == "SYS"
    assert topology.paths["NIC1", "NIC1"] == "X"


def test_matrix_that_was_pasted_with_blanks() -> None:
    topology = parse_topology(tool_output("topology-2gpu-spaces.txt"))
    assert topology.paths["GPU1", "GPU0"] == "NV12"


test_bad_matrix_raises_with_the_reason = refuses(
    parse_topology,
    ("empty", "", "no output"),
    ("no driver", "NVIDIA-SMI has failed\n", "no topology matrix; .*has failed"),
    ("row missing", TOPOLOGY.replace("NIC1\tSYS\tPIX\tSYS\t X \t\t\t\t\n", ""), "4 columns but 3 rows"),
    ("row cut", TOPOLOGY.replace("NIC1\tSYS\tPIX\tSYS\t X \t\t\t\t\n", "NIC1\tSYS\n"), "does not fit"),
    ("row too much", TOPOLOGY.replace("\n\nLegend", "\nGPU1\t X \n\nLegend"), "unexpected row"),
    ("unknown path", TOPOLOGY.replace("NV18", "WIFI"), "does not fit"),
    ("no diagonal", TOPOLOGY.replace("GPU0\t X \tNV18", "GPU0\tNV18\t X "), "not X to itself"),
    ("cut off", TOPOLOGY.rstrip()[:-1], "cut off"),
)


def test_speed_of_each_nvlink() -> None:
    gpus = parse_nvlink_status(NVLINK)
    assert [len(gpu.links) for gpu in gpus] == [18] * 8
    assert {link.gb_per_s for gpu in gpus for link in gpu.links} == {26.562, None}
    assert [(gpu.index, link.index) for gpu in gpus for link in gpu.links if link.gb_per_s is None] == [(3, 17)]


def test_a_gpu_without_nvlink_says_so() -> None:
    (gpu,) = parse_nvlink_status(tool_output("nvlink-none.txt"))
    assert gpu.links == ()
    assert gpu.note == "Device does not have or support Nvlink"


test_bad_links_raise_with_the_reason = refuses(
    parse_nvlink_status,
    ("", "no output"),
    ("NVIDIA-SMI has failed\n", "unexpected line .*has failed"),
    (NVLINK.splitlines()[0] + "\n", "no links and no message about them"),
    (NVLINK.replace("Link 1:", "Link 0:"), "lists link 0 twice"),
    (NVLINK.replace("26.562 GB/s", "fast"), "unexpected line"),
    (NVLINK.replace("26.562 GB/s", "nan GB/s"), "is not a number"),
    (NVLINK[:-4], "cut off"),
)
