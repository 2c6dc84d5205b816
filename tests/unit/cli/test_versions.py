"""``rackproof versions`` and the list of a mirror's items."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from rackproof.cli.versions import versions
from rackproof.core.versions.mirror import merged, of_inputs, of_versions
from rackproof.version_sets import load_versions
from tests.unit.core.versions.sets import TEXT, example


def test_a_set_is_checked_and_locked_in_place(tmp_path: Path) -> None:
    file = tmp_path / "versions.lock.yaml"
    file.write_text(TEXT)
    done = CliRunner().invoke(versions, ["check", str(file)])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (
        0, f"{file}: a draft (downloads without digest: 0), 0 problem(s)",
    )  # fmt: skip
    assert CliRunner().invoke(versions, ["lock", str(file)]).exit_code == 0
    assert load_versions(file).locked


def test_a_contradiction_ends_with_1_and_is_not_locked(tmp_path: Path) -> None:
    file = tmp_path / "v.yaml"
    text = TEXT.replace("fabric_manager: {version: 580.126.20", "fabric_manager: {version: 580.126.16")
    file.write_text(text)
    done = CliRunner().invoke(versions, ["check", str(file)])
    assert done.exit_code == 1
    assert "expected exactly the driver's 580.126.20" in done.output
    assert CliRunner().invoke(versions, ["lock", str(file)]).exit_code == 1
    assert file.read_text() == text


def test_every_package_key_and_file_of_a_set_is_listed() -> None:
    items = merged(of_versions(example()))
    assert [item.kind for item in items if item.kind != "package"] == ["repository", "repository", "key", "key"]
    named = {item.name: item for item in items if item.kind == "package"}
    assert named["libnccl2"].version == "2.30.4-1+cuda13.0"
    assert named["libnccl2"].url == "https://vendor.example/cuda"


def test_urls_of_inputs_are_listed_with_their_digest_and_without_secrets() -> None:
    plain = {
        "weka": {"url": "https://user:word@host.example/install?token=x", "sha256": "c" * 64, "version": "4.4"},
        "repository": {"url": "https://r.example/apt", "key_url": "https://r.example/key", "key_sha256": "d" * 64},
        "nothing": {"url": ""},
        "images": ["registry.example/nccl:1"],
    }
    downloads = {(item.kind, item.url or item.name, item.sha256) for item in of_inputs(plain, "storage_client")}
    assert downloads == {
        ("file", "https://host.example/install", "c" * 64),
        ("repository", "https://r.example/apt", ""),
        ("key", "https://r.example/key", "d" * 64),
        ("image", "registry.example/nccl:1", ""),
    }
