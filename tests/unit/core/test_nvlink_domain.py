"""NVLink domains of several nodes: the controller's table of them, and what IMEX reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.core.nvlink_domain import COMMAND, Domain, rendered
from rackproof.parse import ParseError
from rackproof.parse.imex import parse_imex, parse_nodes_config
from rackproof.parse.nvlink_domain import DOMAIN, parse_compared, parse_gpu_domains
from rackproof.remote.collect import RecordingReader, fetch
from rackproof.remote.command import CommandResult
from tests.unit.shell import executable
from tests.unit.test_recording_collect import Shell, Shells, Unreachable

ONE: Domain = ("0f1e2d3c-1111-4222-8333-444455556666", "32766")
TWO: Domain = (ONE[0], "7")
WRITTEN = Path(__file__).parents[2] / "data/written/hgx-h200-roce/gpu-01/gpu"


def test_the_table_of_all_nodes() -> None:
    domains = {"a": frozenset({ONE}), "b": frozenset({ONE, TWO}), "c": frozenset[Domain]()}
    table = rendered(domains)
    assert parse_compared(table) == domains
    for end in range(len(table) - 1):
        with pytest.raises(ParseError):
            parse_compared(table[:end])
    for text in ("not compared\n", "", table.replace("3 nodes", "2 nodes"), table.replace(ONE[0], "N/A")):
        with pytest.raises(ParseError):
            parse_compared(text)


class Tray(Shell):
    """A node whose nvidia-smi prints these lines."""

    def __init__(self, name: str, folder: Path, report: str) -> None:
        super().__init__(name)
        self.folder = folder / name
        self.folder.mkdir()
        (self.folder / "report").write_text(report)
        executable(self.folder / "nvidia-smi", f"cat {self.folder}/report")

    def run(self, command: str, timeout_s: float, stdin: bytes | None = None) -> CommandResult:
        path = f"PATH={self.folder}:$PATH\nexport PATH\n".encode()
        return super().run(command, timeout_s, stdin and path + stdin)


def test_the_controller_compares_the_nodes_that_it_asks_together(tmp_path: Path) -> None:
    """A node that does not answer is not in the table, one without a driver is in no domain."""
    report = f"CliqueId : {ONE[1]}\nClusterUUID : {ONE[0]}\n"
    trays = [Tray("a", tmp_path, report), Tray("b", tmp_path, report), Tray("c", tmp_path, ""), Unreachable("d")]
    readers = {tray.node.name: RecordingReader(tray.node.name, tray, timeout_s=60) for tray in trays}
    fetch(Shells(*trays), readers, {name: [DOMAIN, COMMAND] for name in readers})  # type: ignore[arg-type]
    table = parse_compared(readers["a"].read(COMMAND).stdout)
    assert table == {"a": frozenset({ONE}), "b": frozenset({ONE}), "c": frozenset()}
    assert readers["b"].read(COMMAND).stdout == readers["a"].read(COMMAND).stdout
    assert not readers["d"].has(COMMAND)
    assert readers["a"].misses == 0


def test_the_comparison_is_no_answer_of_a_node() -> None:
    reader = RecordingReader("a", Shell("a"), timeout_s=60)
    with pytest.raises(ParseError, match="were not compared"):
        parse_compared(reader.read(COMMAND).stdout)


def test_gpus_without_a_domain_count() -> None:
    lines = (WRITTEN / "nvlink-domains.txt").read_text()
    assert len(set(parse_gpu_domains(lines))) == 1
    assert len(parse_gpu_domains(lines)) == 8
    assert parse_gpu_domains(lines[: lines.rindex("ClusterUUID")] + "ClusterUUID : N/A\n")[-1] is None


def test_what_imex_reports() -> None:
    text = (WRITTEN / "imex.json").read_text()
    domain = parse_imex(text)
    assert (domain.status, [(node.host, node.status) for node in domain.nodes]) == (
        "UP", [("192.0.2.1", "READY"), ("192.0.2.2", "READY")],
    )  # fmt: skip
    assert domain.nodes[0].connections == {"192.0.2.1": "CONNECTED", "192.0.2.2": "CONNECTED"}
    assert parse_imex(text.replace('"version": "570.172.08"', '"version": null')).nodes[0].version is None
    for end in range(text.rindex("}")):
        with pytest.raises(ParseError):
            parse_imex(text[:end])


def test_the_list_of_imexs_nodes() -> None:
    assert parse_nodes_config("# tray 1\n192.0.2.1\n\nfe80::1\ntray-03 # spare\n") == (
        "192.0.2.1",
        "fe80::1",
        "tray-03",
    )
    for text in ("\n", "# none\n", "two words\n"):
        with pytest.raises(ParseError):
            parse_nodes_config(text)
