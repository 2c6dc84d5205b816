from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.core.versions.document import read_versions, require_locked, sealed, to_text, unpinned
from rackproof.errors import VersionSetError
from tests.unit.core.versions.sets import TEXT
from tests.unit.refusals import error_of


def test_a_locked_file_reads_as_the_draft_did() -> None:
    locked = read_versions(sealed(TEXT, "x.yaml"), "x.yaml")
    assert locked.locked
    assert locked.model_copy(update={"digest": None}) == read_versions(TEXT, "x.yaml")


def test_locking_twice_changes_nothing_and_keeps_comments() -> None:
    once = sealed("# ours\n" + TEXT, "x.yaml")
    assert once.startswith("# ours\n")
    assert sealed(once, "x.yaml") == once


def test_comments_may_be_edited_in_a_locked_file() -> None:
    assert read_versions("# seen\n" + sealed(TEXT, "x.yaml"), "x.yaml").locked


def test_an_edited_file_is_refused_with_the_way_out() -> None:
    edited = sealed(TEXT, "x.yaml").replace("libnccl2: 2.30.4-1+cuda13.0", "libnccl2: 2.30.5-1+cuda13.0")
    with pytest.raises(VersionSetError, match=r"^x\.yaml:3: digest: the file was edited .*rackproof versions lock x"):
        read_versions(edited, "x.yaml")


def test_a_draft_is_not_installed_from() -> None:
    with pytest.raises(VersionSetError, match=r"is a draft, not a lock; `rackproof versions lock x\.yaml`"):
        require_locked(read_versions(TEXT, "x.yaml"), "x.yaml")


def test_a_key_without_a_digest_keeps_a_set_a_draft() -> None:
    draft = TEXT.replace(f'sha256: "{"a" * 64}"', "sha256: null")
    assert unpinned(read_versions(draft, "x")) == ("platforms.ubuntu-24.04.repositories.cuda.key.sha256",)
    with pytest.raises(VersionSetError, match="cannot be locked without it"):
        sealed(draft, "x.yaml")


def test_what_is_written_from_a_set_reads_as_the_same_set() -> None:
    versions = read_versions(TEXT, "x")
    assert read_versions(to_text(versions), "y") == versions


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("flavour: open", "flavor: open", "driver.flavor: unknown key; did you mean 'flavour'?"),
        ("flavour: open", "flavour: opened", "driver.flavour: input should be 'open' or 'proprietary'"),
        ("version: 2.30.4, ", "", "nccl.version: required key is missing"),
        ("repository: doca", "repository: dodca", "unknown repository dodca"),
        ("{libnccl2: 2.30.4-1+cuda13.0}", "{libnccl2: 2.30}", "packages.libnccl2: input should be a valid string"),
        ("name: example", "name: example\nname: twice", "is in line 2 already"),
        ("apiVersion: versions/v1", "apiVersion: versions/v2", "apiVersion: input should be 'versions/v1'"),
        ("kind: apt", "kind: [", "not YAML"),
        ("suites: [/]", "suites: []", "an apt repository needs suites"),
        ("https://vendor.example/cuda\n", "ftp://vendor.example/cuda\n", "repositories.cuda.url"),
        ("{cuda-toolkit-13-0: 13.0.2-1}", "{nvidia-open: 1-1}", "nvidia-open belongs to driver already"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(old: str, new: str, says: str) -> None:
    assert old in TEXT
    message = error_of(VersionSetError, read_versions, TEXT.replace(old, new, 1), "my.yaml")
    assert says in message
    assert re.match(r"my\.yaml:\d+: ", message)
    assert "\n" not in message


@given(st.text(max_size=300))
def test_any_other_text_is_refused_in_one_line(text: str) -> None:
    error_of(VersionSetError, read_versions, text, "x.yaml")
