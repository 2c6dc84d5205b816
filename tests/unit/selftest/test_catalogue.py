"""The catalogue's files: mistakes in one are one line that names file and fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.errors import SelfTestError
from rackproof.selftest.catalogue import read_catalogue, read_faults

FAULT = "name: a, title: A fault, node: n, check: c.d, change: {command: x, rc: 1}"


def one(fault: str) -> str:
    return f"rack: r\nfaults:\n- {{{fault}}}\n"


def written(folder: Path, text: str, name: str = "gpu.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_anchors_and_single_changes_are_understood(tmp_path: Path) -> None:
    text = f"x-smi: &smi {{command: nvidia-smi, rc: 9}}\nrack: r\nfaults:\n- {{{FAULT}}}\n"
    text += "- {name: b, title: Another, node: n, check: c.d, change: [*smi, *smi]}\n"
    file = read_faults(written(tmp_path, text))
    assert [len(fault.change) for fault in file.faults] == [1, 2]
    assert file.faults[1].change[0].rc == 9


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "gpu.yaml: expected `rack:` and `faults:`, actual NoneType"),
        ("rack: r\nfaults: []\n", "gpu.yaml: faults: Tuple should have at least 1 item"),
        ("rack: [r\n", r"gpu.yaml:\d: "),
        ("rack: r\nfaults:\n- {name: a}\n", "gpu.yaml: a: title: Field required"),
        (one(FAULT.replace("node", "nodes")), "gpu.yaml: a: node: Field required"),
        (one(FAULT.replace("name: a", "name: A b")), "gpu.yaml: A b: name: "),
        (one(FAULT.replace("rc: 1", "rc: 1, truncate: 0.5")), "a: change.0: .*give one of"),
        (one(FAULT.replace(", rc: 1", "")), "a: change.0: .*give one of"),
        (one(FAULT.replace("rc: 1", "drop_lines: '('")), "a: change.0: .*missing \\)"),
        (one(FAULT.replace("rc: 1", "rc: 1, error: gone")), "a: change.0: .*no exit status"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SelfTestError, match=complaint) as caught:
        read_faults(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_two_faults_of_one_name_are_refused_across_files(tmp_path: Path) -> None:
    written(tmp_path, f"rack: r\nfaults:\n- {{{FAULT}}}\n", "a.yaml")
    written(tmp_path, f"rack: r\nfaults:\n- {{{FAULT}}}\n", "b.yaml")
    with pytest.raises(SelfTestError, match=r"b\.yaml: a: a\.yaml has a fault with the same name"):
        read_catalogue(tmp_path)


def test_an_empty_folder_is_no_catalogue(tmp_path: Path) -> None:
    with pytest.raises(SelfTestError, match="no fault files"):
        read_catalogue(tmp_path)
