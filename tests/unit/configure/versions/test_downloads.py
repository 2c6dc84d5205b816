"""Files of a version set: only the locked content gets into its place, and what is there is read back."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rackproof.configure.facts import FileStates
from rackproof.configure.files import FileState, parse_states, states_command
from rackproof.configure.versions import operations
from rackproof.configure.versions.downloads import (
    Placed,
    differences,
    placed,
    script,
)
from rackproof.core.versions import Component, Components, Platform
from rackproof.errors import DeclarationError
from tests.unit.configure.stub import StubHost, run
from tests.unit.configure.versions.programs import run_with

CONTENT = b"licence\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def file(tmp_path: Path, content: bytes = CONTENT) -> Placed:
    source = tmp_path / "source"
    source.write_bytes(content)
    return Placed("others.slurm", f"{tmp_path}/etc/vendor/licence", "600", f"file://{source}", DIGEST)


def state(tmp_path: Path, wanted: Placed) -> dict[str, FileState]:
    done = run_with(tmp_path, states_command([wanted.path], []), {})
    assert done.returncode == 0, done.stderr
    return parse_states(done.stdout.splitlines())


def test_a_file_lands_in_its_place_and_is_read_back(tmp_path: Path) -> None:
    wanted = file(tmp_path)
    assert list(differences([wanted], state(tmp_path, wanted)).values()) == [
        f"{wanted.path}: expected sha256 {DIGEST}, actual not there"
    ]
    done = run_with(tmp_path, script([wanted]), {})
    assert done.returncode == 0, done.stderr
    assert Path(wanted.path).read_bytes() == CONTENT
    actual = state(tmp_path, wanted)[wanted.path]
    assert (actual.sha256, actual.mode) == (DIGEST, "600")
    assert differences([wanted], state(tmp_path, wanted)) == {}
    assert sorted(path.name for path in Path(wanted.path).parent.iterdir()) == ["licence"]


def test_another_content_replaces_nothing(tmp_path: Path) -> None:
    wanted = file(tmp_path, b"a page of a captive portal")
    Path(wanted.path).parent.mkdir(parents=True)
    Path(wanted.path).write_bytes(b"as before")
    done = run_with(tmp_path, script([wanted]), {})
    assert done.returncode == 1
    assert f": expected sha256 {DIGEST}, actual " in done.stderr
    assert "; it is not the locked file of others.slurm: " in done.stderr
    assert Path(wanted.path).read_bytes() == b"as before"
    assert sorted(path.name for path in Path(wanted.path).parent.iterdir()) == ["licence"]


def test_a_file_that_cannot_be_fetched_is_named(tmp_path: Path) -> None:
    wanted = file(tmp_path)
    (tmp_path / "source").unlink()
    done = run_with(tmp_path, script([wanted]), {})
    assert done.returncode == 1
    assert "No such file or directory; put the file of others.slurm on the mirror" in done.stderr


def test_a_node_without_curl_uses_wget(tmp_path: Path) -> None:
    wanted = replace(file(tmp_path), url="https://vendor.example/licence")
    bare = (
        "command() { [ $2 = wget ]; }; wget() { :; }; timeout() { shift; cp " + str(tmp_path / "source") + ' "$8"; }\n'
    )
    done = run_with(tmp_path, bare + script([wanted]), {})
    assert done.returncode == 0, done.stderr
    assert Path(wanted.path).read_bytes() == CONTENT


def regular(sha256: str, mode: str) -> FileState:
    return FileState("regular file", mode, "root", "root", sha256)


def test_mode_and_content_are_compared(tmp_path: Path) -> None:
    wanted = file(tmp_path)
    (line,) = differences([wanted], {wanted.path: regular(DIGEST, "644")}).values()
    assert line.endswith("expected mode 600, actual 644")
    (line,) = differences([wanted], {wanted.path: regular("0" * 64, "600")}).values()
    assert f"expected sha256 {DIGEST}, actual 000" in line


def test_a_link_to_the_content_is_not_the_file(tmp_path: Path) -> None:
    wanted = file(tmp_path)
    Path(wanted.path).parent.mkdir(parents=True)
    Path(wanted.path).symlink_to(tmp_path / "source")
    (line,) = differences([wanted], state(tmp_path, wanted)).values()
    assert line.endswith("actual not there")


def component(**changes: Any) -> Component:
    plain = {"url": "https://vendor.example/f/licence", "sha256": DIGEST, "path": "/etc/vendor/licence", **changes}
    return Component.model_validate({"version": "1", "files": [plain]})


def test_files_come_from_the_sites_mirror() -> None:
    (file,) = placed([("cuda", component())], {"https://vendor.example": "http://mirror.site/v"})
    assert file == Placed("cuda", "/etc/vendor/licence", "644", "http://mirror.site/v/f/licence", DIGEST)
    with pytest.raises(
        DeclarationError, match="cuda: /etc/vendor/licence has no sha256; nothing is installed from a draft"
    ):
        placed([("cuda", component(sha256=None))], {})


@pytest.mark.parametrize("path", [None, "etc/x", "/etc/../x", "/etc/x/", "/etc/a b"])
def test_a_file_without_a_plain_place_is_refused(path: str | None) -> None:
    with pytest.raises(ValidationError):
        component(path=path)


def test_two_components_with_one_place_are_refused() -> None:
    with pytest.raises(ValidationError, match="/etc/vendor/licence belongs to cuda already"):
        Platform(components=Components(cuda=component(), nccl=component()))


def at_node(tmp_path: Path, operation: Any, present: Any, executing: bool = True, **more: Any) -> tuple[Any, StubHost]:
    stub = StubHost({FileStates: present}, executing=executing)
    return run(operation, stub, wanted=[file(tmp_path)], **more), stub


def test_operations_place_read_back_and_refuse(tmp_path: Path) -> None:
    wanted = file(tmp_path)
    place, read_back = operations.placed_files, operations.placed_files_read_back
    there = {wanted.path: regular(DIGEST, "600")}
    for operation in (place, read_back):
        commands, stub = at_node(tmp_path, operation, there)
        assert commands == []
        assert stub.noops
        commands, _ = at_node(tmp_path, operation, None)
        assert commands[0].endswith("exit 1")
    ((command,), _) = at_node(tmp_path, place, {}, proxy="http://proxy.site:3128")
    assert "export http_proxy=http://proxy.site:3128" in command
    assert f"rp_file {wanted.path} {DIGEST}" in command  # kept for a rollback
    commands, stub = at_node(tmp_path, read_back, {})
    assert commands[0].endswith("exit 1")
    assert stub.logged[0].startswith(f"not as the version set says: {wanted.path}: expected sha256")
    assert at_node(tmp_path, read_back, {}, executing=False)[0] == []
