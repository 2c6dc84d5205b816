from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof import architectures
from rackproof.core.topology import NAMES, NoTopology, links_between, same_topology
from rackproof.errors import ArchitectureError

# Both published matrices of the hybrid cube mesh. MSCCL: microsoft/msccl-tools, msccl/topologies/nvidia.py, dgx1().
MSCCL = (
    "02112000",
    "20120100",
    "11020020",
    "12200001",
    "20000211",
    "01002012",
    "00201102",
    "00011220",
)
# NCCL: NVIDIA/nccl#671, the XML that NCCL dumped on a DGX-1 (GPUs in the order of their PCI addresses); the same is
# printed by nvidia-smi on a DGX-1 in tests/test_topologies.py of microsoft/msccl-tools.
NCCL = (
    "01122000",
    "10210200",
    "12020010",
    "21200001",
    "20000112",
    "02001021",
    "00101202",
    "00012120",
)
# vllm-project/vllm#16336: a machine with eight B200 whose GPU2 has no NVLink.
LONE_GPU = tuple("".join("0" if 2 in (i, j) or i == j else "I" for j in range(8)) for i in range(8))

Matrix = list[list[int]]


def matrix(rows: tuple[str, ...]) -> Matrix:
    """Digits to numbers of links, I being 18."""
    return [[18 if cell == "I" else int(cell) for cell in row] for row in rows]


def renumbered(rows: Matrix, order: list[int]) -> Matrix:
    return [[rows[i][j] for j in order] for i in order]


def links_of(name: str) -> Matrix:
    return [list(row) for row in NAMES[name].links]


def test_the_two_published_matrices_of_the_dgx1_are_one_graph() -> None:
    msccl, nccl = matrix(MSCCL), matrix(NCCL)
    assert sum(a != b for rows in zip(msccl, nccl, strict=True) for a, b in zip(*rows, strict=True)) > 16
    assert same_topology(msccl, "dgx1-v100") is None
    assert same_topology(nccl, "dgx1-v100") is None
    orders = [order for order in permutations(range(8)) if renumbered(msccl, list(order)) == nccl]
    assert len(orders) == 4


def test_every_gpu_of_the_dgx1_has_six_links_to_four_others() -> None:
    for rows in (matrix(MSCCL), matrix(NCCL)):
        assert [sorted(row) for row in rows] == [[0, 0, 0, 0, 1, 1, 2, 2]] * 8


@pytest.mark.parametrize("name", NAMES)
def test_references_are_what_they_say(name: str) -> None:
    topology = NAMES[name]
    assert topology.title
    assert topology.source
    assert len(topology.links) == topology.gpus
    assert topology.links == tuple(zip(*topology.links, strict=True))
    assert same_topology(topology.links, name) is None
    others = [other for other in NAMES if other != name]
    assert [other for other in others if same_topology(topology.links, other) is None] == []


@given(data=st.data(), name=st.sampled_from([*NAMES]))
def test_any_numbering_of_a_reference_matches(data: st.DataObject, name: str) -> None:
    order = data.draw(st.permutations(range(NAMES[name].gpus)))
    assert same_topology(renumbered(links_of(name), order), name) is None


@given(
    data=st.data(),
    name=st.sampled_from([name for name in NAMES if NAMES[name].gpus > 1]),
    links=st.integers(0, 20),
    both_ways=st.booleans(),
)
def test_one_changed_link_never_matches(data: st.DataObject, name: str, links: int, both_ways: bool) -> None:
    order = data.draw(st.permutations(range(NAMES[name].gpus)))
    rows = renumbered(links_of(name), order)
    i, j = data.draw(st.sampled_from(list(combinations(range(len(rows)), 2))))
    was = rows[i][j]
    rows[i][j] = links
    if both_ways:
        rows[j][i] = links
    mismatch = same_topology(rows, name)
    if links == was:
        assert mismatch is None
        return
    assert mismatch is not None
    assert any(f"GPU{i}–GPU{j} " in difference for difference in mismatch.differences)
    if both_ways:
        new, old = (f"NV{n}" if n else "none" for n in (links, was))
        assert f"GPU{i}–GPU{j} {new} instead of {old}" in mismatch.differences


@given(
    rows=st.integers(2, 6).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_whatever_is_no_reference_does_not_match(rows: Matrix) -> None:
    for i in range(len(rows)):
        rows[i][i] = 0
    assert [name for name in NAMES if same_topology(rows, name) is None] == []


def test_same_links_in_another_shape_are_told() -> None:
    rows = matrix(MSCCL)
    # GPU0–GPU4 and GPU2–GPU6 crossed: every GPU keeps what it has, the mesh is another one
    for i, j, links in ((0, 4, 0), (2, 6, 0), (0, 6, 2), (2, 4, 2)):
        rows[i][j] = rows[j][i] = links
    mismatch = same_topology(rows, "dgx1-v100")
    assert mismatch is not None
    assert mismatch.actual == "as many, but connected differently"


def test_a_gpu_without_links_is_named_first() -> None:
    mismatch = same_topology(matrix(LONE_GPU), "nvswitch-8-nv18")
    assert mismatch is not None
    assert mismatch.actual == "21 × NV18, 7 × none"
    assert mismatch.differences[0] == "GPU2 with 7 × none instead of 7 × NV18"
    assert len(mismatch.differences) == 2 + 7
    assert str(mismatch).startswith("expected nvswitch-8-nv18 (28 × NV18 between 8 GPUs), actual 21 × NV18, 7 × none")
    assert str(mismatch).endswith("; and 5 more")


def test_a_gpu_that_alone_knows_of_its_lost_link_is_no_match() -> None:
    rows = links_of("nvswitch-4-nv18")
    rows[1] = [17, 0, 17, 17]
    mismatch = same_topology(rows, "nvswitch-4-nv18")
    assert mismatch is not None
    assert "GPU0–GPU1 NV18 one way and NV17 the other instead of NV18" in mismatch.differences


def test_another_number_of_gpus_is_no_match() -> None:
    seven = [row[:7] for row in links_of("nvswitch-8-nv18")[:7]]
    assert str(same_topology(seven, "nvswitch-8-nv18")) == "expected 8 GPUs as in nvswitch-8-nv18, actual 7"
    assert str(same_topology([[0]], "dgx1-v100")) == "expected 8 GPUs as in dgx1-v100, actual 1"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "the matrix is empty"),
        ([[]], "row 0 of the matrix has 0 cells for 1 GPUs"),
        ([[0, 18], [18]], "row 1 of the matrix has 1 cells for 2 GPUs"),
        ([[0, 18]], "row 0 of the matrix has 2 cells for 1 GPUs"),
        ([[0, -1], [-1, 0]], "not a list of link counts"),
        ([[18]], "not a list of link counts"),
    ],
)
def test_what_is_no_matrix_neither_matches_nor_fails(rows: Matrix, reason: str) -> None:
    for name in NAMES:
        with pytest.raises(NoTopology, match=reason):
            same_topology(rows, name)


def test_an_unknown_name_has_a_suggestion() -> None:
    with pytest.raises(NoTopology, match=r"no topology 'dgx1-v10'; did you mean 'dgx1-v100'\?"):
        same_topology([[0]], "dgx1-v10")


def test_names_of_gpus_are_the_callers() -> None:
    with pytest.raises(NoTopology, match="1 names for 2 GPUs"):
        same_topology([[0, 1], [1, 0]], "single", ("GPU0",))


PATHS = {("GPU0", "GPU0"): "X", ("GPU0", "GPU1"): "NV4", ("GPU1", "GPU0"): "SYS", ("GPU1", "GPU1"): "X"}


def test_paths_become_numbers_of_links() -> None:
    assert links_between(("GPU0", "GPU1"), PATHS) == ((0, 4), (0, 0))
    assert links_between((), {}) == ()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (None, "has no path from GPU0 to GPU1"),
        ("N/A", "says N/A from GPU0 to GPU1"),
        ("X", "says X from GPU0 to GPU1"),
        ("NV", "says NV from"),
        ("", "says  from"),
    ],
)
def test_a_path_that_says_nothing_is_no_missing_link(path: str | None, reason: str) -> None:
    paths = {key: value for key, value in PATHS.items() if key != ("GPU0", "GPU1")}
    if path is not None:
        paths["GPU0", "GPU1"] = path
    with pytest.raises(NoTopology, match=reason):
        links_between(("GPU0", "GPU1"), paths)


@pytest.mark.parametrize(
    ("topology", "reason"),
    [
        ("nvswitch-8-nv81", "gpu.topology: unknown topology 'nvswitch-8-nv81'; did you mean 'nvswitch-8-nv18'"),
        ("nvswitch-4-nv18", "gpu.topology: nvswitch-4-nv18 joins 4 GPUs, gpu.count says 8"),
    ],
)
def test_an_architecture_names_a_known_graph_of_its_number_of_gpus(topology: str, reason: str) -> None:
    text = architectures.load("virtual-rack").text
    assert "  topology: nvswitch-8-nv18\n" in text
    with pytest.raises(ArchitectureError, match=reason):
        architectures.parse(text.replace("topology: nvswitch-8-nv18", f"topology: {topology}"), "x.yaml")
