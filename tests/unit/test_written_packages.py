"""Packages of written machines, asked and read by the deploys' own code."""

from __future__ import annotations

import shlex

import pytest
import yaml

from rackproof.configure import facts
from rackproof.remote.written_packages import package_table
from tests.unit.plan.golden import PLANS, ROOT
from tests.unit.test_releases import release_of, section

TABLE = package_table({"kmod": "30+20221128-1", "iproute2": "6.1.0-3"})


@pytest.mark.parametrize("family", ["debian", "rhel"])
@pytest.mark.parametrize("shell", [False, True])
def test_whatever_packages_are_asked_for_are_answered(family: str, shell: bool) -> None:
    question = str(facts.InstalledPackages().command(["kmod", "chrony", "iproute2"], family))
    text = TABLE.answer("sh -c " + shlex.quote(question) if shell else question)
    assert facts.InstalledPackages().process(text.splitlines()) == {"kmod", "iproute2"}
    assert ("package chrony is not installed" in text) is (family == "rhel")


@pytest.mark.parametrize("question", ["rpm -qa", "dpkg-query -W -f='${Maintainer}' -- kmod 2>/dev/null"])
def test_another_question_has_no_answer(question: str) -> None:
    with pytest.raises(ValueError, match=r"a question about packages|no written answer to \$\{Maintainer\}"):
        TABLE.answer(question)


def test_a_package_has_a_version() -> None:
    with pytest.raises(ValueError, match=r"packages\.kmod: expected a version"):
        package_table({"kmod": "latest"})


def test_written_racks_have_what_their_release_has() -> None:
    """Names and versions of the release's own packages; RHEL's column of RELEASES.md has names only."""
    head, *rows = section("Packages")
    of_release = {release: {row[0]: row[index] for row in rows} for index, release in enumerate(head) if index}
    racks = sorted((ROOT / PLANS).glob("*/gpu-01/zz-base.yaml"))
    assert len(racks) == 6
    for path in racks:
        release = release_of(path.parents[1].name)
        (entry,) = [entry for entry in yaml.safe_load(path.read_text()) if "packages" in entry]
        for name, version in entry["packages"].items():
            if release == "RHEL 9":
                assert name in {*of_release[release].values(), "shadow-utils"}
            else:
                assert version.partition(":")[2].startswith(of_release[release][name]) or version.startswith(
                    of_release[release][name]
                ), f"{path.parents[1].name}: {name} {version}, {release} has {of_release[release][name]}"
