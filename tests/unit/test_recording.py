"""Recordings survive the way to disk, and a damaged one is refused with its name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rackproof import __version__
from rackproof.core.evidence import canonical
from rackproof.core.node_data import wrong_name
from rackproof.core.rack import Node
from rackproof.errors import RunError
from rackproof.remote.command import CommandResult
from rackproof.remote.recording import SCHEMA, Recording, by_command
from rackproof.remote.recording_folder import COMPRESSED_FROM, read_folder, read_recording, write_recordings
from rackproof.remote.redaction import redacted
from tests.unit.refusals import error_of

NODE = Node("gpu-01", ("gpu",), {"virtual": True, "fabric_addresses": ["10.0.0.1/24"]})
ENDED = CommandResult("gpu-01", "uname -r", 0, b"6.12\n", b"", 0.123, 20.0)
HUNG = CommandResult("gpu-01", "df", None, b"half", b"", 20.5, 20.0, "not finished within 20 s")


def written(*results: CommandResult, node: Node = NODE) -> str:
    return Recording(node, by_command(results)).to_json()


@given(stdout=st.binary(max_size=200), stderr=st.text(max_size=100).map(str.encode), rc=st.integers(0, 255))
def test_every_output_comes_back_byte_for_byte(stdout: bytes, stderr: bytes, rc: int) -> None:
    result = CommandResult("gpu-01", "cat x", rc, stdout, stderr, 0.5, 20.0)
    assume(redacted(result) == result)  # by chance it may look like a secret, and stays out then
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


def changed(change: Callable[[dict[str, Any]], object], stamp: bool = False) -> str:
    """A recording with something changed, and its own sha256 put right when ``stamp``."""
    document = json.loads(written(ENDED, HUNG))
    change(document)
    if stamp:
        document.pop("sha256", None)
        document["sha256"] = hashlib.sha256(canonical(document)).hexdigest()
    return json.dumps(document)


def refusal(text: str, name: str = "rec/gpu-01.json") -> str:
    message = error_of(RunError, Recording.from_json, text, name)
    assert message.startswith(f"{name}: ")
    assert "\n" not in message
    return message.removeprefix(f"{name}: ")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: d.pop("node"), "KeyError: 'node'"),
        (lambda d: d.pop("sha256"), "KeyError: 'sha256'"),
        (lambda d: d.pop("recorded"), "KeyError: 'recorded'"),
        (lambda d: d["commands"][0].pop("rc"), "KeyError: 'rc'"),
        (lambda d: d["commands"][0].update(rc="0"), "rc '0' of 'uname -r'"),
        (lambda d: d["commands"][0].update(rc=None), "needs either an exit status or an error"),
        (lambda d: d["commands"][0].update(command=["uname"]), "TypeError: command ['uname']"),
        (lambda d: d["commands"][0].update(stdout="text"), "output is str"),
        (lambda d: d["commands"][0].update(stdout={"base64": "%"}), "base64"),
        (lambda d: d["commands"][0].update(stdout=[1]), "TypeError"),
        (lambda d: d.update(commands=[1]), "TypeError"),
        (lambda d: d.update(groups=float("nan")), "TypeError"),
        (lambda d: d.update(groups=[5]), "'5' is no name of a node or group"),
        (lambda d: d.update(groups=["gpu", "a\nb"]), "is no name of a node or group"),
        (lambda d: d.update(node="gpu-01\x1b[2K"), "is no name of a node or group"),
        (lambda d: d.update(node=["gpu-01"]), "is no name of a node or group"),
        (lambda d: d.update(node="x" * 5000), "expected a name of at most 200 characters"),
        (lambda d: d["commands"][0].update(elapsed_s="nan"), "'nan' are no seconds"),
        (lambda d: d["commands"][0].update(elapsed_s=float("nan")), "'nan' are no seconds"),
        (lambda d: d["commands"][0].update(timeout_s=-1), "'-1' are no seconds"),
        (lambda d: d["commands"][0].update(timeout_s=True), "'True' are no seconds"),
        (lambda d: d["data"].update(containers="x"), "containers: expected a mapping, actual str"),
        (lambda d: d["data"].update(fabric_addresses=["::1%$(id)"]), "fabric_addresses: expected a list of addresses"),
        (lambda d: d["commands"][0].update(rc=float("nan")), "rc nan of 'uname -r'"),
        (lambda d: d["commands"][0].update(stdout=[float("nan")]), "TypeError"),
    ],
)
def test_a_damaged_recording_is_refused_in_one_line(change: Callable[[dict[str, Any]], object], complaint: str) -> None:
    assert complaint in refusal(changed(change))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda d: d["commands"][0].update(stdout=["6.13\n"]), "sha256 of the output of 'uname -r' does not match"),
        (lambda d: d["commands"][0].pop("stdout"), "sha256 of the output of 'uname -r' does not match"),
        (lambda d: d["commands"][0].pop("stdout_sha256"), "sha256 of the output of 'uname -r' does not match"),
        (lambda d: d["commands"][1].update(stderr=["x"]), "sha256 of the error output of 'df' does not match"),
        (lambda d: d["commands"][0].update(rc=1), "sha256 of the recording does not match"),
        (lambda d: d["commands"][0].update(command="uname"), "sha256 of the recording does not match"),
        (lambda d: d["commands"][1].update(error="another"), "sha256 of the recording does not match"),
        (lambda d: d["commands"].pop(), "sha256 of the recording does not match"),
        (lambda d: d["commands"].reverse(), "sha256 of the recording does not match"),
        (lambda d: d.update(node="gpu-02"), "sha256 of the recording does not match"),
        (lambda d: d["data"].update(virtual=False), "sha256 of the recording does not match"),
        (lambda d: d.update(recorded="2020-01-01T00:00:00Z"), "sha256 of the recording does not match"),
    ],
)
def test_a_recording_that_was_edited_is_refused_and_says_where(
    change: Callable[[dict[str, Any]], object], what: str
) -> None:
    assert refusal(changed(change), "gpu-01.json") == f"edited by hand or damaged: {what}"


def test_an_output_that_was_edited_is_found_even_where_the_whole_was_stamped_again() -> None:
    text = changed(lambda d: d["commands"][0].update(stdout=["6.13\n"]), stamp=True)
    assert refusal(text) == "edited by hand or damaged: sha256 of the output of 'uname -r' does not match"


def test_spacing_and_the_order_of_keys_do_not_matter() -> None:
    document = json.loads(written(ENDED, HUNG))
    text = json.dumps(dict(reversed(document.items())), indent=4, ensure_ascii=True)
    assert Recording.from_json(text, "x").results == {"uname -r": ENDED, "df": HUNG}


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("rackproof.recording/v3", "written by a newer rackproof (rackproof.recording/v3), this one reads v2"),
        ("rackproof.recording/v1", "written by an older rackproof (rackproof.recording/v1), this one reads v2"),
        ("other/v1", "not a recording (expected schema rackproof.recording/v2, actual other/v1)"),
        (None, "not a recording (expected schema rackproof.recording/v2, actual None)"),
        (["x"], "not a recording"),
    ],
)
def test_another_version_is_refused_by_its_name(schema: object, complaint: str) -> None:
    assert complaint in refusal(changed(lambda d: d.update(schema=schema)))


@pytest.mark.parametrize("text", ["", "{]}", "[]", "null", '"x"', "[" * 100_000])
def test_other_files_are_refused(text: str) -> None:
    assert refusal(text).startswith("not ")


@given(st.data())
def test_a_recording_that_was_cut_off_is_refused(data: st.DataObject) -> None:
    text = written(ENDED, HUNG)
    cut = data.draw(st.integers(1, len(text.rstrip()) - 1))
    assert refusal(text[:cut]).startswith(("truncated: ", "not JSON: "))


def test_a_truncated_file_is_reported() -> None:
    text = written(ENDED, HUNG)
    assert refusal(text[: len(text) // 2]).startswith("truncated: the recording ends in line ")


def test_secrets_are_not_written_and_the_sha256_covers_the_written_text() -> None:
    result = CommandResult("gpu-01", "env", 0, b"DB_PASSWORD=hunter2\n", b"token=abcdef\n")
    node = Node("gpu-01", (), {"bmc": ["https://root:calvin@10.0.0.9/"]})
    text = written(result, node=node)
    document = json.loads(text)
    assert not [word for word in ("hunter2", "abcdef", "calvin") if word in text]
    assert document["data"] == {"bmc": ["https://root:‹redacted›@10.0.0.9/"]}
    stored = "".join(document["commands"][0]["stdout"])
    assert stored == "DB_PASSWORD=‹redacted›\n"
    assert document["commands"][0]["stdout_sha256"] == hashlib.sha256(stored.encode()).hexdigest()


def test_the_file_has_its_format_and_origin() -> None:
    text = Recording(NODE, by_command([ENDED]), "2026-01-01T00:00:00Z", "0.1.0").to_json()
    assert list(json.loads(text))[:3] == ["schema", "rackproof", "recorded"]
    assert json.loads(text)["schema"] == SCHEMA
    again = Recording.from_json(text, "x")
    assert (again.recorded, again.rackproof) == ("2026-01-01T00:00:00Z", "0.1.0")


# Files


def test_a_folder_comes_back_as_it_was_written(tmp_path: Path) -> None:
    recordings = [Recording(Node(f"gpu-{k:02d}", ("gpu",)), by_command([ENDED])) for k in (1, 2)]
    assert [path.name for path in write_recordings(tmp_path / "a" / "b", recordings)] == ["gpu-01.json", "gpu-02.json"]
    recording = read_folder(tmp_path / "a" / "b")
    assert [recording.node for recording in recording] == [recording.node for recording in recordings]
    assert recording[0].rackproof == __version__
    assert recording[0].recorded is not None
    assert recording[0].recorded.endswith("Z")


def test_a_large_recording_is_compressed_and_the_same_twice(tmp_path: Path) -> None:
    large = Recording(NODE, by_command([CommandResult("gpu-01", "x", 0, b"line\n" * 300_000)]), "2026-01-01T00:00:00Z")
    small = Recording(NODE, by_command([ENDED]))
    write_recordings(tmp_path, [small])
    (path,) = write_recordings(tmp_path, [large])
    first = path.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["gpu-01.json.gz"]  # the smaller one is gone
    assert len(first) < COMPRESSED_FROM / 10
    assert read_folder(tmp_path) == [large]
    write_recordings(tmp_path, [large])
    assert path.read_bytes() == first
    write_recordings(tmp_path, [small])
    assert [file.name for file in tmp_path.iterdir()] == ["gpu-01.json"]
    path.write_bytes(first[: len(first) // 2])
    with pytest.raises(RunError, match=r"gpu-01\.json\.gz: cannot be read: truncated or damaged: "):
        read_recording(path)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the folder has no recordings"):
        read_folder(tmp_path)
    write_recordings(tmp_path, [Recording(NODE, by_command([ENDED]))])
    (tmp_path / "copy.json").write_bytes((tmp_path / "gpu-01.json").read_bytes())
    with pytest.raises(RunError, match=r"a second recording of gpu-01, besides copy\.json"):
        read_folder(tmp_path)
    (tmp_path / "copy.json").write_bytes(b"\xff")
    with pytest.raises(RunError, match=r"copy\.json: cannot be read"):
        read_folder(tmp_path)
    (tmp_path / "copy.json.gz").write_bytes(b"no gzip")
    with pytest.raises(RunError, match=r"copy\.json\.gz: cannot be read"):
        read_recording(tmp_path / "copy.json.gz")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recordings(tmp_path, [Recording(NODE, by_command([ENDED]))])
    before = (tmp_path / "gpu-01.json").read_bytes()

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(RunError, match="cannot write recordings: No space left on device"):
        write_recordings(tmp_path, [Recording(NODE, by_command([HUNG]))])
    assert (tmp_path / "gpu-01.json").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["gpu-01.json"]


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/x", "..", "@docker/debian:13"])
def test_a_name_leads_no_recording_out_of_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "recordings"
    (path,) = write_recordings(folder, [recording(name)])
    assert path.resolve().parent == folder.resolve()
    if wrong_name(name):
        assert "is no name of a node" in error_of(RunError, read_folder, folder)
    else:
        assert [recorded.node.name for recorded in read_folder(folder)] == [name]
    assert [entry.name for entry in tmp_path.iterdir()] == ["recordings"]


def test_two_names_that_give_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"its file would be that of a/b: a-b\.json"):
        write_recordings(tmp_path, [recording("a/b"), recording("a-b")])


def test_secrets_of_an_inventory_are_left_out_at_any_depth() -> None:
    data = {
        "password": "one", "ssh_key": "two",
        "site": {"password": "three", "port": 1, "deep": [{"api_key": "four", "user": "ann", "tokens": ["five"]}]},
        "node": {"users": [{"name": "ann", "password_from": "VARIABLE"}]},
        "storage_client": {"cephfs": {"secret": {"environment": "CEPH"}}},
        "gpu": {"repository": {"source": "https://a", "key": {"url": "https://a/key", "sha256": "0"}}},
    }  # fmt: skip
    document = json.loads(Recording(Node("n", ("gpu",), data)).to_json())
    assert not any(word in json.dumps(document["data"]) for word in ("one", "two", "three", "four", "five"))
    assert document["data"] == {
        "site": {"port": 1, "deep": [{"user": "ann"}]},
        **{key: data[key] for key in ("node", "storage_client", "gpu")},
    }


def recording(name: str) -> Recording:
    return Recording(Node(name, ("gpu",)), by_command([CommandResult(name, "true", 0, b"")]))
