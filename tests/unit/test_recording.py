"""Recordings survive the way to disk, and a damaged one is refused with its name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.rack import Node
from rackproof.errors import RunError
from rackproof.remote.command import CommandResult
from rackproof.remote.recording import SCHEMA, Recording, by_command

NODE = Node("gpu-01", ("gpu",), {"virtual": True, "fabric_addresses": ["10.0.0.1/24"]})
ENDED = CommandResult("gpu-01", "uname -r", 0, b"6.12\n", b"", 0.123, 20.0)
HUNG = CommandResult("gpu-01", "df", None, b"half", b"", 20.5, 20.0, "not finished within 20 s")


def written(*results: CommandResult, node: Node = NODE) -> str:
    return Recording(node, by_command(results)).to_json()


@given(stdout=st.binary(max_size=200), stderr=st.text(max_size=100).map(str.encode), rc=st.integers(0, 255))
def test_every_output_comes_back_byte_for_byte(stdout: bytes, stderr: bytes, rc: int) -> None:
    result = CommandResult("gpu-01", "cat x", rc, stdout, stderr, 0.5, 20.0)
    again = Recording.from_json(written(result, HUNG), "x")
    assert again.results == {"cat x": result, "df": HUNG}
    assert again.node == NODE


def test_text_is_kept_readable_line_by_line() -> None:
    document = json.loads(written(CommandResult("gpu-01", "x", 0, "ä\nb".encode())))
    assert document["commands"][0]["stdout"] == ["ä\n", "b"]


def test_access_details_and_secrets_stay_out() -> None:
    data = {"ssh_key": "/k", "ssh_hostname": "h", "_sudo_password": "x", "api_token": "t", "bmc_passwd": "p", "rack": 4}
    document = json.loads(written(ENDED, node=Node("gpu-01", ("gpu",), data)))
    assert document["data"] == {"rack": 4}


def test_the_first_of_two_answers_counts() -> None:
    second = CommandResult("gpu-01", "uname -r", 0, b"7\n")
    assert by_command([ENDED, second])["uname -r"] is ENDED


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: d.update(schema="other/v1"), "expected schema rackproof.recording/v1, actual other/v1"),
        (lambda d: d.pop("node"), "KeyError: 'node'"),
        (lambda d: d["commands"][0].pop("rc"), "KeyError: 'rc'"),
        (lambda d: d["commands"][0].update(rc="0"), "rc '0' of 'uname -r'"),
        (lambda d: d["commands"][0].update(rc=None), "needs either an exit status or an error"),
        (lambda d: d["commands"][0].update(stdout="text"), "output is str"),
        (lambda d: d["commands"][0].update(stdout={"base64": "%"}), "base64"),
        (lambda d: d["commands"][0].update(stdout=[1]), "TypeError"),
        (lambda d: d.update(commands=[1]), "TypeError"),
    ],
)
def test_a_damaged_recording_is_refused_in_one_line(change: object, complaint: str) -> None:
    document = json.loads(written(ENDED))
    change(document)  # type: ignore[operator]
    with pytest.raises(RunError) as refused:
        Recording.from_json(json.dumps(document), "rec/gpu-01.json")
    assert str(refused.value).startswith("rec/gpu-01.json: ")
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"'])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(RunError, match=r"^f: not "):
        Recording.from_json(text, "f")


def test_the_schema_is_named_in_the_file() -> None:
    assert json.loads(written(ENDED))["schema"] == SCHEMA
